"""What a function read from Python while it was recorded: numbers, flags, objects. A plan holds only while they stay the same.

While a function is recorded, every Python function that it calls is seen (`sys.setprofile`). The names in its code say what it may
read: global variables, variables of enclosing functions, attributes of its arguments and of what these lead to. Each such value is
written down with the dictionary it was found in. What cannot be repeated at all (random numbers of Python or NumPy, the
clock, files) is refused when it is called.
"""

import os.path
import sys
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType, ModuleType
from typing import Any

from needle.autograd import Tensor
from needle.autograd.replaying import ENTRIES, MISSING, Guard, entries
from needle_ndarray.extension import Recorder, place_in_library

#: Modules whose functions give something else each time.
CHANGING = {
    "random": "draws random numbers of Python's `random`",
    "_random": "draws random numbers of Python's `random`",
    "numpy.random": "draws NumPy's random numbers",
    "time": "reads the clock",
    "io": "reads or writes a file",
    "_io": "reads or writes a file",
}
PRINTING = "prints, which a replay would not"
DEPTH = 3  # attributes of attributes that are followed
MOST = 10_000  # values written down for a function


class Cell:
    """A variable of an enclosing function, as a dictionary of one entry."""

    def __init__(self, cell: Any):
        self.cell = cell

    def get(self, key: Any, default: Any) -> Any:
        try:
            return self.cell.cell_contents
        except ValueError:  # deleted
            return default


class Watch:
    """Writes guards down while a function runs."""

    def __init__(self, function: Callable, recorder: Recorder):
        self.recorder = recorder
        self.guards: dict[tuple[int, Any], Guard] = {}
        self.functions: dict[CodeType, FunctionType] = {}  # to find the variables of enclosing functions
        self.seen: set[tuple[int, int]] = set()
        self.before: Any = None
        inner = getattr(function, "__func__", function)
        if isinstance(inner, FunctionType):
            self.functions[inner.__code__] = inner

    def __enter__(self) -> "Watch":
        self.before = sys.getprofile()
        sys.setprofile(self._event)
        return self

    def __exit__(self, *exception: Any) -> None:
        sys.setprofile(self.before)

    def _event(self, frame: FrameType, event: str, argument: Any) -> None:
        if self.recorder.repeating:
            return
        if event == "call":
            kind = kind_of(frame.f_code.co_filename)
            if kind == "user" or kind == "layer":
                self._read(frame, kind)
            elif frame.f_globals.get("__name__") == "logging" and frame.f_back is not None:
                caller = frame.f_back
                if kind_of(caller.f_code.co_filename) == "user":
                    self.recorder.refuse("logs, which a replay would not", (caller.f_code.co_filename, caller.f_lineno))
        elif event == "c_call" and kind_of(frame.f_code.co_filename) == "user":
            why = changing(argument)
            if why:
                self.recorder.refuse(why, (frame.f_code.co_filename, frame.f_lineno))

    def add(self, dependencies: list[tuple[Any, Any]]) -> None:
        """What library code has said it depends on: entries of dictionaries, or with None for a key all of them."""
        for container, key in dependencies:
            if key is None:
                self.guards[(id(container), ENTRIES)] = Guard(container, ENTRIES, entries(container), "the state kept")
            else:
                self.guards[(id(container), key)] = Guard(container, key, container.get(key, MISSING), str(key))

    # ---- What a function may read ----------------------------------------------------------------------------------------

    def _read(self, frame: FrameType, kind: str) -> None:
        code = frame.f_code
        names = code.co_names
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = frame.f_locals
        if kind == "user" and (id(code), 0) not in self.seen:
            self.seen.add((id(code), 0))
            for name in names:
                if name in frame.f_globals:
                    self._note(frame.f_globals, name, f"the global {name}", names, DEPTH)
            function = self.functions.get(code)
            for name, cell in zip(code.co_freevars, function.__closure__ or () if function else (), strict=False):
                self._note(Cell(cell), name, f"the variable {name}", names, DEPTH)
        for name in arguments:
            value = values.get(name)
            if value is None or (id(code), id(value)) in self.seen:
                continue
            self.seen.add((id(code), id(value)))
            self._attributes(value, name, names, DEPTH)

    def _note(self, container: Any, key: str, what: str, names: tuple[str, ...], depth: int) -> None:
        """Write down container[key], and what the code may read of it."""
        value = container.get(key, MISSING)
        if isinstance(value, FunctionType):
            self.functions.setdefault(value.__code__, value)
        of_module = (
            not isinstance(container, dict) or "__name__" in container
        )  # nobody replaces functions and classes there
        if of_module and (isinstance(value, (ModuleType, type)) or (callable(value) and not _has_state(value))):
            return
        place = (id(container.cell) if isinstance(container, Cell) else id(container), key)
        if place not in self.guards and len(self.guards) < MOST:
            self.guards[place] = Guard(container, key, value, what)
        self._attributes(value, what, names, depth - 1)

    def _attributes(self, value: Any, what: str, names: tuple[str, ...], depth: int) -> None:
        """What the code may read of an object: attributes that it names, entries of a list or dict."""
        if isinstance(value, (list, dict)):
            place = (id(value), ENTRIES)
            if place not in self.guards and len(value) < 1000:
                self.guards[place] = Guard(value, ENTRIES, entries(value), f"an entry of {what}")
            if depth > 0:
                for entry in entries(value)[:100]:
                    self._attributes(entry, f"an entry of {what}", names, depth - 1)
            return
        state = getattr(value, "__dict__", None)
        if depth <= 0 or not isinstance(state, dict) or isinstance(value, (Tensor, type, ModuleType, FunctionType)):
            return
        if kind_of(_file_of(type(value))) == "trusted":
            return
        for name in names:
            if name in state:
                self._note(state, name, f"{type(value).__name__}.{name}", names, depth)
            else:
                for cls in type(value).__mro__:
                    found = vars(cls).get(name, MISSING)
                    if found is not MISSING:
                        if isinstance(found, (bool, int, float, str, tuple)):
                            self.guards.setdefault(
                                (id(cls), name), Guard(vars(cls), name, found, f"{cls.__name__}.{name}")
                            )
                        break


