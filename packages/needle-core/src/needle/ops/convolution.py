"""Convolution and pooling over images, NHWC: (batch, height, width, channels). Kernels are (height, width, in, out)."""

from __future__ import annotations

import math
from typing import Any

from needle.autograd import Tensor, TensorOp, array_api, frozen
from needle.ops.extremes import argmax
from needle.ops.fused import FusedOp
from needle.ops.indexing import gather
from needle.ops.shapes import expand_dims, pad, reshape, stack
from needle.typing import Pair, Shape
from needle_ndarray.extension import Geometry, bounded, pair


class Convolution(TensorOp):
    """What its three ops share: stride, padding ((top, bottom), (left, right)), dilation, groups."""

    needs = "inputs"

    def __init__(self, stride: Pair = 1, padding: Any = 0, dilation: Pair = 1, groups: int = 1) -> None:
        self.geometry = Geometry("conv2d", stride, padding, dilation, groups).of_verb


class Conv2d(Convolution):
    """y = x * w;  dx = dy spread by w, dw = x correlated with dy"""

    def compute(self, x, weight):
        return array_api.conv2d(x, weight, *self.geometry)

    def gradient(self, out_grad, node):
        x, weight = node.inputs
        dx = Conv2dInputGrad(x.shape, *self.geometry)(out_grad, weight) if x.requires_grad else None
        return dx, Conv2dWeightGrad(weight.shape, *self.geometry)(x, out_grad) if weight.requires_grad else None


