"""Functions that move elements about: views where possible, else one copy."""

import math
from collections.abc import Sequence
from itertools import pairwise
from operator import index as as_index
from typing import Any

import numpy as np

from needle_ndarray.creation import empty, full, only_arrays
from needle_ndarray.dtypes import result_type
from needle_ndarray.ndarray import NDArray, bounded, broadcast_shapes, normal_axes


def reshape(x: NDArray, /, shape: Any) -> NDArray:
    """Another shape of the same size."""
    return x.reshape(shape)


def permute(x: NDArray, /, axes: Any) -> NDArray:
    """The axes in another order."""
    return x.permute(axes)


permute_dims = permute


def transpose(x: NDArray, axes: Any = None) -> NDArray:
    """All axes reversed, or permuted as given."""
    only_arrays("transpose", x)
    return x.transpose(axes)


def matrix_transpose(x: NDArray, /) -> NDArray:
    """The last two axes swapped."""
    return x.mT


def swapaxes(x: NDArray, axis1: int, axis2: int) -> NDArray:
    """Two axes swapped."""
    return x.swapaxes(axis1, axis2)


def moveaxis(x: NDArray, source: Any, destination: Any, /) -> NDArray:
    """Axes taken out and put in elsewhere; the others keep their order."""
    start, targets = (
        [as_index(axis) for axis in (bounded("moveaxis", given) if isinstance(given, (tuple, list)) else (given,))]
        for given in (source, destination)
    )
    if len(start) != len(targets):
        raise ValueError(f"moveaxis: {len(start)} sources and {len(targets)} destinations")
    normal_axes("moveaxis", start, x.ndim)
    normal_axes("moveaxis", targets, x.ndim)
    start = [axis % x.ndim for axis in start]
    order = [axis for axis in range(x.ndim) if axis not in start]
    for target, axis in sorted(zip([t % x.ndim for t in targets], start, strict=True)):
        order.insert(target, axis)
    return x.permute(tuple(order))


def broadcast_to(x: NDArray, /, shape: Any) -> NDArray:
    """Repeat along axes of size 1 and new leading axes, with stride 0."""
    return x.broadcast_to(shape)


def broadcast_arrays(*arrays: NDArray) -> list[NDArray]:
    """All of them at their common shape."""
    only_arrays("broadcast_arrays", *arrays)
    shape = broadcast_shapes(*(a.shape for a in arrays))
    return [a.broadcast_to(shape) for a in arrays]


def expand_dims(x: NDArray, /, axis: int = 0) -> NDArray:
    """An axis of size 1 put in."""
    return x.expand_dims(axis)


def squeeze(x: NDArray, /, axis: Any = None) -> NDArray:
    """Axes of size 1 taken out."""
    return x.squeeze(axis)


def flip(x: NDArray, axes: Any = None, *, axis: Any = None) -> NDArray:
    """Reversed along axes."""
    if axes is not None and axis is not None:
        raise TypeError(f"flip: axes {axes} and axis {axis} are two names for the same argument")
    return x.flip(axes if axis is None else axis)


def roll(x: NDArray, /, shift: Any, axis: Any = None) -> NDArray:
    """Elements moved by `shift` places along an axis, or several; those that fall off come in at the other end."""
    if axis is None:
        return roll(x.reshape(-1), shift, 0).reshape(x.shape)
    if isinstance(shift, (tuple, list)) or isinstance(axis, (tuple, list)):
        axes = bounded("roll", axis) if isinstance(axis, (tuple, list)) else (axis,)
        shifts = bounded("roll", shift) if isinstance(shift, (tuple, list)) else (shift,) * len(axes)
        if len(shifts) != len(axes):
            raise ValueError(f"roll: {len(shifts)} shifts for {len(axes)} axes")
        for each, at in zip(shifts, axes, strict=True):
            x = roll(x, each, at)
        return x
    (at,) = normal_axes("roll", axis, x.ndim)
    cut = -as_index(shift) % max(x.shape[at], 1)
    before = (slice(None),) * at
    return concatenate([x[(*before, slice(cut, None))], x[(*before, slice(None, cut))]], at)


