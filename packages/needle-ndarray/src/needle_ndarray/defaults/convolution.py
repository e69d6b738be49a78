"""Convolution and pooling: matrix products over views of the windows, and sums over their offsets."""

from typing import Any, TypeAlias

from needle_ndarray.backend import Backend, Op
from needle_ndarray.manipulation import pad
from needle_ndarray.ndarray import NDArray

Pair = tuple[int, int]
Padding = tuple[Pair, Pair]
Maybe: TypeAlias = Any  # an NDArray, or None with the ops that have none: which these are, no type says


def bordered(a: NDArray, padding: Padding, value: Any) -> NDArray:
    """(N, H, W, C) with `value` around each image, a copy."""
    return pad(a, ((0, 0), *padding, (0, 0)), value)


def windows(a: NDArray, size: tuple[int, ...], stride: Pair, dilation: Pair = (1, 1)) -> NDArray:
    """(N, H, W, C) -> (N, OH, OW, KH, KW, C): what the kernel sees at each of its places, a view."""
    (n, h, w, c), (along_n, along_h, along_w, along_c) = a.shape, a.strides
    oh, ow = [
        (length - (k - 1) * d - 1) // s + 1 for length, k, d, s in zip((h, w), size, dilation, stride, strict=True)
    ]
    steps = (along_n, along_h * stride[0], along_w * stride[1], along_h * dilation[0], along_w * dilation[1], along_c)
    return a.as_strided((n, oh, ow, *size, c), steps)


def split(groups: int, channels: int, filters: int) -> list[tuple[slice, slice]]:
    """The channels and the filters of each group."""
    c, f = channels // groups, filters // groups
    return [(slice(g * c, (g + 1) * c), slice(g * f, (g + 1) * f)) for g in range(groups)]


def im2col(seen: NDArray) -> NDArray:
    """(N, OH, OW, KH, KW, C) -> (N OH OW, KH KW C)"""
    n, oh, ow, kh, kw, c = seen.shape
    return seen.reshape((n * oh * ow, kh * kw * c))


def offsets(size: tuple[int, ...]) -> list[Pair]:
    return [(i, j) for i in range(size[0]) for j in range(size[1])]


def inside(padded: NDArray, padding: Padding, shape: tuple[int, ...]) -> NDArray:
    """The image in its padding."""
    (top, _), (left, _) = padding
    return padded[:, top : top + shape[1], left : left + shape[2]]


def conv2d_forward(
    backend: Backend,
    x: NDArray,
    weight: NDArray,
    y: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> None:
    (kh, kw, count, _), seen = weight.shape, windows(bordered(x, padding, 0), weight.shape[:2], stride, dilation)
    for channels, filters in split(groups, x.shape[3], weight.shape[3]):
        kernel = weight[..., filters].reshape((kh * kw * count, filters.stop - filters.start))
        backend.copy((im2col(seen[..., channels]) @ kernel).reshape(y[..., filters].shape), y[..., filters])


def conv2d_input_grad(
    backend: Backend,
    x: NDArray,
    weight: NDArray,
    y: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> None:
    backend.fill(x, 0)
    padded = bordered(x, padding, 0)
    seen = windows(padded, weight.shape[:2], stride, dilation)
    for channels, filters in split(groups, x.shape[3], weight.shape[3]):
        for i, j in offsets(weight.shape[:2]):
            place = seen[:, :, :, i, j, channels]
            place += y[..., filters] @ weight[i, j, :, filters].T
    backend.copy(inside(padded, padding, x.shape), x)


def conv2d_weight_grad(
    backend: Backend,
    x: NDArray,
    weight: NDArray,
    y: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> None:
    seen = windows(bordered(x, padding, 0), weight.shape[:2], stride, dilation)
    for channels, filters in split(groups, x.shape[3], weight.shape[3]):
        columns = im2col(seen[..., channels])
        flat = y[..., filters].reshape((columns.shape[0], filters.stop - filters.start))
        backend.copy((columns.T @ flat).reshape(weight[..., filters].shape), weight[..., filters])


def conv2d(
    backend: Backend,
    op: Op,
    x: NDArray,
    weight: NDArray,
    y: NDArray,
    stride: Pair,
    padding: Padding,
    dilation: Pair,
    groups: int,
) -> None:
    ways = {"conv2d": conv2d_forward, "conv2d_input_grad": conv2d_input_grad, "conv2d_weight_grad": conv2d_weight_grad}
    ways[op.name](backend, x, weight, y, stride, padding, dilation, groups)


def max_pool2d(backend: Backend, x: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Padding) -> None:
    backend.copy(windows(bordered(x, padding, float("-inf")), size, stride).max(axis=(3, 4)), out)


def avg_pool2d(backend: Backend, x: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Padding) -> None:
    seen = windows(bordered(x, padding, 0), size, stride)
    backend.copy(seen.sum(axis=(3, 4)) / (size[0] * size[1]), out)


def max_pool2d_grad(
    backend: Backend, grad: NDArray, x: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Padding
) -> None:
    backend.fill(out, 0)
    padded = bordered(out, padding, 0)
    seen = windows(bordered(x, padding, float("-inf")), size, stride)
    free = windows(bordered(x.isnan() | True, padding, False), size, stride)
    target = windows(padded, size, stride)
    largest = seen.max(axis=(3, 4))
    waiting = largest.isnan() | True
    for i, j in offsets(size):
        place, value = target[:, :, :, i, j], seen[:, :, :, i, j]
        hit = waiting & free[:, :, :, i, j] & ((value == largest) | value.isnan())
        place += grad.where(hit, 0.0)
        waiting &= ~hit
    backend.copy(inside(padded, padding, out.shape), out)


def avg_pool2d_grad(backend: Backend, grad: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Padding) -> None:
    backend.fill(out, 0)
    padded = bordered(out, padding, 0)
    seen = windows(padded, size, stride)
    share = grad / (size[0] * size[1])
    for i, j in offsets(size):
        place = seen[:, :, :, i, j]
        place += share
    backend.copy(inside(padded, padding, out.shape), out)


def pool2d(backend: Backend, op: Op, x: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Padding) -> None:
    (max_pool2d if op.name == "max_pool2d" else avg_pool2d)(backend, x, out, size, stride, padding)


def pool2d_grad(
    backend: Backend, op: Op, grad: NDArray, x: Maybe, out: NDArray, size: Pair, stride: Pair, padding: Padding
) -> None:
    if op.name == "max_pool2d":
        max_pool2d_grad(backend, grad, x, out, size, stride, padding)
    else:
        avg_pool2d_grad(backend, grad, out, size, stride, padding)
