"""Learning rates that change with the steps. Make a schedule after its optimizer, and call `step` after the optimizer's."""

import math
from collections.abc import Callable
from typing import Any

from needle_ndarray.extension import repeat
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import count, number
from needle_nn.optim.state import parts


class Schedule:
    """lr = rate(base, t) after t steps, for each group, whose lr was `base` when the schedule was made.

    A subclass writes `rate`. `t` counts the steps, `last_lr` lists the rates of the groups.

    Parameters
    ----------
    optimizer : whose rates are set
    last_epoch : t of the last step made, -1 where none was; then `base` is the `initial_lr` of a group, which the first schedule
        leaves there and the optimizer's state keeps
    """

    t: Any  # whole but after step(epoch) with a fraction

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        what = type(self).__name__
        if not isinstance(optimizer, Optimizer):
            raise TypeError(f"{what}: expected an Optimizer, got {type(optimizer).__name__}")
        self.optimizer, self.t = optimizer, count(what, "last_epoch", last_epoch, -1) + 1
        self.bases = self.last_lr if last_epoch == -1 else self._initial(what, last_epoch)
        if all("lr" in group for group in optimizer.param_groups):
            for group, base in zip(optimizer.param_groups, self.bases, strict=True):
                group.setdefault("initial_lr", base)
        self._apply()

    def _initial(self, what: str, last_epoch: int) -> list[float]:
        for i, group in enumerate(self.optimizer.param_groups):
            if "initial_lr" not in group:
                raise KeyError(
                    f"{what}: last_epoch = {last_epoch}: group {i} has no initial_lr: expected an optimizer with its state loaded,"
                    " or groups that give it"
                )
        return [group["initial_lr"] for group in self.optimizer.param_groups]

    @property
    def last_epoch(self) -> int:
        """`t`, under PyTorch's name"""
        return self.t

    @property
    def base_lrs(self) -> list[float]:
        """`bases`, under PyTorch's name"""
        return self.bases

    def rate(self, base: float, t: int) -> float:
        raise NotImplementedError(f"{type(self).__name__}.rate")

    def step(self, epoch: float | None = None) -> None:
        """Go on to the next learning rate, or to that of an epoch, which may be a fraction."""
        if epoch is None:
            repeat(self._advance)
        else:
            repeat(self._go_to, epoch)

    def _go_to(self, epoch: float) -> None:
        self.t = epoch
        self._apply()

    def get_last_lr(self) -> list[float]:
        """`last_lr`, as a method"""
        return self.last_lr

    def _advance(self) -> None:
        self.t += 1
        self._apply()

    def _apply(self) -> None:
        self._set([self.rate(base, self.t) for base in self.bases])

    @property
    def last_lr(self) -> list[float]:
        groups = self.optimizer.param_groups
        if all("lr" in group for group in groups):
            return [group["lr"] for group in groups]
        if not hasattr(self.optimizer, "lr"):  # as the course writes them, an optimizer may keep it as an attribute
            what = type(self.optimizer).__name__
            raise TypeError(f"{type(self).__name__}: {what} has no learning rate: expected an attribute lr")
        return [number(type(self.optimizer).__name__, "lr", self.optimizer.lr)]

    def _set(self, rates: list[float]) -> None:
        groups = self.optimizer.param_groups
        if all("lr" in group for group in groups):
            for group, rate in zip(groups, rates, strict=True):
                group["lr"] = rate
        else:
            self.optimizer.lr = rates[0]

    def state_dict(self) -> dict[str, Any]:
        return {"t": self.t, "bases": list(self.bases)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the learning rates of the optimizer are set."""
        what = f"{type(self).__name__}.load_state_dict"
        t, bases = parts(what, state, "t", "bases")
        if len(bases) != len(self.bases):
            raise ValueError(f"{what}: {len(bases)} groups, the optimizer has {len(self.bases)}")
        self.t, self.bases = int(t), [float(base) for base in bases]
        self._apply()


class StepLR(Schedule):
    """lr = base gamma^(t // step_size)

    >>> import needle as ndl
    >>> optimizer = ndl.optim.SGD([ndl.Tensor([1.0])], lr=1.0)
    >>> schedule = StepLR(optimizer, step_size=2, gamma=0.5)
    >>> rates = []
    >>> for _ in range(5):
    ...     rates.append(optimizer.lr)
    ...     schedule.step()
    >>> rates
    [1.0, 1.0, 0.5, 0.5, 0.25]
    """

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.step_size, self.gamma = count("StepLR", "step_size", step_size), number("StepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** (t // self.step_size)


class LambdaLR(Schedule):
    """lr = base factor(t)"""

    def __init__(self, optimizer: Optimizer, factor: Callable[[int], float]) -> None:
        if not callable(factor):
            raise TypeError(f"LambdaLR: factor: expected a function, got {type(factor).__name__}")
        self.factor = factor
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        return base * self.factor(t)


def _cosine(start: float, end: float, share: float) -> float:
    """From start to end along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * share)) / 2


