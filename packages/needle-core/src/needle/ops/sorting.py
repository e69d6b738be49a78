"""Sorting and searching: positions have no derivative, what is picked by them has."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from needle.autograd import NDArray, Tensor, array_api, constant, follows_torch, handed_out
from needle.ops.helpers import ValuesAndIndices
from needle.ops.indexing import gather
from needle.typing import Axes, Operand
from needle_ndarray.extension import normal_axes


def sort(a: Tensor, axis: SupportsIndex = -1, descending: bool = False, stable: bool = True) -> ValuesAndIndices:
    """The elements in order along an axis, and where they stood: (values, indices). NaN counts as the largest.

    >>> import needle as ndl
    >>> sort(ndl.Tensor([3.0, 1.0, 2.0])).indices.tolist()
    [1, 2, 0]
    """
    index = argsort(a, axis, descending)
    return ValuesAndIndices(gather(a, index, axis), index)


def topk(a: Tensor, k: int, axis: SupportsIndex = -1, largest: bool = True, sorted: bool = True) -> ValuesAndIndices:
    """The k largest elements along an axis, or smallest, in order, and where they stood: (values, indices)."""
    (at,) = normal_axes("topk", axis, a.ndim)
    if not 0 <= k <= a.shape[at]:
        raise ValueError(f"topk: {k} elements of axis {axis} of shape {a.shape}, which has {a.shape[at]}")
    index = argsort(a, at, descending=largest)[(slice(None),) * at + (slice(k),)]
    return ValuesAndIndices(gather(a, index, at), index)


# ---- Without a derivative: results are constants ----------------------------------------------------------


def argsort(a: Tensor, axis: SupportsIndex = -1, descending: bool = False, stable: bool = True) -> Tensor:
    """Positions along an axis that put its elements in order; equal elements keep theirs."""
    return constant(array_api.argsort, a, axis=axis, descending=descending)


def searchsorted(a: Tensor, values: Operand, side: str = "left", right: bool = False) -> Tensor:
    """Where values belong among those of a, in ascending order: before equal elements, or behind them with side "right"."""
    return constant(array_api.searchsorted, a, values, side="right" if right else side)


def isin(a: Tensor, values: Operand, invert: bool = False) -> Tensor:
    """Whether each element of a is one of the values."""
    return constant(array_api.isin, a, values, invert=invert)


def count_nonzero(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """How many elements are not 0."""
    return constant(array_api.count_nonzero, a, axis=axes, keepdims=keepdims)


def nonzero(a: Tensor, as_tuple: bool | None = None) -> Any:
    """Positions of the elements that are not 0: one tensor per axis; with as_tuple=False a row for each element, as in PyTorch."""
    found = tuple([Tensor.make_const(i) for i in array_api.nonzero(handed_out(a))])
    if as_tuple or (as_tuple is None and not follows_torch()):
        return found
    return Tensor.make_const(array_api.stack([handed_out(i) for i in found], axis=1))


def unique(a: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False) -> Any:
    """The different elements in ascending order; asked for, where each of a is among them, and how many there are of each."""
    found = array_api.unique_all(handed_out(a))
    made = [found.values] + [found.inverse_indices] * return_inverse + [found.counts] * return_counts
    tensors = tuple([Tensor.make_const(each) for each in made])
    return tensors if len(tensors) > 1 else tensors[0]


def bincount(a: Tensor, weights: Operand | None = None, minlength: int = 0) -> Tensor:
    """How often 0, 1, 2, ... occur in a, or the sum of their weights.

    >>> import needle as ndl
    >>> bincount(ndl.Tensor([1, 3, 1], dtype="int64")).tolist()
    [0, 2, 0, 1]
    """
    index = handed_out(a) if isinstance(a, Tensor) else a
    if not isinstance(index, NDArray) or index.ndim != 1 or index.dtype.is_float:
        raise TypeError(f"bincount: {a.dtype} of shape {a.shape}: expected integers along one axis")
    if index.size and index.min().item() < 0:
        raise ValueError(f"bincount: {index.min().item()}: expected 0 or more")
    n = max(int(index.max().item()) + 1 if index.size else 0, minlength)
    shares: Any = 1 if weights is None else handed_out(weights) if isinstance(weights, Tensor) else np.asarray(weights)
    out = array_api.zeros((n,), "int64" if weights is None else shares.dtype, index.device)
    return Tensor.make_const(array_api.add_at(out, index, shares))
