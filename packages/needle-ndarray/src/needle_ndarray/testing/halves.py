"""The contract for float16 and bfloat16: what moves them keeps their bits, what casts rounds once, all else computes in float32.

NumPy is the oracle of float16. A bfloat16 is the upper half of a float32; `nearest` looks for it among its neighbours, another way
than any backend rounds.
"""

from typing import Any

import numpy as np
import pytest

import needle_ndarray
from needle_ndarray import from_words, maximum, words
from needle_ndarray.backend import BINARY, REDUCE, UNARY
from needle_ndarray.ndarray import NDArray
from needle_ndarray.testing.calls import call
from needle_ndarray.testing.cases import HALVES, INPUTS, INTEGERS, KINDS, LAYOUTS, NAMES, OUTPUTS, SHAPE, Suite, plain
from needle_ndarray.testing.cases import values as ordinary
from needle_ndarray.testing.oracle import assert_same, assert_within
from needle_ndarray.testing.tables import each

#: Numbers near which something happens: zeros, the smallest, ties, the largest and what rounds beyond it; negative ones too.
EDGES = [0.0, 2.0**-24, 2.0**-25, 2.0**-14, 1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-8, 1 + 3 * 2.0**-8, 65504.0, 65519.9,
         65520.0, 3.3895e38, 3.4e38, 1e-40, 1.4e-45, 9.2e-41, 1e300, 1e-300, np.inf, np.nan]  # fmt: skip


def numbers(dtype: str, bits: np.ndarray) -> np.ndarray:
    """What words of 16 bits mean, as float32."""
    bits = np.array(bits, order="C")
    with np.errstate(all="ignore"):
        return (
            bits.view(np.float16).astype(np.float32)
            if dtype == "float16"
            else (bits.astype(np.uint32) << 16).view("f4")
        )


def nearest(dtype: str, values: np.ndarray) -> np.ndarray:
    """The bits of the half nearest to each value, ties to an even last bit."""
    if dtype == "float16":
        with np.errstate(all="ignore"):
            return values.astype(np.float16).view(np.uint16)
    wide = values.astype(np.longdouble)
    order = np.arange(0x7F80, dtype=np.uint16)  # finite, from 0 upwards
    line = np.append(numbers(dtype, order).astype(np.longdouble), np.longdouble(2) ** 128)  # where inf takes over
    size = np.abs(wide)
    with np.errstate(all="ignore"):
        above = np.clip(np.searchsorted(line, size), 1, len(line) - 1)
        low, high = size - line[above - 1], line[above] - size
        found = np.where((high < low) | ((high == low) & (above % 2 == 0)), above, above - 1)
    found = np.where(size >= line[-1], 0x7F80, np.where(np.isnan(wide), 0x7FC0, found))
    return (found | np.where(np.signbit(wide), 0x8000, 0)).astype(np.uint16)


def same_bits(dtype: str, got: np.ndarray, expected: np.ndarray, context: Any = "") -> None:
    """Equal words, any NaN for a NaN."""
    nan = np.isnan(numbers(dtype, expected))
    assert got.shape == expected.shape, f"{context}: shape {got.shape}, expected {expected.shape}"
    assert np.isnan(numbers(dtype, got))[nan].all(), f"{context}: a NaN is lost"
    wrong = np.argwhere((got != expected) & ~nan)
    first = tuple(wrong[0]) if len(wrong) else ()
    assert not len(wrong), (
        f"{context}: {len(wrong)} differ, first at {first}: {got[first]:#x}, expected {expected[first]:#x}"
    )


def some_bits(shape: tuple[int, ...], salt: int = 0) -> np.ndarray:
    """Words of every kind: NaN, infinities and subnormals among them."""
    return np.asarray(np.random.default_rng([salt, *shape]).integers(0, 1 << 16, shape, dtype=np.uint16))


