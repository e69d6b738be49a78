"""The contract of `matmul`, and of the fused verbs over the last axis."""

import numpy as np
import pytest

from needle_ndarray.testing.calls import call, composed
from needle_ndarray.testing.cases import FLOATS, INTEGERS, KINDS, Suite, plain, values
from needle_ndarray.testing.oracle import WIDER, assert_same, assert_within, product_bound
from needle_ndarray.testing.tables import each

#: (leading axes, m, k, n): vectors in disguise, tiny, odd, past every threshold, and sizes of zero.
PRODUCTS = [
    ((), 1, 1, 1),
    ((), 1, 7, 1),
    ((), 3, 4, 5),
    ((), 8, 8, 8),
    ((), 17, 31, 13),
    ((), 1, 300, 40),
    ((), 300, 40, 1),
    ((), 40, 1, 30),
    ((2,), 5, 6, 7),
    ((3, 2), 4, 20, 33),
    ((2,), 30, 40, 50),
    ((), 0, 3, 4),
    ((), 3, 0, 4),
    ((), 3, 4, 0),
    ((0,), 3, 4, 5),
    ((2,), 3, 0, 2),
]
BIG = [((), 530, 70, 31), ((), 60, 70, 600), ((4,), 90, 70, 65), ((), 300, 600, 20)]
#: Kinds of a, b and out.
OPERANDS = [
    tuple(line.split(","))
    for line in """
    compact,compact,compact
    swapped,compact,compact
    compact,swapped,compact
    swapped,swapped,compact
    sliced,sliced,sliced
    negative,flipped,negative
    flipped,negative,flipped
    offset,offset,offset
    broadcast_rows,broadcast_columns,compact
    broadcast_columns,broadcast_rows,compact
    broadcast_scalar,compact,compact
    transposed,transposed,transposed
    columns,columns,columns
    compact,compact,swapped
    sliced,swapped,swapped
    """.split()
]


def _cut(x, shape):
    return x[..., 1 : 1 + shape[-1]]


class ProductSuite(Suite):
    def matrix(self, kind: str, dtype: str, shape: tuple[int, ...], salt: int) -> tuple:
        """Any kind of view; `swapped` has its last two axes swapped, `columns` some columns of a wider matrix."""
        if kind == "swapped":
            base = plain(dtype, shape[:-2] + (shape[-1], shape[-2]), salt)
            return self.array(base).swapaxes(-1, -2), base.swapaxes(-1, -2)
        if kind == "columns":
            base = plain(dtype, shape[:-1] + (shape[-1] + 3,), salt)
            return _cut(self.array(base), shape), _cut(base, shape)
        return self.operand(kind, dtype, shape, salt, plain)

    def multiply(self, dtype, lead, m, k, n, kinds):
        a, x = self.matrix(kinds[0], dtype, (*lead, m, k), 1)
        b, y = self.matrix(kinds[1], dtype, (*lead, k, n), 2)
        shape = (*lead, m, n)
        if kinds[2] in KINDS:
            canvas = self.canvas(kinds[2], shape, dtype)
            self.backend.matmul(a, b, canvas.out)
            got = canvas.result()
        else:
            canvas = self.canvas("compact", shape[:-2] + ((n, m) if kinds[2] == "swapped" else (m, n + 3)), dtype)
            out = canvas.out.swapaxes(-1, -2) if kinds[2] == "swapped" else _cut(canvas.out, shape)
            self.backend.matmul(a, b, out)
            got = canvas.result()
            if kinds[2] == "columns":
                assert_same(got[..., 0], canvas.before[..., 0], context="left of out:")
                assert_same(got[..., -2:], canvas.before[..., -2:], context="right of out:")
            got = got.swapaxes(-1, -2) if kinds[2] == "swapped" else _cut(got, shape)
        if dtype in FLOATS:
            exact = np.matmul(x.astype(WIDER[dtype]), y.astype(WIDER[dtype]))
            assert_within(got, exact, product_bound(x, y), "matmul")
        else:
            assert_same(got, np.matmul(x, y), context="matmul")

    @each("kinds", OPERANDS)
    @each("lead, m, k, n", PRODUCTS)
    @pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
    def test_matmul(self, dtype, lead, m, k, n, kinds):
        self.multiply(dtype, lead, m, k, n, kinds)

    @each("kinds", [k for k in OPERANDS if "sliced" not in k and "flipped" not in k])
    @each("lead, m, k, n", BIG)
    @pytest.mark.parametrize("dtype", ["uint8", "int32", "float32"])
    def test_matmul_in_panels(self, dtype, lead, m, k, n, kinds):
        self.multiply(dtype, lead, m, k, n, kinds)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_double_panels(self, dtype):
        self.multiply(dtype, (), 530, 70, 301, ("sliced", "flipped", "columns"))

    @each(
        "kinds",
        ["compact,compact,compact", "swapped,swapped,compact", "sliced,columns,sliced", "flipped,swapped,swapped"],
    )
    @each("row", ["compact", "sliced", "negative", "broadcast_scalar"])
    @each("m, k, n", [(m, k, n) for lead, m, k, n in PRODUCTS + BIG if not lead])
    @pytest.mark.parametrize("dtype", ["uint8", "int32", *FLOATS])
    def test_linear(self, dtype, m, k, n, row, kinds):
        """x @ weight + bias, whatever was in out before."""
        first, second, third = kinds.split(",")
        (a, x), (b, y) = self.matrix(first, dtype, (m, k), 1), self.matrix(second, dtype, (k, n), 2)
        c, z = self.operand(row, dtype, (n,), 3, plain)
        canvas = self.canvas("compact", (n, m), dtype) if third == "swapped" else self.canvas(third, (m, n), dtype)
        self.backend.linear(a, b, c, canvas.out.T if third == "swapped" else canvas.out)
        got = canvas.result().T if third == "swapped" else canvas.result()
        if dtype not in FLOATS:
            return assert_same(got, x @ y + z, context="linear")
        exact = x.astype(WIDER[dtype]) @ y.astype(WIDER[dtype]) + z
        assert_within(
            got, exact, product_bound(x, y) + 2 * np.finfo(dtype).eps * (np.abs(x) @ np.abs(y) + np.abs(z)), "linear"
        )

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_integers_wrap(self, dtype):
        x, y = values(dtype, (9, 20), 1), values(dtype, (20, 8), 2)
        canvas = self.canvas("compact", (9, 8), dtype)
        self.backend.matmul(self.array(x), self.array(y), canvas.out)
        assert_same(canvas.result(), x @ y)

    @each("size", [3, 40])
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_nan_and_infinity_pass_through(self, dtype, size):
        """0 * inf and 0 * NaN are NaN in every element they enter, and in no other; old values of `out` never enter."""
        x, y = plain(dtype, (size, size), 1), plain(dtype, (size, size), 2)
        x[1, 0], x[2, 1], y[0, 0] = np.nan, np.inf, 0.0
        canvas = self.canvas("compact", x.shape, dtype, initial=np.full(x.shape, np.nan, dtype))
        self.backend.matmul(self.array(x), self.array(y), canvas.out)
        got = canvas.result()
        assert np.isnan(got[1]).all() and not np.isfinite(got[2]).any()
        rest = np.delete(got, [1, 2], axis=0)
        assert np.isfinite(rest).all()


