"""Chapter 4: strided arrays.

The text is in chapter4.md; `needle learn check 4` checks this file and chapter4_arrays.c beside it.

Strides and offsets count elements. Replace each `raise NotImplementedError` by your code.
"""

from typing import NamedTuple


class View(NamedTuple):
    """Element (i, j, ...) is at offset + i strides[0] + j strides[1] + ..."""

    shape: tuple
    strides: tuple
    offset: int = 0


def compact_strides(shape):
    """The strides, a tuple, of a compact array: row-major, without gaps."""
    raise NotImplementedError


def is_compact(view):
    """Whether the elements of the view lie in memory in row-major order without gaps, starting at offset 0."""
    raise NotImplementedError


def permute(view, axes):
    """The view whose axis i is axis axes[i] of this one."""
    raise NotImplementedError


def broadcast_to(view, shape):
    """The view with axes of size 1 repeated, and new axes on the left. ValueError where that is impossible."""
    raise NotImplementedError


def slice_axis(view, axis, start, stop, step):
    """view[..., start:stop:step, ...] along one axis, for 0 <= start <= stop <= size and step >= 1."""
    raise NotImplementedError


def flip(view, axis):
    """The view with one axis reversed."""
    raise NotImplementedError
