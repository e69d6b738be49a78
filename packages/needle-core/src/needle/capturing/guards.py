"""What a function may read from Python: numbers, flags, objects. A plan holds only while they stay the same.

While a function is recorded, `sys.setprofile` shows every Python function that it calls. The names in their code are all that they
can read: globals, variables of enclosing functions, attributes. Before the next recording, everything that these names lead
to is written down as guards, from the function, its arguments and its global variables on. They have to hold after that call too:
a function that changes what it reads would have to change it again.

What cannot be repeated at all is refused: iterators that go on, and the C functions that `origins` names.
"""

import gc
import random
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from types import CodeType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

import numpy as np

from needle.autograd import Tensor
from needle.autograd.guards import Guard, Profile
from needle.capturing.origins import changing, file_of, is_importing, is_opaque, kind_of, line_of, line_of_function
from needle_ndarray import NDArray
from needle_ndarray.extension import Recorder

BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "attrgetter", "methodcaller"}  # attributes by a text
MOST = 20_000  # values that may be written down
LARGE = 1 << 16  # bytes of an array of NumPy whose content is compared
ATOMS = (type(None), bool, int, float, complex, str, bytes, range, slice, type(...), np.generic, np.dtype, Tensor)


@contextmanager
def uncollected() -> Iterator[None]:
    """Put the garbage collector off: what it does by chance is not what a function does, and there is no garbage in a plan."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()


class Watch:
    """What a captured function is known to run, from all of its recordings so far."""

    def __init__(self, function: Callable) -> None:
        self.function = function
        self.codes: dict[
            int, tuple[CodeType, dict[str, Any]]
        ] = {}  # user's and layers' code, with its global variables
        self.names: set[str] = set()
        self.users: set[str] = set()  # names in the user's own code
        self.roots: dict[int, Any] = {}  # what library code says that it depends on
        self.all_names = False
        self._recorder: Any = None
        self._profile = Profile(self._learn, self._called)

    @contextmanager
    def watching(self, recorder: Recorder) -> Iterator[None]:
        """Refuse what cannot be repeated, and learn which code runs."""
        self._recorder = recorder
        with self._profile:
            yield

    def _called(self, frame: FrameType, function: Any) -> None:
        """The user's code calls a function in C."""
        if self._recorder.repeating:
            return  # in a repeated function, which every replay calls
        why = changing(function, self._recorder)
        if why and self._recorder.refused is None:
            self._recorder.refuse(why, line_of(frame))

    def _learn(self, frame: FrameType) -> bool | None:
        """Take in new code; whether what it calls in C is of interest; None for what is done once or repeated."""
        code = frame.f_code
        kind = kind_of(code.co_filename)
        if kind == "trusted":
            return False
        if self._recorder.repeating or is_importing(frame):
            return None
        self.names.update(code.co_names)
        if "__dict__" in code.co_names:  # a layer may read self.__dict__["modules"]
            self.names.update(text for text in code.co_consts if isinstance(text, str))
        if kind == "other":
            if frame.f_globals.get("__name__") == "logging" and self._recorder.refused is None:
                self._recorder.refuse("logs, which a replay would not", line_of(frame))
            return True
        self.codes[id(code)] = code, frame.f_globals
        if kind == "user":
            self._learn_names(code, frame)
        return kind == "user"

    def _learn_names(self, code: CodeType, frame: FrameType) -> None:
        names = set(code.co_names)
        self.users |= names
        if names & BY_NAME:
            texts = {text for text in code.co_consts if isinstance(text, str)}
            self.names |= texts
            self.users |= texts
        if names & (BY_NAME | {"vars", "__dict__", "dir", "__getattribute__"}):
            self.all_names = True
        for name in ("eval", "exec", "globals", "locals"):
            if name in names and name not in frame.f_globals:
                self._recorder.refuse(f"calls {name}, so that what it reads cannot be seen", line_of(frame))

    def depend(self, dependencies: list[tuple[Any, Any]]) -> list[Guard]:
        """Guards for what library code has said it depends on: entries of dictionaries, or with None for a key all of them."""
        guards = {}
        for container, key in dependencies:
            place = id(container), key
            if place in guards:
                continue
            if key is None:
                guards[place] = Guard("entries", container, None, "the state kept")
            else:
                guards[place] = Guard("item", container, key, str(key))
                value = guards[place].expected
                if not isinstance(value, (list, tuple, dict, *ATOMS, NDArray)):
                    self.roots[id(value)] = value
        return list(guards.values())