class Conv2dInputGrad(Convolution):
    """z = g spread by w, the transposed convolution;  dg = dz * w, dw = dz correlated with g"""

    def __init__(self, shape: Shape, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.shape = frozen(shape)

    def compute(self, grad, weight):
        return array_api.conv2d_input_grad(grad, weight, self.shape, *self.geometry)

    def gradient(self, out_grad, node):
        grad, weight = node.inputs
        dg = Conv2d(*self.geometry)(out_grad, weight) if grad.requires_grad else None
        return dg, Conv2dWeightGrad(weight.shape, *self.geometry)(out_grad, grad) if weight.requires_grad else None


class Conv2dWeightGrad(Convolution):
    """v = x correlated with g;  dx = g spread by dv, dg = x * dv"""

    def __init__(self, shape: Shape, *geometry: Any) -> None:
        super().__init__(*geometry)
        self.shape = frozen(shape)

    def compute(self, x, grad):
        return array_api.conv2d_weight_grad(x, grad, self.shape, *self.geometry)

    def gradient(self, out_grad, node):
        x, grad = node.inputs
        dx = Conv2dInputGrad(x.shape, *self.geometry)(grad, out_grad) if x.requires_grad else None
        return dx, Conv2d(*self.geometry)(x, out_grad) if grad.requires_grad else None


class Conv(Conv2d):
    """The course's convolution: x (N, H, W, in), w (k, k, in, out)"""

    def __init__(self, stride: Pair = 1, padding: Any = 0) -> None:
        super().__init__(stride, padding)


class MaxPool2d(FusedOp):
    """y = the largest of every window;  dx = dy at the first largest"""

    def __init__(self, size: Pair, stride: Pair | None = None, padding: Any = 0) -> None:
        self.geometry = _windowing("pool2d", size, stride, padding)

    def compute(self, x):
        return array_api.max_pool2d(x, *self.geometry)

    def compute_gradient(self, out_grad: Tensor, x: Tensor) -> Any:
        return array_api.max_pool2d_grad(out_grad, x, *self.geometry)

    def composed(self, x: Tensor) -> Any:
        size, stride, padding = self.geometry
        shifts = _windows(x, size, stride, padding, -math.inf)  # (kh kw, N, OH, OW, C)
        return reshape(gather(shifts, argmax(shifts, 0, keepdims=True), 0), shifts.shape[1:])


class AvgPool2d(TensorOp):
    """y = the average of every window, padding counted;  dx = dy / (kh kw) at each of its places"""

    needs = ""

    def __init__(self, size: Pair, stride: Pair | None = None, padding: Any = 0) -> None:
        self.geometry = _windowing("pool2d", size, stride, padding)

    def compute(self, x):
        return array_api.avg_pool2d(x, *self.geometry)

    def gradient(self, out_grad, node):
        return AvgPool2dGrad(node.inputs[0].shape, self.geometry)(out_grad)


class AvgPool2dGrad(TensorOp):
    """z = g / (kh kw) at every place of its window;  dg = the average of every window of dz"""

    needs = ""

    def __init__(self, shape: Shape, geometry: Any) -> None:
        self.shape, self.geometry = frozen(shape), geometry

    def compute(self, grad):
        return array_api.avg_pool2d_grad(grad, self.shape, *self.geometry)

    def gradient(self, out_grad, node):
        return AvgPool2d(*self.geometry)(out_grad)


def _windowing(name, size, stride, padding):
    """Size, stride (the size by default) and padding of a pooling."""
    size = pair(name, "size", size)
    at = Geometry(name, size if stride is None else stride, padding)
    return size, at.stride, at.padding


def _windows(x, size, stride, padding, value):
    """Every window's element at each place of the kernel: (kh kw, N, OH, OW, C)."""
    x = pad(x, ((0, 0), *padding, (0, 0)), value)
    rows, columns = ((n - k) // s + 1 for n, k, s in zip(x.shape[1:3], size, stride, strict=True))
    return stack([
        x[:, i : i + (rows - 1) * stride[0] + 1 : stride[0], j : j + (columns - 1) * stride[1] + 1 : stride[1]]
        for i in range(size[0])
        for j in range(size[1])
    ])  # fmt: skip


def _biased(name, y, bias):
    if bias is not None and bias.shape != y.shape[-1:]:
        raise ValueError(f"{name}: bias has shape {bias.shape}, expected {y.shape[-1:]}")
    return y if bias is None else y + bias


def conv(a: Tensor, b: Tensor, stride: int = 1, padding: int = 1) -> Tensor:
    """The course's convolution: a (N, H, W, in), b (k, k, in, out) -> (N, OH, OW, out)."""
    return Conv(stride, padding)(a, b)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate images with kernels: (N, H, W, C), (KH, KW, C/groups, F) -> (N, OH, OW, F).

    Parameters
    ----------
    stride, dilation : int, or (rows, columns)
    padding : zeros around the image: int, (rows, columns) or ((top, bottom), (left, right))
    groups : cuts channels and filters into that many parts which do not see each other
    bias : of shape (F,)
    """
    y = Conv2d(stride, padding, dilation, groups)(x, weight)
    return _biased("conv2d", y, bias)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int = 1,
    padding: Any = 0,
    dilation: int = 1,
    groups: int = 1,
) -> Tensor:
    """Correlate sequences with kernels: (N, L, C), (K, C/groups, F) -> (N, OL, F); see `conv2d`."""
    if x.ndim != 3 or weight.ndim != 3:
        raise ValueError(f"conv1d: x {x.shape}, weight {weight.shape}: expected (N, L, C) and (K, C/groups, F)")
    before_after = (padding, padding) if isinstance(padding, int) else tuple(bounded("conv1d", padding, 2))
    y = conv2d(
        expand_dims(x, 1), expand_dims(weight, 0), bias, (1, stride), ((0, 0), before_after), (1, dilation), groups
    )
    return reshape(y, (y.shape[0], *y.shape[2:]))


def conv_transpose2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    output_padding: Pair = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """The transpose of `conv2d`: (N, H, W, F), (KH, KW, C/groups, F) -> (N, OH, OW, C), OH = (H-1) s - 2p + d (KH-1) + 1.

    Takes an image of the size that `conv2d` with this weight returns to the size it was given; `output_padding` says which, where
    a stride leaves several.
    """
    if x.ndim != 4 or weight.ndim != 4 or x.shape[3] != weight.shape[3]:
        raise ValueError(
            f"conv_transpose2d: x {x.shape}, weight {weight.shape}: expected (N, H, W, F) and (KH, KW, C, F)"
        )
    at = Geometry("conv_transpose2d", stride, padding, dilation)
    extra = pair("conv_transpose2d", "output_padding", output_padding, 0)
    if [e for e, s, d in zip(extra, at.stride, at.dilation, strict=True) if e >= max(s, d)]:
        raise ValueError(
            f"conv_transpose2d: output_padding {output_padding} is not below stride {stride} or dilation {dilation}"
        )
    strides, padded, dilations = at.stride, at.padding, at.dilation
    # A stride or more at the end: rows that the padding there had cut off, and then zeros.
    whole = [e if e >= s else 0 for e, s in zip(extra, strides, strict=True)]
    sides = tuple([(before, max(after - e, 0)) for (before, after), e in zip(padded, whole, strict=True)])
    zeros = [max(e - after, 0) for e, (_, after) in zip(whole, padded, strict=True)]
    rest = [e - w for e, w in zip(extra, whole, strict=True)]
    size = [
        (x.shape[i + 1] - 1) * s - sum(p) + d * (weight.shape[i] - 1) + 1 + e
        for i, (s, p, d, e) in enumerate(zip(strides, sides, dilations, rest, strict=True))
    ]
    shape = (x.shape[0], *size, weight.shape[2] * groups)
    y = Conv2dInputGrad(shape, strides, sides, dilations, groups)(x, weight)
    y = pad(y, ((0, 0), *[(0, n) for n in zeros], (0, 0))) if any(zeros) else y
    return _biased("conv_transpose2d", y, bias)


def max_pool2d(x: Tensor, size: Pair, stride: Pair | None = None, padding: Any = 0) -> Tensor:
    """The largest of every window of (N, H, W, C); stride is the window's size by default."""
    return MaxPool2d(size, stride, padding)(x)


def avg_pool2d(x: Tensor, size: Pair, stride: Pair | None = None, padding: Any = 0) -> Tensor:
    """The average of every window of (N, H, W, C), padding counted as zeros; stride is the window's size by default."""
    return AvgPool2d(size, stride, padding)(x)