def _has_state(value: Any) -> bool:
    return not isinstance(value, (FunctionType, type)) and isinstance(getattr(value, "__dict__", None), dict)


def _file_of(cls: type) -> str:
    module = sys.modules.get(cls.__module__)
    return getattr(module, "__file__", None) or ""


# ---- Whose code it is ----------------------------------------------------------------------------------------------------

_kinds: dict[str, str] = {}


def kind_of(filename: str) -> str:
    """'user' code; 'layer': of ours, with attributes that users set; 'trusted': the rest of ours, and Python's own library."""
    kind = _kinds.get(filename)
    if kind is None:
        kind = _kinds[filename] = _kind(filename)
    return kind


def _kind(filename: str) -> str:
    if filename.startswith("<frozen") or (filename.startswith(_STANDARD) and "-packages" not in filename):
        return "trusted"
    place = place_in_library(filename)
    if not place:
        return "user"
    return "layer" if place[0] == "needle_nn" and place[1] in ("nn", "models", "command") else "trusted"


_STANDARD = os.path.dirname(os.path.__file__)


def changing(function: Any) -> str | None:
    """Why a call of this C function cannot be repeated; None where it can."""
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None)
    if owner is not None and not isinstance(owner, ModuleType):
        module = type(owner).__module__
    if module is None and isinstance(owner, ModuleType):
        module = owner.__name__
    if function is print:
        return PRINTING
    if not isinstance(module, str):
        return None
    if module.startswith("numpy.random"):
        return CHANGING["numpy.random"]
    if module in ("_io", "io"):
        name = type(owner).__name__ if owner is not None else ""
        return None if name in ("StringIO", "BytesIO") else CHANGING[module]
    return CHANGING.get(module)
