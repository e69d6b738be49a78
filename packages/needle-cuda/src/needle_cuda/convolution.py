"""Convolution and pooling: implicit matrix products, or a thread per element."""

from typing import Any

import numpy as np

from needle_cuda.products import DEPTH, MOST_BATCHES, parts_of, tiles
from needle_cuda.views import compact, dense
from needle_ndarray import NDArray
from needle_ndarray.backend import REDUCE, Op

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

    _launch: Any
    _empty: Any
    fill: Any
    copy: Any
    reduce: Any

    def conv2d(
        self, op: Op, x: NDArray, weight: NDArray, y: NDArray, stride: Pair, padding: Sides, dilation: Pair, groups: int
    ) -> None:
        """Products of tiles; for groups of few filters or channels sums per element. A weight that is no dense array is copied."""
        made = {"conv2d": y, "conv2d_input_grad": x, "conv2d_weight_grad": weight}[op.name]
        gathered = y if op.name == "conv2d_input_grad" else x
        at = _convolution(x, weight, y, gathered, stride, padding, dilation, groups)
        if op.name == "conv2d_weight_grad":
            self._weight_grad(x, weight, y, at, groups)
        else:
            self._product(op.name, gathered, weight, at, groups, made)

    def _product(self, name: str, a: NDArray, weight: NDArray, at: Any, groups: int, out: NDArray) -> None:
        """out (places, groups * width) of a, gathered as `at` says, and weight"""
        places, width = out.size // max(out.shape[3], 1), out.shape[3] // groups
        if weight.size == 0:
            self.fill(out, 0)
            return
        target = out if dense(out) else self._empty(out.shape, out.dtype)
        given = (a, compact(weight), at, target)
        if width < FEW or groups > MOST_BATCHES:
            self._launch("conv.cu", f"{name}_direct", out.dtype, out.size, *given)
        else:
            grid = (tiles(places, SIDE) * tiles(width, SIDE), 1, groups)
            self._launch("conv.cu", name, out.dtype, out.size, *given, grid=grid, block=256)
        if target is not out:
            self.copy(target, out)

    def _weight_grad(self, x: NDArray, out: NDArray, grad: NDArray, at: Any, groups: int) -> None:
        """A product of tiles whose long side, the places of windows, is cut into parts; they are added up afterwards."""
        (kh, kw, channels, f), places = out.shape, grad.size // max(grad.shape[3], 1)
        if places == 0 or out.size == 0:
            self.fill(out, 0)
            return
        taps, filters = kh * kw * channels, f // groups
        direct = filters < FEW or groups > MOST_BATCHES
        blocks = tiles(f, 32) * min(taps, MOST_BATCHES) if direct else tiles(taps, SIDE) * tiles(filters, SIDE) * groups
        span = tiles(tiles(places, parts_of(places, blocks)), DEPTH) * DEPTH
        parts = tiles(places, span)
        target = out if parts == 1 and dense(out) else self._empty((parts, *out.shape), out.dtype)
        given = (x, compact(grad), at, np.int64(span), target)
        block: tuple[int, ...]
        if direct:
            grid, name, block = (tiles(f, 32), parts, min(taps, MOST_BATCHES)), "conv2d_weight_grad_direct", (32, 8)
        else:
            grid, name, block = (tiles(taps, SIDE) * tiles(filters, SIDE), parts, groups), "conv2d_weight_grad", (256,)
        self._launch("conv.cu", name, out.dtype, out.size, *given, grid=grid, block=block)
        if parts > 1:
            self.reduce(REDUCE["sum"], target, out, (0,))
        elif target is not out:
            self.copy(target[0], out)

    # ---- Pooling -----------------------------------------------------------------------------------------------------

    def pool2d(self, op: Op, x: NDArray, out: NDArray, size: Pair, stride: Pair, padding: Sides) -> None:
        at = _pooling(x, out, size, stride, padding)
        self._launch("pool.cu", op.name, x.dtype, out.size, x, at, out)

    def pool2d_grad(
        self, op: Op, grad: NDArray, x: Any, out: NDArray, size: Pair, stride: Pair, padding: Sides
    ) -> None:
        at, chosen = _pooling(out, grad, size, stride, padding), []
        if op.name == "max_pool2d":
            chosen = [self._empty(grad.shape, "int64")]
            where = _pooling(x, grad, size, stride, padding)
            self._launch("pool.cu", "max_pool2d_chosen", out.dtype, grad.size, x, where, *chosen)
        self._launch("pool.cu", f"{op.name}_grad", out.dtype, out.size, grad, *chosen, at, out)