class HalfSuite(Suite):
    def half_operand(
        self, kind: str, dtype: str, shape: tuple[int, ...] = SHAPE, salt: int = 0
    ) -> tuple[NDArray, np.ndarray]:
        """An array of words in that kind of view, and the words."""
        how = KINDS[kind]
        shape = how.shape(shape)
        base = some_bits(how.base(shape), salt)
        return how.view(from_words(base, dtype, self.device), shape), how.view(base, shape)

    def check_words(
        self, base: NDArray, before: np.ndarray, kind: str, shape: tuple[int, ...], expected: np.ndarray
    ) -> None:
        """The view of `base` holds what is expected, and what lies around it is as it was."""
        wanted = before.copy()
        if wanted.size:
            KINDS[kind].view(wanted, shape)[...] = expected
        same_bits(base.dtype, words(base), wanted, kind)

    @pytest.mark.parametrize("dtype", HALVES)
    @each("kind", INPUTS)
    def test_half_to_host(self, kind, dtype):
        a, bits = self.half_operand(kind, dtype)
        got = self.backend.to_host(a)
        assert got.dtype == a.dtype.storage and got.flags.c_contiguous
        assert np.array_equal(words(a), bits)
        assert a.numpy().dtype == a.dtype.numpy
        assert_same(a.numpy().astype("float32"), numbers(dtype, bits))

    @pytest.mark.parametrize("dtype", HALVES)
    @each("kind", OUTPUTS)
    def test_half_fill(self, kind, dtype):
        for value in EDGES[: 4 if kind.startswith("large") else None]:
            out, bits = self.half_operand(kind, dtype)
            self.backend.fill(out, value)
            same_bits(dtype, words(out), np.broadcast_to(nearest(dtype, np.array(value)), bits.shape), value)

    @pytest.mark.parametrize("dtype", HALVES)
    @each("layout", sorted({(a, out) for a, _, out in LAYOUTS}))
    def test_half_copy(self, layout, dtype):
        """Between views of one half: the bits, NaN as it is."""
        a, bits = self.half_operand(layout[0], dtype)
        before = some_bits(KINDS[layout[1]].base(bits.shape), 9)
        base = from_words(before, dtype, self.device)
        self.backend.copy(a, KINDS[layout[1]].view(base, bits.shape))
        self.check_words(base, before, layout[1], bits.shape, bits)

    @pytest.mark.parametrize("dtype", HALVES)
    @each("to", [*NAMES, *HALVES])
    @each(
        "layout",
        [("compact", "compact"), ("sliced", "transposed"), ("broadcast_rows", "negative"), ("offset", "flipped")],
    )
    def test_half_widens(self, layout, to, dtype):
        a, bits = self.half_operand(layout[0], dtype)
        x = numbers(dtype, bits)
        if to in INTEGERS:  # beyond an integer's range C leaves it open
            x = np.where(np.abs(x) < 100, np.abs(x), np.float32(3))
            a = self.array(x).astype(dtype)
            x = numbers(dtype, words(a))
        if to in HALVES:
            same_bits(to, words(a.astype(to)), nearest(to, x))
            return
        canvas = self.canvas(layout[1], bits.shape, to)
        self.backend.copy(a, canvas.out)
        assert_same(canvas.result(), x.astype(to))

    @pytest.mark.parametrize("dtype", HALVES)
    @each("given", NAMES)
    @each(
        "layout",
        [("compact", "compact"), ("sliced", "transposed"), ("broadcast_rows", "negative"), ("offset", "flipped")],
    )
    def test_half_rounds(self, layout, given, dtype):
        """From every dtype to the nearest half, rounded once."""
        a, x = self.operand(layout[0], given)
        before = some_bits(KINDS[layout[1]].base(x.shape), 9)
        base = from_words(before, dtype, self.device)
        self.backend.copy(a, KINDS[layout[1]].view(base, x.shape))
        self.check_words(base, before, layout[1], x.shape, nearest(dtype, x))

    @pytest.mark.parametrize("dtype", HALVES)
    @each("given", ["float32", "float64", "int64"])
    def test_half_rounds_ties(self, given, dtype):
        """Each half, the middle between it and the next, and the numbers beside that: no second rounding."""
        low = numbers(dtype, np.arange(0x7C00 if dtype == "float16" else 0x7F80, dtype=np.uint16)).astype(np.float64)
        with np.errstate(all="ignore"):
            middle = low[:-1] / 2 + low[1:] / 2
            x = np.concatenate([low, middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0.0), EDGES])
            x = np.concatenate([x, -x])
            x = x.astype(given) if given != "int64" else x[np.abs(x) < 2.0**62].astype(given)
        if given == "int64":
            x = np.concatenate([x, x + 1, x - 1])
        a = self.array(x)
        same_bits(dtype, words(a.astype(dtype)), nearest(dtype, x))

    @pytest.mark.parametrize("dtype", HALVES)
    @each("row", [(), (1,), (3,), (4,), (3, 5)])
    @each("kind", ["compact", "transposed", "sliced", "negative", "offset"])
    def test_half_rows(self, kind, row, dtype):
        """take and put move the bits."""
        a, bits = self.half_operand(kind, dtype, (6, *row))
        entries = np.array([5, 0, 3, 3, 1, 5, 2])
        index, out = self.array(entries), from_words(some_bits((7, *row), 3), dtype, self.device)
        self.backend.take(a, index, out)
        assert np.array_equal(words(out), bits[entries])
        given, expected = some_bits((7, *row), 4), bits.copy()
        call(self.backend, "put", a, index, from_words(given, dtype, self.device))
        for i, at in enumerate(entries):
            expected[at] = given[i]
        assert np.array_equal(words(a), expected)

    # ---- Functions of arrays: in float32, rounded once ---------------------------------------------------------------

    @pytest.mark.parametrize("dtype", HALVES)
    @each("op", [op for op in (UNARY | BINARY).values() if op.compute_dtype[6] >= 0])
    @each("kind", ["compact", "transposed", "broadcast_rows", "scalar"])
    def test_half_elementwise(self, op, kind, dtype):
        """An op of halves is that of float32, rounded once."""
        given = [self.half_operand(kind, dtype, salt=i)[0] for i in range(2 if op.name in BINARY else 1)]
        function = getattr(needle_ndarray, op.name)
        wide = function(*[a.astype("float32") for a in given])
        got = function(*given)
        if wide.dtype == "bool":
            assert_same(got.numpy(), wide.numpy())
        else:
            assert got.dtype == dtype
            same_bits(dtype, words(got), nearest(dtype, wide.numpy()), op.name)

    @pytest.mark.parametrize("dtype", HALVES)
    @each("axis", [None, 0, (1, 2)])
    @each("kind", ["compact", "transposed", "sliced"])
    def test_half_reductions(self, kind, axis, dtype):
        a = self.array(plain("float32", SHAPE)).astype(dtype)
        a = a.T if kind == "transposed" else a[::2, :, ::-1] if kind == "sliced" else a
        wide = a.astype("float32")
        for name in [*REDUCE, "mean", "var", "std", "logsumexp"]:
            got, expected = getattr(a, name)(axis), getattr(wide, name)(axis)
            assert got.dtype == ("bool" if expected.dtype == "bool" else dtype)
            assert np.array_equal(words(got), words(expected.astype(got.dtype))), name
        if not isinstance(axis, tuple):
            assert_same(a.argmax(axis).numpy(), wide.argmax(axis).numpy())
            assert np.array_equal(words(a.cumsum(axis)), words(wide.cumsum(axis).astype(dtype)))

    @pytest.mark.parametrize("dtype", HALVES)
    def test_half_products(self, dtype):
        a = self.array(plain("float32", (5, 7))).astype(dtype)
        b = self.array(plain("float32", (7, 9), 1)).astype(dtype)
        bias = self.array(plain("float32", (9,), 2)).astype(dtype)
        wide = a.astype("float32") @ b.astype("float32")
        assert np.array_equal(words(a @ b), words(wide.astype(dtype)))
        expected = needle_ndarray.linear(a.astype("float32"), b.astype("float32"), bias.astype("float32"))
        assert np.array_equal(words(needle_ndarray.linear(a, b, bias)), words(expected.astype(dtype)))
        other = self.array(ordinary("float32", (5, 7)))
        assert (other @ b).dtype == "float32" and maximum(a, other).dtype == "float32"

    @pytest.mark.parametrize("dtype", HALVES)
    def test_half_scalars(self, dtype):
        """A number enters arithmetic as float32; for a comparison it is rounded to the half first."""
        a = self.array(np.array([0.1, 1.0, 3.0], "float32")).astype(dtype)
        assert (a * 0.1).dtype == (2 - a).dtype == (a + 1).dtype == (a**2).dtype == dtype
        expected = nearest(dtype, a.astype("float32").numpy() * np.float32(0.1))
        same_bits(dtype, words(a * 0.1), expected)
        assert (a == 0.1).tolist() == [True, False, False]
        a += 1.5
        assert a.dtype == dtype
        a[1] = 2
        assert a[1].item() == 2.0

    @each("kinds", [("compact", "compact"), ("sliced", "transposed"), ("compact", "transposed"), ("compact", "sliced")])
    @each(
        "shape",
        [
            (1, 7, 9),
            (1, 64, 256),
            (1, 515, 130),
            (3, 50, 300),
            (8, 33, 129),
            (9, 40, 70),
            (0, 3, 4),
            (2, 0, 5),
            (2, 3, 0),
        ],
    )
    @pytest.mark.parametrize("dtype", [*HALVES, "uint8"])
    def test_matmul_weight(self, shape, kinds, dtype):
        """float32 rows with a weight that is widened as it is read, by the backend and by the default."""
        m, k, n = shape
        a, x = self.operand(kinds[0], "float32", (m, k), make=plain)
        b, y = self.operand(kinds[1], "uint8" if dtype == "uint8" else "float32", (k, n), salt=1, make=plain)
        s, z = self.operand("compact", "float32", (n,), salt=2, make=plain)
        weight = b if dtype == "uint8" else b.astype(dtype)
        weight = weight.T.copy().T if kinds[1] == "transposed" and dtype != "uint8" else weight
        y = y.astype("float64") - 128 if dtype == "uint8" else weight.numpy().astype("float64")
        for run in self.calls("matmul_weight").values():
            for scale in (None, s):
                canvas = self.canvas("compact", (m, n), "float32")
                run(a, weight, scale, canvas.out)
                factor = 1.0 if scale is None else z.astype("float64")
                bound = np.finfo("float32").eps * (k + 2) * (np.abs(x) @ np.abs(y)) * np.abs(factor)
                assert_within(canvas.result(), (x.astype("float64") @ y) * factor, bound)
        got = needle_ndarray.matmul_weight(a, weight, s)
        assert got.shape == (m, n) and got.dtype == "float32"
