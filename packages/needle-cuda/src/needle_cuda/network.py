"""Softmax and its relatives, norms, cross-entropy, attention, cells of recurrent networks: each a kernel or a few of them."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from needle_cuda.products import MATRIX, MOST_BATCHES, i64, matrix, tiles
from needle_cuda.views import dense, merged, view, view_of
from needle_ndarray import NDArray
from needle_ndarray.backend import Op

SHORT = 1024  # elements of a row from which a block, not a warp, works on it
LEAST_ROWS = 64  # of a part of the rows whose columns are added up
COLUMN_BLOCKS = 512  # of such parts and 32 columns
ATTENTION_SIDE = {"float32": 64, "float64": 32}  # queries and keys of a tile (attention.cu)
ATTENTION = np.dtype(
    [(name, MATRIX) for name in ("q", "k", "v", "mask")]
    + [(name, np.int64) for name in ("t", "s", "d", "e", "batches", "masked", "causal")]
    + [("scale", np.float64)]
)
PLANE = np.dtype([("row", np.int64), ("column", np.int64)])


# ---- Layouts ---------------------------------------------------------------------------------------------------------


def rows(a: NDArray) -> tuple:
    """An array as rows over its last axis: where it begins, the layout of the first elements of the rows, the step along them."""
    return a, _lead(a.shape, a.strides), np.int64(a.strides[-1])


@lru_cache(4096)
def _lead(shape: tuple[int, ...], strides: tuple[int, ...]) -> np.ndarray:
    return view_of(*merged(shape[:-1], strides[:-1]))


def vector(a: NDArray | None) -> tuple:
    """A vector and its step; null and 0 for None."""
    return (None, np.int64(0)) if a is None else (a, np.int64(a.strides[0]))


def plane(a: NDArray | None) -> tuple:
    """A matrix and its steps; null for None."""
    return a, _plane((0, 0) if a is None else a.strides)


@lru_cache(4096)
def _plane(strides: tuple[int, int]) -> np.ndarray:
    return np.array(strides, PLANE)


def sizes(x: NDArray) -> tuple[int, int]:
    """Rows and columns of an array, its last axis not empty."""
    return x.size // x.shape[-1], x.shape[-1]


def blocks_for_rows(count: int, n: int) -> dict[str, Any]:
    """Blocks for rows of n elements: a warp for each short one, a block for each long one."""
    block = (32, 8) if n <= SHORT else (256, 1)
    return {"block": block, "grid": (min(tiles(count, block[1]), 1 << 20),)}


def columns(count: int, n: int) -> tuple[int, int, dict[str, Any]]:
    """How the rows are cut where their columns are added up: rows of a part, parts, and the blocks."""
    width = 32 if n > 16 else 16 if n > 8 else 8 if n > 4 else 4
    across = tiles(n, width)
    parts = max(1, min(tiles(count, LEAST_ROWS), COLUMN_BLOCKS // across, MOST_BATCHES))
    span = max(1, tiles(count, parts))
    return span, tiles(count, span), {"block": (width, 256 // width), "grid": (across, tiles(count, span))}


# ---- Verbs -----------------------------------------------------------------------------------------------------------


class Network:
    """Verbs of CUDABackend: softmax and its relatives, norms, cross-entropy, attention, cells."""

    _launch: Any
    _empty: Any
    fill: Any
    copy: Any

    def rows(self, op: Op, a: NDArray, out: NDArray) -> None:
        if out.size:
            count, n = sizes(a)
            target = (out, view(out)) if op.name == "logsumexp" else rows(out)
            self._launch(
                "nn.cu", op.name, a.dtype, out.size, *rows(a), *i64(count, n), *target, **blocks_for_rows(count, n)
            )

    def rows_grad(self, op: Op, grad: NDArray, x: NDArray | None, y: NDArray, out: NDArray) -> None:
        if out.size:
            count, n = sizes(out)
            if x is not None:  # logsumexp
                given = (grad, view(grad), *rows(x), y, view(y))
            else:
                given = (*rows(grad), *rows(y))
            name = f"{op.name}_grad"
            self._launch(
                "nn.cu", name, out.dtype, out.size, *given, *i64(count, n), *rows(out), **blocks_for_rows(count, n)
            )

    def cross_entropy(self, logits: NDArray, labels: NDArray, out: NDArray) -> None:
        count, n = sizes(logits)
        given = (*rows(logits), labels, view(labels), *i64(count, n), out, view(out))
        self._launch("nn.cu", "cross_entropy", logits.dtype, out.size, *given, **blocks_for_rows(count, n))

    def cross_entropy_grad(self, grad: NDArray, logits: NDArray, labels: NDArray, out: NDArray) -> None:
        count, n = sizes(logits)
        given = (grad, view(grad), *rows(logits), labels, view(labels), *i64(count, n), *rows(out))
        self._launch("nn.cu", "cross_entropy_grad", logits.dtype, out.size, *given, **blocks_for_rows(count, n))

    # ---- Norms -------------------------------------------------------------------------------------------------------

    def norm(
        self,
        op: Op,
        x: NDArray,
        weight: NDArray | None,
        bias: NDArray | None,
        out: NDArray,
        mean: Any,  # an array for batch_norm, None for layer_norm
        var: Any,
        eps: float,
    ) -> None:
        if op.name == "layer_norm":
            self._layer_norm(x, weight, bias, out, eps)
        else:
            self._batch_norm(x, weight, bias, out, mean, var, eps)

    def norm_grad(
        self,
        op: Op,
        grad: NDArray,
        x: NDArray,
        weight: NDArray | None,
        mean: Any,  # an array for batch_norm, None for layer_norm
        var: Any,
        dx: NDArray,
        dweight: NDArray,
        dbias: NDArray,
        eps: float,
    ) -> None:
        if op.name == "layer_norm":
            self._layer_norm_grad(grad, x, weight, dx, dweight, dbias, eps)
        else:
            self._batch_norm_grad(grad, x, weight, mean, var, dx, dweight, dbias, eps)

    def _layer_norm(self, x: NDArray, weight: NDArray | None, bias: NDArray | None, out: NDArray, eps: float) -> None:
        count, n = sizes(x)
        given = (*rows(x), *i64(count, n), *vector(weight), *vector(bias), np.float64(eps), *rows(out))
        self._launch("norm.cu", "layer_norm", x.dtype, x.size, *given, **blocks_for_rows(count, n))

    def _layer_norm_grad(
        self,
        grad: NDArray,
        x: NDArray,
        weight: NDArray | None,
        dx: NDArray,
        dweight: NDArray,
        dbias: NDArray,
        eps: float,
    ) -> None:
        count, n = sizes(x)
        statistics = self._empty((2, count), x.dtype)
        given = (*rows(grad), *rows(x), *i64(count, n))
        own = (*vector(weight), np.float64(eps), statistics, *rows(dx))
        self._launch("norm.cu", "layer_norm_grad", x.dtype, x.size, *given, *own, **blocks_for_rows(count, n))
        span, many, blocks = columns(count, n)
        parts = self._empty((many, 2, n), "float64")
        self._launch(
            "norm.cu", "layer_norm_parts", x.dtype, x.size, *given, statistics, np.int64(span), parts, **blocks
        )
        given = (parts, *i64(many, n), *vector(dweight), *vector(dbias))
        self._launch("norm.cu", "layer_norm_totals", x.dtype, n, *given)

    def _batch_norm(
        self,
        x: NDArray,
        weight: NDArray | None,
        bias: NDArray | None,
        out: NDArray,
        mean: NDArray,
        var: NDArray,
        eps: float,
    ) -> None:
        count, n = sizes(x)
        if count == 0:
            self.fill(mean, math.nan)
            self.fill(var, math.nan)
            return
        span, many, blocks = columns(count, n)
        parts, statistics = self._empty((many, 2, n), "float64"), self._empty((2, n), x.dtype)
        self._launch("norm.cu", "batch_norm_parts", x.dtype, x.size, *rows(x), *i64(count, n, span), parts, **blocks)
        given = (*rows(x), parts, *i64(many, span, count, n), *vector(weight), np.float64(eps), statistics)
        self._launch("norm.cu", "batch_norm_totals", x.dtype, n, *given, *vector(mean), *vector(var))
        self._launch(
            "norm.cu", "batch_norm", x.dtype, x.size, *rows(x), *i64(count, n), statistics, *vector(bias), *rows(out)
        )

    def _batch_norm_grad(
        self,
        grad: NDArray,
        x: NDArray,
        weight: NDArray | None,
        mean: NDArray,
        var: NDArray,
        dx: NDArray,
        dweight: NDArray,
        dbias: NDArray,
        eps: float,
    ) -> None:
        count, n = sizes(x)
        span, many, blocks = columns(count, n)
        parts, statistics = self._empty((many, 2, n), "float64"), self._empty((3, n), x.dtype)
        given = (*rows(grad), *rows(x), *i64(count, n), *vector(mean))
        self._launch("norm.cu", "batch_norm_grad_parts", x.dtype, x.size, *given, np.int64(span), parts, **blocks)
        own = (parts, *i64(many, count, n), *vector(var), *vector(weight), np.float64(eps), statistics)
        self._launch("norm.cu", "batch_norm_grad_totals", x.dtype, n, *own, *vector(dweight), *vector(dbias))
        self._launch("norm.cu", "batch_norm_grad", x.dtype, x.size, *given, statistics, *rows(dx))

    # ---- Attention ---------------------------------------------------------------------------------------------------

    def attention(
        self, q: NDArray, k: NDArray, v: NDArray, mask: NDArray | None, out: NDArray, causal: bool, scale: float
    ) -> None:
        job, side = _job(q, k, v, mask, causal, scale), ATTENTION_SIDE[q.dtype]
        target = self._compact_target(out)
        grid = (tiles(q.shape[-2], side), tiles(v.shape[-1], side), min(int(job["batches"]), MOST_BATCHES))
        self._launch("attention.cu", "attention", q.dtype, out.size, q, k, v, mask, job, target, grid=grid, block=256)
        self._deliver(target, out)

    def attention_grad(
        self,
        grad: NDArray,
        q: NDArray,
        k: NDArray,
        v: NDArray,
        mask: NDArray | None,
        dq: NDArray,
        dk: NDArray,
        dv: NDArray,
        causal: bool,
        scale: float,
    ) -> None:
        job, side = _job(q, k, v, mask, causal, scale), ATTENTION_SIDE[q.dtype]
        (t, d), (s, e), batches = q.shape[-2:], v.shape[-2:], int(job["batches"])
        statistics = self._empty((3, batches, t), q.dtype)
        given, blocks = (grad, q, k, v, mask, job, matrix(grad), statistics), min(batches, MOST_BATCHES)
        targets = [self._compact_target(a) for a in (dq, dk, dv)]
        grid = (tiles(t, side), 1, blocks)
        self._launch("attention.cu", "attention_statistics", q.dtype, batches * t, *given, grid=grid, block=256)
        grid = (tiles(t, side), tiles(d, side), blocks)
        self._launch("attention.cu", "attention_query_grad", q.dtype, dq.size, *given, targets[0], grid=grid, block=256)
        grid, work = (tiles(s, side), tiles(max(d, e), side), blocks), dk.size + dv.size
        self._launch("attention.cu", "attention_key_grad", q.dtype, work, *given, *targets[1:], grid=grid, block=256)
        for target, out in zip(targets, (dq, dk, dv), strict=True):
            self._deliver(target, out)

    def _compact_target(self, out: NDArray) -> NDArray:
        """The result itself where it is dense, else scratch for it."""
        return out if dense(out) else self._empty(out.shape, out.dtype)

    def _deliver(self, made: NDArray, out: NDArray) -> None:
        if made is not out:
            self.copy(made, out)

    # ---- Cells of recurrent networks ---------------------------------------------------------------------------------

    def cell(
        self,
        op: Op,
        x: NDArray,
        y: NDArray,
        bias: NDArray | None,
        state: NDArray,
        h_out: NDArray,
        c_out: NDArray | None,
        gates: NDArray | None,
    ) -> None:
        given = (*plane(x), *plane(y), *vector(bias), *plane(state), *i64(*state.shape))
        results = (h_out, c_out, gates) if op.name == "lstm_cell" else (h_out, gates)
        self._cell(op.name, state, given, results)

    def cell_grad(
        self,
        op: Op,
        dy: NDArray,
        dh: NDArray,
        dc: NDArray | None,
        gates: NDArray,
        state: NDArray,
        c_out: NDArray | None,
        dx: NDArray | None,
        ds: NDArray,
        dstate: NDArray,
    ) -> None:
        lstm = op.name == "lstm_cell"
        arrays = (dy, dh, dc, gates, state, c_out) if lstm else (dy, dh, state, gates)
        given = (*[part for a in arrays for part in plane(a)], *i64(*state.shape))
        self._cell(f"{op.name}_grad", state, given, (ds, dstate) if lstm else (dx, ds, dstate))

    def _cell(self, name: str, state: NDArray, given: tuple, results: tuple) -> None:
        targets = [part for a in results for part in plane(a)]
        self._launch("recurrent.cu", name, state.dtype, state.size, *given, *targets)


def _job(q: NDArray, k: NDArray, v: NDArray, mask: NDArray | None, causal: bool, scale: float) -> np.ndarray:
    """struct Attention of attention.cu"""
    job = np.zeros((), ATTENTION)
    job["q"], job["k"], job["v"] = matrix(q), matrix(k), matrix(v)
    if mask is not None:
        job["mask"], job["masked"] = matrix(mask), 1 if mask.dtype == "bool" else 2
    job["t"], job["d"] = q.shape[-2:]
    job["s"], job["e"] = v.shape[-2:]
    job["batches"], job["causal"], job["scale"] = math.prod(q.shape[:-2]), causal, scale
    return job
