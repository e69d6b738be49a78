"""Adam and AdamW."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import Default, Flag, Option, both_betas, chosen


class Adam(Optimizer):
    """g' = g + weight_decay p;  m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g'^2;
    p -= lr m^ / (sqrt(v^) + eps), with m^ = m / (1 - beta1^t) and v^ = v / (1 - beta2^t) after t steps

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : learning rate, about how far a parameter moves in a step; 0.001 by default within `needle.compat("torch")`
    beta1, beta2 : in [0, 1), weights of the past in the means of gradients and of their squares
    betas : both of them, as in PyTorch
    eps : added to the root of the mean square
    weight_decay : penalty weight_decay/2 |p|^2, through the gradient
    amsgrad : divide by the root of the largest v so far
    maximize : go up, along -g
    fused, foreach : PyTorch's; of no effect, a step is one call anyway

    `m` and `v` are {parameter: NDArray}, `t` counts the steps of all parameters.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = Adam([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -99.5]
    """

    states: tuple[str, ...] = ("m", "v")
    in_one_call = elementwise = True
    lr, eps, weight_decay, maximize = Option(), Option(), Option(), Flag()
    beta1, beta2 = Option(below=1), Option(below=1)
    decoupled = False
    amsgrad = False
    m: dict[Tensor, NDArray]
    v: dict[Tensor, NDArray]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = Default(0.01, torch=0.001),
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        betas: Any = None,
        amsgrad: bool = False,
        maximize: bool = False,
        fused: Any = None,
        foreach: Any = None,
    ) -> None:
        if amsgrad:
            self.amsgrad, self.in_one_call, self.states = True, False, ("m", "v", "largest")
            self.largest: dict[Tensor, NDArray] = {}
        beta1, beta2 = both_betas(type(self).__name__, beta1, beta2, betas)
        numbers = {"lr": chosen(lr), "beta1": beta1, "beta2": beta2, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, numbers, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = repeat(self._numbers, group)
        if self.amsgrad:
            self._update_by_largest(group, params, arrays, grads)
            return
        nd.adam_step(
            arrays,
            grads,
            self.state_of("m", params, arrays),
            self.state_of("v", params, arrays),
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            eps=eps,
            weight_decay=weight_decay,
            decoupled=self.decoupled,
            correction1=correction1,
            correction2=correction2,
        )

    def _update_by_largest(
        self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]
    ) -> None:
        lr, beta1, beta2, eps, weight_decay, correction1, correction2 = repeat(self._numbers, group)
        states = [self.state_of(name, params, arrays) for name in self.states]
        for p, g, m, v, largest in zip(arrays, grads, *states, strict=True):
            if self.decoupled:
                p -= p * (lr * weight_decay)
            elif weight_decay:
                g = g + p * weight_decay
            nd.accumulate(m, g, beta1, 1 - beta1)
            nd.accumulate(v, g * g, beta2, 1 - beta2)
            largest[...] = nd.maximum(largest, v)
            p -= m * (lr / correction1) / ((largest / correction2).sqrt() + eps)

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """What may change from step to step."""
        beta1, beta2 = group["beta1"], group["beta2"]
        corrections = 1 - beta1**self.t, 1 - beta2**self.t
        return group["lr"], beta1, beta2, group["eps"], group["weight_decay"], *corrections


class AdamW(Adam):
    """Adam with g' = g, and p -= lr weight_decay p before each step: the penalty is not divided by sqrt(v^)

    Parameters
    ----------
    params, lr, beta1, beta2, eps, betas, amsgrad, maximize : as for Adam
    weight_decay : share of p, times lr, that a step takes away

    >>> import needle as ndl
    >>> w = ndl.Tensor([8.0])
    >>> optimizer = AdamW([w], lr=0.5, weight_decay=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [5.5]
    """

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = Default(0.01, torch=0.001),
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        *,
        betas: Any = None,
        amsgrad: bool = False,
        maximize: bool = False,
        fused: Any = None,
        foreach: Any = None,
    ) -> None:
        more: dict[str, Any] = {"betas": betas, "amsgrad": amsgrad, "maximize": maximize}
        super().__init__(params, lr, beta1, beta2, eps, weight_decay, **more)
