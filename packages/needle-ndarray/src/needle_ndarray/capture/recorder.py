"""Record what a function asks of the backends: a list of verb calls on views of numbered buffers.

Nothing is held that the function lets go: a view is written down as its buffer's number, shape, strides and offset, and a buffer
that was allocated while recording gets a number of its own each time it is handed out. Only memory that was there before is held.
"""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any, NamedTuple

import numpy as np

from needle_ndarray import devices
from needle_ndarray.backend import Backend
from needle_ndarray.listening import listening
from needle_ndarray.ndarray import NDArray

#: Packages whose code is not the user's.
PACKAGES = ("needle_ndarray", "needle", "needle_nn", "needle_cuda")
_recorder: "Recorder | None" = None


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
    """A number that a repeated function returned: entry `index` of the result of host call `call`."""

    call: int
    index: int


class Call(NamedTuple):
    """A verb call, or with verb "repeat" a Python function that every replay calls again at this place."""

    verb: str
    backend: Backend | None
    args: tuple[Any, ...]
    line: tuple[str, int]
    function: Callable | None = None


class Recorder:
    """The recording of one call of a function, in the thread that made it."""

    def __init__(self, strict: bool = False):
        self.calls: list[Call] = []
        self.refused: str | None = None
        self.strict = strict
        self.made: dict[int, int] = {}  # id of a buffer that is in use: its number
        self.sizes: list[int] = []  # bytes of the buffers made, by number
        self.origins: list[Backend] = []
        self.outside: dict[int, NDArray] = {}  # id of a buffer: an array on it; held, so that the id stays its own
        self.outside_numbers: dict[int, int] = {}
        self.constants: dict[int, bytes] = {}
        self.dependencies: list[tuple[Any, Any]] = []  # (dictionary, key): a replay is right while the entry stays
        self.slots: dict[int, Slot] = {}  # id of a number: where it comes from
        self._held: list[Any] = []
        self._repeats = 0
        self._thread = get_ident()
        self._depth = 0
        self._random: Any = None  # NumPy's generator, as the library left it
        self.cleared: dict[int, Any] = {}  # tensors whose gradients are dropped before anything is computed, by id
        self.watched = False  # whether a number was handed out that Python must not use

    @contextmanager
    def recording(self) -> Iterator["Recorder"]:
        """Record what the body does in this thread."""
        global _recorder
        loaded = [device._backend for device in devices._devices.values() if device._backend is not None]
        with listening(loaded, lambda backend: _Ear(self, backend)):
            _recorder, self._random = self, _numpy_state()
            try:
                yield self
            finally:
                _recorder = None
        self._check_random()
        if len(loaded) != sum(device._backend is not None for device in devices._devices.values()):
            self.refuse("a device is used for the first time")

    # ---- What happens ---------------------------------------------------------------------------------------------------

    def note(self, backend: Backend, verb: str, args: tuple[Any, ...]) -> bool:
        """Run a verb and write it down; False where it is none of this recording's business."""
        if self._depth or get_ident() != self._thread:
            return False
        if verb == "to_host":
            self.refuse("reads values of an array on the host (.item(), .numpy(), if tensor, ...)")
            return False
        if verb == "share":
            self.refuse("shares the memory of an array with NumPy or another library")
            return False
        self._depth += 1
        try:
            getattr(backend, verb)(*args)
        finally:
            self._depth -= 1
        if verb == "from_host":
            self._from_host(backend, *args)
        else:
            self.calls.append(Call(verb, backend, tuple(map(self._written_down, args)), line_of_user()))
        return True

    def _from_host(self, backend: Backend, values: np.ndarray, out: NDArray) -> None:
        """Memory of the host is a constant if the library made it, and cannot be repeated if the function did."""
        if made_by_user():
            self.refuse("makes an array out of values on the host")
        self.calls.append(Call("from_host", backend, (values.tobytes(), self.view(out)), line_of_user()))

    def repeat(self, function: Callable, args: tuple[Any, ...]) -> Any:
        """Call a function that a replay has to call again, and know its numbers again where they are used."""
        if self._depth or get_ident() != self._thread:
            return function(*args)
        line = line_of_user()
        noted = tuple(map(self._written_down, args))
        draws = function.__module__ == "needle_ndarray.random"
        if draws:
            self._check_random()
        self._depth += 1
        try:
            result = function(*args)
        finally:
            self._depth -= 1
        if draws:
            self._random = _numpy_state()
        number, self._repeats = self._repeats, self._repeats + 1
        self.calls.append(Call("repeat", None, noted, line, function))
        if isinstance(result, tuple):
            return tuple(self._number(value, Slot(number, i)) for i, value in enumerate(result))
        return self._number(result, Slot(number, -1))

    def _number(self, value: Any, slot: Slot) -> Any:
        if type(value) is not float and type(value) is not int:
            if isinstance(value, np.generic):
                self.refuse(f"goes on with {value!r}, a number that NumPy made; float(...) of it can be repeated")
            return value
        value = value * 1.0  # an object of its own, known by its id
        self._held.append(value)
        self.slots[id(value)] = slot
        return value

    def _check_random(self) -> None:
        """Refuse if somebody else has drawn NumPy's random numbers: their functions are not seen when they are called."""
        if self._random is not None and _numpy_state() != self._random:
            self.refuse("draws NumPy's random numbers")

    def refuse(self, why: str, line: tuple[str, int] | None = None) -> None:
        """Note, for the first time only, why a replay would not be right."""
        if self.refused is None:
            file, number = line or line_of_user()
            self.refused = f"{file}:{number}: {why}"
            if self.strict:
                raise CaptureError(self.refused)

    # ---- Writing down ----------------------------------------------------------------------------------------------------

    def allocated(self, backend: Backend, buffer: Any) -> Any:
        if get_ident() == self._thread and not self._depth:
            self.made[id(buffer)] = len(self.sizes)
            self.sizes.append(buffer.nbytes)
            self.origins.append(backend)
        else:
            self.made.pop(id(buffer), None)  # memory that was one of ours, and is somebody else's now
        return buffer

    def number_of(self, array: NDArray) -> int:
        key = id(array._handle)
        number = self.made.get(key)
        if number is not None:
            return number
        if key not in self.outside:
            self.outside[key] = array
            self.outside_numbers[key] = -1 - len(self.outside_numbers)
        return self.outside_numbers[key]

    def view(self, array: NDArray) -> View:
        return View(self.number_of(array), array.dtype, array.shape, array.strides, array.offset)

    def _written_down(self, value: Any) -> Any:
        if isinstance(value, NDArray):
            return self.view(value)
        if isinstance(value, float):
            return self.slots.get(id(value), value)
        if isinstance(value, (list, tuple)):
            return type(value)(map(self._written_down, value))
        return value


