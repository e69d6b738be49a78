"""Schedules with PyTorch's names and arguments; those of Needle are in `needle.optim`.

>>> import needle as ndl
>>> optimizer = ndl.optim.SGD([ndl.Tensor([1.0])], lr=1.0)
>>> schedule = SequentialLR(optimizer, [ConstantLR(optimizer, 0.5, 2), ExponentialLR(optimizer, 0.1)], milestones=[2])
>>> rates = []
>>> for _ in range(4):
...     rates.append(round(optimizer.lr, 6))
...     schedule.step()
>>> rates
[0.5, 0.5, 1.0, 0.1]
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

from needle_nn import absent
from needle_nn.optim import schedules
from needle_nn.optim.optimizer import Optimizer
from needle_nn.optim.options import count, number
from needle_nn.optim.schedules import ReduceOnPlateau, Schedule, StepLR

__all__ = [
    "ChainedScheduler",
    "ConstantLR", "CosineAnnealingLR", "CosineAnnealingWarmRestarts", "CyclicLR", "ExponentialLR", "LRScheduler", "LambdaLR",
    "LinearLR",
    "MultiStepLR", "MultiplicativeLR", "OneCycleLR", "PolynomialLR", "ReduceLROnPlateau", "SequentialLR", "StepLR",
]  # fmt: skip

LRScheduler = Schedule


class MultiStepLR(Schedule):
    """lr = base gamma^n, n the number of milestones that t has reached"""

    def __init__(
        self, optimizer: Optimizer, milestones: Sequence[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones = [count("MultiStepLR", f"milestone {i}", m, 0) for i, m in enumerate(milestones)]
        self.gamma = number("MultiStepLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma ** sum(m <= t for m in self.milestones)


class ExponentialLR(Schedule):
    """lr = base gamma^t"""

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = number("ExponentialLR", "gamma", gamma)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.gamma**t


class LambdaLR(Schedule):
    """lr = base lr_lambda(t); a list has a function for each group"""

    def __init__(
        self,
        optimizer: Optimizer,
        lr_lambda: Callable[[int], float] | Sequence[Callable[[int], float]],
        last_epoch: int = -1,
    ) -> None:
        given: Any = lr_lambda
        self.functions = list(given) if isinstance(given, (list, tuple)) else [given] * len(optimizer.param_groups)
        for function in self.functions:
            if not callable(function):
                raise TypeError(f"LambdaLR: lr_lambda: expected a function, got {type(function).__name__}")
        if len(self.functions) != len(optimizer.param_groups):
            raise ValueError(
                f"LambdaLR: {len(self.functions)} functions for {len(optimizer.param_groups)} groups of parameters"
            )
        super().__init__(optimizer, last_epoch)

    def _apply(self) -> None:
        self._set([base * function(self.t) for base, function in zip(self.bases, self.functions, strict=True)])

    def rate(self, base: float, t: int) -> float:
        return base * self.functions[0](t)


class MultiplicativeLR(LambdaLR):
    """lr = base f(1) f(2) ... f(t), f = lr_lambda; a list has a function for each group"""

    def _apply(self) -> None:
        self._set(
            [
                base * math.prod(map(function, range(1, self.t + 1)))
                for base, function in zip(self.bases, self.functions, strict=True)
            ]
        )


class CyclicLR(Schedule):
    """lr from base_lr to max_lr in step_size_up steps and back in step_size_down, again and again; the height halves with
    "triangular2" and is gamma^t with "exp_range"

    Parameters
    ----------
    optimizer : whose lr it sets
    base_lr, max_lr : the lowest and the highest rate
    step_size_up, step_size_down : how many steps it rises and falls; the same, unless given
    mode, gamma : what becomes of the height
    scale_fn, scale_mode : a function for the height instead, of the cycle ("cycle") or of t ("iterations")
    cycle_momentum : whether `momentum`, or beta1, goes from max_momentum down to base_momentum meanwhile
    base_momentum, max_momentum : its bounds
    """

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: float,
        max_lr: float,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[int], float] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        if mode not in ("triangular", "triangular2", "exp_range"):
            raise ValueError(f"CyclicLR: mode {mode!r}: expected 'triangular', 'triangular2' or 'exp_range'")
        if scale_mode not in ("cycle", "iterations"):
            raise ValueError(f"CyclicLR: scale_mode {scale_mode!r}: expected 'cycle' or 'iterations'")
        self.low, self.high = number("CyclicLR", "base_lr", base_lr), number("CyclicLR", "max_lr", max_lr)
        self.up = count("CyclicLR", "step_size_up", step_size_up)
        self.down = self.up if step_size_down is None else count("CyclicLR", "step_size_down", step_size_down)
        self.mode, self.gamma = mode, number("CyclicLR", "gamma", gamma)
        self.scale_fn, self.scale_mode = scale_fn, scale_mode
        self.momenta = _momenta("CyclicLR", optimizer, base_momentum, max_momentum) if cycle_momentum else None
        super().__init__(optimizer, last_epoch)

    def _height(self, t: int) -> float:
        """Where t is between the lowest rate, 0, and the highest, times what has become of the height."""
        cycle, at = divmod(t, self.up + self.down)
        share = at / self.up if at <= self.up else (self.up + self.down - at) / self.down
        if self.scale_fn is not None:
            return share * self.scale_fn(cycle + 1 if self.scale_mode == "cycle" else t)
        return share * {"triangular": 1.0, "triangular2": 0.5**cycle, "exp_range": self.gamma**t}[self.mode]

    def rate(self, base: float, t: int) -> float:
        return self.low + (self.high - self.low) * self._height(t)

    def _apply(self) -> None:
        super()._apply()
        if self.momenta is not None:
            name, low, high = self.momenta
            for group in self.optimizer.param_groups:
                group[name] = high - (high - low) * self._height(self.t)


def _momenta(what: str, optimizer: Optimizer, low: float, high: float) -> tuple[str, float, float]:
    """The name of an optimizer's momentum, and the bounds between which it goes."""
    names = [name for name in ("momentum", "beta1") if name in optimizer.param_groups[0]]
    if not names:
        raise ValueError(f"{what}: {type(optimizer).__name__} has no momentum: expected cycle_momentum=False")
    return names[0], number(what, "base_momentum", low), number(what, "max_momentum", high)


