"""Where random transforms and samplers draw from.

By default from NumPy's global generator, call by call, so that `np.random.seed` reproduces published numbers. A loader with a
seed or with worker threads gives each batch a generator of its own for as long as the batch is loaded: its numbers then depend
on the seed, the epoch and the batch alone, and not on which thread was faster.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from needle import randint

_local = threading.local()


def random_source() -> Any:
    """The generator a transform draws from now: `numpy.random` itself, or a `RandomState` with the same methods.

    >>> import numpy as np
    >>> random_source() is np.random
    True
    """
    return getattr(_local, "source", np.random)


@contextmanager
def drawing_from(source: Any) -> Iterator[None]:
    """Let `random_source()` answer `source` in this thread and block."""
    before = random_source()
    _local.source = source
    try:
        yield
    finally:
        _local.source = before


def generator(*key: int) -> np.random.RandomState:
    """A generator that is a function of these numbers alone.

    >>> bool(generator(7, 0).rand() == generator(7, 0).rand()), bool(generator(7, 0).rand() == generator(7, 1).rand())
    (True, False)
    """
    return np.random.RandomState(np.random.MT19937(np.random.SeedSequence(key)))


def peek() -> int:
    """A number that depends on the state of NumPy's global generator and leaves it as it is."""
    copy = np.random.RandomState()
    copy.set_state(np.random.get_state())  # noqa: NPY002  the course's generator
    return int(copy.randint(2**31))


def seed_of(generator: Any) -> int | None:
    """A seed that a `needle.Generator` draws; None of None."""
    return None if generator is None else int(randint(0, 2**31, (1,), generator=generator).item())


def check_seed(seed: int | None, what: str) -> int | None:
    """The seed as an int, or a TypeError or ValueError that names it."""
    if seed is None:
        return None
    if isinstance(seed, bool) or not isinstance(seed, (int, np.integer)):
        raise TypeError(f"{what}: seed must be an int or None, got {seed!r}")
    if seed < 0:
        raise ValueError(f"{what}: seed must not be negative, got {seed}")
    return int(seed)
