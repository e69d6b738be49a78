"""Convolution, pooling, padding and resizing of images, NCHW, and sequences, NCL, as in the layers.

Kernels have PyTorch's layout: (out, in / groups, KH, KW), and (in, out / groups, KH, KW) where the convolution is transposed.

>>> import needle as ndl
>>> x = ndl.ones(2, 3, 8, 8)
>>> conv2d(x, ndl.ones(5, 3, 3, 3), padding=1).shape, max_pool2d(x, 2).shape, interpolate(x, scale_factor=2).shape
((2, 5, 8, 8), (2, 3, 4, 4), (2, 3, 16, 16))
"""

import math
from typing import Any

import numpy as np

from needle import Tensor, no_grad, ops
from needle.typing import Pair

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "avg_pool1d",
    "avg_pool2d", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "max_pool1d", "max_pool2d",
    "max_unpool1d", "max_unpool2d",
]  # fmt: skip


def pair(value: Any, what: str = "kernel_size") -> tuple[int, int]:
    """(rows, columns) from one number or two."""
    both = (value, value) if hasattr(type(value), "__index__") else value
    if not isinstance(both, (tuple, list)) or len(both) != 2 or not all(hasattr(type(n), "__index__") for n in both):
        raise TypeError(f"{what} {value!r}: expected an int or a pair of ints")
    rows, columns = both
    return rows.__index__(), columns.__index__()


def single(value: Any, what: str = "kernel_size") -> int:
    """A number, or the one in a tuple."""
    one = value[0] if isinstance(value, (tuple, list)) and len(value) == 1 else value
    if not hasattr(type(one), "__index__"):
        raise TypeError(f"{what} {value!r}: expected an int")
    return one.__index__()


def check_axes(what: str, x: Tensor, axes: Any) -> None:
    """Raise unless x has as many axes as there are letters."""
    if x.ndim != len(axes):
        raise ValueError(f"{what}: input has shape {x.shape}, expected ({', '.join(axes)})")


def _last(x):
    """(N, C, H, W) -> (N, H, W, C)"""
    return x.permute((0, 2, 3, 1))


def _second(x):
    """(N, H, W, C) -> (N, C, H, W)"""
    return x.permute((0, 3, 1, 2))


def _as_image(what, x):
    """(N, C, L) -> (N, C, 1, L)"""
    check_axes(what, x, "NCL")
    return x.reshape((*x.shape[:2], 1, x.shape[2]))


def _as_sequence(y):
    """(N, C, 1, L) -> (N, C, L)"""
    return y.reshape((*y.shape[:2], y.shape[3]))


# ---- Convolution --------------------------------------------------------------------------------------------------------


