"""Running statistics, and how they follow those of a batch: at once, or later and in another order.

Who computes the parts of a step in several processes must apply their statistics in the order of the parts, in all of them.

>>> import needle as ndl
>>> mean, var = ndl.zeros(2), ndl.ones(2)
>>> x = ndl.Tensor([[1.0, 2.0], [3.0, 4.0]])
>>> with deferred() as kept:
...     _ = ndl.batch_norm(x, running_mean=mean, running_var=var, momentum=0.5)
>>> mean.tolist(), len(kept)
([0.0, 0.0], 2)
>>> for running, new, keep, take in kept:
...     follow(running, new, keep, take)
>>> mean.tolist()
[1.0, 1.5]
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import needle_ndarray as nd

_kept: list[tuple[Any, Any, float, float]] | None = None


def follow(running: Any, new: Any, keep: float, take: float) -> None:
    """running = keep running + take new, in place; inside `deferred` it is written down instead."""
    if _kept is not None:
        _kept.append((running, new, keep, take))
    else:
        nd.accumulate(running.realize_cached_data(), new, keep, take)


@contextmanager
def deferred() -> Iterator[list[tuple[Any, Any, float, float]]]:
    """A list that gets the arguments of every `follow` inside, in order."""
    global _kept
    before, _kept = _kept, []
    try:
        yield _kept
    finally:
        _kept = before


__all__ = ["deferred", "follow"]
