"""Whose code runs while a function is captured, and which functions in C a replay could not repeat.

Random numbers of Python or NumPy, the clock, files, threads: what they give, or do, is another thing in every call.
"""

import sys
import threading
from contextvars import ContextVar
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from needle_ndarray.extension import Recorder, place_in_library

# ---- Whose code it is ----------------------------------------------------------------------------------------------------

_kinds: dict[str, str] = {}
_STANDARD = str(Path(threading.__file__).parent)
_NUMPY = str(Path(np.__file__).parent)
_HERE = str(Path(__file__).parent)


def kind_of(filename: str) -> str:
    """'user'; 'layer': of ours, with attributes that users set; 'other': Python's own library; 'trusted': ours, NumPy."""
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _kind(filename)
    return kind


def _kind(filename: str) -> str:
    if filename.startswith(_NUMPY) or filename.startswith("<frozen"):
        return "trusted"
    if filename.startswith(_STANDARD) and "-packages" not in filename:
        return "other"
    place = place_in_library(filename)
    if not place:
        return "user"
    return "layer" if place[0] == "needle_nn" and place[1] in ("nn", "models", "command") else "trusted"


_files: dict[str, str] = {}


def file_of(cls: type) -> str:
    name = cls.__module__
    if not isinstance(name, str):
        return "<class>"
    if name not in _files:
        module = sys.modules.get(name)
        if name == "__main__":
            return getattr(module, "__file__", None) or "<main>"
        _files[name] = getattr(module, "__file__", None) or (
            "<frozen builtin>" if name in sys.builtin_module_names else "<class>"
        )
    return _files[name]


def is_opaque(cls: type) -> bool:
    """Whether a class is written in C, has state that no name leads to, and is no function."""
    return not cls.__flags__ & (1 << 9) and not callable(cls)  # Py_TPFLAGS_HEAPTYPE: what `class` makes


def line_of(frame: FrameType) -> tuple[str, int]:
    """The user's line that a frame was called from, or is at."""
    found: FrameType | None = frame
    while found is not None and kind_of(found.f_code.co_filename) != "user":
        found = found.f_back
    found = found or frame
    return found.f_code.co_filename, found.f_lineno


def is_importing(frame: FrameType) -> bool:
    """Whether a frame belongs to an import that the function makes: it happens once, in whichever call comes first."""
    found: FrameType | None = frame
    while found is not None and not found.f_code.co_filename.startswith(_HERE):
        if found.f_code.co_filename.startswith("<frozen importlib"):
            return True
        found = found.f_back
    return False


def line_of_function(function: Any) -> tuple[str, int]:
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    return (code.co_filename, code.co_firstlineno) if code else ("<function>", 0)


# ---- What cannot be repeated ----------------------------------------------------------------------------------------

#: Modules whose C functions give something else each time, or do what a replay would not.
CHANGING = {
    "random": "draws random numbers of Python's `random`",
    "_random": "draws random numbers of Python's `random`",
    "numpy.random": "draws NumPy's random numbers",
    "time": "reads the clock",
    "datetime": "reads the clock",
    "io": "reads or writes a file",
    "_io": "reads or writes a file",
    "posix": "asks the operating system",
    "_thread": "starts a thread, or waits for one",
    "_queue": "hands something to another thread",
    "_warnings": "warns, which a replay would not",
    "_contextvars": "reads a context variable",
}
#: Of these modules, only these functions cannot be repeated.
ONLY = {
    "datetime": {"now", "utcnow", "today"},
    "_thread": {"start_new_thread", "start_joinable_thread"},
    "posix": {"urandom", "getrandom", "open", "read", "write", "listdir", "scandir", "stat"},
}
PRINTING = "prints, which a replay would not"
_SAFE = {list, dict, str, tuple, set, int, float, bytes, frozenset, type}


def changing(function: Any, recorder: Recorder) -> str | None:
    """Why a call of this C function cannot be repeated; None where it can."""
    owner: Any = getattr(function, "__self__", None)
    module: Any
    kind = type(owner)
    if kind in _SAFE and owner is not None and kind is not type:
        return None
    if isinstance(owner, ModuleType):
        if owner.__name__ == "builtins":
            return PRINTING if function is print else "waits for input" if function is input else None
        module = owner.__name__
        if module in ("math", "cmath") and recorder.watched:
            return "uses a number that is read from arrays (a norm, say) in Python"
    else:
        module = (
            (owner if kind is type else kind).__module__ if owner is not None else getattr(function, "__module__", None)
        )
    if kind is ContextVar:
        return CHANGING["_contextvars"]
    if not isinstance(module, str):
        return None
    if module.startswith("numpy.random"):
        module = "numpy.random"
    if module in ("_io", "io") and kind.__name__ in ("StringIO", "BytesIO"):
        return None
    why = CHANGING.get(module)
    return why if module not in ONLY or function.__name__ in ONLY[module] else None
