"""Where a verb comes from: the op that asks for it, and the user's line. Recordings and profiles write it down for every verb."""

import sys

from needle.autograd import current_op
from needle_ndarray.extension import place_in_library

Line = tuple[str, int]
USER, LISTENER, ARRAYS, LIBRARY = range(4)
#: Code between a verb and the listener, as places in the library.
LISTENERS = (
    ("needle_ndarray", "listening.py"), ("needle_ndarray", "capture"), ("needle", "profiling"), ("needle", "origins.py"),
    ("needle", "capturing"),
)  # fmt: skip
_kinds: dict[str, int] = {}


def kind_of(filename: str) -> int:
    """Whose code a file holds."""
    place = place_in_library(filename)
    kind = LIBRARY if place else USER
    if place[:2] in LISTENERS:
        kind = LISTENER
    elif place[:1] == ("needle_ndarray",):
        kind = ARRAYS
    _kinds[filename] = kind
    return kind


def origin() -> tuple[str, Line]:
    """("MatMul backward", (file, line)): what asks for the verb that is being called, and the innermost line of the user's.

    Outside of ops that is a function of the library: the first one called of the module that deals with arrays, such as
    "Adam.step". It is "" where the user's line calls compiled code.
    """
    op, backward = current_op()
    function = module = ""
    kinds = _kinds
    frame = sys._getframe(1)
    while True:
        code = frame.f_code
        filename = code.co_filename
        kind = kinds.get(filename)
        if kind is None:
            kind = kind_of(filename)
        if kind == USER or frame.f_back is None:
            break
        if not op and kind != LISTENER:
            if kind == ARRAYS and not module:
                function = code.co_qualname
            elif kind == LIBRARY and module in ("", filename):
                function, module = code.co_qualname, filename
        frame = frame.f_back
    if backward:
        return (op or function) + " backward", (filename, frame.f_lineno)
    return op or function, (filename, frame.f_lineno)
