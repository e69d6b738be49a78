"""The contract of the interface itself, and of the verbs that move data."""

import inspect
from typing import Any

import numpy as np
import pytest

from needle_ndarray.backend import INTERFACE_VERSION, REQUIRED, Backend
from needle_ndarray.buffer import next_version
from needle_ndarray.ndarray import NDArray
from needle_ndarray.testing.calls import call
from needle_ndarray.testing.cases import (
    FLOATS,
    INPUTS,
    INTEGERS,
    LAYOUTS,
    NAMES,
    OUTPUTS,
    SPECIAL,
    Suite,
    plain,
    values,
)
from needle_ndarray.testing.oracle import assert_same, assert_within
from needle_ndarray.testing.tables import each

#: Everything that Backend declares: verbs, hooks, and the attributes of the class.
MEMBERS = [name for name in vars(Backend) if not name.startswith("_") and name != "device"]
#: Sizes of a row that is moved: one element, powers of two that a backend may move as words, and others.
ROWS = [(), (1,), (2,), (3,), (4,), (8,), (16,), (3, 5), (4, 0)]


def owner(cls: type, member: str) -> type:
    """The class that defines it."""
    return next(each for each in cls.__mro__ if member in vars(each))


def parameters(function: Any) -> list[str]:
    return [f"{each.name}={each.default!r}" if each.default is not each.empty else each.name
            for each in inspect.signature(function).parameters.values()]  # fmt: skip


class InterfaceSuite(Suite):
    def test_interface(self):
        assert isinstance(self.backend, Backend)
        assert type(self.backend).interface_version == INTERFACE_VERSION
        assert self.backend.why_disabled() is None
        assert self.backend.name == self.backend.device.name

    @pytest.mark.parametrize("verb", REQUIRED)
    def test_verb_is_implemented(self, verb):
        assert owner(type(self.backend), verb) is not Backend, f"{type(self.backend).__name__} lacks {verb}"

    @pytest.mark.parametrize("member", MEMBERS)
    def test_member_as_declared(self, member):
        """A method takes the parameters that Backend declares, by the same names and in the same order; a value has its type."""
        own, declared = getattr(type(self.backend), member), getattr(Backend, member)
        if callable(declared):
            assert parameters(own) == parameters(declared)
        else:
            assert type(own) is type(declared)

    def test_nothing_undeclared(self):
        """A public method that the interface does not have would never be called, or by a caller that asks for this class."""
        own = {
            name for name in dir(type(self.backend)) if name[0] != "_" and callable(getattr(type(self.backend), name))
        }
        assert sorted(own - set(MEMBERS)) == []

    @each("nbytes", [0, 1, 3, 64, 1000, 1 << 20])
    def test_allocate(self, nbytes):
        first, second = self.backend.allocate(nbytes), self.backend.allocate(nbytes)
        assert first.nbytes >= nbytes and isinstance(first.version, int)
        assert nbytes == 0 or first.ptr() + nbytes <= second.ptr() or second.ptr() + nbytes <= first.ptr()
        before = next_version()
        first.mark_written()
        assert second.version < before < first.version == next_version() - 1

    def test_synchronize(self):
        assert self.backend.synchronize() is None


