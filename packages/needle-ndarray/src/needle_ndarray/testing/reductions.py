"""The contract of `reduce`, `arg_reduce` and `scan`."""

import itertools
import math

import numpy as np
import pytest

from needle_ndarray.backend import ARG_REDUCE, REDUCE, SCAN
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.testing.cases import FLOATS, INPUTS, INTEGERS, KINDS, NAMES, SPECIAL, Suite, plain, values
from needle_ndarray.testing.elementwise import every_op, out_dtype
from needle_ndarray.testing.oracle import assert_same, assert_within, sum_bound
from needle_ndarray.testing.tables import each

AXES = [axes for n in range(4) for axes in itertools.combinations(range(3), n)]
MIXED = ["compact", "transposed", "sliced", "negative", "flipped", "offset", "broadcast_rows", "broadcast_columns"]


def assert_reduced(op, got: np.ndarray, x: np.ndarray, axes: tuple[int, ...]) -> None:
    """The reduction's values: bits for max, min, any, all and integers, a bound for float sums and products."""
    dtype = out_dtype(op, x.dtype.name)
    with np.errstate(all="ignore"):
        if op.result != "sum" or x.dtype.kind != "f":
            kind = {"dtype": np.int64} if op.result == "sum" else {}
            return assert_same(
                got, np.asarray(getattr(np, op.name)(x, axis=axes, **kind)), signs=False, context=op.name
            )
        exact = np.asarray(getattr(np, op.name)(x.astype(np.longdouble), axis=axes))
        if op.name == "sum":
            bound = sum_bound(x, axes, dtype)
        else:
            bound = np.finfo(dtype).eps * max(math.prod([x.shape[i] for i in axes]), 1) * np.abs(exact)
    assert got.dtype == dtype
    assert_within(got, exact, bound, op.name)


def factors(dtype: str, shape: tuple[int, ...], salt: int = 0) -> np.ndarray:
    """Values whose product stays in range: near 1, or from -1, 1 and 2."""
    base = plain(dtype, shape, salt)
    if dtype in FLOATS:
        return np.asarray(1 + base / 1000).astype(dtype)
    return base if dtype == "bool" else np.where(base > 40, 2, np.where(base > 0, 1, -1)).astype(dtype)


