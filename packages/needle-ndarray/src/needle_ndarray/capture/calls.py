"""What a recording consists of: calls of verbs on views of numbered buffers."""

from collections.abc import Callable
from typing import Any, NamedTuple

from needle_ndarray.backend import Backend

CHECKS: set[Callable] = set()  # repeated functions that read their arrays and write nothing


class CaptureError(RuntimeError):
    """A function that cannot be replayed; the message names the line and what it does."""


class View(NamedTuple):
    """An array in a recording; `buffer` numbers what was made while recording, and negative what was there before."""

    buffer: int
    dtype: Any
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


class Slot(NamedTuple):
    """A number that a repeated function returned: entry `entry` of the result of repeated call `call`, or -1 for all of it."""

    call: int
    entry: int


class Call(NamedTuple):
    """A verb call, or with verb "repeat" a Python function that every replay calls again at this place."""

    verb: str
    backend: Backend | None
    args: tuple[Any, ...]
    line: tuple[str, int]
    function: Callable | None = None
    op: str = ""  # what asked for it
