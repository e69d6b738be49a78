"""Rows shorter than a vector, a lane block or a run of them: reductions and softmax over each length, and what hides among them."""

import numpy as np
import pytest

import needle_ndarray as nd
from needle_ndarray.testing import each

LENGTHS = [*range(1, 70), 95, 96, 97, 127, 128, 129]
DTYPES = ["float32", "float64", "int32", "int64", "uint8", "bool"]
REDUCTIONS = ["sum", "prod", "max", "min", "any", "all"]
#: Elements of a row far below its largest: e^x is 0, or no normal number, in float32 and in float64.
LOW = {
    "-inf": -np.inf,
    "masked": -1e4,
    "far": -1e30,
    "float32 subnormal": -95.0,
    "just 0": -104.5,
    "float64 subnormal": -720.0,
}


def rows_of(n, dtype, rows=37):
    """Whole numbers, whose sums and products have no rounding."""
    rng = np.random.default_rng(n)
    return rng.integers(0 if dtype in ("uint8", "bool") else -1, 2, (rows, n)).astype(dtype)


@each("op", REDUCTIONS)
@each("dtype", DTYPES)
@each("layout", ["rows", "transposed", "backwards"])
@pytest.mark.parametrize("device", [nd.cpu(), nd.cpu_numpy()], ids=str)
def test_reductions_of_short_rows(device, op, dtype, layout):
    """All lengths around what is folded side by side, in lanes, and in runs."""
    if not hasattr(nd, op):
        return
    for n in LENGTHS:
        x = rows_of(n, dtype)
        a = nd.array(x, dtype, device)
        if layout == "transposed":
            a, x = nd.array(x.T.copy(), dtype, device).T, x
        elif layout == "backwards":
            a, x = a[::-1, ::-1], x[::-1, ::-1]
        got = getattr(nd, op)(a, axis=1).numpy()
        want = getattr(np, op)(x, axis=1)
        assert np.array_equal(got, want), (n, got[:4], want[:4])


@each("op", ["max", "min", "sum"])
@each("dtype", ["float32", "float64"])
def test_a_nan_anywhere_in_a_short_row_is_found(op, dtype):
    for n in LENGTHS:
        x = np.arange(n * n, dtype=dtype).reshape(n, n) % 7
        x[np.arange(n), np.arange(n)] = np.nan  # in row i at place i
        assert np.isnan(getattr(nd.array(x, dtype), op)(axis=1).numpy()).all(), n


#: Numbers of rows: fewer than are folded side by side, tails of every size, and more than one task with a tail of 1 to 5.
COUNTS = [1, 3, 15, 16, 17, 18, 19, 1025, 1026, 1027, 1028, 1029]


@each("dtype", ["float32", "float64", "int32", "int64"])
@pytest.mark.parametrize("op", ["sum", "prod"])
def test_short_rows_are_folded_from_their_first_element_on(op, dtype):
    """The bits of one addition after the other, in the wider dtype: each row is as if it were alone."""
    rng = np.random.default_rng(0)
    wide = "float64" if dtype.startswith("float") else "int64"
    fold = {"sum": np.add, "prod": np.multiply}[op]
    for count in COUNTS:
        for n in (1, 2, 3, 4, 5, 6, 7, 8, 10, 13, 15, 16) if count >= 16 else (4, 10):
            x = rng.normal(size=(count, n)) * 10.0 ** rng.integers(-6, 6, (count, n))
            x = x.astype(dtype) if wide == "float64" else rng.integers(-(2**31), 2**31, (count, n)).astype(dtype)
            if count < 16 and wide == "float64":
                continue  # too few for vectors of rows
            padded = np.concatenate([x, x + 1], axis=1)  # rows that do not follow each other
            want = fold.accumulate(x.astype(wide), axis=1)[:, -1].astype(dtype if wide == "float64" else "int64")
            for a in (nd.array(x, dtype), nd.array(padded, dtype)[:, :n]):
                got = getattr(nd, op)(a, axis=1).numpy()
                assert got.tobytes() == want.tobytes(), (count, n)


@each("dtype", ["float32", "float64"])
def test_extremes_of_short_rows_see_every_place_of_every_row(dtype):
    for count in COUNTS:
        for n in (2, 3, 4, 5, 6, 7, 8, 11, 16, 20, 31):
            x = np.zeros((count, n), dtype)
            place = np.arange(count) % n
            x[np.arange(count), place] = np.arange(1, count + 1)
            assert np.array_equal(nd.array(x, dtype).max(axis=1).numpy(), np.arange(1, count + 1)), (count, n)
            assert np.array_equal((-nd.array(x, dtype)).min(axis=1).numpy(), -np.arange(1, count + 1)), (count, n)
            x[np.arange(1, count, 2), place[1::2]] = np.nan
            got = nd.array(x, dtype).max(axis=1).numpy()
            assert np.array_equal(np.isnan(got), np.isnan(x).any(1)), (count, n)
            hot = nd.array(x != 0, "int32")
            assert hot.any(axis=1).numpy().all() and not (1 - hot).all(axis=1).numpy().any(), (count, n)
            assert not (hot * 0).any(axis=1).numpy().any() and (hot * 0 + 3).all(axis=1).numpy().all(), (count, n)


@each("low", list(LOW))
@each("dtype", ["float32", "float64"])
@each("n", [1, 2, 7, 10, 15, 16, 17, 40, 1000])
def test_softmax_of_rows_with_elements_far_below(low, dtype, n):
    """Exactly 0 where e^x is, and subnormal numbers where it is one."""
    rng = np.random.default_rng(n)
    x = rng.uniform(-1, 1, (12, n)).astype(dtype)
    x[:, 1::2] = LOW[low]
    shifted = x.astype("float64") - x.max(1, keepdims=True)
    e = np.exp(shifted)
    want = e / e.sum(1, keepdims=True)
    info = np.finfo(dtype)
    got = nd.softmax(nd.array(x, dtype)).numpy()
    error = np.abs(got - want) - (8 + np.abs(np.where(np.isinf(shifted), 0, shifted))) * info.eps * want
    assert (error <= 2 * float(info.smallest_subnormal)).all(), error.max()
    if low in ("-inf", "masked", "far"):
        assert (got[:, 1::2] == 0).all()


@each("n", [1, 3, 10, 17])
def test_nans_of_short_rows_of_softmax_stay_in_their_row(n):
    x = np.zeros((3, n), "float32")
    x[1, n // 2] = np.nan
    got = nd.softmax(nd.array(x)).numpy()
    assert np.isnan(got[1]).all() and np.allclose(got[[0, 2]], 1 / n)