def _numpy_state() -> tuple[Any, ...]:
    """NumPy's global generator, as something to compare."""
    name, key, *rest = np.random.get_state()  # noqa: NPY002
    return name, key.tobytes(), *rest


class _Ear:
    """Listens to one backend for a recorder."""

    def __init__(self, recorder: Recorder, backend: Backend):
        self.recorder, self.backend = recorder, backend

    def heard(self, verb: str, args: tuple[Any, ...]) -> bool:
        return self.recorder.note(self.backend, verb, args)

    def allocated(self, buffer: Any) -> Any:
        return self.recorder.allocated(self.backend, buffer)


def recorder() -> Recorder | None:
    """The recording that is under way in this thread, if one is."""
    return _recorder if _recorder is not None and _recorder._thread == get_ident() else None


def repeat(function: Callable, *args: Any) -> Any:
    """function(*args); where a captured function is being recorded, every replay calls it again, at this place among the verbs.

    For what Python does besides calling verbs: counting steps, drawing random numbers, reading a norm. What the function does to
    arrays is not recorded. It may return floats: where these go into later verbs, a replay uses the new ones.

    >>> from itertools import count
    >>> steps = count(1)
    >>> repeat(lambda: 1 / next(steps))
    1.0
    """
    found = recorder()
    return function(*args) if found is None else found.repeat(function, args)


def depends(container: dict, *keys: Any) -> None:
    """Say, while recording, that a replay is right only as long as these entries of a dictionary stay; none: all entries."""
    found = recorder()
    if found is not None:
        found.dependencies += [(container, key) for key in keys or (None,)]


class Watched(float):
    """A number that a replay knows and Python must not use meanwhile: what is decided by it would stay decided."""

    def _used(self, *args: Any) -> Any:
        found = recorder()
        if found is not None:
            found.refuse("uses a number that is read from arrays (a norm, say) in Python")
        return float

    @staticmethod
    def of(value: float) -> float:
        """While recording, the number to hand to the user for one that `repeat` returned."""
        found = recorder()
        if found is None or id(value) not in found.slots:
            return value
        made = Watched(value)
        found.watched = True
        found._held.append(made)
        found.slots[id(made)] = found.slots[id(value)]
        return made


def _refusing(name: str) -> Callable:
    def use(self: Watched, *args: Any, **kwargs: Any) -> Any:
        self._used()
        if name == "__array__":
            return np.array(float.__pos__(self))
        if name == "__array_ufunc__":
            ufunc, method, *inputs = args
            return getattr(ufunc, method)(*[float.__pos__(x) if isinstance(x, Watched) else x for x in inputs], **kwargs)
        return getattr(float, name)(self, *args)

    return use


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg abs lt le gt ge eq ne bool int float"
    " str repr format round trunc ceil floor divmod rdivmod pos hash array_ufunc array"
).split():
    setattr(Watched, f"__{_name}__", _refusing(f"__{_name}__"))


# ---- Lines of the user -------------------------------------------------------------------------------------------------

CONSTRUCTORS = {"array", "asarray", "astype", "from_numpy", "from_dlpack", "tensor", "to_array", "as_constant"}


_places: dict[str, tuple[str, ...]] = {}


def place_in_library(filename: str) -> tuple[str, ...]:
    """("needle_nn", "nn", "basic.py") for a file of ours; () for any other."""
    place = _places.get(filename)
    if place is None:
        folders = [(name, str(Path(sys.modules[name].__file__ or "").parent)) for name in PACKAGES if name in sys.modules]
        inside = [(name, filename[len(folder) :]) for name, folder in folders if filename.startswith(folder + os.sep)]
        place = _places[filename] = (inside[0][0], *inside[0][1].split(os.sep)[1:]) if inside else ()
    return place


def is_library(filename: str) -> bool:
    return bool(place_in_library(filename))


def line_of_user() -> tuple[str, int]:
    """The innermost line outside of the library, as file and number."""
    frame = sys._getframe(1)
    while frame.f_back is not None and is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def made_by_user() -> bool:
    """Whether the values that go to a device come from the user's own line, through nothing but constructors."""
    frame = sys._getframe(1)
    own = str(Path(__file__).parent), str(Path(__file__).parents[1] / "listening.py")
    while frame.f_back is not None:
        name = frame.f_code.co_filename
        if not name.startswith(own) and frame.f_code.co_name not in CONSTRUCTORS:
            return not is_library(name)
        frame = frame.f_back
    return True


