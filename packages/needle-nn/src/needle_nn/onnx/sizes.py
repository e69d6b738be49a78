"""Sizes that follow the batch: found by comparing runs with batches of several sizes.

A size that is n for every batch stays a number. One that is different in every run is a line, scale * batch + offset; the runs
beyond the first two say whether it really is.

>>> fit((8, 12, 20), (2, 3, 5))
Size(scale=4, offset=0)
>>> fit(((2, 7), (3, 7), (5, 7)), (2, 3, 5))
(Size(scale=1, offset=0), 7)
>>> print(fit((9, 13, 21), (2, 3, 5)))
4*batch + 1
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from needle.autograd import NDArray

BATCH = "batch"  # what the axis is called in the file


@dataclass(frozen=True)
class Size:
    """scale * batch + offset"""

    scale: int
    offset: int

    def __str__(self) -> str:
        text = BATCH if self.scale == 1 else f"{self.scale}*{BATCH}"
        return text if self.offset == 0 else f"{text} {'+' if self.offset > 0 else '-'} {abs(self.offset)}"


class NotFitted(Exception):
    """Values of several runs that neither agree nor lie on a line."""


def fit(values: Sequence[Any], batches: Sequence[int]) -> Any:
    """What runs with these batches agree on: one value, with a `Size` where an int follows the batch."""
    first = values[0]
    if all(value is first for value in values):
        return first
    if any(type(value) is not type(first) for value in values):
        raise NotFitted
    if type(first) is int:
        return _line(values, batches)
    if isinstance(first, (tuple, list)):
        if len({len(value) for value in values}) > 1:
            raise NotFitted
        return tuple([fit(parts, batches) for parts in zip(*values, strict=True)])
    if isinstance(first, dict):
        if any(value.keys() != first.keys() for value in values):
            raise NotFitted
        return {key: fit([value[key] for value in values], batches) for key in first}
    if isinstance(first, slice):
        return slice(*[fit([getattr(value, part) for value in values], batches) for part in ("start", "stop", "step")])
    if not all(_same(first, value) for value in values):
        raise NotFitted
    return first


def varies(value: Any) -> bool:
    """Whether a fitted value holds a Size."""
    if isinstance(value, (tuple, list)):
        return any(map(varies, value))
    if isinstance(value, dict):
        return any(map(varies, value.values()))
    if isinstance(value, slice):
        return any(map(varies, (value.start, value.stop, value.step)))
    return isinstance(value, Size)


def _line(values: Sequence[int], batches: Sequence[int]) -> int | Size:
    if len(set(values)) == 1:
        return values[0]
    scale, remainder = divmod(values[1] - values[0], (batches[1] - batches[0]) or 1)
    line = Size(scale, values[0] - scale * batches[0])
    if remainder or any(line.scale * n + line.offset != value for value, n in zip(values, batches, strict=True)):
        raise NotFitted
    return line


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (np.ndarray, NDArray)):
        return equal_arrays(a, b)
    if type(a).__eq__ is object.__eq__:  # an object of no known kind, made anew in every run
        return True
    return bool(a == b) or (a != a and b != b)


def equal_arrays(a: Any, b: Any) -> bool:
    """Whether two arrays are of one shape and hold the same values, NaNs included."""
    left, right = (x.numpy() if isinstance(x, NDArray) else x for x in (a, b))
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return bool(np.array_equal(left, right, equal_nan=left.dtype.kind == "f"))
