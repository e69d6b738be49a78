"""Gradients kept within bounds. They get new arrays: those that are there may be shared, or views of one number."""

import functools
import math
from collections.abc import Iterable
from typing import Any

from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import Watched, active_recorder, bounded, reading, repeat
from needle_nn.optim.options import number

CPU = 1  # of DLPack: memory of the host


def grad_norm(params: Any, norm_type: float = 2.0) -> float:
    """(sum of |g|^norm_type)^(1/norm_type) over all elements of all gradients; the largest |g| for inf."""
    grads = [g for _, g in _gradients("grad_norm", params) if g.size]
    order = _order("grad_norm", norm_type)
    if _stays_on_device(grads):
        return Watched.of(reading(NDArray.item, _norm_on_device(grads, order)))
    return Watched.of(repeat(_norm, [_part(g, order) for g in grads], grads, order))


def clip_grad_norm(params: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False) -> float:
    """g *= min(1, max_norm / (norm + 1e-6)), with the norm of all gradients together; returns that norm.

    Parameters
    ----------
    params : a Tensor or Tensors; those without a gradient are left out
    max_norm : what the norm becomes where it is larger
    norm_type : 2, or any positive number, or math.inf
    error_if_nonfinite : raise where the norm is NaN or infinite, instead of passing that on

    >>> import needle as ndl
    >>> x = ndl.Tensor([3.0, 4.0])
    >>> (x * x).sum().backward()
    >>> clip_grad_norm([x], 5.0)
    10.0
    >>> [round(g, 4) for g in x.grad.tolist()]
    [3.0, 4.0]
    """
    most = number("clip_grad_norm", "max_norm", max_norm)
    pairs = _gradients("clip_grad_norm", params)
    order = _order("clip_grad_norm", norm_type)
    grads = [g for _, g in pairs if g.size]
    if _stays_on_device(grads) and not error_if_nonfinite:
        return _clip_on_device(pairs, _norm_on_device(grads, order), most)
    norm, factor = repeat(_norm_and_factor, [_part(g, order) for g in grads], grads, order, most, error_if_nonfinite)
    if (
        active_recorder() is not None or not factor >= 1
    ):  # NaN goes on into the gradients; a replay multiplies by 1 where need be
        for p, g in pairs:
            p.grad = Tensor.make_const(g * factor)
    return Watched.of(norm)


def _clip_on_device(pairs: list[tuple[Tensor, NDArray]], norm: NDArray, most: float) -> float:
    """Multiply by a factor that the device computes. A replay waits for the norm only where that is used."""
    factor = (most / (norm + 1e-6)).minimum(1.0)
    if active_recorder() is not None or not factor.item() >= 1:
        factors = {dtype: factor.astype(dtype) for dtype in dict.fromkeys(g.dtype for _, g in pairs)}
        for p, g in pairs:
            p.grad = Tensor.make_const(g * factors[g.dtype])
    return Watched.of(reading(NDArray.item, norm))


def _norm_and_factor(
    parts: list[NDArray], grads: list[NDArray], order: float, most: float, finite: bool
) -> tuple[float, float]:
    """The norm, and what the gradients are multiplied by: 1 where the norm is small enough."""
    norm = _norm(parts, grads, order)
    if finite and not math.isfinite(norm):
        raise ValueError(f"clip_grad_norm: the norm of the gradients is {norm}")
    factor = most / (norm + 1e-6)
    return norm, 1.0 if factor >= 1 else factor


def clip_grad_value(params: Any, clip_value: float) -> None:
    """g = min(max(g, -clip_value), clip_value), elementwise

    >>> import needle as ndl
    >>> x = ndl.Tensor([3.0, -0.25])
    >>> (x * x).sum().backward()
    >>> clip_grad_value([x], 1.0)
    >>> x.grad.tolist()
    [1.0, -0.5]
    """
    bound = number("clip_grad_value", "clip_value", clip_value)
    for p, g in _gradients("clip_grad_value", params):
        p.grad = Tensor.make_const(g.clip(-bound, bound))


clip_grad_norm_, clip_grad_value_ = clip_grad_norm, clip_grad_value  # PyTorch's names


def _gradients(what: str, params: Any) -> list[tuple[Tensor, NDArray]]:
    """Parameters and their gradients, where they have one."""
    if isinstance(params, Tensor):
        params = [params]
    if not isinstance(params, Iterable):
        raise TypeError(f"{what}: expected Tensors, got {type(params).__name__}")
    pairs = []
    for i, p in enumerate(bounded(what, params)):
        if not isinstance(p, Tensor):
            raise TypeError(f"{what}: parameter {i}: expected a Tensor, got {type(p).__name__}")
        if p.grad is not None:
            pairs.append((p, p.grad.realize_cached_data()))
    return pairs


def _order(what: str, norm_type: Any) -> float:
    order = math.inf if norm_type == math.inf else number(what, "norm_type", norm_type)
    if order == 0:
        raise ValueError(f"{what}: norm_type = 0: expected a positive number")
    return order


def _norm(parts: list[NDArray], grads: list[NDArray], order: float) -> float:
    """The norm of the gradients together, from their parts"""
    found = [_value(part, g, order) for part, g in zip(parts, grads, strict=True)]
    if order == math.inf:
        return math.nan if any(map(math.isnan, found)) else max(found, default=0.0)
    return math.fsum(found) ** (1 / order) if all(map(math.isfinite, found)) else sum(found)


def _part(g: NDArray, order: float) -> NDArray:
    """The largest |g|, or the sum of |g|^order"""
    if order == math.inf:
        return abs(g).max()
    return (g * g).sum() if order == 2 else (abs(g) ** order).sum()


def _stays_on_device(grads: list[NDArray]) -> bool:
    """Whether the gradients lie together in memory that the host has to wait for."""
    places = {g.__dlpack_device__() for g in grads}
    return len(places) == 1 and places.pop()[0] != CPU


def _norm_on_device(grads: list[NDArray], order: float) -> NDArray:
    """The norm of the gradients together, a number in float64: nothing that float32 holds has a square out of its range."""
    parts = [_part(g.astype("float64"), order) for g in grads]
    if order == math.inf:
        return functools.reduce(NDArray.maximum, parts)
    total = functools.reduce(NDArray.__add__, parts)
    return total.sqrt() if order == 2 else total ** (1 / order)


def _value(part: NDArray, g: NDArray, order: float) -> float:
    """A part as a number: made again in float64 where float32 has not the range for it"""
    total = part.item()
    if order != math.inf and g.dtype == "float32" and not 1e-30 < total < math.inf:
        return _part(g.astype("float64"), order).item()
    return total


__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value", "clip_grad_value_", "grad_norm"]
