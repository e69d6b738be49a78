"""Matrix products: Needle's tiled kernels, or cuBLAS where cupy brings it."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from needle_cuda import cublas
from needle_cuda.views import VIEW, merged, view_of
from needle_ndarray import NDArray
from needle_ndarray.backend import REDUCE

#: struct Matrix of tile.cuh: where each matrix of a batch begins, and the steps along its rows and columns.
MATRIX = np.dtype([("batch", VIEW), ("row", np.int64), ("column", np.int64)])

MOST_BATCHES = 65535  # of blocks along the last axis of a grid
FULL = 96  # blocks that keep a GPU busy: below, smaller tiles or parts of k pay
LEAST_PART = 512  # of k, in one block
DEPTH = 16  # columns of k in shared memory at once (tile.cuh)
LONG = 2048  # elements of a row from which a block, not a warp, adds them up


def matrix(a: NDArray) -> np.ndarray:
    """The layout of the matrices of `a`, its last two axes."""
    return _matrix(a.shape, a.strides)


@lru_cache(4096)
def _matrix(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    out = np.zeros((), MATRIX)
    out["batch"] = view_of(*merged(shape[:-2], strides[:-2]))
    out["row"], out["column"] = strides[-2:]
    out.flags.writeable = False
    return out


def i64(*values: int) -> list[np.int64]:
    """Sizes as arguments of a kernel."""
    return [np.int64(each) for each in values]


def tiles(size: int, side: int) -> int:
    return -(-size // side)


def parts_of(k: int, blocks: int) -> int:
    """Into how many parts k is cut, so that there are enough blocks and none has too little to do."""
    return max(1, min(FULL // max(blocks, 1), k // LEAST_PART, MOST_BATCHES))


class Products:
    """Verbs of CUDABackend: matmul."""

    _launch: Any
    _empty: Any
    fill: Any
    copy: Any
    reduce: Any
    cupy: Any
    launcher: Any

    def matmul(self, a: NDArray, b: NDArray, out: NDArray) -> None:
        """Of tiles in shared memory, where a or b is a vector by sums of rows; floats by cuBLAS where that can read them."""
        (m, n), k = out.shape[-2:], a.shape[-1]
        if out.size == 0:
            return
        if k == 0:
            self.fill(out, 0)
        elif n == 1:
            self._matvec(a, b, out)
        elif m == 1:
            self._matvec(b.mT, a.mT, out.mT)
        elif not cublas.matmul(self.launcher, a, b, out):
            self._tiled(a, b, out, self._side(m, n, math.prod(out.shape[:-2]), out.itemsize))

    @staticmethod
    def _side(m: int, n: int, batches: int, itemsize: int) -> int:
        """The side of the tiles: the largest of which there are enough, and which are not mostly empty."""
        if itemsize == 4 and min(m, n) >= 96 and tiles(m, 128) * tiles(n, 128) * batches >= FULL:
            return 128
        return 64 if min(m, n) > 32 and tiles(m, 64) * tiles(n, 64) * batches >= FULL // 8 else 32

    def _tiled(self, a: NDArray, b: NDArray, out: NDArray, side: int) -> None:
        (m, n), k, batches = out.shape[-2:], a.shape[-1], math.prod(out.shape[:-2])
        blocks = tiles(m, side) * tiles(n, side)
        parts = parts_of(k, blocks * batches)
        span = tiles(tiles(k, parts), DEPTH) * DEPTH
        parts = tiles(k, span)
        target = out if parts == 1 else self._empty((parts, *out.shape), out.dtype)
        sizes = i64(m, k, n, batches, span, out.size)
        at = matrix(target if parts == 1 else target[0])
        grid = (blocks, parts, min(batches, MOST_BATCHES))
        given = (a, matrix(a), b, matrix(b), *sizes, target, at)
        self._launch("matmul.cu", f"matmul_{side}", out.dtype, out.size, *given, grid=grid, block=256)
        if parts > 1:
            self._add_parts(target, out)

    def _add_parts(self, parts: NDArray, out: NDArray) -> None:
        """out = the sum of parts over their first axis, in out's dtype also for integers"""
        if out.dtype in ("uint8", "int32"):
            wide = self._empty(out.shape, "int64")
            self.reduce(REDUCE["sum"], parts, wide, (0,))
            self.copy(wide, out)
        else:
            self.reduce(REDUCE["sum"], parts, out, (0,))

    def _matvec(self, a: NDArray, b: NDArray, out: NDArray) -> None:
        """out (..., m, 1) = a (..., m, k) @ b (..., k, 1)"""
        m, k, batches = out.shape[-2], a.shape[-1], math.prod(out.shape[:-2])
        if a.strides[-2] == 1 and a.strides[-1] != 1 and m >= 8:
            name, block, grid = "matvec_columns", (32, 16), tiles(m, 32)
        else:
            block = (32, 8) if k < LONG else (256, 1)
            name, grid = "matvec_rows", min(tiles(m, block[1]), 1 << 20)
        given = (a, matrix(a), b, matrix(b), *i64(m, k, batches), out, matrix(out))
        self._launch(
            "matmul.cu", name, out.dtype, out.size, *given, grid=(grid, 1, min(batches, MOST_BATCHES)), block=block
        )
