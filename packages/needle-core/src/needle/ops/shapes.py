"""Ops that move elements and change none: shapes, axes, joining, cutting."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any, SupportsIndex

from needle.autograd import Tensor, TensorOp, TensorTuple, TensorTupleOp, array_api, follows_torch, frozen
from needle.ops.helpers import number
from needle.typing import Axes, Number, Shape, Tensors
from needle_ndarray.extension import bounded, normal_axes


class Reshape(TensorOp):
    """y = x in another shape;  dx = dy in x's"""

    needs = ""
    __slots__ = ("shape",)

    def __init__(self, shape: Shape) -> None:
        self.shape = frozen(shape)

    def compute(self, x):
        return x.reshape(self.shape)

    def gradient(self, out_grad, node):
        return reshape(out_grad, node.inputs[0].shape)


class Transpose(TensorOp):
    """y = x with two axes swapped, the last two by default;  dx = dy with them swapped back"""

    needs = ""
    __slots__ = ("axes",)

    def __init__(self, axes: Any = None) -> None:
        self.axes = (-1, -2) if axes is None else frozen(axes)
        if not isinstance(self.axes, tuple) or len(self.axes) != 2:
            raise ValueError(f"transpose: axes {axes}: expected two axes to swap; permute takes an order of all")

    def compute(self, x):
        return x.swapaxes(*self.axes)

    def gradient(self, out_grad, node):
        return Transpose(self.axes)(out_grad)


class Permute(TensorOp):
    """y = x with its axes in another order;  dx = dy with them in the old one"""

    needs = ""
    __slots__ = ("axes",)

    def __init__(self, axes: Axes) -> None:
        order = frozen(axes)
        self.axes = order if isinstance(order, tuple) else (order,)

    def compute(self, x):
        return x.permute(self.axes)

    def gradient(self, out_grad, node):
        order = [i % len(self.axes) for i in self.axes]
        return Permute([order.index(i) for i in range(len(order))])(out_grad)


class Flip(TensorOp):
    """y = x reversed along axes;  dx = dy reversed"""

    needs = ""

    def __init__(self, axes: Any = None) -> None:
        self.axes = frozen(axes)

    def compute(self, x):
        return x.flip(self.axes)

    def gradient(self, out_grad, node):
        return Flip(self.axes)(out_grad)


class Dilate(TensorOp):
    """y = x with d zeros after every element along axes: n -> n (1 + d);  dx = dy at x's places"""

    needs = ""

    def __init__(self, axes: Axes, dilation: int) -> None:
        self.axes = (axes,) if isinstance(axes, int) else tuple(frozen(axes))
        self.dilation = number(dilation)
        if dilation < 0:
            raise ValueError(f"dilate: dilation {dilation}: expected 0 or more")

    def places(self, ndim: int) -> tuple[slice, ...]:
        axes = [i for i in self.axes if -ndim <= i < ndim]  # others are ignored, as the course does
        chosen = normal_axes("dilate", tuple(axes), ndim) if axes else ()
        return tuple([slice(None, None, self.dilation + 1) if i in chosen else slice(None) for i in range(ndim)])

    def compute(self, x):
        places = self.places(x.ndim)
        out = array_api.zeros(
            [n * (place.step or 1) for n, place in zip(x.shape, places, strict=True)], x.dtype, x.device
        )
        out[places] = x
        return out

    def gradient(self, out_grad, node):
        return UnDilate(self.axes, self.dilation)(out_grad)


class UnDilate(Dilate):
    """y = every (d+1)-th element of x along axes;  dx = dy with zeros between"""

    def compute(self, x):
        return x[self.places(x.ndim)].compact()

    def gradient(self, out_grad, node):
        wide, shape = Dilate(self.axes, self.dilation)(out_grad), node.inputs[0].shape
        return wide if wide.shape == shape else wide[tuple([slice(n) for n in shape])]


