"""Steps of optimizers, in place on lists of arrays: each one verb of the backend, one pass over each parameter.

A list goes to the backend whole, so that many small parameters cost one call. Arithmetic is in the dtype of each parameter, in
the order of the formula: every backend gives the same bits. Gradients are only read, and may be views of any kind.
"""

import math
from collections.abc import Sequence
from typing import Any

from needle_ndarray.backend import STEP
from needle_ndarray.ndarray import NDArray, run_step

Arrays = Sequence[NDArray]


def sgd_step(
    params: Arrays,
    grads: Arrays,
    u: Arrays | None = None,
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float | None = None,
    weight_decay: float = 0.0,
    l1: float = 0.0,
    nesterov: bool = False,
    correction: float = 1.0,
) -> None:
    """g' = g + weight_decay p + l1 sign(p);  u = momentum u + (1 - dampening) g';  p -= lr u / correction

    Parameters
    ----------
    params, grads : the parameters p, which are changed, and their gradients g
    u : the velocities, which are changed; None where there is no momentum: p -= lr g'
    lr : learning rate
    momentum, dampening : as above; dampening is momentum unless given, so that u is a mean of gradients
    weight_decay, l1 : penalties; one of 0 is left out
    nesterov : go along momentum u + (1 - dampening) g' instead of u
    correction : 1 - momentum^t makes u an unbiased mean after t steps

    >>> from needle_ndarray import array
    >>> p, u = array([1.0, 2.0]), array([0.0, 0.0])
    >>> sgd_step([p], [array([2.0, 4.0])], [u], lr=0.5, momentum=0.5)
    >>> p.tolist(), u.tolist()
    ([0.5, 1.0], [1.0, 2.0])
    """
    dampening = momentum if dampening is None else dampening
    names = "lr", "momentum", "dampening", "weight_decay", "l1", "correction"
    numbers = _numbers("sgd_step", names, (lr, momentum, dampening, weight_decay, l1, correction))
    if u is None and momentum:
        raise ValueError(f"sgd_step: momentum = {momentum}, but no velocities u")
    rule = STEP["nesterov" if nesterov else "sgd"]
    run_step("sgd_step", rule, (params, grads) if u is None else (params, grads, u), numbers)


def adam_step(
    params: Arrays,
    grads: Arrays,
    m: Arrays,
    v: Arrays,
    *,
    lr: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    correction1: float = 1.0,
    correction2: float = 1.0,
) -> None:
    """m = beta1 m + (1 - beta1) g';  v = beta2 v + (1 - beta2) g' g';
    p -= lr (m / correction1) / (sqrt(v / correction2) + eps)

    Parameters
    ----------
    params, grads : the parameters p, which are changed, and their gradients g
    m, v : means of gradients and of their squares, which are changed
    lr, beta1, beta2, eps : as above
    weight_decay, decoupled : g' = g + weight_decay p; decoupled (AdamW): g' = g, and p -= lr weight_decay p comes first
    correction1, correction2 : 1 - beta1^t and 1 - beta2^t make m and v unbiased after t steps

    >>> from needle_ndarray import array
    >>> p, m, v = array([1.0, 2.0]), array([0.0, 0.0]), array([0.0, 0.0])
    >>> adam_step([p], [array([2.0, -4.0])], [m], [v], lr=0.5, correction1=0.1, correction2=0.001)
    >>> p.tolist(), v.tolist()
    ([0.5, 2.5], [0.004000000189989805, 0.01600000075995922])
    """
    names = "lr", "beta1", "beta2", "eps", "weight_decay", "correction1", "correction2"
    numbers = _numbers("adam_step", names, (lr, beta1, beta2, eps, weight_decay, correction1, correction2))
    run_step("adam_step", STEP["adamw" if decoupled else "adam"], (params, grads, m, v), numbers)


def _numbers(what: str, names: tuple[str, ...], values: tuple[Any, ...]) -> tuple[float, ...]:
    """The values as floats; those of corrections divide, and are not 0."""
    if {*map(type, values)} == {float} and math.isfinite(sum(values)) and 0 not in values[5:]:
        return values
    return tuple(
        (_divisor if name.startswith("correction") else _number)(what, name, value)
        for name, value in zip(names, values, strict=True)
    )


def _number(what: str, name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{what}: {name} = {value!r}: expected a number")
    return number


def _divisor(what: str, name: str, value: Any) -> float:
    number = _number(what, name, value)
    if number == 0:
        raise ValueError(f"{what}: {name} = 0: it divides")
    return number


__all__ = ["adam_step", "sgd_step"]
