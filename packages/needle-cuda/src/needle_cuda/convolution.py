"""Convolution and pooling: implicit matrix products, or a thread per element."""

from typing import Any

import numpy as np

from needle_cuda.products import DEPTH, MOST_BATCHES, parts_of, tiles
from needle_cuda.views import compact, dense
from needle_ndarray.backend import REDUCE
from needle_ndarray.ndarray import NDArray

SIDE = 64  # of a tile (conv.cu)
FEW = 8  # columns of a group below which tiles would be mostly empty

NUMBERS = (
    "n",
    "h",
    "w",
    "c",
    "oh",
    "ow",
    "f",
    "kh",
    "kw",
    "down",
    "right",
    "top",
    "left",
    "dilation_down",
    "dilation_right",
)
#: struct Convolution of conv.cu, struct Pooling of pool.cu
CONVOLUTION = np.dtype([(name, np.int64) for name in (*NUMBERS, "groups")] + [("gathered", np.int64, 4)])
POOLED = tuple(name for name in NUMBERS if name != "f" and "dilation" not in name)
POOLING = np.dtype([(name, np.int64) for name in POOLED] + [("x", np.int64, 4), ("y", np.int64, 4)])

Pair = tuple[int, int]
Sides = tuple[Pair, Pair]


def _convolution(
    x: NDArray,
    weight: NDArray,
    y: NDArray,
    gathered: NDArray,
    stride: Pair,
    padding: Sides,
    dilation: Pair,
    groups: int,
) -> np.ndarray:
    window = (*weight.shape[:2], *stride, padding[0][0], padding[1][0], *dilation)
    return np.array((*x.shape, *y.shape[1:], *window, groups, gathered.strides), CONVOLUTION)


def _pooling(x: NDArray, y: NDArray, size: Pair, stride: Pair, padding: Sides) -> np.ndarray:
    window = (*size, *stride, padding[0][0], padding[1][0])
    return np.array((*x.shape, *y.shape[1:3], *window, x.strides, y.strides), POOLING)


class Convolution:
    """Verbs of CUDABackend: convolution, pooling and their gradients."""

    launch: Any
    empty: Any
    fill: Any
    copy: Any
    reduce: Any

    def conv2d(
        self, x: NDArray, weight: NDArray, stride: Pair, padding: Sides, dilation: Pair, groups: int, out: NDArray
    ) -> None:
        """A product of tiles; for groups of few filters a sum per element. A weight that is no dense array is copied."""
        at = _convolution(x, weight, out, x, stride, padding, dilation, groups)
        places, filters = out.size // max(out.shape[3], 1), out.shape[3] // groups
        self._product("conv2d", x, weight, at, places, filters, groups, weight.size, out)

    def conv2d_input_grad(
        self, grad: NDArray, weight: NDArray, stride: Pair, padding: Sides, dilation: Pair, groups: int, out: NDArray
    ) -> None:
        """As conv2d, of grad and weight; for groups of few channels a sum per element."""
        at = _convolution(out, weight, grad, grad, stride, padding, dilation, groups)
        places, channels = out.size // max(out.shape[3], 1), out.shape[3] // groups
        self._product("conv2d_input_grad", grad, weight, at, places, channels, groups, weight.size, out)

    def _product(
        self, name: str, a: NDArray, b: NDArray, at: Any, places: int, width: int, groups: int, terms: int, out: NDArray
    ) -> None:
        """out (places, groups * width) of a, gathered as `at` says, and b"""
        if terms == 0:
            self.fill(out, 0)
            return
        target = out if dense(out) else self.empty(out.shape, out.dtype)
        given = (a, compact(b), at, target)
        if width < FEW or groups > MOST_BATCHES:
            self.launch("conv.cu", f"{name}_direct", out.dtype, out.size, *given)
        else:
            grid = (tiles(places, SIDE) * tiles(width, SIDE), 1, groups)
            self.launch("conv.cu", name, out.dtype, out.size, *given, grid=grid, block=256)
        if target is not out:
            self.copy(target, out)

    def conv2d_weight_grad(
        self, x: NDArray, grad: NDArray, stride: Pair, padding: Sides, dilation: Pair, groups: int, out: NDArray
    ) -> None:
        """A product of tiles whose long side, the places of windows, is cut into parts; they are added up afterwards."""
        at = _convolution(x, out, grad, x, stride, padding, dilation, groups)
        (kh, kw, channels, f), places = out.shape, grad.size // max(grad.shape[3], 1)
        if places == 0 or out.size == 0:
            self.fill(out, 0)
            return
        taps, filters = kh * kw * channels, f // groups
        direct = filters < FEW or groups > MOST_BATCHES
        blocks = tiles(f, 32) * min(taps, MOST_BATCHES) if direct else tiles(taps, SIDE) * tiles(filters, SIDE) * groups
        span = tiles(tiles(places, parts_of(places, blocks)), DEPTH) * DEPTH
        parts = tiles(places, span)
        target = out if parts == 1 and dense(out) else self.empty((parts, *out.shape), out.dtype)
        given = (x, compact(grad), at, np.int64(span), target)
        block: tuple[int, ...]
        if direct:
            grid, name, block = (tiles(f, 32), parts, min(taps, MOST_BATCHES)), "conv2d_weight_grad_direct", (32, 8)
        else:
            grid, name, block = (tiles(taps, SIDE) * tiles(filters, SIDE), parts, groups), "conv2d_weight_grad", (256,)
        self.launch("conv.cu", name, out.dtype, out.size, *given, grid=grid, block=block)
        if parts > 1:
            self.reduce(REDUCE["sum"], target, (0,), out)
        elif target is not out:
            self.copy(target[0], out)

    # ---- Pooling -----------------------------------------------------------------------------------------------------

    def max_pool2d(self, x: NDArray, size: Pair, stride: Pair, padding: Sides, out: NDArray) -> None:
        at = _pooling(x, out, size, stride, padding)
        self.launch("pool.cu", "max_pool2d", x.dtype, out.size, x, at, out)

    def max_pool2d_grad(
        self, grad: NDArray, x: NDArray, size: Pair, stride: Pair, padding: Sides, out: NDArray
    ) -> None:
        chosen = self.empty(grad.shape, "int64")
        at = _pooling(x, grad, size, stride, padding)
        self.launch("pool.cu", "max_pool2d_chosen", x.dtype, grad.size, x, at, chosen)
        at = _pooling(out, grad, size, stride, padding)
        self.launch("pool.cu", "max_pool2d_grad", x.dtype, out.size, grad, chosen, at, out)

    def avg_pool2d(self, x: NDArray, size: Pair, stride: Pair, padding: Sides, out: NDArray) -> None:
        at = _pooling(x, out, size, stride, padding)
        self.launch("pool.cu", "avg_pool2d", x.dtype, out.size, x, at, out)

    def avg_pool2d_grad(self, grad: NDArray, size: Pair, stride: Pair, padding: Sides, out: NDArray) -> None:
        at = _pooling(out, grad, size, stride, padding)
        self.launch("pool.cu", "avg_pool2d_grad", out.dtype, out.size, grad, at, out)
