"""Record what a function asks of the backends: a list of verb calls on views of numbered buffers.

Nothing is held that the function lets go: a view is written down as its buffer's number, shape, strides and offset, and a buffer
that was allocated while recording gets a number of its own each time it is handed out. Only memory that was there before is held.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from needle_ndarray.backend import Backend
from needle_ndarray.capture.calls import Call, CaptureError, Slot
from needle_ndarray.capture.lines import made_by_user
from needle_ndarray.capture.tape import Ear, Tape, active_recorder, line_of_user, record_on
from needle_ndarray.listening import listening
from needle_ndarray.ndarray import NDArray

USED = "uses a number that is read from arrays (a norm, say) in Python"


class Recorder(Tape):
    """The recording of one call of a function, in the thread that made it."""

    def __init__(self, strict: bool = False, origin: Callable[[], tuple[str, tuple[str, int]]] | None = None) -> None:
        super().__init__(origin)
        self.refused: str | None = None
        self.strict = strict
        self.dependencies: list[tuple[Any, Any]] = []  # (dictionary, key): a replay is right while the entry stays
        self.cleared: dict[int, Any] = {}  # tensors whose gradients are dropped before anything is computed, by id
        self._held: list[Any] = []
        self._repeats = 0
        self._random: Any = None  # NumPy's generator, as the library left it

    @contextmanager
    def recording(self) -> Iterator["Recorder"]:
        """Record what the body does in this thread."""
        with listening(lambda backend: Ear(self, backend)) as backends:
            loaded = len(backends)
            self._random = _numpy_state()
            record_on(self)
            try:
                yield self
            finally:
                record_on(None)
        if len(backends) != loaded:
            self.refuse("a device is used for the first time")

    # ---- What happens ---------------------------------------------------------------------------------------------------

    def shared(self, verb: str) -> None:
        """Values or memory of an array are handed out."""
        if verb == "to_host":
            self.refuse("reads values of an array on the host (.item(), .numpy(), if tensor, ...)")
        elif verb == "number":
            self.refuse(USED)
        else:
            self.refuse("shares the memory of an array with NumPy or another library")

    def from_host(self, backend: Backend, values: np.ndarray, out: NDArray) -> None:
        """Memory of the host is a constant if the library made it, and cannot be repeated if the function did."""
        if made_by_user():
            self.refuse("makes an array out of values on the host")
        op, line = self.origin()
        self.calls.append(Call("from_host", backend, (values.tobytes(), self.view(out)), line, None, op))

    def repeat(self, function: Callable, args: tuple[Any, ...]) -> Any:
        """Call a function that a replay has to call again, and know its numbers again where they are used."""
        if not self.is_here():
            return function(*args)
        (op, line), noted = self.origin(), self.written_down(args)
        draws = getattr(function, "__module__", None) == "needle_ndarray.random"
        if draws:
            self.check_random()
        self.depth += 1
        try:
            result = function(*args)
        finally:
            self.depth -= 1
        if draws:
            self._random = _numpy_state()
        number, self._repeats = self._repeats, self._repeats + 1
        self.calls.append(Call("repeat", None, noted, line, function, op))
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

    def check_random(self, line: tuple[str, int] | None = None) -> None:
        """Refuse if somebody else has drawn NumPy's random numbers: their functions are not seen when they are called."""
        if _numpy_state() != self._random:
            self.refuse("draws NumPy's random numbers", line)

    @property
    def repeating(self) -> bool:
        """Whether what happens now is part of a verb or of a repeated function, and not written down."""
        return self.depth > 0

    def refuse(self, why: str, line: tuple[str, int] | None = None) -> None:
        """Note, for the first time only, why a replay would not be right."""
        if self.refused is None:
            file, number = line or line_of_user()
            self.refused = f"{file}:{number}: {why}"
            if self.strict:
                raise CaptureError(self.refused)


def _numpy_state() -> tuple[Any, ...]:
    """NumPy's global generator, as something to compare."""
    state: Any = np.random.get_state()  # noqa: NPY002
    name, key, *rest = state
    return name, key.tobytes(), *rest


class Watched(float):
    """A number that a replay knows and Python must not use meanwhile: what is decided by it would stay decided."""

    def _used(self, *args: Any) -> Any:
        found = active_recorder()
        if found is not None:
            found.refuse(USED)
        return float

    @staticmethod
    def of(value: float) -> float:
        """While recording, the number to hand to the user for one that `repeat` returned."""
        found = active_recorder()
        if found is None or id(value) not in found.slots:
            return value
        made = Watched(value)
        found._held.append(made)
        if value not in (0.0, 1.0):  # which are everywhere
            found.watched.add(value)
        found.slots[id(made)] = found.slots[id(value)]
        return made


def _refusing(name: str) -> Callable:
    def use(self: Watched, *args: Any, **kwargs: Any) -> Any:
        self._used()
        if name == "__array__":
            return np.array(float.__pos__(self))
        if name == "__array_ufunc__":
            ufunc, method, *inputs = args
            return getattr(ufunc, method)(
                *[float.__pos__(x) if isinstance(x, Watched) else x for x in inputs], **kwargs
            )
        return getattr(float, name)(self, *args)

    return use


for _name in (
    "add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg abs lt le gt ge eq ne bool int float"
    " str repr format round trunc ceil floor divmod rdivmod pos hash array_ufunc array"
).split():
    setattr(Watched, f"__{_name}__", _refusing(f"__{_name}__"))
