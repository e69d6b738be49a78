"""The contract of `unary`, `binary` and `where`."""

from typing import Any

import numpy as np
import pytest

from needle_ndarray.backend import BINARY, UNARY, Op
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.ndarray import binary_op, unary_op
from needle_ndarray.testing.cases import FLOATS, INTEGERS, KINDS, LAYOUTS, NAMES, SHAPE, SPECIAL, Suite, plain, values
from needle_ndarray.testing.oracle import assert_op, assert_same
from needle_ndarray.testing.tables import case_name, each


def accepted(table: dict[str, Op]) -> list:
    """(op, dtype) for every dtype that the op computes in."""
    return [(op, str(d)) for op in table.values() for d in DTYPES if op.compute_dtype[d.code] == d.code]


def refused(table: dict[str, Op]) -> list:
    """(op, dtype) for every dtype that the table refuses."""
    return [(op, str(d)) for op in table.values() for d in DTYPES if op.compute_dtype[d.code] < 0 and not d.is_half]


def out_dtype(op: Op, dtype: str) -> str:
    return str(DTYPES[op.out_dtype[NAMES.index(dtype)]])


def operands_for(op: Op, b: np.ndarray) -> np.ndarray:
    """The second operand as it comes: no negative exponents for integers; for gradients what tanh or sigmoid returned, and what
    gelu and silu have a slope at that is not 0: it may be multiplied by infinity."""
    if op.name == "power" and b.dtype.kind == "i":
        return np.where(b < 0, b & 63, b).astype(b.dtype)
    if op.name in ("tanh_grad", "sigmoid_grad"):
        return np.clip(b, -1 if op.name == "tanh_grad" else 0, 1)
    if op.name in ("gelu_grad", "silu_grad"):
        return np.clip(b, -8, 8)
    return b


def every_op(table: dict[str, Op]) -> Any:
    """A test for each op and dtype."""
    return pytest.mark.parametrize("op, dtype", accepted(table), ids=case_name)