class ReductionSuite(Suite):
    def reduce(self, op, a, x, axes, out="compact", keepdims=False):
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keepdims or i not in axes)
        canvas = self.canvas(out, shape, out_dtype(op, x.dtype.name))
        self.backend.reduce(op, a, canvas.out, axes)
        got = canvas.result()
        assert_reduced(op, got.reshape([n for i, n in enumerate(x.shape) if i not in axes]), x, axes)

    @each("kind", MIXED)
    @every_op(REDUCE)
    def test_reduce(self, op, dtype, kind):
        """Over every set of axes, the empty one too."""
        a, x = self.operand(kind, dtype, make=factors if op.name == "prod" else plain)
        for axes in AXES:
            self.reduce(op, a, x, axes)

    @each("kind", [k for k in INPUTS if k not in MIXED])
    @every_op(REDUCE)
    def test_reduce_everything(self, op, dtype, kind):
        """Zero sizes, 0-d, large: each axis alone, and all."""
        a, x = self.operand(kind, dtype, make=factors if op.name == "prod" else plain)
        for axes in [*[(i,) for i in range(x.ndim)], tuple(range(x.ndim))]:
            if op.name in ("max", "min") and math.prod([x.shape[i] for i in axes]) == 0:
                continue  # never asked for
            self.reduce(op, a, x, axes)

    @each("out", ["transposed", "sliced", "negative", "offset"])
    @each("axes", [(0,), (1,), (2,)])
    @every_op(REDUCE)
    def test_reduce_into_a_view(self, op, dtype, axes, out):
        a, x = self.operand("compact", dtype, make=factors if op.name == "prod" else plain)
        self.reduce(op, a, x, axes, out)

    @each("out", ["compact", "transposed", "sliced", "negative"])
    @each("shape", [(2, 3, 4), (1, 5, 1), (6, 1, 7), (300, 40, 2)])
    @every_op(REDUCE)
    def test_reduce_keeps_axes(self, op, dtype, shape, out):
        """Into an array that has the reduced axes too, with size 1."""
        a, x = self.operand("compact", dtype, shape, make=factors if op.name == "prod" else plain)
        for axes in AXES:
            self.reduce(op, a, x, axes, out, keepdims=True)

    @each("shape", [(1, 5000), (5000, 1), (70000, 3), (3, 70000), (2, 3, 4, 5, 6, 7), (17, 1, 1031)])
    @every_op(REDUCE)
    def test_reduce_long_and_thin(self, op, dtype, shape):
        """Shapes where a backend changes its way: long runs, long columns, many axes."""
        a, x = self.operand("compact", dtype, shape, make=factors if op.name == "prod" else plain)
        for axes in [*[(i,) for i in range(x.ndim)], tuple(range(0, x.ndim, 2)), tuple(range(x.ndim))]:
            self.reduce(op, a, x, axes)

    @each("name", ["any", "all", "max", "min"])
    @pytest.mark.parametrize("dtype", NAMES)
    @each("n", [1, 2, 15, 16, 17, 33, 1500, 70001])
    def test_every_place_counts(self, name, dtype, n):
        """One element that differs is found wherever it is; nothing beyond the end is."""
        common = np.zeros(n, dtype) if name in ("any", "max") else np.ones(n, dtype)
        for at in {0, n // 2, n - 1}:
            x = common.copy()
            x[at] = 1 - int(common[0])
            self.reduce(REDUCE[name], self.array(x), x, (0,))
        self.reduce(REDUCE[name], self.array(common), common, (0,))

    @pytest.mark.parametrize("dtype", FLOATS)
    @each("name", ["max", "min"])
    @each("n", [1, 3, 16, 17, 100, 70001])
    def test_nan_propagates(self, name, dtype, n):
        """NaN wins over everything before and after it, and infinities over numbers."""
        x = plain(dtype, (n,))
        for at in {0, n // 2, n - 1}:
            with_nan = x.copy()
            with_nan[at] = np.nan
            self.reduce(REDUCE[name], self.array(with_nan), with_nan, (0,))
            column = np.stack([x, with_nan], axis=1)
            self.reduce(REDUCE[name], self.array(column), column, (0,))
        infinite = np.full(n, -np.inf if name == "max" else np.inf, dtype)
        self.reduce(REDUCE[name], self.array(infinite), infinite, (0,))

    @every_op(REDUCE)
    def test_special_values(self, op, dtype):
        """Largest and smallest integers (sums wrap), NaN, inf - inf."""
        for part in ([0, -1], slice(None), slice(1, None), slice(3, 9)):
            x = SPECIAL[dtype][part]
            if x.size == 0:
                continue
            if dtype in FLOATS and op.name in ("sum", "prod"):
                x = x[np.abs(x) != np.finfo(dtype).max]  # sums that overflow and come back have no right answer
                if op.name == "prod":
                    x = np.concatenate([x[~np.isfinite(x)], x[:1]])
            self.reduce(op, self.array(x), x, (0,))

    @pytest.mark.parametrize("dtype", INTEGERS)
    @each("name", ["sum", "prod"])
    def test_integers_widen_and_wrap(self, name, dtype):
        """Small integers add up in 64 bits; beyond those, sums and products wrap."""
        for value in (np.iinfo(dtype).max, np.iinfo(dtype).min, 3**5 if dtype == "uint8" else 3**17):
            x = np.full((5, 3), value, dtype)
            for axes in ((0,), (1,), (0, 1)):
                self.reduce(REDUCE[name], self.array(x), x, axes)

    @each("layout", ["axis 0", "axis 1", "all", "strided", "transposed"])
    def test_sum_of_ones_is_exact(self, layout):
        """2^24 float32 ones, and as many again: beyond 2^24 a running float32 sum stands still."""
        n = 1 << 24
        rows = self.array(np.ones((2, n), np.float32))
        a, axes = {
            "axis 0": (rows.reshape((n, 2)), (0,)),
            "axis 1": (rows, (1,)),
            "all": (rows, (0, 1)),
            "strided": (rows.reshape((n, 2))[:, 0], (0,)),
            "transposed": (rows.T, (0,)),
        }[layout]
        shape = tuple(m for i, m in enumerate(a.shape) if i not in axes)
        canvas = self.canvas("compact", shape, "float32")
        self.backend.reduce(REDUCE["sum"], a, canvas.out, axes)
        expected = np.full(shape, math.prod([a.shape[i] for i in axes]), np.float32)
        assert_same(canvas.result(), expected)

    @each("axis", [0, 1])
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_sum_does_not_stand_still(self, dtype, axis):
        """A large first element must not swallow the many small ones behind it."""
        first = 2.0**24 if dtype == "float32" else 2.0**53
        x = np.ones((3, 100_000), dtype)
        x[:, 0] = first
        x = x.T.copy() if axis == 0 else x
        self.reduce(REDUCE["sum"], self.array(x), x, (axis,))

    # ---- arg_reduce -------------------------------------------------------------------------------------------------

    @each("axis", [0, 1, 2])
    @each("kind", [*MIXED, "empty", "large", "large_transposed", "large_sliced"])
    @every_op(ARG_REDUCE)
    def test_arg_reduce(self, op, dtype, kind, axis):
        """The first of several; the first NaN where there is one."""
        a, x = self.operand(kind, dtype)
        if axis >= x.ndim or x.shape[axis] == 0:
            return
        expected = np.asarray(getattr(np, op.name)(x, axis=axis))
        for out in ("compact", "transposed" if kind == "transposed" else "sliced"):
            canvas = self.canvas(out, expected.shape, "int64")
            self.backend.arg_reduce(op, a, canvas.out, axis)
            assert_same(canvas.result(), expected)

    @each(
        "given, largest, smallest",
        [
            ([3.0, 7.0, 7.0, 1.0, 1.0], 1, 3),
            ([3.0, np.nan, 7.0, np.nan], 1, 1),
            ([np.nan, 9.0], 0, 0),
            ([9.0, np.nan], 1, 1),
            ([-np.inf, -np.inf], 0, 0),
            ([0.0, -0.0, 0.0], 0, 0),
            ([np.inf, np.inf, 1.0], 0, 2),
        ],
    )
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_arg_reduce_rules(self, dtype, given, largest, smallest):
        x = np.array(given, dtype)
        for name, expected in (("argmax", largest), ("argmin", smallest)):
            canvas = self.canvas("compact", (), "int64")
            self.backend.arg_reduce(ARG_REDUCE[name], self.array(x), canvas.out, 0)
            assert canvas.result() == expected == getattr(np, name)(x)

    # ---- scan -------------------------------------------------------------------------------------------------------

    @each("axis", [0, 1, 2])
    @each("kind", [*MIXED, "empty", "empty_rows", "large", "large_transposed", "large_sliced"])
    @pytest.mark.parametrize("dtype", ["int64", *FLOATS])
    def test_scan(self, dtype, kind, axis):
        a, x = self.operand(kind, dtype, make=values if dtype == "int64" else plain)
        if axis >= x.ndim:
            return
        for out in ("compact", kind if KINDS[kind].writable else "sliced"):
            canvas = self.canvas(out, x.shape, dtype)
            self.backend.scan(SCAN["cumsum"], a, canvas.out, axis)
            if dtype == "int64":
                assert_same(canvas.result(), np.cumsum(x, axis))
            else:
                steps = np.cumsum(np.ones(x.shape), axis)
                bound = np.finfo(dtype).eps * steps * np.cumsum(np.abs(x.astype(np.float64)), axis)
                assert_within(canvas.result(), np.cumsum(x.astype(np.longdouble), axis), bound)

    @pytest.mark.parametrize("op", SCAN.values(), ids=SCAN)
    def test_scan_dtypes(self, op):
        """NDArray widens before it asks: ints and bool to int64."""
        assert [str(DTYPES[code]) for code in op.out_dtype[: len(NAMES)]] == ["int64"] * 4 + ["float32", "float64"]
