"""The contract of convolution and pooling, and of their gradients."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from needle_ndarray.testing.calls import call, composed
from needle_ndarray.testing.cases import FLOATS, KINDS, Suite, plain, values
from needle_ndarray.testing.oracle import WIDER, assert_same, assert_within, terms_bound
from needle_ndarray.testing.tables import each


@dataclass(frozen=True)
class Geometry:
    """Sizes of a convolution, or of a pooling: then `filters` is the number of channels."""

    x: tuple[int, int, int, int]
    size: tuple[int, int]
    filters: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple = ((0, 0), (0, 0))
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    y: tuple = field(init=False)
    weight: tuple = field(init=False)

    def __post_init__(self) -> None:
        n, h, w, c = self.x
        sides = [
            (size + sum(around) - (k - 1) * d - 1) // s + 1
            for size, around, k, d, s in zip((h, w), self.padding, self.size, self.dilation, self.stride, strict=True)
        ]
        object.__setattr__(self, "y", (n, *sides, self.filters))
        object.__setattr__(self, "weight", (*self.size, c // self.groups, self.filters))

    @property
    def convolution(self) -> tuple:
        return self.stride, self.padding, self.dilation, self.groups

    @property
    def pooling(self) -> tuple:
        return self.size, self.stride, self.padding


ONE = ((1, 1), (1, 1))
CONVOLUTIONS = {
    "plain": Geometry((2, 6, 7, 3), (3, 3), 5),
    "same": Geometry((2, 7, 6, 16), (3, 3), 16, padding=ONE),
    "strided": Geometry((2, 9, 8, 4), (3, 2), 6, stride=(2, 3)),
    "first layer": Geometry((2, 15, 16, 3), (7, 7), 16, stride=(4, 4), padding=((3, 3), (3, 3))),
    "asymmetric": Geometry((2, 5, 6, 4), (3, 3), 7, padding=((2, 0), (1, 3)), stride=(1, 2)),
    "dilated": Geometry((1, 11, 12, 3), (3, 3), 4, dilation=(2, 3), padding=((1, 2), (3, 0))),
    "larger than the image": Geometry((2, 2, 3, 6), (5, 4), 3, padding=((2, 2), (1, 2))),
    "padded beyond the kernel": Geometry((1, 3, 3, 8), (2, 2), 3, padding=((3, 4), (5, 0))),
    "one place of padding": Geometry((9, 1, 1, 6), (3, 3), 5, padding=ONE),
    "half of it padding": Geometry((9, 2, 2, 6), (3, 3), 5, stride=(2, 2), padding=ONE),
    "padding all around": Geometry((2, 2, 1, 6), (7, 7), 4, padding=((5, 4), (6, 3)), stride=(2, 1), groups=2),
    "padding dilated": Geometry((2, 1, 2, 3), (4, 5), 4, padding=((4, 5), (9, 6)), dilation=(2, 3)),
    "whole image": Geometry((3, 4, 3, 6), (4, 3), 5),
    "1x1": Geometry((2, 4, 5, 6), (1, 1), 7),
    "1x1 strided": Geometry((2, 4, 5, 6), (1, 1), 7, stride=(2, 2)),
    "1x1 padded": Geometry((1, 3, 2, 6), (1, 1), 7, padding=((1, 0), (0, 2))),
    "1x1 groups": Geometry((2, 3, 3, 6), (1, 1), 4, groups=2),
    "stride beyond the image": Geometry((2, 4, 4, 2), (2, 2), 3, stride=(9, 7)),
    "groups": Geometry((2, 5, 6, 12), (3, 3), 6, groups=2, padding=ONE),
    "groups dilated": Geometry((2, 9, 7, 6), (2, 3), 9, groups=3, dilation=(3, 2), stride=(2, 1)),
    "depthwise": Geometry((2, 6, 5, 5), (3, 3), 5, groups=5, padding=ONE),
    "depthwise strided": Geometry((1, 9, 9, 33), (3, 2), 33, groups=33, stride=(2, 3), dilation=(2, 1), padding=((0, 2), (1, 1))),
    "depthwise twice": Geometry((2, 5, 5, 3), (3, 3), 6, groups=3),
    "tails": Geometry((1, 5, 7, 9), (3, 3), 35),
    "many channels": Geometry((2, 4, 4, 700), (3, 3), 3, padding=ONE),
    "many filters": Geometry((2, 4, 4, 7), (3, 3), 300, padding=ONE),
    "tall": Geometry((1, 70, 5, 6), (3, 3), 4, padding=ONE),
    "tall strided": Geometry((1, 90, 5, 3), (3, 3), 4, padding=ONE, stride=(2, 2)),
    "tall depthwise": Geometry((1, 50, 4, 4), (3, 3), 4, padding=ONE, groups=4),
    "dilated beyond a cache": Geometry((1, 400, 1, 2), (2, 2), 3, dilation=(399, 700), padding=((0, 0), (350, 351))),
    "threads": Geometry((3, 24, 25, 8), (3, 3), 18, padding=ONE),
    "threads strided": Geometry((3, 24, 25, 8), (3, 3), 18, stride=(2, 2)),
    "one image": Geometry((1, 64, 40, 8), (3, 3), 18, padding=ONE, stride=(2, 1)),
    "colours": Geometry((2, 9, 37, 3), (3, 3), 7, padding=ONE, stride=(2, 1)),
    "colours, unpadded": Geometry((1, 6, 33, 3), (3, 2), 16),
    "many colours": Geometry((25, 7, 18, 3), (3, 3), 20, padding=ONE, stride=(2, 2)),
    "few channels in groups": Geometry((2, 6, 9, 4), (3, 2), 6, padding=ONE, dilation=(1, 2), groups=2),
    "one channel": Geometry((2, 9, 37, 1), (5, 5), 6, padding=((2, 2), (2, 2))),
    "one channel, one filter": Geometry((1, 6, 21, 1), (3, 2), 1, stride=(2, 1), dilation=(1, 3)),
    "one channel, many images": Geometry((26, 5, 9, 1), (3, 3), 4, padding=ONE),
    "one channel, tall": Geometry((1, 70, 40, 1), (3, 3), 5, padding=((1, 0), (2, 1))),
    "corner of the kernel": Geometry((3, 2, 2, 5), (3, 3), 20, padding=ONE, stride=(2, 2)),
    "corner, whole tiles": Geometry((2, 2, 2, 5), (3, 3), 128, padding=ONE, stride=(2, 2)),
    "corner, many images": Geometry((27, 2, 2, 4), (3, 3), 64, padding=ONE, stride=(2, 2)),
    "corner, dilated": Geometry((2, 3, 2, 6), (4, 5), 32, padding=((3, 2), (4, 6)), stride=(2, 3), dilation=(2, 2)),
    "middle columns in groups": Geometry((2, 2, 1, 4), (2, 3), 64, padding=((1, 1), (1, 1)), groups=2),
    "many images": Geometry((26, 4, 3, 7), (3, 3), 9, padding=ONE),
    "many strided": Geometry((25, 5, 6, 8), (3, 3), 6, padding=((1, 0), (2, 1)), stride=(2, 3)),
    "many strided apart": Geometry((24, 6, 5, 6), (2, 1), 3, stride=(3, 2)),
    "many dilated": Geometry((24, 5, 6, 6), (3, 2), 20, padding=((2, 3), (1, 4)), dilation=(2, 3)),
    "many groups": Geometry((25, 3, 4, 12), (3, 3), 14, padding=ONE, stride=(2, 1), groups=2),
    "no batch": Geometry((0, 4, 4, 3), (3, 3), 5),
    "no channels": Geometry((2, 4, 4, 0), (3, 3), 5),
    "no filters": Geometry((2, 4, 4, 3), (3, 3), 0),
    "nothing but padding": Geometry((2, 0, 3, 2), (2, 2), 3, padding=ONE),
}  # fmt: skip
POOLINGS = {
    "touching": Geometry((2, 6, 8, 3), (2, 2), 3, stride=(2, 2)),
    "touching pairs": Geometry((2, 9, 31, 6), (2, 2), 6, stride=(2, 2)),
    "overlapping pairs": Geometry((2, 4, 12, 18), (2, 2), 18),
    "pairs apart": Geometry((1, 5, 40, 2), (2, 2), 2, stride=(3, 3)),
    "cut": Geometry((2, 7, 9, 17), (2, 3), 17, stride=(2, 3)),
    "overlapping": Geometry((2, 6, 5, 4), (3, 3), 4),
    "padded": Geometry((2, 7, 8, 16), (3, 3), 16, stride=(2, 2), padding=ONE),
    "asymmetric": Geometry((1, 5, 6, 3), (3, 2), 3, stride=(2, 1), padding=((2, 0), (0, 1))),
    "larger than the image": Geometry((2, 2, 3, 3), (5, 4), 3, padding=((2, 2), (1, 1))),
    "windows of padding": Geometry((1, 2, 2, 3), (2, 2), 3, padding=((3, 2), (2, 4))),
    "1x1": Geometry((2, 3, 4, 3), (1, 1), 3),
    "stride beyond": Geometry((2, 5, 5, 3), (2, 2), 3, stride=(3, 8)),
    "whole": Geometry((2, 5, 6, 3), (5, 6), 3),
    "tall": Geometry((1, 70, 5, 3), (3, 3), 3, padding=ONE),
    "threads": Geometry((4, 30, 33, 9), (3, 3), 9, stride=(2, 2), padding=ONE),
    "one image": Geometry((1, 60, 40, 4), (3, 3), 4, padding=ONE),
    "no batch": Geometry((0, 4, 4, 3), (3, 3), 3),
    "no channels": Geometry((2, 4, 4, 0), (3, 3), 0),
    "nothing but padding": Geometry((2, 0, 3, 2), (2, 2), 2, padding=ONE),
}

#: What is pooled: ties go to the first of the largest, also where that is -inf as the padding is.
VALUES = {
    "special": values,
    "ties": lambda dtype, shape, salt: (plain(dtype, shape, salt) > 0).astype(dtype),
    "least": lambda dtype, shape, salt: np.full(shape, -np.inf, dtype),
}

#: Kinds of x, weight and y; `channels_first` is the NHWC view of NCHW memory. A result has the kind too, where it is writable.
OPERANDS = [
    tuple(line.split(","))
    for line in """
    compact,compact,compact
    channels_first,channels_first,channels_first
    sliced,sliced,sliced
    negative,flipped,flipped
    flipped,negative,negative
    offset,offset,offset
    transposed,transposed,transposed
    broadcast_rows,broadcast_columns,broadcast_columns
    broadcast_scalar,compact,broadcast_rows
    """.split()
]

#: Geometries that are tried with every kind of view.
VIEWED = (
    "same", "strided", "groups", "depthwise", "1x1", "colours", "colours, unpadded", "many colours", "few channels in groups",
    "one channel",
    "corner, whole tiles",
)  # fmt: skip
#: (geometry, kinds, way): `own` is the backend's verb, `composed` the default made of others.
CASES = [(name, OPERANDS[0], way) for name in CONVOLUTIONS for way in ("own", "composed")]
CASES += [(name, k, "own") for name in VIEWED for k in OPERANDS[1:]]
POOL_CASES = [(name, OPERANDS[0], way) for name in POOLINGS for way in ("own", "composed")]
POOL_CASES += [(name, k, "own") for name in ("padded", "overlapping") for k in OPERANDS[1:]]


# ---- What is right ----------------------------------------------------------------------------------------------------


def seen(x: np.ndarray, g: Geometry, value: float = 0) -> np.ndarray:
    """(N, OH, OW, C, KH, KW): what the window sees at each of its places."""
    padded = np.pad(x, ((0, 0), *g.padding, (0, 0)), constant_values=value)
    extent = [(k - 1) * d + 1 for k, d in zip(g.size, g.dilation, strict=True)]
    every = sliding_window_view(padded, extent, axis=(1, 2))
    return every[:, :: g.stride[0], :: g.stride[1], :, :: g.dilation[0], :: g.dilation[1]]


def _groups(g: Geometry) -> list[tuple[slice, slice]]:
    c, f = g.x[3] // g.groups, g.filters // g.groups
    return [(slice(i * c, i * c + c), slice(i * f, i * f + f)) for i in range(g.groups)]


def conv2d(x: np.ndarray, weight: np.ndarray, g: Geometry) -> np.ndarray:
    out = np.zeros(g.y, x.dtype)
    for c, f in _groups(g):
        out[..., f] = np.einsum("nijcuv,uvcf->nijf", seen(x, g)[..., c, :, :], weight[..., f])
    return out


def conv2d_weight_grad(x: np.ndarray, grad: np.ndarray, g: Geometry) -> np.ndarray:
    out = np.zeros(g.weight, x.dtype)
    for c, f in _groups(g):
        out[..., f] = np.einsum("nijcuv,nijf->uvcf", seen(x, g)[..., c, :, :], grad[..., f])
    return out


def scattered(parts: np.ndarray, g: Geometry) -> np.ndarray:
    """(N, OH, OW, C, KH, KW), the parts of every window, added up where `seen` would have found them."""
    n, h, w, c = g.x
    (top, bottom), (left, right) = g.padding
    out = np.zeros((n, h + top + bottom, w + left + right, c), parts.dtype)
    for u, v in np.ndindex(*g.size):
        rows = u * g.dilation[0] + g.stride[0] * np.arange(g.y[1])
        columns = v * g.dilation[1] + g.stride[1] * np.arange(g.y[2])
        out[:, rows[:, None], columns] += parts[..., u, v]
    return out[:, top : top + h, left : left + w]


def conv2d_input_grad(grad: np.ndarray, weight: np.ndarray, g: Geometry) -> np.ndarray:
    parts = np.zeros((*g.y[:3], g.x[3], *g.size), grad.dtype)
    for c, f in _groups(g):
        parts[..., c, :, :] = np.einsum("nijf,uvcf->nijcuv", grad[..., f], weight[..., f])
    return scattered(parts, g)


def max_pool2d_grad(grad: np.ndarray, x: np.ndarray, g: Geometry) -> np.ndarray:
    """To the first of the places inside of the image that is NaN, or else the largest."""
    here, inside = seen(x, g, -np.inf), seen(np.ones(x.shape, bool), g)
    hit = inside & (np.isnan(here) | (here == here.max(axis=(4, 5), keepdims=True)))
    flat = hit.reshape(*g.y, g.size[0] * g.size[1])
    flat &= np.cumsum(flat, axis=-1) == 1
    return scattered(np.where(flat.reshape(hit.shape), grad[..., None, None], 0), g)


def spread(share: np.ndarray, g: Geometry) -> np.ndarray:
    """Every element of a window gets the same."""
    return scattered(np.broadcast_to(share[..., None, None], (*g.y, *g.size)), g)


# ---- The suite --------------------------------------------------------------------------------------------------------


def _channels_last(a: Any) -> Any:
    return a.transpose((0, 2, 3, 1))


class ConvolutionSuite(Suite):
    both = each("way", ["own", "composed"])  # the backend's, and the default made of other verbs

    def call(self, way: str, verb: str, *args: Any) -> None:
        (call if way == "own" else composed)(self.backend, verb, *args)

    def image(self, kind: str, dtype: str, shape: tuple, salt: int, make: Any = plain) -> tuple:
        """An array in that kind of view, and its values."""
        if kind == "channels_first":
            n, h, w, c = shape
            base = make(dtype, (n, c, h, w), salt)
            return _channels_last(self.array(base)), _channels_last(base)
        return self.operand(kind, dtype, shape, salt, make)

    def target(self, kind: str, dtype: str, shape: tuple) -> tuple:
        """An array to write to in that kind of view, and a function that returns what was written."""
        if kind == "channels_first":
            n, h, w, c = shape
            canvas = self.canvas("compact", (n, c, h, w), dtype)
            return _channels_last(canvas.out), lambda: _channels_last(canvas.result())
        canvas = self.canvas(kind if KINDS[kind].writable else "compact", shape, dtype)
        return canvas.out, canvas.result

    @each("name, kinds, way", CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_conv2d(self, dtype, name, kinds, way):
        g, wide = CONVOLUTIONS[name], WIDER[dtype]
        (a, x), (b, weight) = self.image(kinds[0], dtype, g.x, 1), self.image(kinds[1], dtype, g.weight, 2)
        out, result = self.target(kinds[2], dtype, g.y)
        self.call(way, "conv2d", a, b, *g.convolution, out)
        bound = terms_bound(dtype, np.prod(g.weight[:3]), conv2d(np.abs(x), np.abs(weight), g))
        assert_within(result(), conv2d(x.astype(wide), weight.astype(wide), g), bound, "conv2d")

    @each("name, kinds, way", CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_conv2d_input_grad(self, dtype, name, kinds, way):
        g, wide = CONVOLUTIONS[name], WIDER[dtype]
        (a, grad), (b, weight) = self.image(kinds[2], dtype, g.y, 1), self.image(kinds[1], dtype, g.weight, 2)
        out, result = self.target(kinds[0], dtype, g.x)
        self.call(way, "conv2d_input_grad", a, b, *g.convolution, out)
        terms = g.size[0] * g.size[1] * g.filters // g.groups
        bound = terms_bound(dtype, terms, conv2d_input_grad(np.abs(grad), np.abs(weight), g))
        expected = conv2d_input_grad(grad.astype(wide), weight.astype(wide), g)
        assert_within(result(), expected, bound, "conv2d_input_grad")

    @each("name, kinds, way", CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_conv2d_weight_grad(self, dtype, name, kinds, way):
        g, wide = CONVOLUTIONS[name], WIDER[dtype]
        (a, x), (b, grad) = self.image(kinds[0], dtype, g.x, 1), self.image(kinds[2], dtype, g.y, 2)
        out, result = self.target(kinds[1], dtype, g.weight)
        self.call(way, "conv2d_weight_grad", a, b, *g.convolution, out)
        bound = terms_bound(dtype, np.prod(g.y[:3]), conv2d_weight_grad(np.abs(x), np.abs(grad), g))
        expected = conv2d_weight_grad(x.astype(wide), grad.astype(wide), g)
        assert_within(result(), expected, bound, "conv2d_weight_grad")

    @each("name", CONVOLUTIONS)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_gradients_are_adjoint(self, dtype, name):
        """<conv2d(x, w), g> = <x, input_grad(g, w)> = <w, weight_grad(x, g)>"""
        g = CONVOLUTIONS[name]
        x, weight, grad = plain(dtype, g.x, 1), plain(dtype, g.weight, 2), plain(dtype, g.y, 3)
        y, dx, dw = (self.canvas("compact", shape, dtype) for shape in (g.y, g.x, g.weight))
        self.call("own", "conv2d", self.array(x), self.array(weight), *g.convolution, y.out)
        self.call("own", "conv2d_input_grad", self.array(grad), self.array(weight), *g.convolution, dx.out)
        self.call("own", "conv2d_weight_grad", self.array(x), self.array(grad), *g.convolution, dw.out)
        pairs = [(y.result(), grad), (dx.result(), x), (dw.result(), weight)]
        one, two, three = (np.sum(a.astype(WIDER[dtype]) * b) for a, b in pairs)
        magnitude = np.sum(conv2d(np.abs(x), np.abs(weight), g) * np.abs(grad))
        terms = np.prod(g.weight[:3]) + g.size[0] * g.size[1] * g.filters // g.groups + np.prod(g.y[:3])
        bound = terms_bound(dtype, terms, magnitude)
        assert abs(one - two) <= bound and abs(one - three) <= bound

    @both
    @each("name", ["same", "many channels", "depthwise", "1x1", "strided"])
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_nan_stays_where_it_is_seen(self, dtype, name, way):
        """A NaN reaches every place that sees it, and no other: padding is never multiplied into one, memory never read twice."""
        g = CONVOLUTIONS[name]
        x, weight = plain(dtype, g.x, 1).copy(), plain(dtype, g.weight, 2)
        x[1, 1, 2, 0] = np.nan
        out, result = self.target("compact", dtype, g.y)
        self.call(way, "conv2d", self.array(x), self.array(weight), *g.convolution, out)
        hit = np.isnan(seen(x, g)).any(axis=(4, 5))
        expected = np.zeros(g.y, bool)
        for c, f in _groups(g):
            expected[..., f] = hit[..., c].any(axis=-1, keepdims=True)
        assert_same(np.isnan(result()), expected)

    # ---- Pooling ------------------------------------------------------------------------------------------------------

    @each("make", ["special", "least"])
    @each("name, kinds, way", POOL_CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_max_pool2d(self, dtype, name, kinds, make, way):
        g = POOLINGS[name]
        a, x = self.image(kinds[0], dtype, g.x, 1, VALUES[make])
        out, result = self.target(kinds[2], dtype, g.y)
        self.call(way, "max_pool2d", a, *g.pooling, out)
        assert_same(result(), seen(x, g, -np.inf).max(axis=(4, 5)), signs=False, context="max_pool2d")

    @each("make", VALUES)
    @each("name, kinds, way", POOL_CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_max_pool2d_grad(self, dtype, name, kinds, make, way):
        g = POOLINGS[name]
        (a, x), (b, grad) = self.image(kinds[0], dtype, g.x, 1, VALUES[make]), self.image(kinds[2], dtype, g.y, 2)
        out, result = self.target(kinds[0], dtype, g.x)
        self.call(way, "max_pool2d_grad", b, a, *g.pooling, out)
        bound = terms_bound(dtype, g.size[0] * g.size[1], max_pool2d_grad(np.abs(grad), x, g))
        assert_within(result(), max_pool2d_grad(grad.astype(WIDER[dtype]), x, g), bound, "max_pool2d_grad")

    @each("name, kinds, way", POOL_CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_avg_pool2d(self, dtype, name, kinds, way):
        g, area = POOLINGS[name], POOLINGS[name].size[0] * POOLINGS[name].size[1]
        a, x = self.image(kinds[0], dtype, g.x, 1)
        out, result = self.target(kinds[2], dtype, g.y)
        self.call(way, "avg_pool2d", a, *g.pooling, out)
        wide = x.astype(WIDER[dtype])
        bound = terms_bound(dtype, area, seen(np.abs(x), g).sum(axis=(4, 5)) / area)
        assert_within(result(), seen(wide, g).sum(axis=(4, 5)) / area, bound, "avg_pool2d")

    @each("name, kinds, way", POOL_CASES)
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_avg_pool2d_grad(self, dtype, name, kinds, way):
        g, area = POOLINGS[name], POOLINGS[name].size[0] * POOLINGS[name].size[1]
        b, grad = self.image(kinds[2], dtype, g.y, 2)
        out, result = self.target(kinds[0], dtype, g.x)
        self.call(way, "avg_pool2d_grad", b, *g.pooling, out)
        wide, size = grad.astype(WIDER[dtype]) / area, np.abs(grad) / area
        bound = terms_bound(dtype, area, spread(size, g))
        assert_within(result(), spread(wide, g), bound, "avg_pool2d_grad")