class MovementSuite(Suite):
    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", INPUTS)
    def test_to_host(self, kind, dtype):
        a, x = self.operand(kind, dtype)
        got = self.backend.to_host(a)
        assert got.flags.c_contiguous and got.flags.writeable
        assert_same(got, x)
        if got.size:
            got[...] = 0  # a copy: the array does not change
            assert_same(self.backend.to_host(a), x)

    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", ["compact", "offset", "empty", "scalar", "large"])
    def test_from_host(self, kind, dtype):
        x = self.operand(kind, dtype)[1].copy()
        canvas = self.canvas(kind, x.shape, dtype)
        self.backend.from_host(x, canvas.out)
        assert_same(canvas.result(), x)

    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", OUTPUTS)
    def test_fill(self, kind, dtype):
        shape = self.operand(kind, dtype)[1].shape
        for value in SPECIAL[dtype].tolist()[: 2 if kind.startswith("large") else 8]:
            canvas = self.canvas(kind, shape, dtype)
            self.backend.fill(canvas.out, value)
            assert_same(canvas.result(), np.full(shape, value, dtype))

    @each("layout", sorted({(a, out) for a, _, out in LAYOUTS}))
    @each("to", NAMES)
    @pytest.mark.parametrize("dtype", NAMES)
    def test_copy(self, dtype, to, layout):
        """Casts as NumPy's astype: floats lose their fraction, integers wrap, NaN and inf are True."""
        loses = dtype in FLOATS and to in INTEGERS  # beyond an integer's range C leaves it open
        make = (lambda dtype, shape, salt: plain(dtype, shape, salt, 1000)) if loses else values
        a, x = self.operand(layout[0], dtype, make=make)
        canvas = self.canvas(layout[1], x.shape, to)
        self.backend.copy(a, canvas.out)
        with np.errstate(all="ignore"):
            # floats to bytes: NumPy does as the machine does, by way of int32 it is the same everywhere
            assert_same(canvas.result(), x.astype(np.int32).astype(to) if loses and to == "uint8" else x.astype(to))

    @each(
        "dtype, to, given, expected",
        [
            (
                "float32",
                "int32",
                [1.9, -1.9, 0.5, -0.0, 2147483520.0, -2147483648.0],
                [1, -1, 0, 0, 2147483520, -(2**31)],
            ),
            ("float64", "int64", [1e15 + 0.5, -3.999, -(2.0**63)], [10**15, -3, -(2**63)]),
            ("float64", "bool", [np.nan, np.inf, -np.inf, 0.0, -0.0, 5e-324], [True, True, True, False, False, True]),
            (
                "float64",
                "uint8",
                [255.9, -0.9, 256.0, -1.0, -1.9, 300.0, 65535.0, 2.0**31 - 1, -(2.0**31) + 3],
                [255, 0, 0, 255, 255, 44, 255, 255, 3],
            ),
            # beyond 32 bits NumPy's answer is that of the machine: 0, on every device
            ("float32", "uint8", [2.0**31, -(2.0**40), 1e30, np.nan, np.inf, -np.inf], [0, 0, 0, 0, 0, 0]),
            ("float64", "uint8", [2.0**31, 2.0**32 + 5, 2.0**40 + 7, 1e300, np.nan, np.inf, -np.inf], [0] * 7),
            ("int32", "uint8", [-1, 256, 511, -(2**31)], [255, 0, 255, 0]),
            ("int64", "uint8", [2**40 + 7, -(2**63), -255], [7, 0, 1]),
            ("uint8", "int32", [0, 127, 128, 255], [0, 127, 128, 255]),
            ("uint8", "float32", [0, 128, 255], [0.0, 128.0, 255.0]),
            ("uint8", "bool", [0, 1, 2, 128, 255], [False, True, True, True, True]),
            ("bool", "uint8", [False, True], [0, 1]),
            ("int64", "int32", [2**32 + 5, -(2**31) - 1, 2**63 - 1], [5, 2**31 - 1, -1]),
            ("int64", "float32", [2**24 + 1, 2**24 + 3, 2**63 - 1], [2.0**24, 2.0**24 + 4, 2.0**63]),
            ("int64", "bool", [0, 256, 2**32, -(2**63)], [False, True, True, True]),
            ("float64", "float32", [1e300, -1e300, 1e-60, -1e-60, np.nan], [np.inf, -np.inf, 0.0, -0.0, np.nan]),
            ("bool", "float64", [False, True], [0.0, 1.0]),
        ],
    )
    def test_cast_rules(self, dtype, to, given, expected):
        canvas = self.canvas("compact", (len(given),), to)
        self.backend.copy(self.array(np.array(given, dtype)), canvas.out)
        assert_same(canvas.result(), np.array(expected, to))

    # ---- Rows by number: take, put, scatter_add ---------------------------------------------------------------------

    def index(self, entries: np.ndarray) -> NDArray:
        return self.array(np.asarray(entries, np.int64))

    @each("row", ROWS)
    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", ["compact", "transposed", "sliced", "negative", "offset", "broadcast_rows"])
    def test_take(self, kind, dtype, row):
        a, x = self.operand(kind, dtype, (6, *row))
        entries = np.array([5, 0, 3, 3, 1, 5, 2])
        out = "compact" if kind == "broadcast_rows" else kind
        for outcome in ("compact", out):
            canvas = self.canvas(outcome, (7, *row), dtype)
            self.backend.take(a, self.index(entries), canvas.out)
            assert_same(canvas.result(), x[entries])

    @each("row", ROWS)
    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", ["compact", "transposed", "sliced", "negative", "offset"])
    def test_put(self, kind, dtype, row):
        """Where an entry repeats, the last one wins."""
        x = values(dtype, (6, *row), 1)
        for source in ("compact", kind, "broadcast_rows"):
            given, y = self.operand(source, dtype, (7, *row), salt=2)
            entries = np.array([5, 0, 3, 3, 1, 5, 2])
            canvas = self.canvas(kind, x.shape, dtype, initial=x)
            call(self.backend, "put", canvas.out, self.index(entries), given)
            expected = x.copy()
            for i, at in enumerate(entries):
                expected[at] = y[i]
            assert_same(canvas.result(), expected)

    @each("row", ROWS)
    @pytest.mark.parametrize("dtype", NAMES)
    @each("kind", ["compact", "transposed", "sliced", "negative", "offset"])
    def test_scatter_add(self, kind, dtype, row):
        """Repeated entries add up, in order: floats have the very bits of a loop."""
        x = plain(dtype, (6, *row), 1)
        for source in ("compact", kind, "broadcast_rows"):
            given, y = self.operand(source, dtype, (7, *row), salt=2, make=plain)
            entries = np.array([5, 0, 3, 3, 3, 5, 2])
            canvas = self.canvas(kind, x.shape, dtype, initial=x)
            call(self.backend, "scatter_add", canvas.out, self.index(entries), given)
            expected = x.copy()
            for i, at in enumerate(entries):
                expected[at] += y[i]
            assert_same(canvas.result(), expected)

    @pytest.mark.parametrize("verb", ["take", "put", "scatter_add"])
    @pytest.mark.parametrize("dtype", NAMES)
    def test_no_entries(self, verb, dtype):
        x, none = plain(dtype, (4, 3)), self.index(np.zeros(0))
        canvas = self.canvas("compact", x.shape, dtype, initial=x)
        empty = self.canvas("empty_rows", (0, 3), dtype)
        if verb == "take":
            self.backend.take(canvas.out, none, empty.out)
        else:
            call(self.backend, verb, canvas.out, none, empty.out)
        assert_same(canvas.result(), x)

    @pytest.mark.parametrize("dtype", NAMES)
    @each("row", [(), (200,)])
    def test_many_rows(self, dtype, row):
        """Enough rows for threads; a histogram in the end."""
        rng = np.random.default_rng(0)
        entries = rng.integers(0, 300, 90_000 if row == () else 600)
        x = plain(dtype, (300, *row))
        taken = self.canvas("compact", (len(entries), *row), dtype)
        self.backend.take(self.array(x), self.index(entries), taken.out)
        assert_same(taken.result(), x[entries])

        given = plain(dtype, (len(entries), *row), 3)
        put = self.canvas("compact", x.shape, dtype, initial=x)
        call(self.backend, "put", put.out, self.index(entries), self.array(given))
        expected = x.copy()
        expected[entries] = given
        assert_same(put.result(), expected)

        added = self.canvas("compact", x.shape, dtype, initial=x)
        call(self.backend, "scatter_add", added.out, self.index(entries), self.array(given))
        exact = np.array(x, np.float64 if dtype.startswith("float") else dtype)
        np.add.at(exact, entries, given)
        if dtype.startswith("float"):
            assert_within(added.result(), exact, np.finfo(dtype).eps * len(entries))
        else:
            assert_same(added.result(), exact)
