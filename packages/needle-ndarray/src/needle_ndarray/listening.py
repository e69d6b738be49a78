"""Hear of every verb that a backend is asked for: what recorders and profilers are made of.

A listener has two methods. `heard(verb, args)` is called in place of a verb and returns whether it has done the work, by calling
the verb itself; "to_host" and "share" (memory handed to NumPy or DLPack) are only announced. `allocated(buffer)` sees every new
buffer and returns it. Nobody listens normally, and then a verb costs what it costs: one comparison more.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from needle_ndarray import devices
from needle_ndarray.backend import Backend

#: Members of a backend that are no instructions.
HOOKS = {"allocate", "to_host", "synchronize", "matmul_tiled", "why_disabled", "from_device", "ahead"}
HOOKS |= {"dlpack_device", "to_dlpack", "from_dlpack"}
VERBS = [name for name in vars(Backend) if name[0] != "_" and callable(getattr(Backend, name)) and name not in HOOKS]


def is_listened() -> bool:
    """Whether somebody records or profiles just now."""
    return any(device._backend is not None and device._backend.listener is not None for device in devices._devices.values())


@contextmanager
def listening(backends: list[Backend], make_listener: Callable[[Backend], Any]) -> Iterator[None]:
    """While the body runs, every backend has a listener; RuntimeError where one of them has one already."""
    for backend in backends:
        if backend.listener is not None:
            raise RuntimeError(f"{backend.name} is being recorded or profiled already")
    try:
        for backend in backends:
            backend.listener = make_listener(backend)
            if hasattr(backend, "__dict__"):  # written in Python: the CPU backend asks its listener by itself
                _divert(backend)
        yield
    finally:
        for backend in backends:
            backend.listener = None
            for name in [*VERBS, "to_host", "allocate"] if hasattr(backend, "__dict__") else ():
                vars(backend).pop(name, None)


def _divert(backend: Backend) -> None:
    """Put functions that ask the listener first before the methods of this one object."""
    listener = backend.listener

    def verb(name: str, method: Callable) -> Callable:
        def ask_first(*args: Any) -> None:
            if not listener.heard(name, args):
                method(*args)

        return ask_first

    def to_host(a: Any, method: Callable = backend.to_host) -> Any:
        listener.heard("to_host", (a,))
        return method(a)

    def allocate(nbytes: int, method: Callable = backend.allocate) -> Any:
        return listener.allocated(method(nbytes))

    vars(backend).update({name: verb(name, getattr(backend, name)) for name in VERBS})
    vars(backend).update(to_host=to_host, allocate=allocate)
