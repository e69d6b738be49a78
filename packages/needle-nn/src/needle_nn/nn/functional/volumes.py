"""Convolution and pooling of volumes, (N, C, D, H, W), put together of those of images.

A convolution is one of images, whose channels are those of all the slices that the kernel's depth sees; a pooling goes over height
and width first, then over depth.

>>> import needle as ndl
>>> x = ndl.ones(2, 3, 4, 8, 8)
>>> conv3d(x, ndl.ones(5, 3, 3, 3, 3), padding=1).shape, max_pool3d(x, 2).shape
((2, 5, 4, 8, 8), (2, 3, 2, 4, 4))
>>> conv_transpose3d(x, ndl.ones(3, 5, 2, 2, 2), stride=2).shape
(2, 5, 8, 16, 16)
"""

import math
from typing import Any

from needle import Tensor, ops
from needle_nn.nn.functional.images import adaptive_avg_pool2d, avg_pool2d, check_axes, max_pool2d, same_padding

__all__ = ["adaptive_avg_pool3d", "avg_pool3d", "conv3d", "conv_transpose3d", "max_pool3d"]


def triple(value: Any, what: str = "kernel_size") -> tuple[int, int, int]:
    """(depth, rows, columns) from one number or three."""
    three = (value,) * 3 if hasattr(type(value), "__index__") else value
    if not isinstance(three, (tuple, list)) or len(three) != 3 or not all(hasattr(type(n), "__index__") for n in three):
        raise TypeError(f"{what} {value!r}: expected an int or three ints")
    depth, rows, columns = three
    return depth.__index__(), rows.__index__(), columns.__index__()


def _check(what: str, x: Tensor, weight: Tensor, channels: int, form: str) -> None:
    check_axes(what, x, "NCDHW")
    if weight.ndim != 5 or channels != x.shape[1]:
        raise ValueError(
            f"{what}: weight has shape {weight.shape}, the input {x.shape}: expected {form};"
            " a layer holds it as (KD, KH, KW, in, out), in the order (2, 3, 4, 1, 0) of these axes"
        )


