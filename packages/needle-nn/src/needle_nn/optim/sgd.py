"""Stochastic gradient descent, with momentum in several forms."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle.autograd import follows_torch
from needle_ndarray import NDArray
from needle_ndarray.extension import depends, repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import Default, Flag, Option, Optional, chosen


class SGD(Optimizer):
    """g' = g + weight_decay p + l1 sign(p);  u = momentum u + (1 - dampening) g';  p -= lr u

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : learning rate
    momentum : in [0, 1); u is a mean of gradients, starting at 0. Without momentum u = g', and nothing is kept
    weight_decay, l1 : penalties weight_decay/2 |p|^2 and l1 |p|
    nesterov : go along momentum u + (1 - dampening) g', where u would be after another step
    unbiased : divide u by 1 - momentum^t, which makes it a mean from the first step on
    dampening : momentum, unless given; 0 is PyTorch's momentum, whose u is a sum, larger by 1 / (1 - momentum), and the default
        within `needle.compat("torch")`
    maximize : go up, along -g
    fused, foreach : PyTorch's; of no effect, a step is one call anyway

    `u` is {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([4.0])
    >>> optimizer = SGD([w], lr=0.5, momentum=0.5)
    >>> for _ in range(2):
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w.tolist(), optimizer.u[w].tolist()
    ([0.0], [4.0])
    """

    states = ("u",)
    in_one_call = elementwise = True
    lr, weight_decay, l1 = Option(), Option(), Option()
    momentum, dampening = Option(below=1), Optional(low=-float("inf"))
    nesterov, unbiased, maximize = Flag(), Flag(), Flag()
    u: dict[Tensor, NDArray]

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = Default(0.01, torch=0.001),
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        nesterov: bool = False,
        unbiased: bool = False,
        l1: float = 0.0,
        dampening: float | None = None,
        maximize: bool = False,
        fused: Any = None,
        foreach: Any = None,
    ) -> None:
        if dampening is None and not unbiased and follows_torch():
            dampening = 0.0
        numbers = {
            "lr": chosen(lr),
            "momentum": momentum,
            "weight_decay": weight_decay,
            "l1": l1,
            "dampening": dampening,
        }
        super().__init__(params, numbers, nesterov=nesterov, unbiased=unbiased, maximize=maximize)
        for group in self.param_groups:
            if group["nesterov"] and group["momentum"] == 0:
                raise ValueError("SGD: nesterov needs a momentum")
            if group["unbiased"] and group["dampening"] is not None:
                raise ValueError("SGD: unbiased goes without dampening")

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return ("u",) if group["momentum"] else ()

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "momentum", "dampening", "nesterov", "unbiased")
        lr, weight_decay, l1, correction = repeat(self._numbers, group)
        nd.sgd_step(
            arrays,
            grads,
            self.state_of("u", params, arrays) if group["momentum"] else None,
            lr=lr,
            momentum=group["momentum"],
            dampening=group["dampening"],
            weight_decay=weight_decay,
            l1=l1,
            nesterov=group["nesterov"],
            correction=correction,
        )

    def _numbers(self, group: dict[str, Any]) -> tuple[float, float, float, float]:
        """What may change from step to step."""
        correction = 1.0
        if group["unbiased"]:
            correction -= group["momentum"] ** (self.t + bool(group["nesterov"]))
        return group["lr"], group["weight_decay"], group["l1"], correction