class Pad(TensorOp):
    """y = x with (before, after) places of a value around every axis;  dx = dy without them"""

    needs = ""

    def __init__(self, widths: Sequence[tuple[int, int]], value: Number = 0) -> None:
        self.widths, self.value = tuple([tuple(frozen(pair)) for pair in bounded("pad", widths)]), number(value)

    def compute(self, x):
        return array_api.pad(x, self.widths, self.value)

    def gradient(self, out_grad, node):
        shape = node.inputs[0].shape
        return out_grad[tuple([slice(before, before + n) for (before, _), n in zip(self.widths, shape, strict=True)])]


# ---- Joining and cutting --------------------------------------------------------------------------


class Stack(TensorOp):
    """y = tensors of one shape along a new axis;  the gradient of each is its slice of dy"""

    needs = ""

    def __init__(self, axis: SupportsIndex = 0) -> None:
        self.axis = frozen(axis)

    def __call__(self, *args: Any) -> Tensor:
        if len(args) == 1 and not isinstance(args[0], Tensor):
            args = tuple(args[0])  # a TensorTuple, list or tuple
        return super().__call__(*args)

    def compute(self, *args):
        return array_api.stack(args, axis=self.axis)

    def gradient(self, out_grad, node):
        return Split(self.axis)(out_grad).tuple()


class Split(TensorTupleOp):
    """t = the slices of x along an axis, without it;  dx = dt stacked"""

    needs = ""

    def __init__(self, axis: SupportsIndex) -> None:
        self.axis = frozen(axis)

    def compute(self, x):
        return array_api.unstack(x, axis=self.axis)

    def gradient(self, out_grad, node):
        return stack(out_grad, self.axis)


class Concatenate(TensorOp):
    """y = tensors one after the other along an axis;  the gradient of each is its part of dy"""

    needs = ""

    def __init__(self, axis: SupportsIndex = 0) -> None:
        self.axis = frozen(axis)

    def compute(self, *args):
        return array_api.concatenate(args, axis=self.axis)

    def gradient(self, out_grad, node):
        (axis,) = normal_axes("concatenate", self.axis, out_grad.ndim)
        start, parts = 0, []
        for x in node.inputs:
            parts.append(out_grad[(slice(None),) * axis + (slice(start, start + x.shape[axis]),)])
            start += x.shape[axis]
        return tuple(parts)


def reshape(a: Tensor, shape: Shape) -> Tensor:
    """a in another shape of the same size; one entry may be -1."""
    return Reshape(shape)(a)


def transpose(
    a: Tensor,
    axes: Axes = None,
    axis2: SupportsIndex | None = None,
    *,
    dim0: SupportsIndex | None = None,
    dim1: SupportsIndex | None = None,
) -> Tensor:
    """Two axes swapped, `transpose(a, (0, 1))`, `transpose(a, 0, 1)` or by dim0 and dim1; by default the last two."""
    if dim0 is not None and dim1 is not None and axes is None:
        return Transpose((dim0, dim1))(a)
    return Transpose(axes if axis2 is None else (axes, axis2))(a)


def swapaxes(a: Tensor, axis1: SupportsIndex, axis2: SupportsIndex) -> Tensor:
    return Transpose((axis1, axis2))(a)


def permute(a: Tensor, axes: Axes) -> Tensor:
    """The axes in another order."""
    return Permute(axes)(a)


def moveaxis(a: Tensor, source: Axes, destination: Axes) -> Tensor:
    """Axes taken out and put in elsewhere; the others keep their order."""
    taken = [
        normal_axes("moveaxis", i, a.ndim)[0] for i in (source if isinstance(source, (tuple, list)) else (source,))
    ]
    places = [
        normal_axes("moveaxis", i, a.ndim)[0]
        for i in (destination if isinstance(destination, (tuple, list)) else (destination,))
    ]
    if len(taken) != len(places) or len(set(taken)) != len(taken) or len(set(places)) != len(places):
        raise ValueError(f"moveaxis: from {source} to {destination}: expected as many different axes in both")
    order = [i for i in range(a.ndim) if i not in taken]
    for place, axis in sorted(zip(places, taken, strict=True)):
        order.insert(place, axis)
    return Permute(order)(a)


