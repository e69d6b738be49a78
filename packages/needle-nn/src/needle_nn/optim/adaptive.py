"""RMSprop, Adagrad and Adadelta: a learning rate for each element, by the squares of its gradients."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import depends, repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import Flag, Option


def _penalised(p: NDArray, g: NDArray, weight_decay: float) -> NDArray:
    return g + p * weight_decay if weight_decay else g


class RMSprop(Optimizer):
    """v = alpha v + (1 - alpha) g'^2;  p -= lr g' / (sqrt(v) + eps), with g' = g + weight_decay p

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : learning rate
    alpha : in [0, 1), weight of the past in the mean of squares
    eps : added to the root
    weight_decay : penalty weight_decay/2 |p|^2
    momentum : u = momentum u + g' / (sqrt(v) + eps);  p -= lr u
    centered : the variance v - mean^2 in place of v, with mean = alpha mean + (1 - alpha) g'
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    `v`, `u` and `mean` are {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = RMSprop([w], lr=0.25, alpha=0.75)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -99.5]
    """

    states = ("v", "u", "mean")
    elementwise = True
    lr, eps, weight_decay = Option(), Option(), Option()
    alpha, momentum = Option(below=1), Option(below=1)
    centered, maximize = Flag(), Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        alpha: float = 0.99,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        momentum: float = 0.0,
        centered: bool = False,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        numbers = {"lr": lr, "alpha": alpha, "eps": eps, "weight_decay": weight_decay, "momentum": momentum}
        super().__init__(params, numbers, centered=centered, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("v", *(["mean"] if group["centered"] else []), *(["u"] if group["momentum"] else []))

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "alpha", "eps", "weight_decay", "momentum", "centered")
        alpha, lr = group["alpha"], repeat(self._rate, group)
        for key, p, g in zip(params, arrays, grads, strict=True):
            g = _penalised(p, g, group["weight_decay"])
            (v,) = self.state_of("v", [key], [p])
            nd.accumulate(v, g * g, alpha, 1 - alpha)
            square = v
            if group["centered"]:
                (mean,) = self.state_of("mean", [key], [p])
                nd.accumulate(mean, g, alpha, 1 - alpha)
                square = v - mean * mean
            step = g / (square.sqrt() + group["eps"])
            if group["momentum"]:
                (u,) = self.state_of("u", [key], [p])
                u *= group["momentum"]
                u += step
                step = u
            p -= step * lr

    def _rate(self, group: dict[str, Any]) -> float:
        return group["lr"]


class Adagrad(Optimizer):
    """s = s + g'^2;  p -= lr / (1 + (t - 1) lr_decay) g' / (sqrt(s) + eps), with g' = g + weight_decay p, after t steps

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr, lr_decay : learning rate, and how it decays
    weight_decay : penalty weight_decay/2 |p|^2
    initial, initial_accumulator_value : where s starts
    eps : added to the root
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    `s` is {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = Adagrad([w], lr=0.5)
    >>> (w * w).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [0.5, -99.5]
    """

    states = ("s",)
    elementwise = True
    lr, lr_decay, weight_decay, initial, eps = Option(), Option(), Option(), Option(), Option()
    maximize = Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial: float = 0.0,
        eps: float = 1e-10,
        foreach: Any = None,
        maximize: bool = False,
        *,
        initial_accumulator_value: float | None = None,
    ) -> None:
        initial = initial if initial_accumulator_value is None else initial_accumulator_value
        numbers = {"lr": lr, "lr_decay": lr_decay, "weight_decay": weight_decay, "initial": initial, "eps": eps}
        super().__init__(params, numbers, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "eps", "weight_decay", "initial")
        lr = repeat(self._rate, group)
        for p, g, s in zip(arrays, grads, self.state_of("s", params, arrays, group["initial"]), strict=True):
            g = _penalised(p, g, group["weight_decay"])
            s += g * g
            p -= g / (s.sqrt() + group["eps"]) * lr

    def _rate(self, group: dict[str, Any]) -> float:
        return group["lr"] / (1 + (self.t - 1) * group["lr_decay"])


class Adadelta(Optimizer):
    """v = rho v + (1 - rho) g'^2;  d = sqrt(a + eps) / sqrt(v + eps) g';  a = rho a + (1 - rho) d^2;  p -= lr d

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : factor of the steps, whose size follows from those before
    rho : in [0, 1), weight of the past in the means of squares
    eps : added below the roots
    weight_decay : penalty weight_decay/2 |p|^2, through g' = g + weight_decay p
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    `v` and `a` are {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0])
    >>> optimizer = Adadelta([w], eps=1.0, rho=0.0)
    >>> (w * 0).sum().backward()
    >>> optimizer.step()
    >>> w.tolist()
    [1.0]
    """

    states = ("v", "a")
    lr, eps, weight_decay = Option(), Option(), Option()
    rho = Option(below=1)
    maximize = Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1.0,
        rho: float = 0.9,
        eps: float = 1e-6,
        weight_decay: float = 0.0,
        foreach: Any = None,
        *,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, rho=rho, eps=eps, weight_decay=weight_decay, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "rho", "eps", "weight_decay")
        rho, eps, lr = group["rho"], group["eps"], repeat(self._rate, group)
        states = self.state_of("v", params, arrays), self.state_of("a", params, arrays)
        for p, g, v, a in zip(arrays, grads, *states, strict=True):
            g = _penalised(p, g, group["weight_decay"])
            nd.accumulate(v, g * g, rho, 1 - rho)
            step = (a + eps).sqrt() / (v + eps).sqrt() * g
            nd.accumulate(a, step * step, rho, 1 - rho)
            p -= step * lr

    def _rate(self, group: dict[str, Any]) -> float:
        return group["lr"]
