"""Softmax and its relatives, norms, cross-entropy, attention, cells of recurrent networks: each a kernel or a few of them."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from needle_cuda.products import MATRIX, MOST_BATCHES, i64, matrix, tiles
from needle_cuda.views import dense, merged, view, view_of
from needle_ndarray.ndarray import NDArray

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


def teams(count: int, n: int) -> dict[str, Any]:
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

    launch: Any
    empty: Any
    fill: Any
    copy: Any

    def softmax(self, a: NDArray, out: NDArray) -> None:
        self._over_rows("softmax", a, out, *rows(out))

    def log_softmax(self, a: NDArray, out: NDArray) -> None:
        self._over_rows("log_softmax", a, out, *rows(out))

    def logsumexp(self, a: NDArray, out: NDArray) -> None:
        self._over_rows("logsumexp", a, out, out, view(out))

    def _over_rows(self, name: str, a: NDArray, out: NDArray, *target: Any) -> None:
        if out.size:
            count, n = sizes(a)
            self.launch("nn.cu", name, a.dtype, out.size, *rows(a), *i64(count, n), *target, **teams(count, n))

    def cross_entropy(self, logits: NDArray, labels: NDArray, out: NDArray) -> None:
        count, n = sizes(logits)
        given = (*rows(logits), labels, view(labels), *i64(count, n), out, view(out))
        self.launch("nn.cu", "cross_entropy", logits.dtype, out.size, *given, **teams(count, n))

    def cross_entropy_grad(self, grad: NDArray, logits: NDArray, labels: NDArray, out: NDArray) -> None:
        count, n = sizes(logits)
        given = (grad, view(grad), *rows(logits), labels, view(labels), *i64(count, n), *rows(out))
        self.launch("nn.cu", "cross_entropy_grad", logits.dtype, out.size, *given, **teams(count, n))

    # ---- Norms -------------------------------------------------------------------------------------------------------

    def layer_norm(self, x: NDArray, weight: NDArray | None, bias: NDArray | None, eps: float, out: NDArray) -> None:
        count, n = sizes(x)
        given = (*rows(x), *i64(count, n), *vector(weight), *vector(bias), np.float64(eps), *rows(out))
        self.launch("norm.cu", "layer_norm", x.dtype, x.size, *given, **teams(count, n))

    def layer_norm_grad(
        self,
        grad: NDArray,
        x: NDArray,
        weight: NDArray | None,
        eps: float,
        dx: NDArray,
        dweight: NDArray,
        dbias: NDArray,
    ) -> None:
        count, n = sizes(x)
        statistics = self.empty((2, count), x.dtype)
        given = (*rows(grad), *rows(x), *i64(count, n))
        own = (*vector(weight), np.float64(eps), statistics, *rows(dx))
        self.launch("norm.cu", "layer_norm_grad", x.dtype, x.size, *given, *own, **teams(count, n))
        span, many, blocks = columns(count, n)
        parts = self.empty((many, 2, n), "float64")
        self.launch("norm.cu", "layer_norm_parts", x.dtype, x.size, *given, statistics, np.int64(span), parts, **blocks)
        given = (parts, *i64(many, n), *vector(dweight), *vector(dbias))
        self.launch("norm.cu", "layer_norm_totals", x.dtype, n, *given)

    def batch_norm(
        self,
        x: NDArray,
        weight: NDArray | None,
        bias: NDArray | None,
        eps: float,
        out: NDArray,
        mean: NDArray,
        var: NDArray,
    ) -> None:
        count, n = sizes(x)
        if count == 0:
            self.fill(mean, math.nan)
            self.fill(var, math.nan)
            return
        span, many, blocks = columns(count, n)
        parts, statistics = self.empty((many, 2, n), "float64"), self.empty((2, n), x.dtype)
        self.launch("norm.cu", "batch_norm_parts", x.dtype, x.size, *rows(x), *i64(count, n, span), parts, **blocks)
        given = (*rows(x), parts, *i64(many, span, count, n), *vector(weight), np.float64(eps), statistics)
        self.launch("norm.cu", "batch_norm_totals", x.dtype, n, *given, *vector(mean), *vector(var))
        self.launch(
            "norm.cu", "batch_norm", x.dtype, x.size, *rows(x), *i64(count, n), statistics, *vector(bias), *rows(out)
        )

    def batch_norm_grad(
        self,
        grad: NDArray,
        x: NDArray,
        mean: NDArray,
        var: NDArray,
        weight: NDArray | None,
        eps: float,
        dx: NDArray,
        dweight: NDArray,
        dbias: NDArray,
    ) -> None:
        count, n = sizes(x)
        span, many, blocks = columns(count, n)
        parts, statistics = self.empty((many, 2, n), "float64"), self.empty((3, n), x.dtype)
        given = (*rows(grad), *rows(x), *i64(count, n), *vector(mean))
        self.launch("norm.cu", "batch_norm_grad_parts", x.dtype, x.size, *given, np.int64(span), parts, **blocks)
        own = (parts, *i64(many, count, n), *vector(var), *vector(weight), np.float64(eps), statistics)
        self.launch("norm.cu", "batch_norm_grad_totals", x.dtype, n, *own, *vector(dweight), *vector(dbias))
        self.launch("norm.cu", "batch_norm_grad", x.dtype, x.size, *given, statistics, *rows(dx))

    # ---- Attention ---------------------------------------------------------------------------------------------------

    def attention(
        self, q: NDArray, k: NDArray, v: NDArray, mask: NDArray | None, causal: bool, scale: float, out: NDArray
    ) -> None:
        job, side = _job(q, k, v, mask, causal, scale), ATTENTION_SIDE[q.dtype]
        target = self._compact_room(out)
        grid = (tiles(q.shape[-2], side), tiles(v.shape[-1], side), min(int(job["batches"]), MOST_BATCHES))
        self.launch("attention.cu", "attention", q.dtype, out.size, q, k, v, mask, job, target, grid=grid, block=256)
        self._deliver(target, out)

    def attention_grad(
        self,
        grad: NDArray,
        q: NDArray,
        k: NDArray,
        v: NDArray,
        mask: NDArray | None,
        causal: bool,
        scale: float,
        dq: NDArray,
        dk: NDArray,
        dv: NDArray,
    ) -> None:
        job, side = _job(q, k, v, mask, causal, scale), ATTENTION_SIDE[q.dtype]
        (t, d), (s, e), batches = q.shape[-2:], v.shape[-2:], int(job["batches"])
        statistics = self.empty((3, batches, t), q.dtype)
        given, blocks = (grad, q, k, v, mask, job, matrix(grad), statistics), min(batches, MOST_BATCHES)
        targets = [self._compact_room(a) for a in (dq, dk, dv)]
        grid = (tiles(t, side), 1, blocks)
        self.launch("attention.cu", "attention_statistics", q.dtype, batches * t, *given, grid=grid, block=256)
        grid = (tiles(t, side), tiles(d, side), blocks)
        self.launch("attention.cu", "attention_query_grad", q.dtype, dq.size, *given, targets[0], grid=grid, block=256)
        grid, work = (tiles(s, side), tiles(max(d, e), side), blocks), dk.size + dv.size
        self.launch("attention.cu", "attention_key_grad", q.dtype, work, *given, *targets[1:], grid=grid, block=256)
        for target, out in zip(targets, (dq, dk, dv), strict=True):
            self._deliver(target, out)

    def _compact_room(self, out: NDArray) -> NDArray:
        """The result itself where it is dense, else room for it."""
        return out if dense(out) else self.empty(out.shape, out.dtype)

    def _deliver(self, made: NDArray, out: NDArray) -> None:
        if made is not out:
            self.copy(made, out)

    # ---- Cells of recurrent networks ---------------------------------------------------------------------------------

    def lstm_cell(
        self,
        x: NDArray,
        y: NDArray,
        bias: NDArray | None,
        c: NDArray,
        h_out: NDArray,
        c_out: NDArray,
        gates: NDArray | None,
    ) -> None:
        given = (*plane(x), *plane(y), *vector(bias), *plane(c), *i64(*c.shape))
        self.launch("recurrent.cu", "lstm_cell", x.dtype, c.size, *given, *plane(h_out), *plane(c_out), *plane(gates))

    def lstm_cell_grad(
        self,
        dy: NDArray,
        dh: NDArray,
        dc: NDArray,
        gates: NDArray,
        c: NDArray,
        c_out: NDArray,
        ds: NDArray,
        dc_out: NDArray,
    ) -> None:
        given = (*plane(dy), *plane(dh), *plane(dc), *plane(gates), *plane(c), *plane(c_out), *i64(*c.shape))
        self.launch("recurrent.cu", "lstm_cell_grad", c.dtype, c.size, *given, *plane(ds), *plane(dc_out))

    def gru_cell(
        self, x: NDArray, y: NDArray, bias: NDArray | None, h: NDArray, h_out: NDArray, gates: NDArray | None
    ) -> None:
        given = (*plane(x), *plane(y), *vector(bias), *plane(h), *i64(*h.shape), *plane(h_out), *plane(gates))
        self.launch("recurrent.cu", "gru_cell", x.dtype, h.size, *given)

    def gru_cell_grad(
        self, dy: NDArray, dh: NDArray, h: NDArray, gates: NDArray, dx: NDArray, ds: NDArray, dh_out: NDArray
    ) -> None:
        given = (
            *plane(dy),
            *plane(dh),
            *plane(h),
            *plane(gates),
            *i64(*h.shape),
            *plane(dx),
            *plane(ds),
            *plane(dh_out),
        )
        self.launch("recurrent.cu", "gru_cell_grad", h.dtype, h.size, *given)


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