def pad(x: NDArray, axes: Any, value: Any = 0) -> NDArray:
    """`value` around x: axes = ((before, after), ...), one pair per axis.

    >>> from needle_ndarray import ones
    >>> pad(ones(2), ((1, 2),)).tolist()
    [0.0, 1.0, 1.0, 0.0, 0.0]
    """
    pairs = [(as_index(before), as_index(after)) for before, after in bounded("pad", axes)]
    if len(pairs) != x.ndim:
        raise ValueError(f"pad: {len(pairs)} pairs for shape {x.shape}")
    if any(before < 0 or after < 0 for before, after in pairs):
        raise ValueError(f"pad: {tuple(pairs)}: widths must be 0 or more")
    shape = tuple(n + before + after for n, (before, after) in zip(x.shape, pairs, strict=True))
    out = full(shape, value, x.dtype, x.device)
    out[tuple(slice(before, before + n) for n, (before, _) in zip(x.shape, pairs, strict=True))] = x
    return out


def _arrays(name: str, arrays: Sequence[NDArray]) -> tuple[list[NDArray], Any]:
    """The arrays as a list and their common dtype."""
    items = list(bounded(name, arrays))
    if not items:
        raise ValueError(f"{name}: expected one array or more")
    for a in items:
        if not isinstance(a, NDArray):
            raise TypeError(f"{name}: expected NDArrays, got {type(a).__name__}")
        if a.device != items[0].device:
            raise ValueError(f"{name}: operands on {items[0].device} and {a.device}; move one with .to(device)")
    return items, result_type(*(a.dtype for a in items))


def concatenate(arrays: Sequence[NDArray], /, axis: int | None = 0) -> NDArray:
    """One after the other along an existing axis; flattened where axis is None."""
    items, dtype = _arrays("concatenate", arrays)
    if axis is None:
        items, axis = [a.reshape(-1) for a in items], 0
    (at,) = normal_axes("concatenate", axis, items[0].ndim)
    shape = items[0].shape
    for a in items:
        if a.ndim != len(shape) or a.shape[:at] + a.shape[at + 1 :] != shape[:at] + shape[at + 1 :]:
            raise ValueError(f"concatenate: shapes {shape} and {a.shape} differ off axis {at}")
    total = sum(a.shape[at] for a in items)
    out = empty((*shape[:at], total, *shape[at + 1 :]), dtype, items[0].device)
    start = 0
    for a in items:
        out[(slice(None),) * at + (slice(start, start + a.shape[at]),)] = a
        start += a.shape[at]
    return out


concat = concatenate


def stack(arrays: Sequence[NDArray], /, axis: int = 0) -> NDArray:
    """Side by side along a new axis."""
    items, dtype = _arrays("stack", arrays)
    (at,) = normal_axes("stack", axis, items[0].ndim + 1)
    shape = items[0].shape
    for a in items:
        if a.shape != shape:
            raise ValueError(f"stack: shapes {shape} and {a.shape} differ")
    out = empty((*shape[:at], len(items), *shape[at:]), dtype, items[0].device)
    for i, a in enumerate(items):
        out[(slice(None),) * at + (i,)] = a
    return out


