"""Ctrl-C between two steps: a state is whole there, and can be saved."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def asking_first(ask: Callable[[], Any]) -> Iterator[None]:
    """In this block the first SIGINT or SIGTERM calls `ask`; the second one acts as it ever did.

    A signal that the process was started to ignore, as a shell does it for jobs in the background, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set handlers
        return
    handlers = {number: signal.getsignal(number) or signal.SIG_DFL for number in (signal.SIGINT, signal.SIGTERM)}
    before: dict[int, Any] = {n: handler for n, handler in handlers.items() if handler is not signal.SIG_IGN}

    def handle(number: int, frame: Any) -> None:
        signal.signal(number, before[number])
        ask()

    try:
        for number in before:
            signal.signal(number, handle)
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