def squeeze(a: Tensor, axis: Axes = None) -> Tensor:
    """Without axes of size 1: those given, or all of them. Others that are given stay within `needle.compat("torch")`."""
    axes = normal_axes("squeeze", axis, a.ndim)
    if follows_torch():
        axes = tuple([i for i in axes if a.shape[i] == 1])
    elif axis is not None and [i for i in axes if a.shape[i] != 1]:
        raise ValueError(f"squeeze: axis {axis} of shape {a.shape} is not of size 1")
    return Reshape(tuple([n for i, n in enumerate(a.shape) if n != 1 or i not in axes]))(a)


def expand_dims(a: Tensor, axis: Axes) -> Tensor:
    """With an axis of size 1 put in."""
    (at,) = normal_axes("expand_dims", axis, a.ndim + 1)
    return Reshape(a.shape[:at] + (1,) + a.shape[at:])(a)


def flip(a: Tensor, axes: Axes = None) -> Tensor:
    """a reversed along axes, by default all."""
    return Flip(axes)(a)


def dilate(a: Tensor, axes: Axes, dilation: int) -> Tensor:
    """`dilation` zeros after every element along axes; axes that a does not have are ignored."""
    return Dilate(axes, dilation)(a)


def undilate(a: Tensor, axes: Axes, dilation: int) -> Tensor:
    """What `dilate` was given."""
    return UnDilate(axes, dilation)(a)


def pad(a: Tensor, widths: Sequence[tuple[int, int]], value: Number = 0) -> Tensor:
    """(before, after) places of a value around every axis."""
    return Pad(widths, value)(a)


def stack(args: Tensors | TensorTuple, axis: SupportsIndex = 0) -> Tensor:
    """Tensors of one shape along a new axis."""
    return Stack(axis)(*bounded("stack", args))


def split(
    a: Tensor, axis: Any = 0, *sizes_axis: Any, dim: SupportsIndex | None = None, split_size_or_sections: Any = None
) -> Any:
    """The slices of a along an axis, as a TensorTuple: the inverse of `stack`.

    PyTorch's meaning, pieces of a size or of several (see `split_sizes`), has `split(a, 2, 1)`, `split(a, 2, dim=1)`,
    `split(a, [1, 2])` and, within `needle.compat("torch")`, `split(a, 2)`.
    """
    sizes = axis if split_size_or_sections is None else split_size_or_sections
    if (
        split_size_or_sections is not None
        or isinstance(sizes, (list, tuple))
        or sizes_axis
        or dim is not None
        or follows_torch()
    ):
        return split_sizes(a, sizes, *sizes_axis, **({} if dim is None else {"axis": dim}))
    return Split(axis)(a)


def split_sizes(a: Tensor, sizes: Any, axis: SupportsIndex = 0) -> tuple[Tensor, ...]:
    """Pieces of a along an axis, as a tuple: each of a size, the last one perhaps smaller, or of the sizes in a list."""
    (at,) = normal_axes("split", axis, a.ndim)
    n = a.shape[at]
    if isinstance(sizes, (list, tuple)):
        ends = list(accumulate(bounded("split", sizes)))
        if not ends or ends[-1] != n or min(sizes) < 0:
            raise ValueError(f"split: sizes {list(sizes)} of axis {axis} of shape {a.shape}: expected a sum of {n}")
    else:
        if sizes < 1:
            raise ValueError(f"split: pieces of size {sizes}: expected 1 or more")
        ends = [min(start + sizes, n) for start in range(0, n, sizes)] or [0]
    before = (slice(None),) * at
    return tuple([a[(*before, slice(start, end))] for start, end in pairwise([0, *ends])])


def concatenate(args: Tensors | TensorTuple, axis: SupportsIndex = 0) -> Tensor:
    """Tensors one after the other along an axis."""
    args = args.tuple() if isinstance(args, TensorTuple) else args
    return Concatenate(axis)(*bounded("concatenate", args))
