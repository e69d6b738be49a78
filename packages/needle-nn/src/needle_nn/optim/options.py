"""The numbers of an optimizer: checked, one for each group of parameters, read and set as attributes."""

import math
from collections.abc import Iterable
from typing import Any

from needle.autograd import follows_torch
from needle_ndarray.extension import bounded
from needle_nn.checks import shown


def number(what: str, name: str, value: Any, low: float = 0.0, below: float = math.inf) -> float:
    """value as a float in [low, below), or a line that says what is wrong with it."""
    try:
        result = float(value)
    except (TypeError, ValueError, OverflowError):
        result = math.nan
    if isinstance(value, (bool, str, bytes)) or not low <= result < below:
        wanted = f"a number from {low:g} on" if below == math.inf else f"a number in [{low:g}, {below:g})"
        raise ValueError(f"{what}: {name} = {shown(value)}: expected {wanted}")
    return result


def tensors(what: str, params: Any) -> list[Any]:
    """Parameters as a list; the mistakes that are often made are named."""
    if hasattr(params, "parameters") or getattr(params, "__name__", "") in ("parameters", "named_parameters"):
        hint = "call it" if callable(params) and not hasattr(params, "parameters") else "give model.parameters()"
        raise TypeError(f"{what}: expected an iterable of parameters, got {type(params).__name__}: {hint}")
    if not isinstance(params, Iterable) or isinstance(params, (str, bytes, dict)):
        raise TypeError(f"{what}: expected an iterable of parameters, got {type(params).__name__}")
    return list(bounded(what, params))


class Default(float):
    """A default that is another number within `needle.compat("torch")`."""

    torch: float

    def __new__(cls, value: float, torch: float) -> "Default":
        self = super().__new__(cls, value)
        self.torch = torch
        return self


def chosen(value: Any) -> Any:
    """What a default stands for now; anything else as it is."""
    if type(value) is not Default:
        return value
    return value.torch if follows_torch() else float(value)


def both_betas(what: str, beta1: Any, beta2: Any, betas: Any) -> tuple[Any, Any]:
    """(beta1, beta2), or what PyTorch's `betas` says, also in the place of beta1."""
    if isinstance(beta1, (tuple, list)):
        if beta2 != 0.999:
            raise TypeError(f"{what}: {shown(beta2)} after betas {beta1}: expected eps= and others by name")
        betas = beta1
    if betas is None:
        return beta1, beta2
    if not isinstance(betas, (tuple, list)) or len(betas) != 2:
        raise ValueError(f"{what}: betas = {shown(betas)}: expected two numbers")
    return betas[0], betas[1]


def count(what: str, name: str, value: Any, low: int = 1) -> int:
    """value as an int from `low` on."""
    if isinstance(value, bool) or not hasattr(value, "__index__") or value.__index__() < low:
        raise ValueError(f"{what}: {name} = {shown(value)}: expected an int from {low} on")
    return value.__index__()


class Option:
    """A number in [low, below) of every group: reading gives that of the first group, assigning sets it in all of them."""

    def __init__(self, low: float = 0.0, below: float = math.inf) -> None:
        self.low, self.below = low, below

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def checked(self, what: str, value: Any) -> Any:
        return number(what, self.name, value, self.low, self.below)

    def __get__(self, optimizer: Any, owner: Any = None) -> Any:
        return self if optimizer is None else optimizer.param_groups[0][self.name]

    def __set__(self, optimizer: Any, value: Any) -> None:
        value = self.checked(type(optimizer).__name__, value)
        for group in optimizer.param_groups:
            group[self.name] = value


class Flag(Option):
    """A switch of every group."""

    def checked(self, what: str, value: Any) -> bool:
        return bool(value)


class Optional(Option):
    """A number, or None."""

    def checked(self, what: str, value: Any) -> float | None:
        return None if value is None else super().checked(what, value)


class Pair(Option):
    """Two numbers, the first not above the second."""

    def checked(self, what: str, value: Any) -> tuple[float, float]:
        if not isinstance(value, (tuple, list)) or len(value) != 2:
            raise ValueError(f"{what}: {self.name} = {shown(value)}: expected two numbers")
        first = number(what, f"{self.name}[0]", value[0], self.low)
        return first, number(what, f"{self.name}[1]", value[1], first)