def same_padding(what: str, padding: Any, window: Any, stride: Any, dilation: Any) -> Any:
    """The widths around every axis that "same" and "valid" stand for; numbers as they are."""
    if padding == "valid":
        return 0
    if padding != "same":
        if isinstance(padding, str):
            raise ValueError(f"{what}: padding {padding!r}: expected numbers, 'same' or 'valid'")
        return padding
    if any(s != 1 for s in stride):
        raise ValueError(f"{what}: padding 'same' needs stride 1, got {stride}")
    totals = [d * (k - 1) for k, d in zip(window, dilation, strict=True)]
    return tuple([(total // 2, total - total // 2) for total in totals])


def conv2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """y[n, f, i, j] = b[f] + sum over c, u, v of x[n, c, s i + d u - p, s j + d v - p] W[f, c, u, v]"""
    _check_kernel("conv2d", input, weight, "NCHW", groups, 1, "(out, in / groups, KH, KW)")
    around = same_padding("conv2d", padding, weight.shape[2:], pair(stride, "conv2d: stride"), pair(dilation))
    kernel = weight.permute((2, 3, 1, 0))
    return _second(ops.conv2d(_last(input), kernel, bias, stride, around, dilation, groups))


def conv1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    dilation: Pair = 1,
    groups: int = 1,
) -> Tensor:
    """y[n, f, i] = b[f] + sum over c, u of x[n, c, s i + d u - p] W[f, c, u]"""
    _check_kernel("conv1d", input, weight, "NCL", groups, 1, "(out, in / groups, K)")
    s, d = single(stride, "conv1d: stride"), single(dilation, "conv1d: dilation")
    around = same_padding("conv1d", padding, weight.shape[2:], (s,), (d,))
    around = around[0] if isinstance(around, (tuple, list)) else around
    y = ops.conv1d(input.swapaxes(1, 2), weight.permute((2, 1, 0)), bias, s, around, d, groups)
    return y.swapaxes(1, 2)


def conv_transpose2d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """The transpose of `conv2d`: H -> (H - 1) s - 2 p + d (KH - 1) + 1 + output_padding"""
    _check_kernel("conv_transpose2d", input, weight, "NCHW", 1, 0, "(in, out / groups, KH, KW)")
    sizes = stride, padding, output_padding, dilation, groups
    return _second(ops.conv_transpose2d(_last(input), weight.permute((2, 3, 1, 0)), bias, *sizes))


def conv_transpose1d(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Pair = 1,
    padding: Any = 0,
    output_padding: Pair = 0,
    groups: int = 1,
    dilation: Pair = 1,
) -> Tensor:
    """The transpose of `conv1d`: L -> (L - 1) s - 2 p + d (K - 1) + 1 + output_padding"""
    _check_kernel("conv_transpose1d", input, weight, "NCL", 1, 0, "(in, out / groups, K)")
    kernel = weight.reshape((*weight.shape[:2], 1, weight.shape[2]))
    s, p, o, d = (single(n, "conv_transpose1d:") for n in (stride, padding, output_padding, dilation))
    sizes = (1, s), (0, p), (0, o), groups, (1, d)
    return _as_sequence(conv_transpose2d(_as_image("conv_transpose1d", input), kernel, bias, *sizes))


def _check_kernel(what, x, weight, axes, groups, axis, form):
    check_axes(what, x, axes)
    if weight.ndim != len(axes) or weight.shape[axis] * groups != x.shape[1]:
        raise ValueError(
            f"{what}: weight has shape {weight.shape}, the input {x.shape}: expected {form};"
            " a layer holds it as (KH, KW, in, out), in the order (2, 3, 1, 0) of these axes"
        )


# ---- Pooling ------------------------------------------------------------------------------------------------------------


def _beyond(n, k, s, p):
    """How many places `ceil_mode` adds at the end of an axis: a window begins inside of the image or the padding before it."""
    out = -(-(n + 2 * p - k) // s) + 1
    out -= (out - 1) * s >= n + p
    return max((out - 1) * s + k - n - 2 * p, 0)


def _windows(what, x, kernel_size, stride, padding, ceil_mode):
    """Window, stride and ((top, bottom), (left, right))."""
    check_axes(what, x, "NCHW")
    window, around = pair(kernel_size, f"{what}: kernel_size"), pair(padding, f"{what}: padding")
    step = window if stride is None else pair(stride, f"{what}: stride")
    if any(2 * p > k for p, k in zip(around, window, strict=True)):
        raise ValueError(f"{what}: padding {padding} is more than half of kernel_size {kernel_size}")
    sizes = zip(x.shape[2:], window, step, around, strict=True)
    return window, step, tuple([(p, p + (_beyond(n, k, s, p) if ceil_mode else 0)) for n, k, s, p in sizes])


def max_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """y = the largest of every window; stride is the window's size by default

    Parameters
    ----------
    return_indices : (y, where): the place of each in its image, row by row; `max_unpool2d` takes them
    """
    if pair(dilation, "max_pool2d: dilation") != (1, 1) or return_indices:
        found = _largest(input, kernel_size, stride, padding, pair(dilation), ceil_mode)
        return found if return_indices else found[0]
    return _second(
        ops.max_pool2d(_last(input), *_windows("max_pool2d", input, kernel_size, stride, padding, ceil_mode))
    )


def max_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    dilation: Pair = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Any:
    """y = the largest of every window; stride is the window's size by default. With return_indices (y, where)"""
    k, s, p = _along_columns("max_pool1d", kernel_size, stride, padding)
    spread = (1, single(dilation, "max_pool1d: dilation"))
    y = max_pool2d(_as_image("max_pool1d", input), k, s, p, spread, ceil_mode, return_indices)
    return tuple(map(_as_sequence, y)) if return_indices else _as_sequence(y)


def _largest(x, kernel_size, stride, padding, dilation, ceil_mode):
    """(the largest of every window, its place), the first of several."""
    window = pair(kernel_size, "max_pool2d: kernel_size")
    wide = tuple([d * (k - 1) + 1 for k, d in zip(window, dilation, strict=True)])
    _, step, around = _windows("max_pool2d", x, wide, window if stride is None else stride, padding, ceil_mode)
    height, width = x.shape[2:]
    firsts = [
        np.arange((sum(sides) + n - k) // s + 1) * s - sides[0]
        for n, k, s, sides in zip((height, width), wide, step, around, strict=True)
    ]
    with no_grad():
        padded = ops.pad(x.detach(), ((0, 0), (0, 0), *around), -math.inf)
        rows, columns = (
            (f[:, None] + np.arange(k) * d) for f, k, d in zip(firsts, window, dilation, strict=True)
        )  # (OH, KH), (OW, KW)
        seen = ops.take(padded, (rows + around[0][0]).reshape(-1), 2)
        seen = ops.take(seen, (columns + around[1][0]).reshape(-1), 3)
        (n, c), (oh, kh), (ow, kw) = x.shape[:2], rows.shape, columns.shape
        seen = seen.reshape((n, c, oh, kh, ow, kw)).permute((0, 1, 2, 4, 3, 5)).reshape((n, c, oh * ow, kh * kw))
        rows, columns = _within(rows, height), _within(columns, width)
        place = rows[:, None, :, None] * width + columns[None, :, None, :]  # (OH, OW, KH, KW)
        places = Tensor(place.reshape(1, 1, oh * ow, kh * kw), device=x.device, dtype="int64", requires_grad=False)
        chosen = ops.expand_dims(ops.argmax(seen, -1), -1)
        where = ops.gather(ops.broadcast_to(places, seen.shape), chosen, -1).reshape((n, c, oh * ow))
    y = ops.gather(x.reshape((n, c, height * width)), where, -1)
    return y.reshape((n, c, oh, ow)), where.reshape((n, c, oh, ow))


def _within(places: np.ndarray, size: int) -> np.ndarray:
    """Windows (windows, k) of an axis; what is padding has the first place that is not: it is the largest where all are -inf."""
    inside = (places >= 0) & (places < size)
    return np.where(inside, places, np.take_along_axis(places, inside.argmax(1)[:, None], 1))


def max_unpool2d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """Every element at its place in a larger image, zeros elsewhere: what `max_pool2d` with return_indices took away

    Parameters
    ----------
    indices : places in the larger image, row by row
    kernel_size, stride, padding : those of the pooling, which give the size (H - 1) s - 2 p + k
    output_size : another size
    """
    check_axes("max_unpool2d", input, "NCHW")
    if indices.shape != input.shape:
        raise ValueError(
            f"max_unpool2d: indices have shape {indices.shape}, the input {input.shape}: expected the same"
        )
    window, around = pair(kernel_size, "max_unpool2d: kernel_size"), pair(padding, "max_unpool2d: padding")
    step = window if stride is None else pair(stride, "max_unpool2d: stride")
    sizes = [(n - 1) * s - 2 * p + k for n, s, p, k in zip(input.shape[2:], step, around, window, strict=True)]
    rows, columns = sizes if output_size is None else tuple(output_size)[-2:]
    n, c, h, w = input.shape
    zeros = Tensor(np.zeros((n, c, rows * columns)), device=input.device, dtype=input.dtype, requires_grad=False)
    key = np.arange(n)[:, None, None], np.arange(c)[None, :, None], indices.reshape((n, c, h * w))
    return ops.setitem(zeros, key, input.reshape((n, c, h * w))).reshape((n, c, rows, columns))


def max_unpool1d(
    input: Tensor,
    indices: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    output_size: Any = None,
) -> Tensor:
    """`max_unpool2d` of sequences"""
    k, s, p = _along_columns("max_unpool1d", kernel_size, stride, padding)
    size = None if output_size is None else (1, tuple(output_size)[-1])
    y = max_unpool2d(_as_image("max_unpool1d", input), _as_image("max_unpool1d", indices), k, s, p, size)
    return _as_sequence(y)


def _along_columns(what, kernel_size, stride, padding):
    k, p = single(kernel_size, f"{what}: kernel_size"), single(padding, f"{what}: padding")
    return (1, k), (1, k if stride is None else single(stride, f"{what}: stride")), (0, p)


def avg_pool2d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Tensor:
    """y = the average of every window, padding counted as zeros or not at all; stride is the window's size by default"""
    window, step, around = _windows("avg_pool2d", input, kernel_size, stride, padding, ceil_mode)
    y = _second(ops.avg_pool2d(_last(input), window, step, around))
    if divisor_override is not None:
        return y * (math.prod(window) / divisor_override)
    if not ceil_mode and (count_include_pad or padding == 0):
        return y
    shares = [
        _shares(n, k, s, sides, count_include_pad)
        for n, k, s, sides in zip(input.shape[2:], window, step, around, strict=True)
    ]
    return y / Tensor(np.outer(*shares), device=y.device, dtype=y.dtype, requires_grad=False)


def _shares(n, k, s, sides, padded):
    """Which part of each window along an axis is counted."""
    before, after = sides
    counted = np.zeros(before + n + after)
    counted[0 if padded else before : before + n + (before if padded else 0)] = 1
    return np.array([counted[at : at + k].mean() for at in range(0, len(counted) - k + 1, s)])


def avg_pool1d(
    input: Tensor,
    kernel_size: Pair,
    stride: Pair | None = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Tensor:
    """y = the average of every window, padding counted as zeros or not at all; stride is the window's size by default"""
    k, s, p = _along_columns("avg_pool1d", kernel_size, stride, padding)
    return _as_sequence(avg_pool2d(_as_image("avg_pool1d", input), k, s, p, ceil_mode, count_include_pad))


def _parts(n: int, m: int) -> list[tuple[int, int]]:
    """m windows that cover n places: from floor(i n / m) to ceil((i + 1) n / m)."""
    return [(i * n // m, -(-(i + 1) * n // m)) for i in range(m)]


def _output_sizes(what, x, output_size):
    """The sizes asked for; None: that of the input."""
    given = output_size if isinstance(output_size, (tuple, list)) else (output_size, output_size)
    return pair(tuple([n if m is None else m for n, m in zip(x.shape[2:], given, strict=True)]), f"{what}: output_size")


def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """y[i, j] = the average of rows floor(i H / OH) to ceil((i + 1) H / OH), and columns likewise: y = A x B^T"""
    check_axes("adaptive_avg_pool2d", input, "NCHW")
    matrices = []
    for n, m in zip(input.shape[2:], _output_sizes("adaptive_avg_pool2d", input, output_size), strict=True):
        averages = np.zeros((m, n))
        for i, (start, stop) in enumerate(_parts(n, m)):
            averages[i, start:stop] = 1 / (stop - start)
        matrices.append(averages)
    return along_rows_and_columns(input, *matrices)


def along_rows_and_columns(x: Tensor, rows: Any, columns: Any) -> Tensor:
    """A x B^T: (OH, H) @ (N, C, H, W) @ (W, OW), for matrices of NumPy"""
    a, b = (Tensor(m, device=x.device, dtype=x.dtype, requires_grad=False) for m in (rows, columns))
    return a @ (x @ b.transpose())


def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """y[i] = the average of places floor(i L / OL) to ceil((i + 1) L / OL)"""
    size = (1, single(output_size, "adaptive_avg_pool1d: output_size"))
    return _as_sequence(adaptive_avg_pool2d(_as_image("adaptive_avg_pool1d", input), size))


def adaptive_max_pool2d(input: Tensor, output_size: Any) -> Tensor:
    """y[i, j] = the largest of rows floor(i H / OH) to ceil((i + 1) H / OH), and columns likewise"""
    check_axes("adaptive_max_pool2d", input, "NCHW")
    sizes = _output_sizes("adaptive_max_pool2d", input, output_size)
    if not any(n % m for n, m in zip(input.shape[2:], sizes, strict=True)):
        return max_pool2d(input, tuple([n // m for n, m in zip(input.shape[2:], sizes, strict=True)]))
    y = input
    for axis, m in zip((2, 3), sizes, strict=True):
        parts = _parts(y.shape[axis], m)
        wide = max(stop - start for start, stop in parts)
        index = np.array([[min(start + i, stop - 1) for i in range(wide)] for start, stop in parts])
        shape = (*y.shape[:axis], m, wide, *y.shape[axis + 1 :])
        y = ops.amax(ops.take(y, index.reshape(-1), axis).reshape(shape), axis + 1)
    return y


def adaptive_max_pool1d(input: Tensor, output_size: Any) -> Tensor:
    """y[i] = the largest of places floor(i L / OL) to ceil((i + 1) L / OL)"""
    size = (1, single(output_size, "adaptive_max_pool1d: output_size"))
    return _as_sequence(adaptive_max_pool2d(_as_image("adaptive_max_pool1d", input), size))
