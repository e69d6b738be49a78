"""What a recording consists of: calls of verbs on views of numbered buffers."""

from collections.abc import Callable
from operator import is_
from typing import Any, NamedTuple

from needle_ndarray.backend import Backend

CHECKS: set[Callable] = set()  # repeated functions that read their arrays and write nothing
READS: set[Callable] = set()  # those that do nothing else, and raise no error that the values decide on


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


def renamed(call: Call, now: dict[int, int]) -> Call:
    """The call with some buffers for others; itself where it has none of these."""
    args = _renamed(call.args, now) if now else call.args
    return call if args is call.args else call._replace(args=args)


def _renamed(arg: Any, now: dict[int, int]) -> Any:
    if type(arg) is View:
        return arg._replace(buffer=now[arg.buffer]) if arg.buffer in now else arg
    if type(arg) is not tuple and type(arg) is not list:
        return arg
    made = [_renamed(each, now) for each in arg]
    return arg if all(map(is_, made, arg)) else type(arg)(made)


def renumbered(call: Call, now: dict[int, int]) -> Call:
    """The call with numbers of repeated calls that are counted otherwise."""
    return call._replace(args=_renumbered(call.args, now))


def _renumbered(arg: Any, now: dict[int, int]) -> Any:
    if type(arg) is Slot:
        return arg._replace(call=now[arg.call])
    return type(arg)(_renumbered(each, now) for each in arg) if type(arg) is tuple or type(arg) is list else arg
