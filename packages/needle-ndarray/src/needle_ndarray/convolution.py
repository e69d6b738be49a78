"""Convolution and pooling of images (N, H, W, C), and their gradients.

Sizes that belong to both axes of an image are an int or a pair (down, right). Padding is an int, a pair, or
((top, bottom), (left, right)).
"""

from operator import index as as_index
from typing import Any

from needle_ndarray.backend import CONV2D, POOL2D
from needle_ndarray.creation import empty
from needle_ndarray.dtypes import DType, float32, promote_types, result_type
from needle_ndarray.ndarray import NDArray

LARGEST = 2**31 - 1  # of strides, paddings, dilations and windows: no sum or product of these overflows

Pair = tuple[int, int]


def pair(name: str, what: str, given: Any, least: int = 1) -> Pair:
    """An int for both axes, or one for each."""
    try:
        down, right = given if isinstance(given, (tuple, list)) else (given, given)
        down, right = as_index(down), as_index(right)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {what} {given!r}: expected an int or a pair of ints") from None
    if not (least <= down <= LARGEST and least <= right <= LARGEST):
        raise ValueError(f"{name}: {what} {given!r}: expected {least} to {LARGEST}")
    return down, right


def both_sides(name: str, given: Any) -> tuple[Pair, Pair]:
    """Padding as ((top, bottom), (left, right))."""
    if isinstance(given, (tuple, list)) and len(given) == 2 and isinstance(given[0], (tuple, list)):
        return pair(name, "padding", given[0], 0), pair(name, "padding", given[1], 0)
    down, right = pair(name, "padding", given, 0)
    return (down, down), (right, right)


def _floats(name: str, *arrays: Any) -> tuple[list[NDArray], DType]:
    """The arrays at their common float dtype: ints become float64, uint8 and bool float32."""
    for a in arrays:
        if not isinstance(a, NDArray):
            raise TypeError(f"{name}: expected NDArrays, got {type(a).__name__}")
        if a.device != arrays[0].device:
            raise ValueError(f"{name}: operands on {arrays[0].device} and {a.device}; move one with .to(device)")
        if a.ndim != 4:
            raise ValueError(f"{name}: shape {a.shape}: expected 4 axes")
    dtype = arrays[0].dtype
    if dtype.is_float and all(a.dtype is dtype for a in arrays):
        return list(arrays), dtype
    dtype = promote_types(result_type(*[a.dtype for a in arrays]), float32)
    return [a.astype(dtype, copy=False) for a in arrays], dtype


def _shape(name: str, what: str, given: Any) -> tuple[int, int, int, int]:
    try:
        n, h, w, c = map(as_index, given)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {what} {given!r}: expected 4 ints") from None
    if min(n, h, w, c) < 0:
        raise ValueError(f"{name}: {what} {given!r}: expected 0 or more")
    return n, h, w, c


def _places(name: str, image: tuple, size: tuple, stride: Pair, padding: tuple[Pair, Pair], dilation: Pair) -> Pair:
    """How often a window fits, down and to the right."""
    padded = (image[0] + sum(padding[0]), image[1] + sum(padding[1]))
    extent = ((size[0] - 1) * dilation[0] + 1, (size[1] - 1) * dilation[1] + 1)
    if min(size) < 1 or extent[0] > padded[0] or extent[1] > padded[1]:
        dilated = f" (dilated: {extent})" if dilation != (1, 1) else ""
        raise ValueError(f"{name}: a window of {tuple(size)}{dilated} does not fit a padded image of {padded}")
    return (padded[0] - extent[0]) // stride[0] + 1, (padded[1] - extent[1]) // stride[1] + 1


