"""The largest and the smallest: over axes, or along one axis with their positions."""

from __future__ import annotations

from typing import Any, SupportsIndex

from needle.autograd import Tensor, TensorOp, array_api, constant, follows_torch, frozen
from needle.ops.choosing import equal, maximum, minimum, where
from needle.ops.helpers import ValuesAndIndices, kept_shape
from needle.ops.indexing import gather
from needle.ops.reductions import broadcast_to
from needle.ops.shapes import reshape, squeeze
from needle.typing import Axes


class Extreme(TensorOp):
    """dx = dy shared equally among the elements that are the largest (or smallest)"""

    def __init__(self, axes: Axes = None, keepdims: bool = False) -> None:
        self.axes, self.keepdims = frozen(axes), keepdims

    def gradient(self, out_grad, node):
        x = node.inputs[0]
        won = equal(x, node.realize_cached_data().reshape(kept_shape(x.shape, self.axes)))
        winners = won.realize_cached_data().sum(self.axes, keepdims=True).astype(x.dtype)
        share = reshape(out_grad, winners.shape) / winners
        return where(won, broadcast_to(share, x.shape), 0.0)


class Max(Extreme):
    """y = largest x over axes"""

    def compute(self, x):
        return x.max(self.axes, self.keepdims)


class Min(Extreme):
    """y = smallest x over axes"""

    def compute(self, x):
        return x.min(self.axes, self.keepdims)


def max(a: Tensor, axes: Axes = None, keepdims: bool = False, *, dim: SupportsIndex | None = None) -> Any:
    """The largest element over axes; where several are, they share the gradient.

    `max(a, dim=1)`, PyTorch's spelling, gives the pair (values, indices), and `max(a, b)` of two tensors is `maximum`.
    """
    if dim is not None or (axes is not None and (isinstance(axes, Tensor) or follows_torch())):
        return _as_torch("max", Max, argmax, maximum, a, axes, keepdims, dim)
    return Max(axes, keepdims)(a)


def min(a: Tensor, axes: Axes = None, keepdims: bool = False, *, dim: SupportsIndex | None = None) -> Any:
    """The smallest element over axes; where several are, they share the gradient.

    `min(a, dim=1)`, PyTorch's spelling, gives the pair (values, indices), and `min(a, b)` of two tensors is `minimum`.
    """
    if dim is not None or (axes is not None and (isinstance(axes, Tensor) or follows_torch())):
        return _as_torch("min", Min, argmin, minimum, a, axes, keepdims, dim)
    return Min(axes, keepdims)(a)


def _as_torch(name, op, positions, elementwise, a, axes, keepdims, dim):
    if axes is not None and dim is not None:
        raise TypeError(f"{name}: axes {axes} and dim {dim} are two names for the same argument")
    if isinstance(axes, Tensor):
        return elementwise(a, axes)
    at = frozen(axes if dim is None else dim)
    if not isinstance(at, int):
        return op(at, keepdims)(a)  # over several axes there is no position
    index = positions(a, at, keepdims=True)
    values = gather(a, index, at)
    pair = ValuesAndIndices(values, index)
    return pair if keepdims else ValuesAndIndices(squeeze(values, at), squeeze(index, at))


def amax(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """The largest element over axes, under PyTorch's name for that."""
    return Max(axes, keepdims)(a)


def amin(a: Tensor, axes: Axes = None, keepdims: bool = False) -> Tensor:
    """The smallest element over axes, under PyTorch's name for that."""
    return Min(axes, keepdims)(a)


# ---- Without a derivative: results are constants ----------------------------------------------------------


def argmax(a: Tensor, axis: SupportsIndex | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first largest element."""
    return constant(array_api.argmax, a, axis=axis, keepdims=keepdims)


def argmin(a: Tensor, axis: SupportsIndex | None = None, keepdims: bool = False) -> Tensor:
    """Position of the first smallest element."""
    return constant(array_api.argmin, a, axis=axis, keepdims=keepdims)
