"""Padding and resizing of images, NCHW, and sequences, NCL; channels to places and back.

>>> import needle as ndl
>>> pad(ndl.Tensor([[1.0, 2.0, 3.0]]), (2, 1), mode="reflect").tolist()
[[3.0, 2.0, 1.0, 2.0, 3.0, 2.0]]
>>> interpolate(ndl.Tensor([[[0.0, 4.0]]]), size=4, mode="linear").tolist()
[[[0.0, 1.0, 3.0, 4.0]]]
"""

import math
from typing import Any

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle.typing import Pair
from needle_nn.nn.functional.images import along_rows_and_columns, check_axes, pair

__all__ = ["interpolate", "pad", "pixel_shuffle", "pixel_unshuffle", "unfold", "upsample"]


def pad(input: Tensor, pad: Any, mode: str = "constant", value: float = 0.0) -> Tensor:
    """Places around the last axes: (before, after) for the last one, then for the one before it, and so on.

    Parameters
    ----------
    mode : "constant" puts `value` there, "reflect" mirrors at the last element, "replicate" repeats it, "circular" goes round
    """
    if len(pad) % 2 or len(pad) > 2 * input.ndim:
        raise ValueError(f"pad: {len(pad)} numbers for {input.ndim} axes: expected two for each axis, from the last on")
    widths = [(0, 0)] * input.ndim
    for i in range(len(pad) // 2):
        widths[-1 - i] = (pad[2 * i], pad[2 * i + 1])
    if any(min(both) < 0 for both in widths):
        cut = tuple([slice(max(-a, 0), n - max(-b, 0)) for n, (a, b) in zip(input.shape, widths, strict=True)])
        input, widths = input[cut], [(max(a, 0), max(b, 0)) for a, b in widths]
    if mode == "constant":
        return ops.pad(input, tuple(widths), value)
    if mode not in _PLACES:
        raise ValueError(f"pad: mode {mode!r}: expected 'constant', {', '.join(map(repr, _PLACES))}")
    for axis, (before, after) in enumerate(widths):
        if before or after:
            n = input.shape[axis]
            most = {"reflect": n - 1, "circular": n, "replicate": math.inf if n else 0}[mode]
            if max(before, after) > most:
                raise ValueError(f"pad: {mode} padding ({before}, {after}) of an axis of size {n}: at most {most}")
            input = ops.take(input, _PLACES[mode](np.arange(-before, n + after), n), axis)
    return input


#: Which element stands at a place outside of 0 to n - 1.
_PLACES = {
    "reflect": lambda at, n: (n - 1) - np.abs((n - 1) - np.abs(at)),
    "replicate": lambda at, n: np.clip(at, 0, n - 1),
    "circular": lambda at, n: at % n,
}


# ---- Resizing -----------------------------------------------------------------------------------------------------------

_MODES = {"nearest": (3, 4), "nearest-exact": (3, 4), "linear": (3,), "bilinear": (4,), "bicubic": (4,), "area": (3, 4)}


def interpolate(
    input: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
) -> Tensor:
    """An image or sequence in another size: (N, C, L) or (N, C, H, W).

    Parameters
    ----------
    size, scale_factor : of the result, one of the two: a number, or one for each axis
    mode : "nearest", "nearest-exact", "linear" (sequences), "bilinear", "bicubic" (images) or "area"
    align_corners : for the linear and cubic modes, corners lie on corners; else edges on edges
    recompute_scale_factor : take the ratio of sizes for the scale
    """
    if mode not in _MODES or input.ndim not in _MODES[mode]:
        known = [m for m, axes in _MODES.items() if input.ndim in axes]
        raise ValueError(
            f"interpolate: mode {mode!r} for shape {input.shape}: expected {known or '(N, C, L), (N, C, H, W)'}"
        )
    if (size is None) == (scale_factor is None):
        raise ValueError("interpolate: expected either size or scale_factor")
    sizes, count = input.shape[2:], input.ndim - 2
    given = size if scale_factor is None else scale_factor
    given = tuple(given) if isinstance(given, (tuple, list)) else (given,) * count
    wanted = given if scale_factor is None else tuple([math.floor(n * f) for n, f in zip(sizes, given, strict=True)])
    exact = scale_factor is None or recompute_scale_factor
    ratios = [n / m if exact else 1 / f for n, m, f in zip(sizes, wanted, given, strict=True)]
    x = input.reshape((*input.shape[:2], 1, *sizes)) if count == 1 else input
    if mode.startswith("nearest"):
        shift = 0.5 if mode == "nearest-exact" else 0.0
        for axis, (n, m, r) in enumerate(zip(sizes, wanted, ratios, strict=True), 4 - count):
            x = ops.take(x, np.minimum(np.floor((np.arange(m) + shift) * r + 1e-9), n - 1).astype(np.int64), axis)
    else:
        matrices = [_weights(mode, n, m, r, align_corners) for n, m, r in zip(sizes, wanted, ratios, strict=True)]
        x = along_rows_and_columns(x, *([np.eye(1)] if count == 1 else []), *matrices)
    return x.reshape((*input.shape[:2], *wanted))


def _weights(mode, n, m, ratio, align_corners):
    """The (m, n) matrix that makes m numbers of n."""
    made = np.zeros((m, n))
    if mode == "area":
        for row in range(m):
            start, stop = row * n // m, -(-(row + 1) * n // m)
            made[row, start:stop] = 1 / (stop - start)
        return made
    i = np.arange(m)
    at = i * ((n - 1) / (m - 1) if m > 1 else 0.0) if align_corners else (i + 0.5) * ratio - 0.5
    if mode != "bicubic":
        at = np.maximum(at, 0.0)
    low = np.floor(at).astype(np.int64)
    t = at - low
    taps = _cubic(t) if mode == "bicubic" else {0: 1 - t, 1: t}
    for offset, weight in taps.items():
        np.add.at(made, (i, np.clip(low + offset, 0, n - 1)), weight)
    return made


def _cubic(t, a=-0.75):
    """Keys' cubic convolution: the weights of the four neighbours of a place between two of them."""

    def near(d):
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d):
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return {-1: far(t + 1), 0: near(t), 1: near(1 - t), 2: far(2 - t)}