class ElementwiseSuite(Suite):
    @each("layout", sorted({(a, out) for a, _, out in LAYOUTS}))
    @every_op(UNARY)
    def test_unary(self, op, dtype, layout):
        a, x = self.operand(layout[0], dtype)
        canvas = self.canvas(layout[1], x.shape, out_dtype(op, dtype))
        self.backend.unary(op, a, canvas.out)
        assert_op(op, canvas.result(), x)

    @each("layout", LAYOUTS)
    @every_op(BINARY)
    def test_binary(self, op, dtype, layout):
        a, x = self.operand(layout[0], dtype, salt=1)
        b, y = self.view(layout[1], lambda shape: operands_for(op, values(dtype, shape, 2)), SHAPE)
        canvas = self.canvas(layout[2], x.shape, out_dtype(op, dtype))
        self.backend.binary(op, a, b, canvas.out)
        assert_op(op, canvas.result(), x, y)

    @every_op(UNARY)
    def test_unary_special_values(self, op, dtype):
        x = SPECIAL[dtype]
        canvas = self.canvas("compact", x.shape, out_dtype(op, dtype))
        self.backend.unary(op, self.array(x), canvas.out)
        assert_op(op, canvas.result(), x)

    @every_op(BINARY)
    def test_binary_special_pairs(self, op, dtype):
        """Every special value with every other: zero over zero, the smallest integer over -1, NaN with anything."""
        n = len(SPECIAL[dtype])
        x, y = np.repeat(SPECIAL[dtype], n).reshape(n, n), operands_for(op, np.tile(SPECIAL[dtype], (n, 1)))
        canvas = self.canvas("compact", x.shape, out_dtype(op, dtype))
        self.backend.binary(op, self.array(x), self.array(y), canvas.out)
        assert_op(op, canvas.result(), x, y)

    @each("name", ["exp", "expm1", "log1p", "sin", "cos", "tanh", "sigmoid", "erf"])
    @pytest.mark.parametrize("dtype", FLOATS)
    def test_vector_functions_do_not_depend_on_the_place(self, dtype, name):
        """An element's bits are the same wherever it lies: in a vector, in the tail behind it, in a strided view."""
        for length in [*range(1, 40), 63, 64, 65, 1023, 1024, 1025, 16385]:
            x = np.abs(plain(dtype, (length,)))
            inside = unary_op(UNARY[name], self.array(np.concatenate([x, x]))).numpy()[length:]
            alone = unary_op(UNARY[name], self.array(np.repeat(x, 2))[::2]).numpy()
            assert inside.tobytes() == alone.tobytes()

    @every_op(UNARY)
    @each("kind", ["compact", "sliced", "large_sliced"])
    def test_unary_in_place(self, op, dtype, kind):
        """The result may be the operand's own view."""
        if out_dtype(op, dtype) != dtype:
            return
        x = values(dtype, KINDS[kind].shape(SHAPE))
        canvas = self.canvas(kind, x.shape, dtype, initial=x)
        self.backend.unary(op, canvas.out, canvas.out)
        assert_op(op, canvas.result(), x)

    @every_op(BINARY)
    @each("kind", ["compact", "sliced", "large_sliced"])
    def test_binary_in_place(self, op, dtype, kind):
        """The result may be either operand's own view, or both."""
        if out_dtype(op, dtype) != dtype:
            return
        shape = KINDS[kind].shape(SHAPE)
        x, y = values(dtype, shape, 3), operands_for(op, values(dtype, shape, 4))
        for side, left, right in (("a", x, y), ("b", x, y), ("both", y, y)):
            canvas = self.canvas(kind, shape, dtype, initial=left if side == "a" else right)
            a = self.array(left) if side == "b" else canvas.out
            b = self.array(right) if side == "a" else canvas.out
            self.backend.binary(op, a, b, canvas.out)
            assert_op(op, canvas.result(), left, right)

    @each("layout", LAYOUTS)
    @pytest.mark.parametrize("dtype", NAMES)
    def test_where(self, dtype, layout):
        condition, c = self.operand(layout[1], "bool", salt=5)
        a, x = self.operand(layout[0], dtype, salt=6)
        b, y = self.operand(layout[1], dtype, salt=7)
        canvas = self.canvas(layout[2], x.shape, dtype)
        self.backend.where(condition, a, b, canvas.out)
        assert_same(canvas.result(), np.where(c, x, y))

    @each("op, dtype", refused(UNARY))
    def test_unary_refused(self, op, dtype):
        with pytest.raises(TypeError, match=rf"{op.name}.*{dtype}"):
            unary_op(op, self.array(np.ones(3, dtype)))

    @each("op, dtype", refused(BINARY))
    def test_binary_refused(self, op, dtype):
        a = self.array(np.ones(3, dtype))
        with pytest.raises(TypeError, match=rf"{op.name}.*{dtype}"):
            binary_op(op, a, a)

    # The rules by name, with the numbers a reader can check; NumPy agrees with every one of them.
    @each(
        "name, dtype, a, b, expected",
        [
            ("add", "bool", [0, 0, 1, 1], [0, 1, 0, 1], [False, True, True, True]),
            ("multiply", "bool", [0, 0, 1, 1], [0, 1, 0, 1], [False, False, False, True]),
            ("add", "int32", [2**31 - 1], [1], [-(2**31)]),
            ("multiply", "int64", [2**62], [2], [-(2**63)]),
            ("add", "uint8", [255, 200], [1, 100], [0, 44]),
            ("subtract", "uint8", [0, 5], [1, 7], [255, 254]),
            ("multiply", "uint8", [16, 255], [16, 255], [0, 1]),
            ("floor_divide", "uint8", [255, 7, 5], [2, 255, 0], [127, 0, 0]),
            ("remainder", "uint8", [255, 7, 5], [254, 255, 0], [1, 7, 0]),
            ("power", "uint8", [2, 0, 3, 255], [8, 0, 5, 2], [0, 1, 243, 1]),
            ("maximum", "uint8", [255, 127], [1, 128], [255, 128]),
            ("floor_divide", "int32", [7, -7, 7, -7], [2, 2, -2, -2], [3, -4, -4, 3]),
            ("remainder", "int32", [7, -7, 7, -7], [2, 2, -2, -2], [1, 1, -1, -1]),
            ("floor_divide", "int64", [5, -(2**63)], [0, -1], [0, -(2**63)]),
            ("remainder", "int64", [5, -(2**63)], [0, -1], [0, 0]),
            ("floor_divide", "float64", [-0.0, 1.0, -1.0, 1.0], [1.0, 0.0, 0.0, np.inf], [-0.0, np.inf, -np.inf, 0.0]),
            ("floor_divide", "float64", [-1.0, np.inf, 0.0], [np.inf, 2.0, 0.0], [-1.0, np.nan, np.nan]),
            ("remainder", "float64", [-7.0, 7.0, -4.0, 4.0], [2.0, -2.0, 2.0, -2.0], [1.0, -1.0, 0.0, -0.0]),
            ("remainder", "float64", [-1.0, 1.0, np.inf], [np.inf, -np.inf, 2.0], [np.inf, -np.inf, np.nan]),
            ("maximum", "float32", [np.nan, 1.0, -np.inf], [1.0, np.nan, 2.0], [np.nan, np.nan, 2.0]),
            ("minimum", "float32", [np.nan, 1.0, -np.inf], [1.0, np.nan, 2.0], [np.nan, np.nan, -np.inf]),
            ("power", "int32", [2, 0, -3, 2], [31, 0, 3, 32], [-(2**31), 1, -27, 0]),
            ("power", "float64", [np.nan, 1.0, 0.0, -8.0], [0.0, np.nan, -1.0, 0.5], [1.0, 1.0, np.inf, np.nan]),
        ],
    )
    def test_rules(self, name, dtype, a, b, expected):
        x, y = np.array(a, dtype), np.array(b, dtype)
        expected = np.array(expected, dtype)
        canvas = self.canvas("compact", x.shape, dtype)
        self.backend.binary(BINARY[name], self.array(x), self.array(y), canvas.out)
        with np.errstate(all="ignore"):
            assert_same(getattr(np, name)(x, y), expected, context="NumPy")
        assert_same(canvas.result(), expected)

    @pytest.mark.parametrize("dtype", INTEGERS)
    def test_smallest_integer_wraps(self, dtype):
        lowest = np.array([np.iinfo(dtype).min], dtype)
        for name in ("abs", "negative"):
            canvas = self.canvas("compact", (1,), dtype)
            self.backend.unary(UNARY[name], self.array(lowest), canvas.out)
            assert_same(canvas.result(), lowest)  # 0 where there is no sign
