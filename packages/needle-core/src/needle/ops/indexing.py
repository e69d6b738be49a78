"""Picking elements by position: indexing, take, gather, embedding."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from needle.autograd import NDArray, Tensor, TensorOp, array_api, data_of, frozen, is_plain_key
from needle.ops.choosing import where
from needle.ops.helpers import index_of, key_of
from needle.ops.reductions import sum_to
from needle.ops.shapes import reshape
from needle.typing import Key, Operand
from needle_ndarray import add_at
from needle_ndarray.extension import has_arrays


class GetItem(TensorOp):
    """y = x[key];  dx = dy at those places, 0 elsewhere"""

    needs = ""
    __slots__ = ("key",)

    def __init__(self, key: Key) -> None:
        self.key = key if is_plain_key(key) else key_of(key)

    def compute(self, x):
        return x[self.key]

    def gradient(self, out_grad, node):
        return AddAt(self.key, node.inputs[0].shape)(out_grad)


class AddAt(TensorOp):
    """y = zeros with y[key] += x, repeated places adding up;  dx = dy[key]"""

    needs = ""

    def __init__(self, key: Key, shape: tuple[int, ...]) -> None:
        self.key, self.shape = key_of(key), frozen(shape)

    def compute(self, x):
        return add_at(array_api.zeros(self.shape, x.dtype, x.device), self.key, x)

    def gradient(self, out_grad, node):
        return GetItem(self.key)(out_grad)


class SetItem(TensorOp):
    """y = a with y[key] = b;  da = dy, 0 at those places, db = dy[key]"""

    needs = ""

    def __init__(self, key: Key) -> None:
        self.key = key_of(key)

    def compute(self, a, b):
        out = a.copy()
        out[self.key] = b
        return out

    def gradient(self, out_grad, node):
        a, b = node.inputs
        da = SetItem(self.key)(out_grad, 0.0) if a.requires_grad else None
        return da, self.part_of_b(out_grad, b) if b.requires_grad else None

    def part_of_b(self, out_grad: Tensor, b: Any) -> Tensor:
        grad = out_grad[self.key]
        if has_arrays(self.key):  # where places repeat, the last value counts: the others leave no trace
            order = array_api.arange(grad.size, device=grad.device).reshape(grad.shape)
            last = array_api.zeros(out_grad.shape, "int64", grad.device)
            last[self.key] = order
            grad = where(array_api.equal(last[self.key], order), grad, 0.0)
        return sum_to(reshape(grad, (1,) * (b.ndim - grad.ndim) + grad.shape), b.shape)


class Take(TensorOp):
    """y = x at integer positions along an axis;  dx = dy added up at these"""

    needs = ""

    def __init__(self, axis: SupportsIndex = 0) -> None:
        self.axis = frozen(axis)

    def compute(self, x, index):
        return array_api.take(x, index, axis=self.axis)

    def gradient(self, out_grad, node):
        x, index = node.inputs
        return ScatterAdd(self.axis, x.shape)(out_grad, index), None


_TAKE_ROWS = Take(0)  # one does for all calls


class ScatterAdd(TensorOp):
    """y = zeros with x added at integer positions along an axis;  dx = dy at these"""

    needs = ""

    def __init__(self, axis: int, shape: tuple[int, ...]) -> None:
        self.axis, self.shape = frozen(axis), frozen(shape)

    def compute(self, x, index):
        return array_api.scatter_add(array_api.zeros(self.shape, x.dtype, x.device), index, x, axis=self.axis)

    def gradient(self, out_grad, node):
        return Take(self.axis)(out_grad, node.inputs[1]), None


def getitem(a: Tensor, key: Key) -> Tensor:
    """a[key]: slices, ints, None, ..., integer and bool arrays or tensors, as in NumPy."""
    return GetItem(key)(a)


def setitem(a: Tensor, key: Key, value: Operand) -> Tensor:
    """A copy of a with a[key] = value."""
    return SetItem(key)(a, value)


def take(a: Tensor, index: Any, axis: SupportsIndex | None = None) -> Tensor:
    """Entries at integer positions along an axis, of the flattened tensor where axis is None."""
    if axis is None:
        a, axis = a.reshape(-1), 0
    return Take(axis)(a, index_of(a, index))


def gather(a: Tensor, index: Any, axis: Any = -1) -> Tensor:
    """y[i, j] = a[i, index[i, j]] for the last axis, and so on for other axes. PyTorch's order, (a, axis, index), is taken too."""
    if isinstance(axis, (Tensor, NDArray, np.ndarray)):
        index, axis = axis, index
    index = data_of(index_of(a, index))
    if index.ndim != a.ndim:
        raise ValueError(f"gather: index has shape {index.shape}, the tensor {a.shape}: expected as many axes")
    at = axis % a.ndim if -a.ndim <= axis < a.ndim else axis
    key = [
        index if i == at else array_api.arange(n, device=a.device).reshape((1,) * i + (-1,) + (1,) * (a.ndim - i - 1))
        for i, n in enumerate(index.shape)
    ]
    if not 0 <= at < a.ndim:
        raise ValueError(f"gather: axis {axis} of shape {a.shape}")
    return GetItem(tuple(key))(a)


def embedding(ids: Any, weight: Tensor) -> Tensor:
    """Rows of weight, (number, width): ids of any shape -> ids.shape + (width,); ids may be whole floats."""
    if weight.ndim != 2:
        raise ValueError(f"embedding: weight has shape {weight.shape}, expected (number, width)")
    return _TAKE_ROWS(weight, index_of(weight, ids))
