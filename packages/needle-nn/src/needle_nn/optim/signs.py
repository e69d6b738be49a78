"""Rprop and ASGD: steps by the sign of a gradient, and an average of the parameters that the steps go through."""

from collections.abc import Iterable
from typing import Any

import needle_ndarray as nd
from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import depends, repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import Flag, Option, Optional, Pair


class Rprop(Optimizer):
    """p -= size sign(g): size grows by etas[1] while g keeps its sign, shrinks by etas[0] where it turns, which skips that step

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr : the first size of every element
    etas : how a size shrinks and grows
    step_sizes : the smallest and the largest size
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    For gradients of all the data: their signs say little where they come from batches. `before`, the last gradient, and `size`
    are {parameter: NDArray}.

    >>> import needle as ndl
    >>> w = ndl.Tensor([1.0, -100.0])
    >>> optimizer = Rprop([w], lr=0.5)
    >>> for _ in range(2):
    ...     optimizer.reset_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> [round(x, 3) for x in w.tolist()]
    [-0.1, -98.9]
    """

    states = ("before", "size")
    elementwise = True
    lr, etas, step_sizes, maximize = Option(), Pair(), Pair(), Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        etas: Any = (0.5, 1.2),
        step_sizes: Any = (1e-6, 50.0),
        *,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, etas=etas, step_sizes=step_sizes, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "etas", "step_sizes")
        (shrink, grow), (least, most) = group["etas"], group["step_sizes"]
        sizes = self.state_of("size", params, arrays, group["lr"])
        for p, g, before, size in zip(arrays, grads, self.state_of("before", params, arrays), sizes, strict=True):
            turn = nd.sign(g * before)
            turned, kept = nd.less(turn, 0.0), nd.greater(turn, 0.0)
            size[...] = nd.clip(nd.where(turned, size * shrink, nd.where(kept, size * grow, size)), least, most)
            before[...] = nd.where(turned, 0.0, g)
            p -= nd.sign(before) * size


class ASGD(Optimizer):
    """p = (1 - lambd eta) p - eta g';  ax = ax + mu (p - ax): the average of p from t0 on, with g' = g + weight_decay p

    with eta = lr / (1 + lambd lr t)^alpha and mu = 1 / max(1, t - t0) of the step before.

    Parameters
    ----------
    params : Tensors, or groups of them with numbers of their own
    lr, lambd, alpha : learning rate, and how it decays
    t0 : the step at which the average begins
    weight_decay : penalty weight_decay/2 |p|^2
    foreach : PyTorch's; of no effect
    maximize : go up, along -g

    `ax` is {parameter: NDArray}, and `eta` of a group the rate of its next step.

    >>> import needle as ndl
    >>> w = ndl.Tensor([4.0])
    >>> optimizer = ASGD([w], lr=0.25, lambd=0.0, t0=0)
    >>> for _ in range(3):
    ...     optimizer.reset_grad()
    ...     (w * w).sum().backward()
    ...     optimizer.step()
    >>> w.tolist(), optimizer.ax[w].tolist()
    ([0.5], [0.75])
    """

    states = ("ax",)
    elementwise = True
    lr, lambd, alpha, weight_decay = Option(), Option(), Option(), Option()
    t0, eta, maximize = Option(), Optional(), Flag()

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 0.01,
        lambd: float = 1e-4,
        alpha: float = 0.75,
        t0: float = 1e6,
        weight_decay: float = 0.0,
        foreach: Any = None,
        maximize: bool = False,
    ) -> None:
        numbers = {"lr": lr, "lambd": lambd, "alpha": alpha, "t0": t0, "weight_decay": weight_decay}
        super().__init__(params, numbers, eta=None, maximize=maximize)

    def fills(self, group: dict[str, Any]) -> tuple[str, ...]:
        return self.states

    def update(self, group: dict[str, Any], params: list[Tensor], arrays: list[NDArray], grads: list[NDArray]) -> None:
        depends(group, "weight_decay")
        eta, kept, past, take = repeat(self._numbers, group)
        for p, g, ax in zip(arrays, grads, self.state_of("ax", params, arrays), strict=True):
            g = g + p * group["weight_decay"] if group["weight_decay"] else g
            p *= kept
            p -= g * eta
            nd.accumulate(ax, p, past, take)

    def _numbers(self, group: dict[str, Any]) -> tuple[float, ...]:
        """What may change from step to step."""
        lr, lambd = group["lr"], group["lambd"]
        eta = lr if group["eta"] is None else group["eta"]
        group["eta"] = lr / (1 + lambd * lr * self.t) ** group["alpha"]
        take = 1 / max(1.0, self.t - 1 - group["t0"])
        return eta, 1 - lambd * eta, 1 - take, take