def split(x: NDArray, indices_or_sections: Any, /, axis: int = 0) -> list[NDArray]:
    """Views: a number of equal parts, or parts that start at the given positions."""
    (at,) = normal_axes("split", axis, x.ndim)
    size = x.shape[at]
    if isinstance(indices_or_sections, (tuple, list)):
        cuts = [0, *(as_index(i) for i in bounded("split", indices_or_sections)), size]
    else:
        parts = as_index(indices_or_sections)
        if parts <= 0 or size % parts:
            raise ValueError(f"split: axis {at} of shape {x.shape} does not divide into {parts} equal parts")
        cuts = list(range(0, size + 1, size // parts)) if size else [0] * (parts + 1)
    before = (slice(None),) * at
    return [x[(*before, slice(a, b))] for a, b in pairwise(cuts)]


def unstack(x: NDArray, /, *, axis: int = 0) -> tuple[NDArray, ...]:
    """Views of the entries along an axis."""
    (at,) = normal_axes("unstack", axis, x.ndim)
    return tuple(x[(slice(None),) * at + (i,)] for i in range(x.shape[at]))


def tile(x: NDArray, repetitions: Any, /) -> NDArray:
    """The whole array repeated along each axis.

    >>> from needle_ndarray import arange
    >>> tile(arange(2), (2, 2)).tolist()
    [[0, 1, 0, 1], [0, 1, 0, 1]]
    """
    only_arrays("tile", x)
    given = repetitions if isinstance(repetitions, (tuple, list)) else (repetitions,)
    times = [as_index(n) for n in bounded("tile", given)]
    if any(n < 0 for n in times):
        raise ValueError(f"tile: {repetitions}: repetitions must be 0 or more")
    times = [1] * (x.ndim - len(times)) + times
    shape = (1,) * (len(times) - x.ndim) + x.shape
    source = x.reshape([m for n in shape for m in (1, n)])
    wide = source.broadcast_to([m for k, n in zip(times, shape, strict=True) for m in (k, n)])
    return wide.copy().reshape([k * n for k, n in zip(times, shape, strict=True)])


def repeat(x: NDArray, repeats: Any, /, *, axis: int | None = None) -> NDArray:
    """Every element `repeats` times along an axis, or each as often as an array says; flattened where axis is None."""
    only_arrays("repeat", x)
    source = x.reshape(-1) if axis is None else x
    (at,) = normal_axes("repeat", 0 if axis is None else axis, source.ndim)
    if not hasattr(repeats, "__index__") or (hasattr(repeats, "ndim") and repeats.ndim):
        return _repeat_each(source, repeats, at)
    times = as_index(repeats)
    if times < 0:
        raise ValueError(f"repeat: {repeats}: expected 0 or more")
    shape = source.shape
    wide = source.expand_dims(at + 1).broadcast_to((*shape[: at + 1], times, *shape[at + 1 :]))
    return wide.copy().reshape((*shape[:at], shape[at] * times, *shape[at + 1 :]))


def _repeat_each(x: NDArray, repeats: Any, at: int) -> NDArray:
    counts = np.asarray(repeats.numpy() if isinstance(repeats, NDArray) else bounded("repeat", repeats))
    if counts.ndim != 1 or counts.dtype.kind not in "iu" or counts.shape[0] not in (1, x.shape[at]):
        raise ValueError(
            f"repeat: counts of shape {counts.shape} for axis {at} of shape {x.shape}: expected ints, one each"
        )
    if counts.size and counts.min() < 0:
        raise ValueError(f"repeat: {counts.min()}: expected 0 or more")
    total = sum(counts.tolist()) * (x.shape[at] if counts.shape[0] == 1 else 1)
    if total >= 2**48:  # NumPy's own sum of the counts would wrap
        raise ValueError(f"repeat: {total:.3g} entries: more than memory can hold")
    places = np.repeat(np.arange(x.shape[at]), counts.astype(np.int64))
    return x[(slice(None),) * at + (places,)]


def diff(
    x: NDArray, /, *, axis: int = -1, n: int = 1, prepend: NDArray | None = None, append: NDArray | None = None
) -> NDArray:
    """Each element less the one before it along an axis, n times over.

    >>> from needle_ndarray import array
    >>> diff(array([1, 4, 9, 16])).tolist()
    [3.0, 5.0, 7.0]
    """
    only_arrays("diff", x)
    (at,) = normal_axes("diff", axis, x.ndim)
    if as_index(n) < 0:
        raise ValueError(f"diff: n {n}: expected 0 or more")
    ends = [each for each in (prepend, x, append) if each is not None]
    out, before = concatenate(ends, at) if len(ends) > 1 else x, (slice(None),) * at
    for _ in range(n):
        out = out[(*before, slice(1, None))] - out[(*before, slice(None, -1))]
    return out.copy() if out is x else out


def meshgrid(*arrays: NDArray, indexing: str = "xy") -> list[NDArray]:
    """Coordinates of a grid from its axes."""
    only_arrays("meshgrid", *arrays)
    if indexing not in ("xy", "ij"):
        raise ValueError(f"meshgrid: indexing {indexing!r}: expected 'xy' or 'ij'")
    n = len(arrays)
    grids = [a.reshape((1,) * i + (math.prod(a.shape),) + (1,) * (n - i - 1)) for i, a in enumerate(arrays)]
    wide = [g.copy() for g in broadcast_arrays(*grids)]
    return [g.swapaxes(0, 1) for g in wide] if indexing == "xy" and n > 1 else wide
