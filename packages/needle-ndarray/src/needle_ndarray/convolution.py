"""Convolution and pooling of images (N, H, W, C), and their gradients.

Sizes that belong to both axes of an image are an int or a pair (down, right). Padding is an int, a pair, or
((top, bottom), (left, right)).
"""

from operator import index as as_index
from typing import Any

from needle_ndarray.backend import CONV2D, POOL2D
from needle_ndarray.creation import empty
from needle_ndarray.geometry import Geometry, pair
from needle_ndarray.ndarray import NDArray
from needle_ndarray.rules import RULES

Pair = tuple[int, int]


def _shape(name: str, what: str, given: Any) -> tuple[int, int, int, int]:
    try:
        n, h, w, c = map(as_index, given)
    except (TypeError, ValueError):
        raise TypeError(f"{name}: {what} {given!r}: expected 4 ints") from None
    if min(n, h, w, c) < 0 or max(h, w, c) >= 2**60:
        raise ValueError(
            f"{name}: {what} {given!r}: expected 0 or more{', below 2^60' if min(n, h, w, c) >= 0 else ''}"
        )
    return n, h, w, c


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
    x, weight = RULES["conv2d"].inputs_of(x, weight)
    at = Geometry("conv2d", stride, padding, dilation, groups)
    out = empty(at.convolved(x.shape, weight.shape), x.dtype, x.device)
    x.backend.conv2d(CONV2D["conv2d"], x, weight, out, *at.of_verb)
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
    grad, weight = RULES["conv2d_input_grad"].inputs_of(grad, weight)
    shape = _shape("conv2d_input_grad", "shape of x", x_shape)
    at = Geometry("conv2d_input_grad", stride, padding, dilation, groups)
    _same_shape("conv2d_input_grad", grad, at.convolved(shape, weight.shape))
    out = empty(shape, grad.dtype, grad.device)
    grad.backend.conv2d(CONV2D["conv2d_input_grad"], out, weight, grad, *at.of_verb)
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
    x, grad = RULES["conv2d_weight_grad"].inputs_of(x, grad)
    shape = _shape("conv2d_weight_grad", "shape of weight", weight_shape)
    at = Geometry("conv2d_weight_grad", stride, padding, dilation, groups)
    _same_shape("conv2d_weight_grad", grad, at.convolved(x.shape, shape))
    out = empty(shape, x.dtype, x.device)
    x.backend.conv2d(CONV2D["conv2d_weight_grad"], x, out, grad, *at.of_verb)
    return out


def _same_shape(name: str, grad: NDArray, expected: tuple[int, ...]) -> None:
    if grad.shape != expected:
        raise ValueError(f"{name}: grad has shape {grad.shape}, expected {expected}")


def _pooling(
    name: str, x: tuple[int, ...], size: Any, stride: Any, padding: Any
) -> tuple[tuple[int, ...], tuple[Pair, Pair, tuple[Pair, Pair]]]:
    """The shape of the result, and size, stride (that of the window by default) and padding."""
    size = pair(name, "size", size)
    at, (n, h, w, c) = Geometry(name, size if stride is None else stride, padding), x
    return (n, *at.places((h, w), size), c), (size, at.stride, at.padding)


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
    (x,) = RULES["max_pool2d"].inputs_of(x)
    shape, numbers = _pooling("max_pool2d", x.shape, size, stride, padding)
    out = empty(shape, x.dtype, x.device)
    x.backend.pool2d(POOL2D["max_pool2d"], x, out, *numbers)
    return out


def max_pool2d_grad(grad: NDArray, x: NDArray, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """dx when dy = grad: each window's goes to its first largest element, or to its first NaN; overlapping windows add up.

    Parameters
    ----------
    grad : (N, OH, OW, C)
    x : (N, H, W, C)
    size, stride, padding : as for max_pool2d
    """
    grad, x = RULES["max_pool2d_grad"].inputs_of(grad, x)
    shape, numbers = _pooling("max_pool2d_grad", x.shape, size, stride, padding)
    _same_shape("max_pool2d_grad", grad, shape)
    out = empty(x.shape, x.dtype, x.device)
    x.backend.pool2d_grad(POOL2D["max_pool2d"], grad, x, out, *numbers)
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
    (x,) = RULES["avg_pool2d"].inputs_of(x)
    shape, numbers = _pooling("avg_pool2d", x.shape, size, stride, padding)
    out = empty(shape, x.dtype, x.device)
    x.backend.pool2d(POOL2D["avg_pool2d"], x, out, *numbers)
    return out


def avg_pool2d_grad(grad: NDArray, x_shape: Any, size: Any, stride: Any = None, padding: Any = 0) -> NDArray:
    """dx when dy = grad: every element of a window gets its share, grad / (kh kw).

    Parameters
    ----------
    grad : (N, OH, OW, C)
    x_shape : the shape of x, (N, H, W, C)
    size, stride, padding : as for max_pool2d
    """
    (grad,) = RULES["avg_pool2d_grad"].inputs_of(grad)
    x = _shape("avg_pool2d_grad", "shape of x", x_shape)
    shape, numbers = _pooling("avg_pool2d_grad", x, size, stride, padding)
    _same_shape("avg_pool2d_grad", grad, shape)
    out = empty(x, grad.dtype, grad.device)
    grad.backend.pool2d_grad(POOL2D["avg_pool2d"], grad, None, out, *numbers)
    return out


__all__ = [
    "conv2d", "conv2d_input_grad", "conv2d_weight_grad", "max_pool2d", "max_pool2d_grad", "avg_pool2d",
    "avg_pool2d_grad",
]  # fmt: skip