class Walk:
    """One look at everything that the names a function uses lead to, before it is called."""

    def __init__(self, watch: Watch, recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.watch, self.recorder = watch, recorder
        self.guards: dict[tuple[int, Any], Guard] = {}
        self.passing: list[Guard] = []  # of lists and dicts that are arguments: their entries are part of the key
        self.arrays: dict[int, set[int]] = {}  # id of a buffer: ids of the arrays and tensors that were found in it
        self.states: list[tuple[str, Callable[[], Any], Any]] = []  # of random generators
        self._seen: dict[int, Any] = {}
        self._classes: dict[type, Any] = {}
        self._todo: list[tuple[Any, str]] = []
        self._count = 0
        self._found: set[int] = set()  # code objects whose function was found
        self._start(args, kwargs)
        self._run()
        self._find_closures()

    def _start(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        for value in [*args, *kwargs.values()]:
            self._argument(value)
        inner = getattr(self.watch.function, "__func__", self.watch.function)
        if kind_of(getattr(getattr(inner, "__code__", None), "co_filename", "")) != "trusted":
            self._todo.append((self.watch.function, getattr(inner, "__name__", "the function")))
        self._todo += [(value, type(value).__name__) for value in self.watch.roots.values()]
        for code, variables in self.watch.codes.values():
            if kind_of(code.co_filename) == "user":
                for name in code.co_names:
                    if name in variables:
                        self._note("item", variables, name, f"the global variable {name}")
        if not self.watch.names.isdisjoint(("environ", "getenv")):
            import os

            self._todo.append((os.environ._data, "the environment"))  # type: ignore[attr-defined]

    def _argument(self, value: Any) -> None:
        if type(value) in (list, dict):
            self.passing.append(Guard("entries", value, None, "an argument"))
            self._seen[id(value)] = value
        if type(value) in (list, dict) or isinstance(value, tuple):
            for entry in value.values() if isinstance(value, dict) else value:
                self._argument(entry)
        elif not isinstance(value, (Tensor, NDArray)):
            self._todo.append((value, "an argument"))

    def _note(self, kind: str, container: Any, key: Any, what: str) -> None:
        """Guard a place, and go on with what is there."""
        place = id(container), key
        if place in self.guards:
            return
        guard = self.guards[place] = Guard(kind, container, key, what)
        self._todo.append((guard.expected, what))

    def _run(self) -> None:
        while self._todo:
            value, what = self._todo.pop()
            if isinstance(value, ATOMS):
                if isinstance(value, Tensor):
                    self._array(value, value.cached_data)
                continue
            if id(value) in self._seen:
                continue
            self._seen[id(value)] = value
            self._count += 1
            if self._count + len(self.guards) > MOST:
                self.recorder.refuse(f"reads more than {MOST:,} values from Python; the last one: {what}")
                return
            self._visit(value, what)

    def _array(self, owner: Any, array: Any) -> None:
        if isinstance(array, NDArray) and id(owner) not in self._seen:
            self._seen[id(owner)] = owner
            self.arrays.setdefault(id(array._handle), set()).add(id(owner))

    # ---- Kinds of objects -------------------------------------------------------------------------------------------------

    def _visit(self, value: Any, what: str) -> None:
        if isinstance(value, (list, dict, set, deque, tuple, frozenset)):
            self._container(value, what)
        elif isinstance(value, NDArray):
            del self._seen[id(value)]
            self._array(value, value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, MethodType):
            self._todo += [(value.__self__, what), (value.__func__, what)]
        elif isinstance(value, partial):
            self._todo += [(value.func, what), (value.args, what), (value.keywords, what)]
        elif isinstance(value, weakref.ref):
            self._todo.append((value(), what))
        elif isinstance(value, (ModuleType, type)):
            self._namespace(value, what)
        elif isinstance(value, (np.ndarray, bytearray, memoryview)) or type(value).__module__ == "array":
            self._memory(value, what)
        elif isinstance(value, (np.random.Generator, np.random.RandomState, np.random.BitGenerator, random.Random)):
            self._generator(value, what)
        elif isinstance(value, (Iterator, ContextVar)):
            self.recorder.refuse(
                f"may read {what}, a {type(value).__name__} that goes on from call to call", self._line()
            )
        else:
            self._object(value, what)

    def _line(self) -> tuple[str, int] | None:
        return line_of_function(self.watch.function)

    def _container(self, value: Any, what: str) -> None:
        self._count += len(value)
        if not isinstance(value, (tuple, frozenset)):
            self.guards.setdefault((id(value), "entries"), Guard("entries", value, None, f"an entry of {what}"))
        if self._count > MOST:
            self.recorder.refuse(
                f"may read {what}, which has {len(value):,} entries; more than {MOST:,} are not compared", self._line()
            )
            return
        entries = [*value.keys(), *value.values()] if isinstance(value, dict) else value
        self._todo += [(entry, f"an entry of {what}") for entry in entries if not isinstance(entry, ATOMS[:-1])]
        if type(value) not in (list, dict, set, deque, tuple, frozenset):
            self._object(value, what)

    def _function(self, function: FunctionType) -> None:
        """Variables of enclosing functions, default values, attributes; of functions that were called."""
        code = function.__code__
        if id(code) not in self.watch.codes:
            inner = getattr(function, "__wrapped__", None)
            if inner is not None:
                self._todo.append((inner, function.__name__))
            return
        self._found.add(id(code))
        if kind_of(code.co_filename) == "user":
            self._note("attribute", function, "__code__", f"the code of {function.__name__}")
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=False):
            self._note("attribute", cell, "cell_contents", f"the variable {name}")
        if function.__defaults__ and kind_of(code.co_filename) == "user":
            self._note("attribute", function, "__defaults__", f"a default value of {function.__name__}")
        if function.__kwdefaults__:
            self._todo.append((function.__kwdefaults__, f"the default values of {function.__name__}"))
        self._attributes(function, vars(function), function.__name__, self.watch.users)

    def _namespace(self, value: Any, what: str) -> None:
        """Attributes of a module or class that is the user's own; of others, what is no object of theirs."""
        if isinstance(value, ModuleType):
            kind = kind_of(getattr(value, "__file__", None) or "<frozen>")
            if kind == "user":
                self._attributes(value, vars(value), value.__name__, self.watch.users)
            elif kind == "other":
                for name in self.watch.users & vars(value).keys():
                    self.guards.setdefault(
                        (id(vars(value)), name), Guard("item", vars(value), name, f"{value.__name__}.{name}")
                    )
        elif kind_of(file_of(value)) == "user":
            for cls, name, found in self._of_class(value, self.watch.users):
                if (id(cls), name) not in self.guards and kind_of(file_of(cls)) == "user":
                    self.guards[id(cls), name] = Guard("item", vars(cls), name, f"{cls.__name__}.{name}")
                self._todo.append((found, f"{cls.__name__}.{name}"))

    def _memory(self, value: Any, what: str) -> None:
        if (isinstance(value, np.ndarray) and value.dtype.hasobject) or memoryview(value).nbytes > LARGE:
            self.recorder.refuse(
                f"may read {what}, memory on the host that is too large to be compared with each call", self._line()
            )
        else:
            self.guards[id(value), "content"] = Guard("content", value, None, what)

    def _generator(self, value: Any, what: str) -> None:
        """Whoever draws from a random generator changes its state: that is looked at after the call."""
        if isinstance(value, random.Random):
            state: Callable[[], Any] = value.getstate
        elif isinstance(value, np.random.RandomState):
            state = partial(_comparable, value.get_state)
        else:
            source = value.bit_generator if isinstance(value, np.random.Generator) else value
            state = partial(_comparable, lambda: source.state)
        self.states.append((what, state, state()))

    def _object(self, value: Any, what: str) -> None:
        if isinstance(value, (staticmethod, classmethod)):
            self._todo.append((value.__func__, what))
            return
        kind = kind_of(file_of(type(value)))
        state = getattr(value, "__dict__", None)
        if kind == "user" and state is None and is_opaque(type(value)):
            self.recorder.refuse(
                f"may read {what}, a {type(value).__qualname__}, whose changes are not seen", self._line()
            )
            return
        if kind == "trusted":
            inner = getattr(value, "__wrapped__", None)  # a captured function
            if inner is not None:
                self._todo.append((inner, what))
        names = self.watch.users if kind == "trusted" else self.watch.names
        self._attributes(value, state if isinstance(state, dict) else None, type(value).__name__, names)

    def _attributes(self, owner: Any, own: dict[str, Any] | None, what: str, names: set[str]) -> None:
        """Attributes of an object under any of the names: its own, then those of its class."""
        state = {} if own is None else own
        everything = (
            self.watch.all_names
            and not isinstance(owner, (ModuleType, FunctionType))
            and kind_of(file_of(type(owner))) == "user"
        )
        for name in list(state) if everything else state.keys() & names:
            self._note("item", state, name, f"{what}.{name}")
        if isinstance(owner, (ModuleType, FunctionType)):
            return
        for cls, name, found in self._of_class(type(owner), names):
            if isinstance(found, MemberDescriptorType):
                self._note("attribute", owner, name, f"{what}.{name}")
            elif name not in state:
                if (
                    own is not None
                    and not isinstance(found, (FunctionType, property))
                    and (id(state), name) not in self.guards
                ):
                    self.guards[id(state), name] = Guard("item", state, name, f"{what}.{name}")
                if (id(cls), name) not in self.guards and kind_of(file_of(cls)) == "user":
                    self.guards[id(cls), name] = Guard("item", vars(cls), name, f"{cls.__name__}.{name}")
                self._todo.append((found.fget if isinstance(found, property) else found, f"{cls.__name__}.{name}"))
        if (
            own is not None and (id(state), "count") not in self.guards
        ):  # a method of the class may be hidden by an attribute
            self.guards[id(state), "count"] = Guard("count", state, None, f"the attributes of {what}")

    def _of_class(self, cls: type, names: set[str]) -> list[tuple[type, str, Any]]:
        """(class, name, what it is there) for attributes of a class and its bases under any of the names."""
        key = (cls, names is self.watch.users)
        known = self._classes.get(key)  # type: ignore[call-overload]
        if known is None:
            found: dict[str, tuple[type, str, Any]] = {}
            for each in reversed(cls.__mro__[:-1]):
                for name in vars(each).keys() & names:
                    found[name] = each, name, vars(each)[name]
            known = self._classes[key] = [entry for name, entry in found.items() if name not in UNCHANGED]  # type: ignore[index]
        return known

    def _find_closures(self) -> None:
        """Functions that were called but are found under no name, say in a closure of the library: as the collector knows them."""
        missing = [
            code
            for key, (code, _) in self.watch.codes.items()
            if key not in self._found and code.co_freevars and kind_of(code.co_filename) == "user"
        ]  # fmt: skip
        for function in gc.get_referrers(*missing) if missing else ():
            if isinstance(function, FunctionType):
                self._todo.append((function, function.__name__))
        self._run()

    # ---- After the call ---------------------------------------------------------------------------------------------------

    def changed(self) -> str | None:
        """What the function has changed itself of what it reads."""
        for what, state, before in self.states:
            if state() != before:
                return f"draws random numbers of {what}"
        for guard in [*self.guards.values(), *self.passing]:
            if not guard.holds():
                now = short(guard.found())
                return f"{guard.what} is changed, from {short(guard.expected)} to {now}; a replay would not change it"
        return None


UNCHANGED = {"__init__", "__class__", "__dict__", "__weakref__", "__doc__", "__module__", "__name__"}


def _comparable(state: Callable[[], Any]) -> Any:
    return repr(state()) if isinstance(found := state(), dict) and "state" not in found else _plain(found)


def _plain(value: Any) -> Any:
    """A state with arrays in it, as something that == compares."""
    if isinstance(value, dict):
        return {key: _plain(entry) for key, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(map(_plain, value))
    return value.tobytes() if isinstance(value, np.ndarray) else value


def short(value: Any) -> str:
    """A value as a few words."""
    plain = isinstance(value, ATOMS[:-1]) or (
        isinstance(value, tuple) and all(isinstance(entry, ATOMS[:-1]) for entry in value)
    )
    text = repr(value) if plain else f"a {type(value).__name__}"
    return text if len(text) < 40 else text[:37] + "..."
