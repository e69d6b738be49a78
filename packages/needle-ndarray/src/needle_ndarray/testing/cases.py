"""The tables of the contract suite: values, kinds of view, and arrays of both."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from needle_ndarray.devices import Device, device
from needle_ndarray.dtypes import DTYPES
from needle_ndarray.ndarray import make_array
from needle_ndarray.testing.calls import ways

NAMES = [str(d) for d in DTYPES if not d.is_half]  # computed with; the halves have a suite of their own
HALVES = ["float16", "bfloat16"]
FLOATS = ["float32", "float64"]
INTEGERS = ["uint8", "int32", "int64"]
SHAPE = (5, 7, 9)  # odd, so that every vector loop has a tail
LARGE = (263, 269)  # enough work for threads, and again a tail

# ---- Values -----------------------------------------------------------------------------------------------------------


def _float_specials(dtype: str) -> list:
    info = np.finfo(dtype)
    ordinary = [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 7.0, 10.0, 0.1, math.pi, 1e-3, 16777217.0, 1e6, 1e10]
    exponents = [1e-10, 20.0, 80.0, 88.5, 95.0, 103.0, 110.0, 650.0, 709.5, 730.0, 746.0]  # where e^a leaves its range
    extreme = [math.inf, *map(float, (info.max, info.tiny, info.smallest_subnormal, info.eps))]
    return [math.nan] + [sign * v for v in ordinary + exponents + extreme for sign in (1.0, -1.0)]


def _integer_specials(dtype: str) -> list:
    info = np.iinfo(dtype)
    near = [0, 1, 2, 3, 7, 10, 31, 63, 64, 255, 46341]
    edges = [info.max, info.min, info.max - 1, info.min + 1, info.max // 2 + 1]
    return [v for v in [s * v for v in near for s in (1, -1)] + edges if info.min <= v <= info.max]


#: Values that go wrong: NaN, infinities, signed zeros, subnormals, the largest and smallest, ties, zero divisors.
SPECIAL = {
    "bool": np.array([False, True]),
    **{name: np.array(_integer_specials(name), name) for name in INTEGERS},
    **{name: np.array(_float_specials(name)).astype(name) for name in FLOATS},
}


def plain(dtype: str, shape: tuple[int, ...], salt: int = 0, scale: int = 1) -> np.ndarray:
    """Ordinary values: nothing overflows when a few are multiplied or many are added."""
    return (_plain(dtype, shape, salt) * np.array(scale, "bool" if dtype == "bool" else dtype)).reshape(shape)


@lru_cache(200)
def _plain(dtype: str, shape: tuple[int, ...], salt: int) -> np.ndarray:
    rng = np.random.default_rng([salt, math.prod(shape)])
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if dtype in INTEGERS:
        return rng.integers(0 if dtype == "uint8" else -50, 50, shape).astype(dtype)
    return rng.normal(size=shape).astype(dtype)


def values(dtype: str, shape: tuple[int, ...], salt: int = 0) -> np.ndarray:
    """Every special value where there is room, and random ones of all magnitudes, shuffled."""
    return _values(dtype, shape, salt).copy()


@lru_cache(200)
def _values(dtype: str, shape: tuple[int, ...], salt: int) -> np.ndarray:
    rng = np.random.default_rng([salt, math.prod(shape), 1])
    size = math.prod(shape)
    special = SPECIAL[dtype]
    if dtype == "bool":
        rest = rng.random(size) < 0.5
    elif dtype in INTEGERS:
        wide = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, size, dtype=dtype)
        rest = np.where(rng.random(size) < 0.5, wide, rng.integers(-9, 9, size).astype(dtype))
    else:
        rest = (rng.normal(size=size) * 10.0 ** rng.uniform(-4, 4, size)).astype(dtype)
    count = min(len(special), size // 2)
    pool = np.concatenate([rng.permutation(special)[:count], rest[count:]])
    return rng.permutation(pool).reshape(shape)


# ---- Kinds of view ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """A way to lie in memory: a compact array of shape `base(shape)`, and the view of it that has the shape asked for.

    `view` works on NumPy arrays and NDArrays alike, so both sides of a test see the same elements.
    """

    base: Callable[[tuple], tuple]
    view: Callable[[Any, tuple], Any]
    shape: Callable[[tuple], tuple] = lambda shape: shape  # what becomes of the shape asked for
    writable: bool = True


def _broadcast(x: Any, shape: tuple) -> Any:
    return np.broadcast_to(x, shape) if isinstance(x, np.ndarray) else x.broadcast_to(shape)


def _each(slice_of: Callable[[int], slice]) -> Callable[[Any, tuple], Any]:
    return lambda x, shape: x[(..., *[slice_of(n) for n in shape])]


_COMPACT = Kind(lambda s: s, lambda x, s: x)
_TRANSPOSED = Kind(lambda s: s[::-1], lambda x, s: x.T)
_SLICED = Kind(lambda s: tuple(2 * n + 3 for n in s), _each(lambda n: slice(1, 1 + 2 * n, 2)))
_ROWS = Kind(lambda s: (1,) + s[1:], _broadcast, writable=False)


def _large(kind: Kind) -> Kind:
    return Kind(kind.base, kind.view, lambda s: LARGE, kind.writable)


KINDS = {
    "compact": _COMPACT,
    "transposed": _TRANSPOSED,
    "sliced": _SLICED,
    "negative": Kind(lambda s: tuple(2 * n for n in s), _each(lambda n: slice(None, None, -2))),
    "flipped": Kind(lambda s: s, _each(lambda n: slice(None, None, -1))),
    "offset": Kind(lambda s: (math.prod(s) + 1,), lambda x, s: x[1:].reshape(s)),  # misaligned for vectors
    "broadcast_rows": _ROWS,
    "broadcast_columns": Kind(lambda s: s[:-1] + (1,), _broadcast, writable=False),
    "broadcast_scalar": Kind(lambda s: (), _broadcast, writable=False),
    "empty": Kind(lambda s: s, lambda x, s: x, lambda s: s[:-1] + (0,)),
    "empty_rows": Kind(lambda s: (2,) + s[1:], lambda x, s: x[1:1], lambda s: (0,) + s[1:]),
    "scalar": Kind(lambda s: s, lambda x, s: x, lambda s: ()),
    "large": _large(_COMPACT),
    "large_transposed": _large(_TRANSPOSED),
    "large_sliced": _large(_SLICED),
    "large_rows": _large(_ROWS),
}

#: Kinds of the operands a and b and of the result, together: a test id is "a,b,out".
LAYOUTS = [
    tuple(line.split(","))
    for line in """
    compact,compact,compact
    transposed,transposed,transposed
    sliced,sliced,sliced
    negative,negative,negative
    flipped,flipped,flipped
    offset,offset,offset
    broadcast_rows,compact,compact
    broadcast_columns,broadcast_rows,sliced
    compact,broadcast_columns,flipped
    broadcast_scalar,compact,compact
    compact,broadcast_scalar,transposed
    broadcast_scalar,broadcast_scalar,compact
    transposed,compact,compact
    compact,transposed,sliced
    sliced,flipped,transposed
    negative,offset,compact
    empty,empty,empty
    empty_rows,empty_rows,empty_rows
    scalar,scalar,scalar
    large,large,large
    large_transposed,large,large
    large_rows,large_transposed,large_sliced
    large_sliced,large_sliced,large_transposed
    """.split()
]
INPUTS = list(KINDS)
OUTPUTS = [name for name, kind in KINDS.items() if kind.writable]
SMALL = [name for name in INPUTS if not name.startswith("large")]


# ---- Arrays -----------------------------------------------------------------------------------------------------------


class Canvas:
    """A result array in some kind of view, with known values around it that must survive."""

    def __init__(
        self, suite: "Suite", kind: str, shape: tuple[int, ...], dtype: str, initial: np.ndarray | None = None
    ):
        self.kind, self.shape = KINDS[kind], tuple(shape)
        self.before = values(dtype, self.kind.base(self.shape), salt=99)
        if initial is not None:
            self.kind.view(self.before, self.shape)[...] = initial
        self.base = suite.array(self.before)
        self.out = self.kind.view(self.base, self.shape)

    def result(self) -> np.ndarray:
        """The values of the result, once what surrounds them was found untouched."""
        after = self.base.backend.to_host(self.base)
        result = self.kind.view(after, self.shape)
        expected = self.before.copy()
        if expected.size:
            self.kind.view(expected, self.shape)[...] = result
        same = np.array_equal(expected.ravel().view(np.uint8), after.ravel().view(np.uint8))
        assert same, "memory around the result was written"
        return result


class Suite:
    """Base of the parts of the contract: a device, and arrays on it."""

    device: Device | str

    @property
    def backend(self) -> Any:
        return device(self.device).backend

    def calls(self, verb: str) -> dict[str, Any]:
        """The backend's own, and the default made of other verbs where that is another one (see `calls`)."""
        return ways(self.backend, verb)

    def array(self, host: np.ndarray) -> Any:
        """A compact array on the device."""
        return make_array(host, host.dtype.name, device(self.device))

    def operand(
        self, kind: str, dtype: str, shape: tuple[int, ...] = SHAPE, salt: int = 0, make: Any = values
    ) -> tuple:
        """An array in that kind of view, and its values."""
        return self.view(kind, lambda base: make(dtype, base, salt), shape)

    def view(self, kind: str, make: Callable[[tuple], np.ndarray], shape: tuple[int, ...]) -> tuple:
        """An array in that kind of view of what `make(base shape)` gives, and its values."""
        how = KINDS[kind]
        shape = how.shape(shape)
        base = np.asarray(make(how.base(shape)))
        return how.view(self.array(base), shape), how.view(base, shape)

    def canvas(self, kind: str, shape: tuple[int, ...], dtype: str, initial: np.ndarray | None = None) -> Canvas:
        return Canvas(self, kind, shape, dtype, initial)