def _slices(what: str, x: Tensor, depth: int, stride: int, dilation: int, groups: int) -> tuple[Tensor, int]:
    """(N, D, H, W, C) -> (N D', H, W, groups depth C / groups): at each place all slices that the kernel's depth sees."""
    out = (x.shape[1] - dilation * (depth - 1) - 1) // stride + 1
    if out < 1:
        raise ValueError(
            f"{what}: a kernel of depth {depth} is larger than the volume, {x.shape[1]} slices with padding"
        )
    last = (out - 1) * stride + 1
    seen = ops.stack(
        [x[:, u * dilation : u * dilation + last : stride] for u in range(depth)], 4
    )  # (N, D', H, W, KD, C)
    n, _, h, w, _, c = seen.shape
    seen = seen.reshape((n * out, h, w, depth, groups, c // groups)).permute((0, 1, 2, 4, 3, 5))
    return seen.reshape((n * out, h, w, depth * c)), out


def _volume(y: Tensor, depth: int) -> Tensor:
    """(N D, H, W, C) -> (N, C, D, H, W)"""
    _, h, w, c = y.shape
    return y.reshape((-1, depth, h, w, c)).permute((0, 4, 1, 2, 3))


def _around(x: Tensor, before: int, after: int) -> Tensor:
    """(N, D, H, W, C) with slices of zeros before and after, or without some where the numbers are negative."""
    x = x[:, max(-before, 0) : x.shape[1] - max(-after, 0)]
    before, after = max(before, 0), max(after, 0)
    return ops.pad(x, ((0, 0), (before, after), (0, 0), (0, 0), (0, 0))) if before or after else x


def conv3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """y[n, f, t, i, j] = b[f] + sum over c, r, u, v of x[n, c, s t + d r - p, s i + d u - p, s j + d v - p] W[f, c, r, u, v]"""
    _check("conv3d", input, weight, weight.shape[1] * groups, "(out, in / groups, KD, KH, KW)")
    (deep, *step), (apart, *spread) = triple(stride, "conv3d: stride"), triple(dilation, "conv3d: dilation")
    given = same_padding("conv3d", padding, weight.shape[2:], (deep, *step), (apart, *spread))
    mixed = isinstance(given, (tuple, list)) and any(isinstance(n, (tuple, list)) for n in given)
    sides = given if mixed else triple(given, "conv3d: padding")
    around = [tuple(n) if isinstance(n, (tuple, list)) else (n, n) for n in sides]
    f, c, depth, kh, kw = weight.shape
    x = _around(input.permute((0, 2, 3, 4, 1)), *around[0])
    seen, out = _slices("conv3d", x, depth, deep, apart, groups)
    kernel = weight.permute((3, 4, 2, 1, 0)).reshape((kh, kw, depth * c, f))
    return _volume(ops.conv2d(seen, kernel, bias, tuple(step), tuple(around[1:]), tuple(spread), groups), out)


def conv_transpose3d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Tensor:
    """The transpose of `conv3d`: D -> (D - 1) s - 2 p + d (KD - 1) + 1 + output_padding"""
    _check("conv_transpose3d", input, weight, weight.shape[0], "(in, out / groups, KD, KH, KW)")
    names = ("stride", "padding", "output_padding", "dilation")
    sizes = [
        triple(n, f"conv_transpose3d: {name}")
        for name, n in zip(names, (stride, padding, output_padding, dilation), strict=True)
    ]
    (deep, *step), (cut, *less), (more, *wider), (apart, *spread) = sizes
    c, f, depth, kh, kw = weight.shape
    x = ops.dilate(input.permute((0, 2, 3, 4, 1)), (1,), deep - 1)
    x = x[:, : (input.shape[2] - 1) * deep + 1]
    before = apart * (depth - 1) - cut
    seen, out = _slices("conv_transpose3d", _around(x, before, before + more), depth, 1, apart, groups)
    kernel = ops.flip(weight, (2,)).reshape((groups, c // groups, f, depth, kh, kw)).permute((4, 5, 2, 0, 3, 1))
    kernel = kernel.reshape((kh, kw, f, depth * c))
    return _volume(
        ops.conv_transpose2d(seen, kernel, bias, tuple(step), tuple(less), tuple(wider), tuple(spread), groups), out
    )


# ---- Pooling ------------------------------------------------------------------------------------------------------------


def _in_two_steps(what: str, pool: Any, x: Tensor, kernel_size: Any, stride: Any, padding: Any, *more: Any) -> Tensor:
    """A pooling of images over (H, W), then over (D, 1)."""
    check_axes(what, x, "NCDHW")
    window = triple(kernel_size, f"{what}: kernel_size")
    step = window if stride is None else triple(stride, f"{what}: stride")
    around = triple(padding, f"{what}: padding")
    n, c, d, h, w = x.shape
    y = pool(x.reshape((n, c * d, h, w)), window[1:], step[1:], around[1:], *more)
    rows, columns = y.shape[2:]
    y = pool(y.reshape((n, c, d, rows * columns)), (window[0], 1), (step[0], 1), (around[0], 0), *more)
    return y.reshape((n, c, y.shape[2], rows, columns))


def max_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any | None = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Tensor:
    """y = the largest of every window; stride is the window's size by default"""
    if return_indices:
        raise ValueError("max_pool3d: return_indices True: expected False; max_pool1d and max_pool2d give places")
    if triple(dilation) != (1, 1, 1):
        raise ValueError(f"max_pool3d: dilation {dilation}: expected 1")
    return _in_two_steps("max_pool3d", max_pool2d, input, kernel_size, stride, padding, 1, ceil_mode)


def avg_pool3d(
    input: Tensor,
    kernel_size: Any,
    stride: Any | None = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """y = the average of every window, padding counted as zeros or not at all; stride is the window's size by default"""
    if divisor_override is not None:
        if ceil_mode:
            raise ValueError("avg_pool3d: divisor_override goes without ceil_mode")
        y = _in_two_steps("avg_pool3d", avg_pool2d, input, kernel_size, stride, padding)
        return y * (math.prod(triple(kernel_size)) / divisor_override)
    return _in_two_steps("avg_pool3d", avg_pool2d, input, kernel_size, stride, padding, ceil_mode, count_include_pad)


def adaptive_avg_pool3d(input: Tensor, output_size: Any) -> Tensor:
    """y[t, i, j] = the average of slices floor(t D / OD) to ceil((t + 1) D / OD), and of rows and columns likewise"""
    check_axes("adaptive_avg_pool3d", input, "NCDHW")
    deep, rows, columns = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * 3
    n, c, d, h, w = input.shape
    y = adaptive_avg_pool2d(input.reshape((n, c * d, h, w)), (rows, columns))
    rows, columns = y.shape[2:]
    y = adaptive_avg_pool2d(y.reshape((n, c, d, rows * columns)), (deep, None))
    return y.reshape((n, c, y.shape[2], rows, columns))