class CosineLR(Schedule):
    """lr = min_lr + (base - min_lr) (1 + cos(pi t / total_steps)) / 2, and min_lr after total_steps

    >>> import needle as ndl
    >>> optimizer = ndl.optim.SGD([ndl.Tensor([1.0])], lr=1.0)
    >>> schedule = CosineLR(optimizer, total_steps=2)
    >>> schedule.step(), round(optimizer.lr, 6)
    (None, 0.5)
    """

    def __init__(self, optimizer: Optimizer, total_steps: int, min_lr: float = 0.0) -> None:
        self.total_steps, self.min_lr = (
            count("CosineLR", "total_steps", total_steps),
            number("CosineLR", "min_lr", min_lr),
        )
        super().__init__(optimizer)

    def rate(self, base: float, t: int) -> float:
        return _cosine(base, self.min_lr, min(t / self.total_steps, 1.0))


class WarmupLR(Schedule):
    """lr = base (t + 1) / warmup_steps for t < warmup_steps, then base, or what the schedule `after` says

    >>> import needle as ndl
    >>> optimizer = ndl.optim.SGD([ndl.Tensor([1.0])], lr=1.0)
    >>> schedule = WarmupLR(optimizer, 4, after=StepLR(optimizer, 1, 0.5))
    >>> rates = []
    >>> for _ in range(6):
    ...     rates.append(optimizer.lr)
    ...     schedule.step()
    >>> rates
    [0.25, 0.5, 0.75, 1.0, 1.0, 0.5]
    """

    def __init__(self, optimizer: Optimizer, warmup_steps: int, after: Schedule | None = None) -> None:
        self.warmup_steps, self.after = count("WarmupLR", "warmup_steps", warmup_steps), after
        if after is not None and (not isinstance(after, Schedule) or after.optimizer is not optimizer):
            raise TypeError("WarmupLR: after: expected a Schedule of the same optimizer")
        if isinstance(after, ReduceOnPlateau):
            raise TypeError("WarmupLR: after: ReduceOnPlateau follows a metric, expected a Schedule of the steps")
        super().__init__(optimizer)
        if after is not None:
            self.bases = list(after.bases)  # it has set rates of its own
            self._apply()

    def rate(self, base: float, t: int) -> float:
        if t < self.warmup_steps:
            return base * (t + 1) / self.warmup_steps
        return base if self.after is None else self.after.rate(base, t - self.warmup_steps)


LinearWarmup = WarmupLR


