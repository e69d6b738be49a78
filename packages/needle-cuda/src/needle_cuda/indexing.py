"""Rows by number: take and scatter, and the sort that brings entries of one row together in their order."""

from typing import Any

import numpy as np

from needle_cuda.views import joint_of
from needle_ndarray import NDArray
from needle_ndarray.backend import SCAN, Op

FEW = 256  # entries that are compared each with each; more are sorted
SLICE = 4096  # entries that a block sorts, and a multiple of its threads
THREADS = 256


class Indexing:
    """Verbs of CUDABackend: take, scatter."""

    _launch: Any
    _empty: Any
    scan: Any

    def take(self, a: NDArray, index: NDArray, out: NDArray) -> None:
        rows, columns, inner = _rows(a, out)
        steps = [np.int64(each) for each in (a.strides[0], index.strides[0], out.strides[0])]
        given = (a, index, out, *steps, inner, np.int64(rows), np.int64(columns))
        self._launch("index.cu", "take", a.dtype, rows * columns, *given)

    def scatter(self, op: Op, a: NDArray, index: NDArray, out: NDArray) -> None:
        out._handle.bounds = None
        rows, columns, inner = _rows(out, a)
        if rows * columns == 0:
            return
        out_row, step, a_row = [np.int64(each) for each in (out.strides[0], index.strides[0], a.strides[0])]
        sizes = (inner, np.int64(rows), np.int64(columns))
        if rows <= FEW:
            given: tuple[Any, ...] = (out, index, a, out_row, step, a_row, *sizes)
            self._launch("index.cu", f"{op.name}_few", a.dtype, rows * columns, *given)
        else:
            keys, order = self._sorted_entries(index, out.shape[0])
            given = (out, keys, order, a, out_row, a_row, *sizes)
            self._launch("index.cu", f"{op.name}_sorted", a.dtype, rows * columns, *given)

    def _sorted_entries(self, index: NDArray, bound: int) -> tuple[NDArray, NDArray]:
        """The entries (in [0, bound)) in ascending order, and where each was; equal ones keep their order."""
        n = index.size
        keys, order, new_keys, new_order = [self._empty((n,), "int64") for _ in range(4)]
        self._launch("index.cu", "sort_start", "int64", n, index, np.int64(index.strides[0]), keys, order, np.int64(n))
        blocks = min(-(-n // SLICE), 1024)
        slice_ = -(-n // (blocks * THREADS)) * THREADS
        counts, starts = [self._empty((THREADS * blocks,), "int64") for _ in range(2)]
        for shift in range(0, max((bound - 1).bit_length(), 1), 8):
            at = (np.int32(shift), np.int64(slice_), np.int64(n))
            self._launch("index.cu", "sort_count", "int64", n, keys, counts, *at, grid=(blocks,), block=THREADS)
            self.scan(SCAN["cumsum"], counts, starts, 0)
            given = (keys, order, counts, starts, new_keys, new_order, *at)
            self._launch("index.cu", "sort_move", "int64", n, *given, grid=(blocks,), block=THREADS)
            keys, new_keys, order, new_order = new_keys, keys, new_order, order
        return keys, order


def _rows(a: NDArray, values: NDArray) -> tuple[int, int, np.ndarray]:
    """The number of entries, the elements of a row, and how they lie in both."""
    columns = int(np.prod(values.shape[1:], dtype=np.int64))
    return values.shape[0], columns, joint_of(values.shape[1:], a.strides[1:], values.strides[1:])
