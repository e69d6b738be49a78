"""Reductions and scans: which kernel of reduce.cu takes an array's layout, and how rows are cut into parts."""

import math
from typing import Any

import numpy as np

from needle_cuda.views import dense, joint_of, merged, view_of
from needle_ndarray import NDArray
from needle_ndarray.backend import SCAN, Op

FEW = 16  # elements of a row that a thread takes by itself
TILE = 1024  # elements of a line that a block scans
ENOUGH_BLOCKS = 512  # for the largest devices; rows are cut into parts below
WIDE = {"float32": "float64", "float64": "float64", "int64": "int64"}


class Reductions:
    """Verbs of CUDABackend: reduce, arg_reduce, scan."""

    _launch: Any
    _empty: Any
    fill: Any

    def reduce(self, op: Op, a: NDArray, out: NDArray, axes: tuple[int, ...]) -> None:
        known = _known(op, a, axes)
        if known is None:
            self._reduce(op, a, axes, out)
        else:
            self.fill(out, known)

    def arg_reduce(self, op: Op, a: NDArray, out: NDArray, axis: int) -> None:
        self._reduce(op, a, (axis,), out)

    def _reduce(self, op: Op, a: NDArray, axes: tuple[int, ...], out: NDArray) -> None:
        if out.size == 0:
            return
        kept, reduced, by_rows = _arranged(a, axes, out)
        n, m = out.size, math.prod([a.shape[i] for i in axes])
        by_rows = by_rows and m > FEW
        block, parts = _rows(n, m) if by_rows else _columns(n, m)
        form = "rows" if by_rows else "columns"
        partial = self._empty((2 * n * parts,), "float64") if parts > 1 else None  # 16 bytes each, whatever they are
        units = n if by_rows else -(-n // block[0])
        grid = (min(-(-units * parts // (block[1] if by_rows else 1)), 1 << 16),)
        sizes = [np.int64(each) for each in (n, m, parts)]
        name, one = f"reduce_{op.name}", (f"REDUCE_OP={op.name}",)
        given = (a, out, partial, kept, reduced, *sizes)
        self._launch("reduce.cu", f"{name}_{form}", a.dtype, 1, *given, block=block, grid=grid, defines=one)
        if parts > 1:
            grid = (min(-(-n // 8), 1 << 16),)
            given = (partial, out, kept, np.int64(n), np.int64(parts))
            self._launch("reduce.cu", f"{name}_finish", a.dtype, 1, *given, block=(32, 8), grid=grid, defines=one)

    def scan(self, op: Op, a: NDArray, out: NDArray, axis: int) -> None:
        if out.size == 0:
            return
        kept, _, by_rows = _arranged(a, (axis,), _without(out, axis))
        m = a.shape[axis]
        n = out.size // m
        steps = (np.int64(a.strides[axis]), np.int64(out.strides[axis]))
        sizes = (np.int64(n), np.int64(m))
        if (not by_rows and n >= 32) or m <= 8:
            self._launch("reduce.cu", "scan_columns", a.dtype, n, a, out, kept, *steps, *sizes)
            return
        tiles = -(-m // TILE)
        totals = self._empty((n, tiles), WIDE[a.dtype])
        grid = (min(n * tiles, 1 << 16),)
        self._launch(
            "reduce.cu", "scan_rows", a.dtype, 1, a, out, totals, kept, *steps, *sizes, block=TILE // 4, grid=grid
        )
        if tiles > 1:
            up_to = self._empty((n, tiles), totals.dtype)
            self.scan(SCAN["cumsum"], totals, up_to, 1)
            given = (out, up_to, kept, steps[1], *sizes, np.int64(TILE))
            self._launch("reduce.cu", "scan_shift", a.dtype, out.size, *given)


def _known(op: Op, a: NDArray, axes: tuple[int, ...]) -> np.generic | None:
    """The smallest or largest of integers that came from the host and were not written since."""
    bounds = a._handle.bounds
    if bounds is None or op.name not in ("min", "max") or len(axes) != a.ndim or bounds[0] != a._handle.version:
        return None
    return bounds[1 if op.name == "min" else 2] if a.nbytes == a._handle.nbytes and dense(a) else None


def _without(out: NDArray, axis: int) -> NDArray:
    return out[(slice(None),) * axis + (0,)]


def _arranged(a: NDArray, axes: tuple[int, ...], out: NDArray) -> tuple[np.ndarray, np.ndarray, bool]:
    """(kept axes of out and a, reduced axes of a, whether neighbours in memory belong to one row)."""
    rest = [i for i in range(a.ndim) if i not in axes]
    shape, strides = a.shape, a.strides
    steps = out.strides if out.ndim == len(rest) else tuple([out.strides[i] for i in rest])
    kept = joint_of(tuple([shape[i] for i in rest]), steps, tuple([strides[i] for i in rest]), by=1)
    order = sorted(axes, key=lambda i: -abs(strides[i]))
    reduced = merged(tuple([shape[i] for i in order]), tuple([strides[i] for i in order]))
    within = abs(reduced[1][-1]) if reduced[1] else 1 << 62
    last = int(kept["ndim"]) - 1
    between = abs(int(kept["strides"][1, last])) if last >= 0 else 1 << 62
    return kept, view_of(*reduced), within <= between


def _rows(n: int, m: int) -> tuple[tuple[int, int], int]:
    """Threads of a block, and parts of a row, for n rows of m neighbours each."""
    if m <= 1024:
        return (32, 8), 1
    parts = min(-(-m // 4096), -(-ENOUGH_BLOCKS // n)) if n < ENOUGH_BLOCKS else 1
    return (256, 1), parts


def _columns(n: int, m: int) -> tuple[tuple[int, int], int]:
    """The same where the rows are neighbours."""
    if n >= 1 << 17 or m <= FEW:
        return (256, 1), 1
    blocks = -(-n // 32)
    parts = min(-(-m // 256), -(-ENOUGH_BLOCKS // blocks)) if blocks < ENOUGH_BLOCKS else 1
    return (32, 8), parts
