"""Sorting, searching and sets. NumPy does the work on the host, for every device: a copy there and one back."""

from typing import Any, NamedTuple

import numpy as np

from needle_ndarray.capture import repeat
from needle_ndarray.creation import asarray, empty, only_arrays
from needle_ndarray.dtypes import holding
from needle_ndarray.halves import bfloat16_words
from needle_ndarray.ndarray import NDArray, make_array, normal_axes

# What writes into an array that is there goes through `repeat`: every replay of a captured function sorts again. The number of
# unique values is a shape, which a plan cannot change: a function that asks for them is not captured.


def _to_device(values: np.ndarray, out: NDArray) -> None:
    held = bfloat16_words(values) if out.dtype == "bfloat16" else values
    out.backend.from_host(np.ascontiguousarray(held).astype(out.dtype.storage, copy=False).reshape(out.shape), out)


def _order(host: np.ndarray, axis: int, descending: bool) -> np.ndarray:
    """Positions in sorting order; equal elements keep theirs, NaN counts as the largest."""
    if not descending:
        return np.argsort(host, axis=axis, kind="stable")
    return np.flip(host.shape[axis] - 1 - np.argsort(np.flip(host, axis), axis=axis, kind="stable"), axis)


def _sort_into(x: NDArray, out: NDArray, axis: int, descending: bool) -> None:
    values = np.sort(x.numpy(), axis=axis)
    _to_device(np.flip(values, axis) if descending else values, out)


def _argsort_into(x: NDArray, out: NDArray, axis: int, descending: bool) -> None:
    _to_device(_order(x.numpy(), axis, descending), out)


def _searchsorted_into(x: NDArray, values: NDArray, out: NDArray, side: Any) -> None:
    _to_device(np.searchsorted(x.numpy(), values.numpy(), side=side), out)


def _isin_into(x: NDArray, values: NDArray, out: NDArray, invert: bool) -> None:
    _to_device(np.isin(x.numpy(), values.numpy(), invert=invert), out)


def sort(x: NDArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> NDArray:
    """The elements in order along an axis; NaN counts as the largest.

    >>> from needle_ndarray import array
    >>> sort(array([3, 1, 2]), descending=True).tolist()
    [3.0, 2.0, 1.0]
    """
    only_arrays("sort", x)
    (at,) = normal_axes("sort", axis, x.ndim)
    out = empty(x.shape, x.dtype, x.device)
    repeat(_sort_into, x, out, at, bool(descending))
    return out


def argsort(x: NDArray, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> NDArray:
    """Positions along an axis that put its elements in order: int64. Equal elements stay in order, whatever `stable` says."""
    only_arrays("argsort", x)
    (at,) = normal_axes("argsort", axis, x.ndim)
    out = empty(x.shape, "int64", x.device)
    repeat(_argsort_into, x, out, at, bool(descending))
    return out


def searchsorted(x1: NDArray, x2: Any, /, *, side: str = "left", sorter: NDArray | None = None) -> NDArray:
    """Where the elements of x2 belong among those of x1, one axis in ascending order (or put so by `sorter`): int64.

    With side "left" before equal elements, with "right" behind them.

    >>> from needle_ndarray import array
    >>> searchsorted(array([1, 3, 5]), array([0, 3, 9])).tolist()
    [0, 1, 3]
    """
    only_arrays("searchsorted", x1)
    if x1.ndim != 1:
        raise ValueError(f"searchsorted: the sorted array has shape {x1.shape}, expected one axis")
    if side not in ("left", "right"):
        raise ValueError(f"searchsorted: side {side!r}: expected 'left' or 'right'")
    values = _beside(x1, x2)
    out = empty(values.shape, "int64", x1.device)
    repeat(_searchsorted_into, x1 if sorter is None else x1[sorter], values, out, side)
    return out


def isin(x1: NDArray, x2: Any, /, *, invert: bool = False) -> NDArray:
    """Whether each element of x1 is one of x2; with invert, whether it is none."""
    only_arrays("isin", x1)
    out = empty(x1.shape, "bool", x1.device)
    repeat(_isin_into, x1, _beside(x1, x2), out, bool(invert))
    return out


def _beside(x: NDArray, values: Any) -> NDArray:
    """Numbers as an array on x's device."""
    made = values if isinstance(values, NDArray) else make_array(values, holding(np.asarray(values).dtype), x.device)
    return made if made.device == x.device else made.to(x.device)


# ---- Sets ----------------------------------------------------------------------------------------------------------------


class UniqueAll(NamedTuple):
    values: NDArray
    indices: NDArray  # where each first stands in x.reshape(-1)
    inverse_indices: NDArray  # values[inverse_indices] is x
    counts: NDArray


class UniqueCounts(NamedTuple):
    values: NDArray
    counts: NDArray


class UniqueInverse(NamedTuple):
    values: NDArray
    inverse_indices: NDArray


def unique_all(x: NDArray, /) -> UniqueAll:
    """The different elements in ascending order, where they stand, and how many there are of each; every NaN is one of its own.

    >>> from needle_ndarray import array
    >>> [each.tolist() for each in unique_all(array([2, 1, 2]))]
    [[1.0, 2.0], [1, 0], [1, 0, 1], [1, 2]]
    """
    only_arrays("unique_all", x)
    host = x.numpy()
    values, *places = np.unique(host, return_index=True, return_inverse=True, return_counts=True, equal_nan=False)
    indices, inverse, counts = [asarray(each, dtype="int64", device=x.device) for each in places]
    return UniqueAll(asarray(values, dtype=x.dtype, device=x.device), indices, inverse.reshape(x.shape), counts)


def unique_counts(x: NDArray, /) -> UniqueCounts:
    """The different elements in ascending order, and how many there are of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: NDArray, /) -> UniqueInverse:
    """The different elements in ascending order, and where each element of x is among them."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: NDArray, /) -> NDArray:
    """The different elements in ascending order."""
    return unique_all(x).values


__all__ = [
    "sort", "argsort", "searchsorted", "isin", "unique_all", "unique_counts", "unique_inverse", "unique_values",
]  # fmt: skip
