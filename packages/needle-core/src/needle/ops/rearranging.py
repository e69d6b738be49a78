"""Elements in other places, repeated or left out: composed of slices, joins and broadcasting."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, SupportsIndex

from needle.autograd import Tensor, array_api
from needle.ops.choosing import where
from needle.ops.indexing import take
from needle.ops.reductions import broadcast_to
from needle.ops.shapes import concatenate, expand_dims, pad, reshape, split_sizes
from needle.typing import Axes
from needle_ndarray import broadcast_shapes
from needle_ndarray.extension import bounded, normal_axes


def flatten(a: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The axes from start_dim to end_dim as one.

    >>> import needle as ndl
    >>> flatten(ndl.init.ones(2, 3, 4), 1).shape
    (2, 12)
    """
    if a.ndim == 0:
        return reshape(a, (1,))
    (first,), (last,) = normal_axes("flatten", start_dim, a.ndim), normal_axes("flatten", end_dim, a.ndim)
    if first > last:
        raise ValueError(f"flatten: start_dim {start_dim} comes after end_dim {end_dim} in shape {a.shape}")
    return reshape(a, (*a.shape[:first], math.prod(a.shape[first : last + 1]), *a.shape[last + 1 :]))


def narrow(a: Tensor, axis: int, start: int, length: int) -> Tensor:
    """The entries from `start` on, `length` of them, along an axis."""
    (at,) = normal_axes("narrow", axis, a.ndim)
    first = start + a.shape[at] if start < 0 else start
    if first < 0 or length < 0 or first + length > a.shape[at]:
        raise IndexError(f"narrow: {length} entries from {start} on: axis {axis} of shape {a.shape} has {a.shape[at]}")
    return a[(slice(None),) * at + (slice(first, first + length),)]


def chunk(a: Tensor, chunks: int, axis: int = 0) -> tuple[Tensor, ...]:
    """At most so many pieces along an axis, equal but for the last, as a tuple."""
    (at,) = normal_axes("chunk", axis, a.ndim)
    if chunks < 1:
        raise ValueError(f"chunk: {chunks} pieces: expected 1 or more")
    return split_sizes(a, max(-(-a.shape[at] // chunks), 1), at)


def roll(a: Tensor, shift: int | Sequence[int], axis: Axes = None) -> Tensor:
    """Elements moved by `shift` places along an axis, or several; those that fall off come in at the other end."""
    if axis is None:
        return reshape(roll(reshape(a, (-1,)), shift, 0), a.shape)
    axes = bounded("roll", axis) if isinstance(axis, (tuple, list)) else (axis,)
    shifts = bounded("roll", shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
    if len(shifts) != len(axes):
        raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
    for each, given in zip(shifts, axes, strict=True):
        (at,) = normal_axes("roll", given, a.ndim)
        cut, before = -each % max(a.shape[at], 1), (slice(None),) * at
        a = concatenate([a[(*before, slice(cut, None))], a[(*before, slice(None, cut))]], at)
    return a


def tile(a: Tensor, repetitions: int | Sequence[int]) -> Tensor:
    """The whole tensor repeated along each axis.

    >>> import needle as ndl
    >>> tile(ndl.Tensor([1.0, 2.0]), (2, 2)).tolist()
    [[1.0, 2.0, 1.0, 2.0], [1.0, 2.0, 1.0, 2.0]]
    """
    times = list(bounded("tile", repetitions) if isinstance(repetitions, (tuple, list)) else (repetitions,))
    if any(n < 0 for n in times):
        raise ValueError(f"tile: {repetitions}: repetitions must be 0 or more")
    times = [1] * (a.ndim - len(times)) + times
    shape = (1,) * (len(times) - a.ndim) + a.shape
    wide = reshape(a, [m for n in shape for m in (1, n)])
    wide = broadcast_to(wide, [m for k, n in zip(times, shape, strict=True) for m in (k, n)])
    return reshape(wide, [k * n for k, n in zip(times, shape, strict=True)])


def repeat(a: Tensor, repeats: Any, axis: SupportsIndex | None = None) -> Tensor:
    """Every element `repeats` times along an axis, or each as often as a list says; flattened where axis is None.

    >>> import needle as ndl
    >>> repeat(ndl.Tensor([1.0, 2.0]), 2).tolist()
    [1.0, 1.0, 2.0, 2.0]
    """
    a, axis = (reshape(a, (-1,)), 0) if axis is None else (a, axis)
    (at,) = normal_axes("repeat", axis, a.ndim)
    counts = repeats.realize_cached_data() if isinstance(repeats, Tensor) else repeats
    return take(a, array_api.repeat(array_api.arange(a.shape[at], device=a.device), counts), at)


def tril(a: Tensor, k: int = 0) -> Tensor:
    """a with zeros above the k-th diagonal."""
    return _triangle("tril", a, array_api.tril, k)


def triu(a: Tensor, k: int = 0) -> Tensor:
    """a with zeros below the k-th diagonal."""
    return _triangle("triu", a, array_api.triu, k)


def _triangle(name, a, keep, k):
    if a.ndim < 2:
        raise ValueError(f"{name}: expected two axes or more, got shape {a.shape}")
    return where(keep(array_api.ones(a.shape[-2:], "bool", a.device), k=k), a, 0)


def diag(a: Tensor, k: int = 0) -> Tensor:
    """The k-th diagonal of a matrix, or the matrix with a on it and zeros elsewhere."""
    if a.ndim == 1:
        n = a.shape[0] + abs(k)
        rows = pad(a, ((max(-k, 0), max(k, 0)),))  # entry i stands in row i
        return where(array_api.eye(n, k=k, dtype="bool", device=a.device), expand_dims(rows, 1), 0)
    if a.ndim != 2:
        raise ValueError(f"diag: expected one axis or two, got shape {a.shape}")
    row, column = max(-k, 0), max(k, 0)
    places = array_api.arange(max(min(a.shape[0] - row, a.shape[1] - column), 0), device=a.device)
    return a[places + row, places + column]


def meshgrid(*tensors: Tensor, indexing: str = "xy") -> tuple[Tensor, ...]:
    """Coordinates of a grid from its axes, as a tuple."""
    given = tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (tuple, list)) else tensors
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing {indexing!r}: expected 'xy' or 'ij'")
    order = list(range(len(given)))
    if indexing == "xy" and len(given) > 1:
        order[:2] = [1, 0]
    shape = [0] * len(given)
    for place, x in zip(order, given, strict=True):
        shape[place] = x.size
    return tuple(
        [
            broadcast_to(reshape(x, [-1 if i == place else 1 for i in range(len(given))]), shape)
            for place, x in zip(order, given, strict=True)
        ]
    )


def broadcast_arrays(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All of them at their common shape, as a tuple."""
    shape = broadcast_shapes(*[x.shape for x in tensors])
    return tuple([broadcast_to(x, shape) for x in tensors])