class OneCycleLR(Schedule):
    """lr along a cosine from max_lr / div up to max_lr, then down to max_lr / (div final_div)

    Parameters
    ----------
    optimizer : its own learning rates are not used
    max_lr : the highest rate
    total_steps : length of the cycle; after it, the rate stays where it is
    up : share of the cycle in which the rate rises
    div, final_div : as above
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int,
        up: float = 0.3,
        div: float = 25.0,
        final_div: float = 1e4,
        last_epoch: int = -1,
    ) -> None:
        self.max_lr, self.total_steps = (
            number("OneCycleLR", "max_lr", max_lr),
            count("OneCycleLR", "total_steps", total_steps),
        )
        self.up = number("OneCycleLR", "up", up, 0, math.nextafter(1, 2))
        self.div, self.final_div = number("OneCycleLR", "div", div, 1), number("OneCycleLR", "final_div", final_div, 1)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        start, t = self.max_lr / self.div, min(t, self.total_steps - 1)
        top, last = self.up * self.total_steps - 1, self.total_steps - 1
        if t <= top:
            return self._between(start, self.max_lr, t / top) if top > 0 else self.max_lr
        return self._between(self.max_lr, start / self.final_div, (t - max(top, 0)) / max(last - max(top, 0), 1))

    def _between(self, a: float, b: float, share: float) -> float:
        return _cosine(a, b, share)


class ReduceOnPlateau(Schedule):
    """lr = max(lr factor, min_lr) whenever `step(metric)` has seen no progress more than `patience` times in a row

    Parameters
    ----------
    optimizer : whose rates are reduced
    factor : in [0, 1)
    patience : checks without progress that change nothing
    threshold : progress is to get below best (1 - threshold), or above best (1 + threshold) with mode "max"
    cooldown : checks after a reduction that do not count
    min_lr : lowest rate
    mode : "min" where smaller is better, "max" where larger is

    >>> import needle as ndl
    >>> optimizer = ndl.optim.SGD([ndl.Tensor([1.0])], lr=1.0)
    >>> schedule = ReduceOnPlateau(optimizer, factor=0.5, patience=1)
    >>> for loss in (3.0, 2.0, 2.0, 2.0):
    ...     schedule.step(loss)
    >>> optimizer.lr
    0.5
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        cooldown: int = 0,
        min_lr: float = 0.0,
        mode: str = "min",
    ) -> None:
        what = "ReduceOnPlateau"
        if mode not in ("min", "max"):
            raise ValueError(f"{what}: mode = {mode!r}: expected 'min' or 'max'")
        self.factor, self.threshold = number(what, "factor", factor, 0, 1), number(what, "threshold", threshold)
        self.patience, self.cooldown = count(what, "patience", patience, 0), count(what, "cooldown", cooldown, 0)
        self.min_lr, self.mode = number(what, "min_lr", min_lr), mode
        self.best, self.waited, self.cooling = math.inf if mode == "min" else -math.inf, 0, 0
        super().__init__(optimizer)

    def _apply(self) -> None:
        """The rates are the optimizer's own."""

    def step(self, metric: Any = None) -> None:
        """Look at one more value of the metric, and reduce the rates if it is time."""
        if metric is None:
            raise TypeError("ReduceOnPlateau.step: expected the value of a metric")
        value, self.t = float(metric), self.t + 1
        limit = self._limit(-self.threshold if self.mode == "min" else self.threshold)
        if value < limit if self.mode == "min" else value > limit:
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.cooling:
            self.cooling, self.waited = self.cooling - 1, 0
        if self.waited > self.patience:
            self.waited, self.cooling = 0, self.cooldown
            self._set([self._reduced(rate) for rate in self.last_lr])

    def _reduced(self, rate: float) -> float:
        return max(rate * self.factor, self.min_lr)

    def _limit(self, threshold: float) -> float:
        """What a metric has to get past to be progress."""
        return self.best * (1 + threshold)

    def state_dict(self) -> dict[str, Any]:
        return {**super().state_dict(), "best": self.best, "waited": self.waited, "cooling": self.cooling}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from there; the learning rates are in the state of the optimizer."""
        best, waited, cooling = parts("ReduceOnPlateau.load_state_dict", state, "best", "waited", "cooling")
        super().load_state_dict(state)
        self.best, self.waited, self.cooling = float(best), int(waited), int(cooling)
