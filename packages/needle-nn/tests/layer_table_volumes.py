"""Layers of volumes; see layer_table.py."""

import numpy as np
from layer_references import batch_norm, drop, keep, of_x
from layer_row import Row, plain

from needle import nn

VOLUME = (2, 4, 5, 4, 6)


def conv3d(p, x, stride=1, padding=0, dilation=1, groups=1):
    """By the definition: one product per place of the kernel."""
    w, (s, d) = p["weight"], (stride, dilation)
    *window, c, f = w.shape
    x = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * 3))
    out = [(n - d * (k - 1) - 1) // s + 1 for n, k in zip(x.shape[2:], window, strict=True)]
    y = np.zeros((x.shape[0], f, *out))
    for g in range(groups):
        of = slice(g * f // groups, (g + 1) * f // groups)
        for place in np.ndindex(*window):
            seen = x[:, g * c : (g + 1) * c]
            for axis, (at, n) in enumerate(zip(place, out, strict=True), 2):
                seen = seen.take(at * d + s * np.arange(n), axis)
            y[:, of] += np.einsum("nctij,cf->nftij", seen, w[place][:, of])
    return y + p.get("bias", np.zeros(f))[:, None, None, None]


def conv_transpose3d(p, x, stride=1, padding=0, more=0, groups=1):
    """By the definition: every element of the input, times the kernel, added where it belongs."""
    w = p["weight"]
    *window, f, c = w.shape
    whole = [(n - 1) * stride + k + more for n, k in zip(x.shape[2:], window, strict=True)]
    y = np.zeros((x.shape[0], f * groups, *whole))
    for place in np.ndindex(*window):
        at = tuple(slice(i, i + (n - 1) * stride + 1, stride) for i, n in zip(place, x.shape[2:], strict=True))
        for g in range(groups):
            of, to = slice(g * c // groups, (g + 1) * c // groups), slice(g * f, (g + 1) * f)
            y[:, to][(..., *at)] += np.einsum("nctij,fc->nftij", x[:, of], w[place][:, of])
    cut = tuple(slice(padding, n - padding) for n in whole)
    return y[(..., *cut)] + p.get("bias", np.zeros(f * groups))[:, None, None, None]


def pool3d(reduce, x, size, stride, padding=0, value=0.0):
    x = np.pad(x, ((0, 0), (0, 0), *[(padding, padding)] * 3), constant_values=value)
    windows = np.lib.stride_tricks.sliding_window_view(x, (size,) * 3, axis=(2, 3, 4))
    return reduce(windows[:, :, ::stride, ::stride, ::stride], axis=(-3, -2, -1))


def halves(x):
    """Averages of (2, 2, 3) parts, of which those of the depth overlap."""
    y = np.stack([x[:, :, a:b].mean(2) for a, b in ((0, 3), (2, 5))], 2)
    return y.reshape(*y.shape[:3], 2, 2, 3, 2).mean((4, 6))


ROWS = [
    Row("Conv3d", lambda **d: nn.Conv3d(4, 3, (2, 3, 1), **d), (VOLUME,), (2, 3, 4, 2, 6), keep(conv3d)),
    Row(
        "Conv3d/all settings",
        lambda **d: nn.Conv3d(4, 6, 3, stride=2, padding=2, dilation=2, groups=2, bias=False, **d),
        (VOLUME,),
        (2, 6, 3, 2, 3),
        keep(lambda p, x: conv3d(p, x, 2, 2, 2, 2)),
    ),
    Row(
        "ConvTranspose3d",
        lambda **d: nn.ConvTranspose3d(4, 3, (2, 1, 3), **d),
        (VOLUME,),
        (2, 3, 6, 4, 8),
        keep(conv_transpose3d),
    ),
    Row(
        "ConvTranspose3d/all settings",
        lambda **d: nn.ConvTranspose3d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2, **d),
        (VOLUME,),
        (2, 6, 10, 8, 12),
        keep(lambda p, x: conv_transpose3d(p, x, 2, 1, 1, 2)),
    ),
    Row(
        "MaxPool3d",
        plain(lambda: nn.MaxPool3d(3, 2, 1)),
        (VOLUME,),
        (2, 4, 3, 2, 3),
        of_x(lambda x: pool3d(np.max, x, 3, 2, 1, -np.inf)),
    ),
    Row(
        "AvgPool3d",
        plain(lambda: nn.AvgPool3d(3, 2, 1)),
        (VOLUME,),
        (2, 4, 3, 2, 3),
        of_x(lambda x: pool3d(np.mean, x, 3, 2, 1)),
    ),
    Row("AdaptiveAvgPool3d", plain(lambda: nn.AdaptiveAvgPool3d((2, 2, 3))), (VOLUME,), (2, 4, 2, 2, 3), of_x(halves)),
    Row("BatchNorm3d", lambda **d: nn.BatchNorm3d(4, **d), (VOLUME,), VOLUME, batch_norm),
    Row(
        "Dropout3d",
        plain(lambda: nn.Dropout3d(0.3)),
        (VOLUME,),
        VOLUME,
        lambda p, t, x: x * drop(np.ones((*x.shape[:2], 1, 1, 1)), 0.3, t),
    ),
]