class LinearLR(Schedule):
    """lr = base f, f from start_factor to end_factor along a line in total_iters steps"""

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        self.start = number("LinearLR", "start_factor", start_factor)
        self.end = number("LinearLR", "end_factor", end_factor)
        self.total = count("LinearLR", "total_iters", total_iters, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        share = min(t / self.total, 1.0) if self.total else 1.0
        return base * (self.start + (self.end - self.start) * share)


class ConstantLR(Schedule):
    """lr = base factor for total_iters steps, then base"""

    def __init__(self, optimizer: Optimizer, factor: float = 1 / 3, total_iters: int = 5, last_epoch: int = -1) -> None:
        self.factor = number("ConstantLR", "factor", factor)
        self.total = count("ConstantLR", "total_iters", total_iters, 0)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * self.factor if t < self.total else base


class PolynomialLR(Schedule):
    """lr = base (1 - min(t / total_iters, 1))^power"""

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.total, self.power = (
            count("PolynomialLR", "total_iters", total_iters),
            number("PolynomialLR", "power", power),
        )
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return base * (1 - min(t / self.total, 1.0)) ** self.power


class CosineAnnealingLR(Schedule):
    """lr = eta_min + (base - eta_min) (1 + cos(pi t / T_max)) / 2: up again after T_max; `CosineLR` stays down"""

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.half = count("CosineAnnealingLR", "T_max", T_max)
        self.low = number("CosineAnnealingLR", "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        return self.low + (base - self.low) * (1 + math.cos(math.pi * t / self.half)) / 2


class CosineAnnealingWarmRestarts(Schedule):
    """lr from base down to eta_min along half a cosine, again and again: in T_0 steps, then in T_0 T_mult, and so on"""

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        what = "CosineAnnealingWarmRestarts"
        self.first, self.times = count(what, "T_0", T_0), count(what, "T_mult", T_mult)
        self.low = number(what, "eta_min", eta_min)
        super().__init__(optimizer, last_epoch)

    def rate(self, base: float, t: int) -> float:
        length = self.first
        if self.times == 1:
            t %= length
        while t >= length:
            t, length = t - length, length * self.times
        return self.low + (base - self.low) * (1 + math.cos(math.pi * t / length)) / 2


class SequentialLR(Schedule):
    """One schedule after the other, each from its beginning: the next one at every milestone"""

    def __init__(self, optimizer: Optimizer, schedulers: Sequence[Schedule], milestones: Sequence[int]) -> None:
        self.milestones = [count("SequentialLR", f"milestone {i}", m) for i, m in enumerate(milestones)]
        self.schedules = list(schedulers)
        if len(self.schedules) != len(self.milestones) + 1:
            raise ValueError(
                f"SequentialLR: {len(self.schedules)} schedules and {len(self.milestones)} milestones: expected one less"
            )
        for schedule in self.schedules:
            if not isinstance(schedule, Schedule) or schedule.optimizer is not optimizer:
                raise TypeError("SequentialLR: expected Schedules of the same optimizer")
            if isinstance(schedule, ReduceOnPlateau):
                raise TypeError("SequentialLR: ReduceLROnPlateau follows a metric, expected Schedules of the steps")
            if isinstance(schedule, LambdaLR) and len(set(schedule.functions)) > 1:
                raise TypeError("SequentialLR: expected a LambdaLR of one function for all groups")
        self._start = self.schedules[0].bases
        super().__init__(optimizer)
        self.bases = list(self._start)  # they have set rates of their own
        self._apply()

    def rate(self, base: float, t: int) -> float:
        at = sum(m <= t for m in self.milestones)
        return self.schedules[at].rate(base, t - (self.milestones[at - 1] if at else 0))


class ChainedScheduler(Schedule):
    """Several schedules at once: lr = base times the factor of each; of those that are factors of the rate before"""

    def __init__(self, schedulers: Sequence[Schedule], optimizer: Optimizer | None = None) -> None:
        self.schedules = list(schedulers)
        if not self.schedules:
            raise ValueError("ChainedScheduler: no schedules")
        optimizer = self.schedules[0].optimizer if optimizer is None else optimizer
        for schedule in self.schedules:
            if not isinstance(schedule, _FACTORS) or schedule.optimizer is not optimizer:
                names = ", ".join(kind.__name__ for kind in _FACTORS)
                raise TypeError(f"ChainedScheduler: {type(schedule).__name__}: expected {names} of one optimizer")
        self._start = self.schedules[0].bases
        super().__init__(optimizer)
        self.bases = list(self._start)  # they have set rates of their own
        self._apply()

    def rate(self, base: float, t: int) -> float:
        return math.prod([schedule.rate(1.0, t) for schedule in self.schedules], start=base)


_FACTORS = (ConstantLR, LinearLR, ExponentialLR, StepLR, MultiStepLR, MultiplicativeLR, PolynomialLR)


class OneCycleLR(schedules.OneCycleLR):
    """`needle.optim.OneCycleLR`, with the momentum along a cosine from max_momentum down to base_momentum, and up again

    Parameters
    ----------
    max_lr : the highest rate
    total_steps, epochs, steps_per_epoch : length of the cycle, or the two factors of it
    pct_start : share of the cycle in which the rate rises
    anneal_strategy : "cos", or "linear": straight lines instead of the cosine
    cycle_momentum : whether `momentum`, or beta1, is changed
    base_momentum, max_momentum : its bounds
    div_factor, final_div_factor : the rate starts at max_lr / div_factor and ends at that / final_div_factor
    three_phase : down to where it started in as many steps as up, and only then to the end
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float = 0.85,
        max_momentum: float = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        if anneal_strategy not in ("cos", "linear"):
            raise ValueError(f"OneCycleLR: anneal_strategy {anneal_strategy!r}: expected 'cos' or 'linear'")
        self.linear = anneal_strategy == "linear"
        if total_steps is None:
            total_steps = count("OneCycleLR", "epochs", epochs) * count(
                "OneCycleLR", "steps_per_epoch", steps_per_epoch
            )
        self.momenta = _momenta("OneCycleLR", optimizer, base_momentum, max_momentum) if cycle_momentum else None
        self.three_phase = bool(three_phase)
        super().__init__(optimizer, max_lr, total_steps, pct_start, div_factor, final_div_factor, last_epoch)

    def _apply(self) -> None:
        super()._apply()
        if self.momenta is None:
            return
        name, low, high = self.momenta
        for group in self.optimizer.param_groups:
            group[name] = self._momentum(low, high)

    def rate(self, base: float, t: int) -> float:
        if not self.three_phase:
            return super().rate(base, t)
        start = self.max_lr / self.div
        return self._through(t, start, self.max_lr, start, start / self.final_div)

    def _through(self, t: int, *values: float) -> float:
        """From each of four values to the next, in the three phases."""
        last = self.total_steps - 1
        ends = [0, max(self.up * self.total_steps - 1, 0), max(2 * self.up * self.total_steps - 2, 0), last]
        i = 0 if t <= ends[1] else 1 if t <= ends[2] else 2
        long = ends[i + 1] - ends[i]
        return self._between(values[i], values[i + 1], (min(t, last) - ends[i]) / long if long > 0 else 1.0)

    def _momentum(self, low: float, high: float) -> float:
        """High at both ends of the cycle, low where the rate is highest."""
        if self.three_phase:
            return self._through(self.t, high, low, high, high)
        t, top = min(self.t, self.total_steps - 1), max(self.up * self.total_steps - 1, 0)
        share = t / top if t <= top and top > 0 else 1 - (t - top) / max(self.total_steps - 1 - top, 1)
        return self._between(high, low, share)

    def _between(self, a: float, b: float, share: float) -> float:
        return a + (b - a) * share if self.linear else super()._between(a, b, share)


class ReduceLROnPlateau(ReduceOnPlateau):
    """`needle.optim.ReduceOnPlateau` with PyTorch's order of arguments

    Parameters
    ----------
    mode, factor, patience, threshold, cooldown, min_lr : as there
    threshold_mode : "rel", or "abs": progress is to get below best - threshold, or above best + threshold
    eps : a change of the rate that is no larger is not made
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: float = 0.0,
        eps: float = 1e-8,
    ) -> None:
        if threshold_mode not in ("rel", "abs"):
            raise ValueError(f"ReduceLROnPlateau: threshold_mode {threshold_mode!r}: expected 'rel' or 'abs'")
        self.eps = number("ReduceLROnPlateau", "eps", eps)
        self.absolute = threshold_mode == "abs"
        super().__init__(optimizer, factor, patience, threshold, cooldown, min_lr, mode)

    def step(self, metrics: Any = None) -> None:
        """Look at one more value of the metric, and reduce the rates if it is time."""
        super().step(metrics)

    def _reduced(self, rate: float) -> float:
        reduced = super()._reduced(rate)
        return reduced if rate - reduced > self.eps else rate

    def _limit(self, threshold: float) -> float:
        return self.best + threshold if self.absolute else super()._limit(threshold)


__getattr__ = absent.says("needle.optim.lr_scheduler", absent.OPTIM)