class _Convolution:
    """The checked numbers of a convolution; `arguments` are those of the backend's verbs."""

    def __init__(self, name: str, x: Any, weight: Any, stride: Any, padding: Any, dilation: Any, groups: Any):
        self.x, self.weight = _shape(name, "shape of x", x), _shape(name, "shape of weight", weight)
        stride, dilation = pair(name, "stride", stride), pair(name, "dilation", dilation)
        padding, (groups, _) = both_sides(name, padding), pair(name, "groups", groups)
        (n, h, w, c), (kh, kw, count, f) = self.x, self.weight
        if c % groups or f % groups or c // groups != count:
            raise ValueError(
                f"{name}: {c} channels and weight {self.weight} in {groups} groups:"
                f" expected a weight ({kh}, {kw}, {c} / {groups}, a multiple of {groups})"
            )
        self.y = (n, *_places(name, (h, w), (kh, kw), stride, padding, dilation), f)
        self.arguments = (stride, padding, dilation, groups)


def _same_shape(name: str, grad: NDArray, expected: tuple) -> None:
    if grad.shape != expected:
        raise ValueError(f"{name}: grad has shape {grad.shape}, expected {expected}")


def conv2d(
    x: NDArray, weight: NDArray, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> NDArray:
    """y[n, i, j, f] = sum over u, v, c of x[n, i sh - top + u dh, j sw - left + v dw, c] weight[u, v, c, f]

    Parameters
    ----------
    x : (N, H, W, C)
    weight : (KH, KW, C // groups, F)
    stride, dilation : int or pair
        Steps between places of the kernel, and between its elements.
    padding : int, pair or ((top, bottom), (left, right))
        Zeros around the image.
    groups : int
        Channels and filters are cut into so many equal parts, each part of the filters sees its part of the channels.

    Returns
    -------
    (N, OH, OW, F), where OH = (H + top + bottom - dh (KH - 1) - 1) // sh + 1

    >>> from needle_ndarray import ones
    >>> conv2d(ones((1, 5, 5, 2)), ones((3, 3, 2, 4)), stride=2, padding=1).shape
    (1, 3, 3, 4)
    """
    (x, weight), dtype = _floats("conv2d", x, weight)
    to = _Convolution("conv2d", x.shape, weight.shape, stride, padding, dilation, groups)
    out = empty(to.y, dtype, x.device)
    x.backend.conv2d(CONV2D["conv2d"], x, weight, out, *to.arguments)
    return out


def conv2d_input_grad(
    grad: NDArray, weight: NDArray, x_shape: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> NDArray:
    """dx when dy = grad: the adjoint of conv2d in x, also known as transposed convolution.

    Parameters
    ----------
    grad : (N, OH, OW, F)
    weight : (KH, KW, C // groups, F)
    x_shape : the shape of x, (N, H, W, C)
    stride, padding, dilation, groups : as for conv2d

    >>> from needle_ndarray import ones
    >>> conv2d_input_grad(ones((1, 2, 2, 1)), ones((1, 1, 1, 1)), (1, 3, 3, 1), stride=2)[0, :, :, 0].tolist()
    [[1.0, 0.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 1.0]]
    """
    (grad, weight), dtype = _floats("conv2d_input_grad", grad, weight)
    to = _Convolution("conv2d_input_grad", x_shape, weight.shape, stride, padding, dilation, groups)
    _same_shape("conv2d_input_grad", grad, to.y)
    out = empty(to.x, dtype, grad.device)
    grad.backend.conv2d(CONV2D["conv2d_input_grad"], out, weight, grad, *to.arguments)
    return out


def conv2d_weight_grad(
    x: NDArray, grad: NDArray, weight_shape: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1, groups: int = 1
) -> NDArray:
    """dweight when dy = grad: the adjoint of conv2d in weight.

    Parameters
    ----------
    x : (N, H, W, C)
    grad : (N, OH, OW, F)
    weight_shape : the shape of weight, (KH, KW, C // groups, F)
    stride, padding, dilation, groups : as for conv2d
    """
    (x, grad), dtype = _floats("conv2d_weight_grad", x, grad)
    to = _Convolution("conv2d_weight_grad", x.shape, weight_shape, stride, padding, dilation, groups)
    _same_shape("conv2d_weight_grad", grad, to.y)
    out = empty(to.weight, dtype, x.device)
    x.backend.conv2d(CONV2D["conv2d_weight_grad"], x, out, grad, *to.arguments)
    return out


class _Pooling:
    """The checked numbers of a pooling; `arguments` are those of the backend's verbs."""

    def __init__(self, name: str, x: Any, size: Any, stride: Any, padding: Any):
        self.x, size = _shape(name, "shape of x", x), pair(name, "size", size)
        stride, padding = size if stride is None else pair(name, "stride", stride), both_sides(name, padding)
        n, h, w, c = self.x
        self.y = (n, *_places(name, (h, w), size, stride, padding, (1, 1)), c)
        self.arguments = (size, stride, padding)


def max_pool2d(x: NDArray, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """The largest element of each window, channel by channel; NaN where there is one.

    Parameters
    ----------
    x : (N, H, W, C)
    size, stride : int or pair; windows that touch where stride is None
    padding : int, pair or ((top, bottom), (left, right)), counts as -inf

    Returns
    -------
    (N, OH, OW, C), where OH = (H + top + bottom - kh) // sh + 1

    >>> from needle_ndarray import arange
    >>> max_pool2d(arange(16).reshape(1, 4, 4, 1), 2)[0, :, :, 0].tolist()
    [[5.0, 7.0], [13.0, 15.0]]
    """
    (x,), dtype = _floats("max_pool2d", x)
    to = _Pooling("max_pool2d", x.shape, size, stride, padding)
    out = empty(to.y, dtype, x.device)
    x.backend.pool2d(POOL2D["max_pool2d"], x, out, *to.arguments)
    return out


def max_pool2d_grad(grad: NDArray, x: NDArray, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """dx when dy = grad: each window's goes to its first largest element, or to its first NaN; overlapping windows add up.

    Parameters
    ----------
    grad : (N, OH, OW, C)
    x : (N, H, W, C)
    size, stride, padding : as for max_pool2d
    """
    (grad, x), dtype = _floats("max_pool2d_grad", grad, x)
    to = _Pooling("max_pool2d_grad", x.shape, size, stride, padding)
    _same_shape("max_pool2d_grad", grad, to.y)
    out = empty(to.x, dtype, x.device)
    x.backend.pool2d_grad(POOL2D["max_pool2d"], grad, x, out, *to.arguments)
    return out


def avg_pool2d(x: NDArray, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """sum of each window / (kh kw), channel by channel; padding is 0, and counts.

    Parameters
    ----------
    x : (N, H, W, C)
    size, stride, padding : as for max_pool2d

    >>> from needle_ndarray import arange
    >>> avg_pool2d(arange(16).reshape(1, 4, 4, 1), 2)[0, :, :, 0].tolist()
    [[2.5, 4.5], [10.5, 12.5]]
    """
    (x,), dtype = _floats("avg_pool2d", x)
    to = _Pooling("avg_pool2d", x.shape, size, stride, padding)
    out = empty(to.y, dtype, x.device)
    x.backend.pool2d(POOL2D["avg_pool2d"], x, out, *to.arguments)
    return out


def avg_pool2d_grad(grad: NDArray, x_shape: Any, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """dx when dy = grad: every element of a window gets its share, grad / (kh kw).

    Parameters
    ----------
    grad : (N, OH, OW, C)
    x_shape : the shape of x, (N, H, W, C)
    size, stride, padding : as for max_pool2d
    """
    (grad,), dtype = _floats("avg_pool2d_grad", grad)
    to = _Pooling("avg_pool2d_grad", x_shape, size, stride, padding)
    _same_shape("avg_pool2d_grad", grad, to.y)
    out = empty(to.x, dtype, grad.device)
    grad.backend.pool2d_grad(POOL2D["avg_pool2d"], grad, None, out, *to.arguments)
    return out


__all__ = """
    conv2d conv2d_input_grad conv2d_weight_grad max_pool2d max_pool2d_grad avg_pool2d avg_pool2d_grad
""".split()
