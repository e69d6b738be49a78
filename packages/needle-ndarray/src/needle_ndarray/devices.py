"""Devices: names users write, and the backends behind them, found by entry point and loaded on first use."""

import os
import re
from _thread import RLock  # threading is not imported by NumPy
from collections.abc import Callable
from typing import Any

from needle_ndarray.backend import INTERFACE_VERSION, Backend

GROUP = "needle.backends"
BUILT_IN = {"cpu": "needle_ndarray.cpu_backend:CPUBackend", "cpu_numpy": "needle_ndarray.numpy_backend:NumPyBackend"}
REMEDY = {"cuda": "pip install 'needle-cuda[cuda12]' (or [cuda13]) brings it"}

_devices: dict[str, "Device"] = {}
_loading = RLock()  # two threads that come first must not get two backends, whose arrays do not go together
_registered: dict[str, Callable[[], Backend]] = {}
when_loaded: Callable[[Backend], None] | None = None  # called with every backend that is loaded; see listening.py


def _entry_points() -> dict[str, Any]:
    from importlib.metadata import entry_points  # 20 ms, and cpu needs none of it

    return {point.name: point for point in entry_points(group=GROUP)}


def register(name: str, factory: Callable[[], Backend]) -> "Device":
    """Make a backend known to this process, without an entry point: for trying one out."""
    if not isinstance(name, str) or not name.isidentifier() or name in BUILT_IN:
        raise ValueError(f"register: {name!r}: expected a name of its own, fit for an identifier")
    _registered[name] = factory
    _devices.pop(name, None)
    return device(name)


class DeviceError(RuntimeError):
    """A device that cannot be used here; the message says what is missing."""


class Device:
    """Where arrays live. Compared by name; the backend is loaded when it is first needed.

    >>> cpu(), cpu() == cpu(), cpu().enabled()
    (cpu(), True, True)
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._backend: Backend | None = None

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.name == other.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        kind, _, number = self.name.partition(":")
        return f"{kind}({number})"

    def __reduce__(self) -> tuple:
        return device, (self.name,)

    @property
    def type(self) -> str:
        """The name without a number: "cpu", "cuda"."""
        return self.name.partition(":")[0]

    @property
    def index(self) -> int | None:
        """The number, of a device that may have one."""
        return int(self.name.partition(":")[2] or 0) if self.type == "cuda" else None

    @property
    def backend(self) -> Backend:
        """The backend; DeviceError with one line where it cannot be used."""
        return self._loaded() if self._backend is None else self._backend

    def _loaded(self) -> Backend:
        with _loading:
            if self._backend is None:
                loaded = _load(self.name)
                reason = loaded.why_disabled()
                if reason:
                    raise DeviceError(f"{self}: {reason}")
                loaded.device = self
                self._backend = loaded
                if when_loaded is not None:
                    when_loaded(loaded)
            return self._backend

    def enabled(self) -> bool:
        """Whether arrays can be made here."""
        try:
            return self.backend is not None
        except DeviceError:
            return False

    # The course's methods

    def empty(self, shape: Any, dtype: Any = "float32") -> Any:
        from needle_ndarray.creation import empty

        return empty(shape, dtype, self)

    def full(self, shape: Any, fill_value: Any, dtype: Any = "float32") -> Any:
        from needle_ndarray.creation import full

        return full(shape, fill_value, dtype, self)

    def rand(self, *shape: int, dtype: Any = "float32") -> Any:
        from needle_ndarray.random import uniform

        return uniform(*shape, device=self, dtype=dtype)

    def randn(self, *shape: int, dtype: Any = "float32") -> Any:
        from needle_ndarray.random import normal

        return normal(*shape, device=self, dtype=dtype)

    def one_hot(self, n: int, i: Any, dtype: Any = "float32") -> Any:
        from needle_ndarray.creation import one_hot

        return one_hot(n, i, dtype, self)

    @property
    def __tile_size__(self) -> int:
        return self.backend.tile_size

    def matmul_tiled(self, a: Any, b: Any, out: Any, m: int, n: int, p: int) -> None:
        """The course's tiled matmul over [M/T][N/T][T][T] handles."""
        self.backend.matmul_tiled(a, b, out, m, n, p)


def _load(name: str) -> Backend:
    """The backend of that name, "cuda" or "cuda:1"; built-in ones also where no distribution's metadata is around."""
    given, (name, _, number) = device(name), name.partition(":")
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].partition(":")
        make = getattr(__import__(module, fromlist=[attribute]), attribute)
    elif name in _registered:
        make = _registered[name]
    elif name in (found := _entry_points()):
        try:
            make = found[name].load()
        except Exception as error:
            raise DeviceError(f"{name}(): its backend does not import: {type(error).__name__}: {error}") from error
    else:
        known = ", ".join(sorted({*BUILT_IN, *_registered, *found}))
        remedy = REMEDY.get(name, "no installed package registers it")
        raise DeviceError(f"{name}(): no such backend here (installed: {known}); {remedy}")
    if number and not (
        number.isdigit() and getattr(make, "numbered", False)
    ):  # a factory need not be a Backend's class
        raise DeviceError(f"{given}: {name}() has no such number")
    loaded = make(int(number)) if number else make()
    if loaded.interface_version != INTERFACE_VERSION:
        raise DeviceError(
            f"{name}(): its backend implements interface version {loaded.interface_version},"
            f" needle-ndarray has version {INTERFACE_VERSION}; upgrade the older of the two"
        )
    return loaded


def device(given: Any = None) -> Device:
    """A device by name; a Device as it is; the default one for None.

    >>> device("cpu"), device(cpu_numpy()), device("cuda:1")
    (cpu(), cpu_numpy(), cuda(1))
    """
    if given is None:
        return default_device()
    if isinstance(given, Device):
        return given
    if not isinstance(given, str):
        raise TypeError(f"device: expected a Device or a name, got {given!r}")
    # "cuda(1)" is "cuda:1"; "cuda(0)" and "cuda()" are "cuda"
    numbered = re.fullmatch(r"(.*?)(?:\((\d*)\)|:(\d+))", given)
    if numbered:
        number = int(numbered[2] or numbered[3] or 0)
        given = f"{numbered[1]}:{number}" if number else numbered[1]
    return _devices.setdefault(given, Device(given))


def backend_of(given: Any) -> Backend:
    """The backend of a device, a name or None (the default device)."""
    return (given if type(given) is Device else device(given)).backend


def cpu() -> Device:
    """The CPU, with kernels in Cython."""
    return device("cpu")


def cpu_numpy() -> Device:
    """The CPU, every operation by NumPy: slower, and the reference for all others."""
    return device("cpu_numpy")


def cuda(number: int = 0) -> Device:
    """An NVIDIA GPU, the first one or the one of that number. Without it, `enabled()` is False and using it says why."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ValueError(f"cuda: {number!r}: expected the number of a device, 0 or more")
    return device(f"cuda:{number}")


_default: Device | None = None


def default_device() -> Device:
    """cpu(), or cpu_numpy() where NEEDLE_BACKEND=np."""
    global _default
    if _default is None:
        _default = cpu_numpy() if os.environ.get("NEEDLE_BACKEND") == "np" else cpu()
    return _default


def all_devices() -> list[Device]:
    """Every device with a name: the built-in ones, cuda, and those that installed packages register."""
    names = ["cpu", "cuda", "cpu_numpy", *sorted(_entry_points()), *_registered]
    return [device(name) for name in dict.fromkeys(names)]
