"""Hear of every verb that a backend is asked for: what recorders and profilers are made of.

A listener has two methods and an attribute. `heard(verb, args)` is called in place of a verb and returns whether it has done the
work, by calling the verb itself; for "to_host" it returns the values, or False where it has not fetched them. "share" (memory
handed to NumPy or DLPack) is only announced. `allocated(buffer)` sees every new buffer and returns it. `numbers` says whether it
also hears of single numbers that the host reads and writes without a verb, as "to_host" and "fill". Nobody listens normally, and
then a verb costs what it costs: one comparison more.
"""

from _thread import allocate_lock  # threading is not imported by NumPy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from needle_ndarray import devices
from needle_ndarray.backend import Backend

#: Members of a backend that are no instructions.
HOOKS = {"allocate", "to_host", "synchronize", "matmul_tiled", "why_disabled", "from_device", "ahead", "graph"}
HOOKS |= {"dlpack_device", "to_dlpack", "from_dlpack"}
_starting = allocate_lock()
VERBS = [name for name in vars(Backend) if name[0] != "_" and callable(getattr(Backend, name)) and name not in HOOKS]


class ListeningError(RuntimeError):
    """Two that want to listen at the same time: recordings and profiles exclude each other."""


def is_listened_to() -> bool:
    """Whether a recording or a profile is under way, in whatever thread."""
    return devices.when_loaded is not None


@contextmanager
def listening(make_listener: Callable[[Backend], Any]) -> Iterator[list[Backend]]:
    """While the body runs, every backend has a listener, also one that is loaded meanwhile; ListeningError where they have one.

    What it gives is the list of these backends.
    """
    heard: list[Backend] = []

    def attach(backend: Backend) -> None:
        heard.append(backend)
        backend.listener = make_listener(backend)
        if hasattr(backend, "__dict__"):  # written in Python: the CPU backend asks its listener by itself
            _divert(backend)

    with _starting:
        if devices.when_loaded is not None:
            raise ListeningError("the backends are being recorded or profiled already")
        devices.when_loaded = attach
    try:
        for device in list(devices._devices.values()):
            if device._backend is not None:
                attach(device._backend)
        yield heard
    finally:
        for backend in heard:
            backend.listener = None
            for name in [*VERBS, "to_host", "allocate"] if hasattr(backend, "__dict__") else ():
                vars(backend).pop(name, None)
        devices.when_loaded = None


def _divert(backend: Backend) -> None:
    """Put functions that ask the listener first before the methods of this one object."""
    listener = backend.listener

    def verb(name: str, method: Callable) -> Callable:
        def ask_first(*args: Any) -> None:
            if not listener.heard(name, args):
                method(*args)

        return ask_first

    def to_host(a: Any, method: Callable = backend.to_host) -> Any:
        values = listener.heard("to_host", (a,))
        return method(a) if values is False else values

    def allocate(nbytes: int, method: Callable = backend.allocate) -> Any:
        return listener.allocated(method(nbytes))

    vars(backend).update({name: verb(name, getattr(backend, name)) for name in VERBS})
    vars(backend).update(to_host=to_host, allocate=allocate)
