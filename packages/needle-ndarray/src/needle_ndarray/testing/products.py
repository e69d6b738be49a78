"""The contract of `matmul`, and of the fused verbs over the last axis, forward and backward."""

import math
from typing import Any

import numpy as np
import pytest

from needle_ndarray.testing.calls import call, composed
from needle_ndarray.testing.cases import FLOATS, INTEGERS, KINDS, SHAPE, Suite, plain, values
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


def _sums(a: np.ndarray, b: np.ndarray, eps: float) -> tuple[np.ndarray, np.ndarray]:
    """The sums of a b over rows, and what sums in lanes may be off."""
    error = eps * (32 + math.log2(a.shape[-1])) * np.abs(a * b).sum(-1, keepdims=True)
    return (a * b).sum(-1, keepdims=True), error


def softmax_grad(grad: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    eps, (grad, y) = np.finfo(y.dtype), (a.astype(WIDER[y.dtype.name]) for a in (grad, y))
    total, off = _sums(y, grad, eps.eps)
    out = y * (grad - total)
    return out, np.abs(y) * (off + 4 * eps.eps * (np.abs(grad) + np.abs(total))) + float(eps.smallest_subnormal)


def log_softmax_grad(grad: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    eps, (grad, y) = np.finfo(y.dtype), (a.astype(WIDER[y.dtype.name]) for a in (grad, y))
    total, off = _sums(grad, np.ones_like(grad), eps.eps)
    share = (
        np.exp(y).astype(eps.dtype).astype(y.dtype)
    )  # where it is 0 in the narrower dtype, times an infinite sum it is NaN
    out = grad - share * total
    return out, share * (off + 8 * eps.eps * np.abs(total)) + 2 * eps.eps * np.abs(out) + 4 * float(eps.tiny)


def logsumexp_grad(grad: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    eps, (grad, x, y) = np.finfo(x.dtype), (a.astype(WIDER[x.dtype.name]) for a in (grad, x, y))
    distance = x - np.where(y == -np.inf, 0, y)[..., None]
    out = grad[..., None] * np.exp(distance)
    return out, eps.eps * (8 + np.abs(distance)) * np.abs(out) + 4 * float(eps.smallest_subnormal) * np.abs(
        grad[..., None]
    )


GRADIENTS: dict[str, Any] = {
    "softmax_grad": softmax_grad,
    "log_softmax_grad": log_softmax_grad,
    "logsumexp_grad": logsumexp_grad,
}


class FusedSuite(Suite):
    def run_gradient(self, verb, operands, way, out="compact"):
        """Of (array, values): the gradient of the rows, and what it is computed from."""
        arrays, hosts = zip(*operands, strict=True)
        canvas = self.canvas(out, hosts[1].shape, hosts[1].dtype.name)
        (call if way == "own" else composed)(self.backend, verb, *arrays, canvas.out)
        with np.errstate(all="ignore"):
            expected, bound = GRADIENTS[verb](*hosts)
            assert_within(canvas.result(), expected, bound, verb)

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

    @ways
    @each("kind", [k for k in KINDS if k not in ("empty", "scalar", "large_rows")])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", GRADIENTS)
    def test_gradients(self, verb, dtype, kind, way):
        """A view as the gradient that comes in, as what it is computed from, and as the result."""
        shape = KINDS[kind].shape(SHAPE)
        for strided in range(2):
            made = [
                self.operand(kind if i % 2 == strided else "compact", dtype, shape, i, plain)
                for i in range(2 if verb != "logsumexp_grad" else 3)
            ]
            if verb == "logsumexp_grad":  # the gradient and the values of rows
                made[::2] = [self.operand("compact", dtype, shape[:-1], i, plain) for i in (0, 2)]
            self.run_gradient(verb, made, way, kind if KINDS[kind].writable and shape == SHAPE else "compact")

    @ways
    @each("n", [1, 2, 15, 16, 17, 63, 64, 65, 1000, 1025, 40001])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", GRADIENTS)
    def test_gradient_row_lengths(self, verb, dtype, n, way):
        lead = (3,) if verb == "logsumexp_grad" else (3, n)
        hosts = [plain(dtype, lead), plain(dtype, (3, n), 1), *[plain(dtype, lead, 2)] * (verb == "logsumexp_grad")]
        self.run_gradient(verb, [(self.array(host), host) for host in hosts], way)

    @ways
    @each("rows", [(3, 5), (40, 5), (47, 70), (33, 2100)])
    @each("turned", ["grad", "y", "both"])
    @pytest.mark.parametrize("verb", ["softmax_grad", "log_softmax_grad"])
    def test_gradients_of_transposed_rows(self, verb, turned, rows, way):
        """Many rows that lie across memory, which are brought together some at a time."""
        hosts = [plain("float32", rows, i) for i in range(2)]
        arrays = [self.array(host) for host in hosts]
        for i, name in enumerate(("grad", "y")):
            if turned in (name, "both"):
                arrays[i] = self.array(hosts[i].T.copy()).T
        self.run_gradient(verb, list(zip(arrays, hosts, strict=True)), way)

    @ways
    @each(
        "row",
        [
            [0.0, 1.0, 0.5],
            [-np.inf, 0.0],
            [-np.inf, -np.inf],
            [np.inf, 1.0],
            [np.nan, 1.0],
            [1.0, -np.inf, np.nan],
            [-0.0, 0.0],
            [-87.5, -100.0, 0.0],
            [-720.0, -740.0, -800.0],
        ],
    )
    @each("grad", [1.0, 0.0, np.inf, np.nan])
    @pytest.mark.parametrize("dtype", FLOATS)
    @pytest.mark.parametrize("verb", GRADIENTS)
    def test_gradients_of_special_rows(self, verb, dtype, row, grad, way):
        x = np.array([row, row], dtype)
        g = np.ones_like(x)
        g[0, 0] = grad
        hosts = [g, x]
        if verb == "logsumexp_grad":
            hosts = [np.array([grad, 2.0], dtype), x, np.max(x, axis=-1)]
        self.run_gradient(verb, [(self.array(host), host) for host in hosts], way)