def upsample(
    input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest", align_corners: bool | None = None
) -> Tensor:
    """`interpolate`, by its older name"""
    return interpolate(input, size, scale_factor, mode, align_corners)


# ---- Channels and places ------------------------------------------------------------------------------------------------


def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(N, C r r, H, W) -> (N, C, H r, W r)"""
    r = upscale_factor
    check_axes("pixel_shuffle", input, "NCHW")
    n, c, h, w = input.shape
    if c % (r * r):
        raise ValueError(f"pixel_shuffle: {c} channels are no multiple of {r} x {r}")
    x = input.reshape((n, c // (r * r), r, r, h, w)).permute((0, 1, 4, 2, 5, 3))  # (N, C, H, r, W, r)
    return x.reshape((n, c // (r * r), h * r, w * r))


def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(N, C, H r, W r) -> (N, C r r, H, W), the inverse of `pixel_shuffle`"""
    r = downscale_factor
    check_axes("pixel_unshuffle", input, "NCHW")
    n, c, h, w = input.shape
    if h % r or w % r:
        raise ValueError(f"pixel_unshuffle: {h} x {w} is no multiple of {r}")
    x = input.reshape((n, c, h // r, r, w // r, r)).permute((0, 1, 3, 5, 2, 4))  # (N, C, r, r, H, W)
    return x.reshape((n, c * r * r, h // r, w // r))


def unfold(input: Tensor, kernel_size: Pair, dilation: Pair = 1, padding: Any = 0, stride: Pair = 1) -> Tensor:
    """Every window as a column: (N, C, H, W) -> (N, C KH KW, OH OW)"""
    check_axes("unfold", input, "NCHW")
    (kh, kw), (dh, dw), (ph, pw), (sh, sw) = map(pair, (kernel_size, dilation, padding, stride))
    x = ops.pad(input, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    rows, columns = (x.shape[2] - dh * (kh - 1) - 1) // sh + 1, (x.shape[3] - dw * (kw - 1) - 1) // sw + 1
    if rows < 1 or columns < 1:
        raise ValueError(f"unfold: kernel_size {kernel_size} is larger than the image {input.shape[2:]}")
    places = [
        x[:, :, u * dh : u * dh + (rows - 1) * sh + 1 : sh, v * dw : v * dw + (columns - 1) * sw + 1 : sw]
        for u in range(kh)
        for v in range(kw)
    ]
    return ops.stack(places, 2).reshape((x.shape[0], x.shape[1] * kh * kw, rows * columns))
