"""Products over axes, running products, differences: composed of plain ops, so gradients are right where factors are 0."""

from __future__ import annotations

from typing import SupportsIndex

from needle.autograd import Tensor
from needle.ops.shapes import concatenate, moveaxis, reshape
from needle.typing import Axes
from needle_ndarray.extension import normal_axes


def _part(a, axis, start, stop):
    return a[(slice(None),) * axis + (slice(start, stop),)]


def prod(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """The product over axes, by halving: log2(n) products, whose gradients are right where factors are 0."""
    gone = normal_axes("prod", axes, a.ndim)
    shape = [1 if i in gone else n for i, n in enumerate(a.shape)]
    kept = [i for i in range(a.ndim) if i not in gone]
    rows = moveaxis(a, tuple(kept), tuple(range(len(kept)))) if len(kept) < a.ndim else a
    rows = reshape(rows, (*[a.shape[i] for i in kept], -1) if a.size else (*[a.shape[i] for i in kept], 0))
    if not rows.shape[-1]:
        made = reshape(rows.sum(-1) + 1, shape)
    else:
        while rows.shape[-1] > 1:
            n, half = rows.shape[-1], rows.shape[-1] // 2
            pairs = rows[..., :half] * rows[..., half : 2 * half]
            rows = concatenate([pairs, rows[..., n - 1 :]], -1) if n % 2 else pairs
        made = reshape(rows, shape)
    return made if keepdims else reshape(made, [a.shape[i] for i in kept])


def cumprod(a: Tensor, axis: SupportsIndex | None = None) -> Tensor:
    """Running products along an axis, over all elements where it is None: by doubling, log2(n) products."""
    if axis is None:
        a, axis = reshape(a, (-1,)), 0
    (at,) = normal_axes("cumprod", axis, a.ndim)
    n, step = a.shape[at], 1
    while step < n:
        a = concatenate([_part(a, at, None, step), _part(a, at, step, None) * _part(a, at, None, -step)], at)
        step *= 2
    return a


def diff(a: Tensor, axis: SupportsIndex = -1, n: int = 1) -> Tensor:
    """Each element less the one before it along an axis, n times over."""
    (at,) = normal_axes("diff", axis, a.ndim)
    for _ in range(n):
        a = _part(a, at, 1, None) - _part(a, at, None, -1)
    return a
