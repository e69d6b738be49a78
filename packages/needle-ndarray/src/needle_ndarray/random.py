"""Random numbers: NumPy's global generator by default, or Needle's own, Philox-4x32-10, after `seed`.

Without `seed`, numbers are drawn by `np.random.rand` and `np.random.randn` in order of creation, so that `np.random.seed`
reproduces published results. After `seed(s)` they come from Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2,
3", 2011): a block of four 32-bit words is a function of the seed and a counter, so every backend and every number of threads
gives the same bits.

float32 takes one word a number (24 bits of it if uniform), float64 two words (53 bits); normal numbers come in pairs by Box and
Muller's method, from additions, products, quotients and square roots only, which are rounded alike everywhere.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from needle_ndarray.backend import RANDOM
from needle_ndarray.capture import repeat
from needle_ndarray.dtypes import dtype as to_dtype
from needle_ndarray.ndarray import NDArray

_MASK = (1 << 64) - 1


class Generator:
    """A stream of Philox blocks: a seed, and the number of blocks used up."""

    def __init__(self, seed: int, counter: int = 0) -> None:
        from threading import Lock

        if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
            raise TypeError(f"seed: expected an int, got {seed!r}")
        self.seed = int(seed) & _MASK
        self.counter = int(counter)
        self._lock = Lock()

    def advance(self, size: int, itemsize: int) -> int:
        """Set blocks aside for `size` numbers; the first one's counter."""
        with self._lock:
            first = self.counter
            per_block = 16 // itemsize
            self.counter = (first + (size + per_block - 1) // per_block) & _MASK
            return first


_generator: Generator | None = None


def seed(value: int | None) -> None:
    """Draw from Philox with this seed from now on; None goes back to NumPy's global generator."""
    global _generator
    _generator = None if value is None else Generator(value)


def get_state() -> dict[str, int] | None:
    """Seed and counter of Philox, or None while NumPy's global generator is used."""
    return None if _generator is None else {"seed": _generator.seed, "counter": _generator.counter}


def set_state(state: dict[str, int] | None) -> None:
    """Go on where get_state was asked."""
    global _generator
    _generator = None if state is None else Generator(state["seed"], state["counter"])


@contextmanager
def stream(*key: int, otherwise: int = 0) -> Iterator[None]:
    """Draw, inside, Philox numbers that are a function of the seed and of these ints; outside all goes on as if nothing was drawn.

    otherwise : the seed where there is none, since numbers come from NumPy

    >>> seed(0)
    >>> def draw(*key):
    ...     with stream(*key):
    ...         return uniform(2).tolist()
    >>> draw(7, 1) == draw(7, 1), draw(7, 1) == draw(7, 2), get_state()
    (True, False, {'seed': 0, 'counter': 0})
    >>> seed(None)
    """
    global _generator
    before = _generator
    _generator = Generator(_mixed(otherwise if before is None else before.seed, key))
    try:
        yield
    finally:
        _generator = before


def _mixed(seed: int, key: tuple[int, ...]) -> int:
    """A seed for each key: splitmix64's last steps, which are one to one, once for each number."""
    for number in key:
        z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        seed = z ^ (z >> 31)
    return seed


def _draw(kind: str, shape: tuple[int, ...], device: Any, dtype: Any, generator: Generator | None) -> NDArray:
    target = to_dtype(dtype)
    if not target.is_float:
        raise TypeError(f"random: {kind} numbers are floats, not {target}")
    if target.is_half:
        return _draw(kind, shape, device, "float32", generator).astype(target)
    out = NDArray.make(shape, device=device, dtype=target)
    repeat(_draw_into, kind, out, generator)
    return out


def _draw_into(kind: str, out: NDArray, generator: Generator | None) -> None:
    """out = random numbers, new ones on every replay of a captured function"""
    source = _generator if generator is None else generator
    if source is None:
        draw = np.random.rand if kind == "uniform" else np.random.randn
        out.backend.from_host(np.ascontiguousarray(draw(*out.shape), out.dtype.numpy).reshape(out.shape), out)
    else:
        first = source.advance(out.size, out.dtype.itemsize)
        out.backend.random(RANDOM[kind], out, source.seed, first)


def uniform(
    *shape: int,
    low: float = 0.0,
    high: float = 1.0,
    device: Any = None,
    dtype: Any = "float32",
    generator: Generator | None = None,
) -> NDArray:
    """Even on [low, high); from a generator of one's own where one is given.

    >>> seed(0); uniform(2, 3).shape; seed(None)
    (2, 3)
    """
    out = _draw("uniform", shape, device, dtype, generator)
    return out if (low, high) == (0.0, 1.0) else out * (high - low) + low


def normal(
    *shape: int,
    mean: float = 0.0,
    std: float = 1.0,
    device: Any = None,
    dtype: Any = "float32",
    generator: Generator | None = None,
) -> NDArray:
    """Normal with the given mean and standard deviation."""
    out = _draw("normal", shape, device, dtype, generator)
    return out if (mean, std) == (0.0, 1.0) else out * std + mean


def bernoulli(
    *shape: int, p: float = 0.5, device: Any = None, dtype: Any = "bool", generator: Generator | None = None
) -> NDArray:
    """1 with probability p, else 0: a uniform number <= p, as the course draws it."""
    if not 0 <= p <= 1:
        raise ValueError(f"bernoulli: p = {p}: expected 0 to 1")
    return (_draw("uniform", shape, device, "float32", generator) <= p).astype(dtype, copy=False)


def integers(
    low: int,
    high: int,
    shape: Any = (),
    *,
    device: Any = None,
    dtype: Any = "int64",
    generator: Generator | None = None,
) -> NDArray:
    """Even among low, low + 1, ..., high - 1: as `np.random.randint` draws them, or from 53 bits of Philox.

    >>> seed(0); integers(3, 5, (100,)).max().item(); seed(None)
    4
    """
    if not -(2**53) <= low < high <= 2**53:
        raise ValueError(f"integers: from {low} to {high}: expected low < high, and both within 2^53")
    out = NDArray.make(shape, device=device, dtype="int64")
    repeat(_integers_into, low, high, out, generator)
    return out.astype(dtype, copy=False)


def _integers_into(low: int, high: int, out: NDArray, generator: Generator | None) -> None:
    source = _generator if generator is None else generator
    if source is None:
        values = np.random.randint(low, high, out.shape, np.int64)  # noqa: NPY002
    else:
        even = philox_uniform(source.seed, source.advance(out.size, 8), out.size, np.dtype(np.float64))
        values = (np.floor(even * (high - low)).astype(np.int64) + low).reshape(out.shape)
    out.backend.from_host(np.ascontiguousarray(values, np.int64).reshape(out.shape), out)


def permutation(n: int, *, device: Any = None, generator: Generator | None = None) -> NDArray:
    """0, 1, ..., n - 1 in random order, int64: `np.random.permutation`, or the order of n numbers of Philox.

    >>> seed(0); sorted(permutation(4).tolist()); seed(None)
    [0, 1, 2, 3]
    """
    out = NDArray.make((n,), device=device, dtype="int64")
    repeat(_permute_into, out, generator)
    return out


def _permute_into(out: NDArray, generator: Generator | None) -> None:
    source = _generator if generator is None else generator
    if source is None:
        order = np.random.permutation(out.size)  # noqa: NPY002
    else:
        even = philox_uniform(source.seed, source.advance(out.size, 8), out.size, np.dtype(np.float64))
        order = np.argsort(even, kind="stable")
    out.backend.from_host(order.astype(np.int64), out)


# ---- Philox in NumPy: the reference for every backend ------------------------------------------------------------------


def philox_words(seed: int, counter: int, blocks: int) -> np.ndarray:
    """Blocks counter, counter + 1, ... as uint32 words (blocks, 4)."""
    low = np.uint64(0xFFFFFFFF)
    shift = np.uint64(32)
    count = np.arange(blocks, dtype=np.uint64) + np.uint64(counter & _MASK)
    c0, c1 = count & low, count >> shift
    c2 = c3 = np.zeros(blocks, np.uint64)
    k0, k1 = seed & 0xFFFFFFFF, seed >> 32
    for _ in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c0, np.uint64(0xCD9E8D57) * c2
        c0, c1, c2, c3 = (
            (p1 >> shift) ^ c1 ^ np.uint64(k0),
            p1 & low,
            (p0 >> shift) ^ c3 ^ np.uint64(k1),
            p0 & low,
        )
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return np.stack([c0, c1, c2, c3], axis=1).astype(np.uint32)


def _doubles(words: np.ndarray) -> np.ndarray:
    """Pairs of words as 53-bit doubles in [0, 1)."""
    pairs = words.reshape(-1, 2)
    return ((pairs[:, 0] >> 5).astype(np.float64) * 67108864.0 + (pairs[:, 1] >> 6)) / 9007199254740992.0


def philox_uniform(seed: int, counter: int, size: int, dtype: np.dtype) -> np.ndarray:
    """`size` numbers on [0, 1)."""
    per_block = 16 // dtype.itemsize
    words = philox_words(seed, counter, -(-size // per_block)).reshape(-1)
    if dtype.itemsize == 4:
        return ((words[:size] >> 8).astype(np.float32) / np.float32(16777216.0)).astype(np.float32)
    return _doubles(words)[:size]


def _log_unit(x: np.ndarray) -> np.ndarray:
    """ln x on (0, 1]: x = m 2^e, ln m = 2 artanh((m - 1) / (m + 1)) by its series."""
    bits = x.view(np.uint64)
    e = ((bits - np.uint64(0x3FE6A09E667F3BCD)).view(np.int64) >> np.int64(52)).astype(np.int64)
    m = (bits - (e << np.int64(52)).view(np.uint64)).view(np.float64)
    s = (m - 1.0) / (m + 1.0)
    z = s * s
    series = np.full_like(z, 1.0 / 19)
    for k in range(17, 0, -2):
        series = 1.0 / k + z * series
    return e.astype(np.float64) * 0.6931471805599453 + 2.0 * s * series


def _sine_quarter(x: np.ndarray) -> np.ndarray:
    """sin(pi/2 x) on [0, 1], by Taylor's series."""
    t = x * 1.5707963267948966
    z = t * t
    series = np.ones_like(z)
    for k in (342, 272, 210, 156, 110, 72, 42, 20, 6):
        series = 1.0 - z * (1.0 / k) * series
    return t * series


def _normal_pairs(u: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Box and Muller: (n, 2) normal numbers from u in (0, 1] and v in [0, 1)."""
    radius, turn = np.sqrt(-2.0 * _log_unit(u)), v * 4.0
    quarter = turn.astype(np.int64)
    turn = turn - quarter
    sine, cosine = radius * _sine_quarter(turn), radius * _sine_quarter(1.0 - turn)
    first = np.choose(quarter, [cosine, -sine, -cosine, sine])
    second = np.choose(quarter, [sine, cosine, -sine, -cosine])
    return np.stack([first, second], axis=1)


def philox_normal(seed: int, counter: int, size: int, dtype: np.dtype) -> np.ndarray:
    """`size` normal numbers."""
    per_block = 16 // dtype.itemsize
    words = philox_words(seed, counter, -(-size // per_block)).reshape(-1)
    if dtype.itemsize == 4:
        pairs = words.reshape(-1, 2).astype(np.float64)
        u, v = (pairs[:, 0] + 1.0) / 4294967296.0, pairs[:, 1] / 4294967296.0
    else:
        numbers = _doubles(words).reshape(-1, 2)
        u, v = 1.0 - numbers[:, 0], numbers[:, 1]
    return _normal_pairs(u, v).reshape(-1)[:size].astype(dtype)