# ---- Fused verbs ------------------------------------------------------------------------------------------------------


def _shifted(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(WIDER[x.dtype.name])
    return wide, wide - np.max(wide, axis=-1, keepdims=True)


def softmax(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """e^(x - max) / sum, and the error that rounding x - max brings."""
    _, shifted = _shifted(x)
    e = np.exp(shifted)
    out = e / e.sum(axis=-1, keepdims=True)
    eps = np.finfo(x.dtype)
    return out, eps.eps * (8 + np.abs(shifted)) * out + 2 * float(eps.smallest_subnormal)


def log_softmax(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    _, shifted = _shifted(x)
    out = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return out, np.finfo(x.dtype).eps * (8 + np.abs(shifted))


def logsumexp(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    wide = x.astype(WIDER[x.dtype.name])
    largest = np.max(wide, axis=-1, keepdims=True)
    shift = np.where(np.isfinite(largest), largest, 0)
    out = np.log(np.exp(wide - shift).sum(axis=-1)) + shift[..., 0]
    return out, np.finfo(x.dtype).eps * (8 + np.abs(shift[..., 0]))


FUSED = {"softmax": softmax, "log_softmax": log_softmax, "logsumexp": logsumexp}


class FusedSuite(Suite):
    def run(self, verb, a, x, way, out="compact"):
        shape = x.shape[:-1] if verb == "logsumexp" else x.shape
        canvas = self.canvas(out, shape, x.dtype.name)
        (call if way == "own" else composed)(self.backend, verb, a, canvas.out)
        with np.errstate(all="ignore"):
            expected, bound = FUSED[verb](x)
            assert_within(canvas.result(), expected, bound, verb)

    ways = each("way", ["own", "composed"])  # the backend's, and the default made of other verbs

    @ways
    @each("kind", [k for k in KINDS if k not in ("empty", "scalar", "large_rows")])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", FUSED)
    def test_fused(self, verb, dtype, kind, way):
        a, x = self.operand(kind, dtype, make=lambda dtype, shape, salt: plain(dtype, shape, salt, 20))
        self.run(verb, a, x, way)
        if KINDS[kind].writable and KINDS[kind].shape(()) == ():
            self.run(verb, a, x, way, out=kind)

    @ways
    @each("n", [1, 2, 15, 16, 17, 1000, 40001])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", FUSED)
    def test_row_lengths(self, verb, dtype, n, way):
        x = plain(dtype, (3, n), scale=3)
        self.run(verb, self.array(x), x, way)

    @ways
    @each(
        "row",
        [
            [1e4, 1e4, 1e4],
            [-1e4, -1e4 + 1, -1e4],
            [0.0, -np.inf, 1.0],
            [-np.inf, -np.inf],
            [np.inf, 1.0],
            [np.inf, np.inf],
            [np.nan, 1.0],
            [1.0, -np.inf, np.nan],
            [0.0],
            [-0.0, 0.0],
            [1000.0, 0.0, -1000.0],
        ],
    )
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", FUSED)
    def test_rows_of_special_values(self, verb, dtype, row, way):
        x = np.array([row, row], dtype)
        self.run(verb, self.array(x), x, way)

    @pytest.mark.parametrize("dtype", FLOATS)
    def test_softmax_in_place(self, dtype):
        x = plain(dtype, (7, 11))
        canvas = self.canvas("compact", x.shape, dtype, initial=x)
        call(self.backend, "softmax", canvas.out, canvas.out)
        assert_within(canvas.result(), *softmax(x), "softmax")
