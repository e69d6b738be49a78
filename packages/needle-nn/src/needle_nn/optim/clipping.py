"""Gradients kept within bounds. They get new arrays: those that are there may be shared, or views of one number."""

import math
from collections.abc import Iterable
from typing import Any

from needle import Tensor
from needle_ndarray import NDArray
from needle_ndarray.extension import Watched, active_recorder, bounded, repeat
from needle_nn.optim.options import number


def grad_norm(params: Any, norm_type: float = 2.0) -> float:
    """(sum of |g|^norm_type)^(1/norm_type) over all elements of all gradients; the largest |g| for inf."""
    grads = [g for _, g in _gradients("grad_norm", params) if g.size]
    order = _order("grad_norm", norm_type)
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
    norm, factor = repeat(_norm_and_factor, [_part(g, order) for g in grads], grads, order, most, error_if_nonfinite)
    if (
        active_recorder() is not None or not factor >= 1
    ):  # NaN goes on into the gradients; a replay multiplies by 1 where need be
        for p, g in pairs:
            p.grad = Tensor.make_const(g * factor)
    return Watched.of(norm)


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


def _value(part: NDArray, g: NDArray, order: float) -> float:
    """A part as a number: made again in float64 where float32 has not the range for it"""
    total = part.item()
    if order != math.inf and g.dtype == "float32" and not 1e-30 < total < math.inf:
        return _part(g.astype("float64"), order).item()
    return total


__all__ = ["clip_grad_norm", "clip_grad_norm_", "clip_grad_value", "clip_grad_value_", "grad_norm"]
