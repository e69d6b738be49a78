"""Devices, streams and events.

With `settings.streams == "deferred"` nothing is done before somebody waits for it: a missing synchronisation then reads
what was there before, instead of working by luck.
"""

import itertools
import threading
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from ..settings import settings
from .graphs import IMPLICIT, ISOLATION, UNSUPPORTED, Graph, refuse
from .runtime import CUDARuntimeError, streamCaptureModeRelaxed

_clock = itertools.count(1)
_handles = itertools.count(0x1000, 16)


class _Here(threading.local):
    """What is current, in each thread for itself: the device, those before it, the streams of each device."""

    def __init__(self) -> None:
        self.device = 0
        self.entered: list[int] = []
        self.streams: dict[int, list[Stream]] = {}
        self.capturing: list[Stream] = []


here = _Here()


class Device:
    """A device by number; as a context manager, the current one."""

    def __init__(self, device: "int | Device | None" = None):
        self.id = here.device if device is None else int(device)

    def __int__(self) -> int:
        return self.id

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self) -> int:
        return hash(self.id)

    def __repr__(self) -> str:
        return f"<CUDA Device {self.id}>"

    def use(self) -> None:
        if not 0 <= self.id < settings.devices:
            raise CUDARuntimeError(101, "cudaErrorInvalidDevice: invalid device ordinal")
        here.device = self.id

    def __enter__(self) -> "Device":
        before = here.device
        self.use()
        here.entered.append(before)
        return self

    def __exit__(self, *_: object) -> None:
        here.device = here.entered.pop()

    def synchronize(self) -> None:
        if any(stream.is_capturing() for stream in Stream.all_of(self.id)):
            refuse(UNSUPPORTED, "the device is waited for")
        for stream in Stream.all_of(self.id):
            stream.synchronize()

    @property
    def compute_capability(self) -> str:
        return "75"

    @property
    def attributes(self) -> dict[str, int]:
        return {
            "MultiProcessorCount": 1,  # grids are small: their loops come round
            "MaxThreadsPerBlock": 1024,
            "MaxThreadsPerMultiProcessor": 1024,
            "MaxSharedMemoryPerBlock": 48 * 1024,
            "MaxGridDimX": 2**31 - 1,
            "MaxGridDimY": 65535,
            "MaxGridDimZ": 65535,
            "WarpSize": 32,
            "ClockRate": 1_000_000,
        }

    @property
    def mem_info(self) -> tuple[int, int]:
        from .memory import get_default_memory_pool

        with self:
            used = get_default_memory_pool().used_bytes()
        return settings.memory - used, settings.memory

    @property
    def pci_bus_id(self) -> str:
        return f"0000:{self.id:02x}:00.0"


class Stream:
    """A queue of work on one device; work of the null stream and of blocking ones is done in the order of asking."""

    null: "Stream"
    _nulls: ClassVar[dict[int, "Stream"]] = {}
    _made: ClassVar[list["Stream"]] = []

    def __init__(self, null: bool = False, non_blocking: bool = False, ptds: bool = False, priority: int | None = None):
        self.is_null = null
        self.non_blocking = non_blocking
        self.ptr = 0 if null else next(_handles)
        self.device_id = -1 if null else here.device
        self._queue: deque[tuple[int, Callable[[], object]]] = deque()
        self._captured: list[Callable[[], object]] | None = None  # what is asked for while capturing
        if not null:
            Stream._made.append(self)

    def __repr__(self) -> str:
        return f"<Stream {self.ptr:#x} (device {self.device_id})>"

    @staticmethod
    def all_of(device: int) -> "list[Stream]":
        return [_null_of(device), *(stream for stream in Stream._made if stream.device_id == device)]

    def here(self) -> "Stream":
        """The stream itself; `Stream.null` stands for the null stream of the current device."""
        return _null_of(here.device) if self.is_null and self.device_id < 0 else self

    def use(self) -> "Stream":
        here.streams[here.device] = [self]
        return self

    def __enter__(self) -> "Stream":
        here.streams.setdefault(here.device, [Stream.null]).append(self)
        return self

    def __exit__(self, *_: object) -> None:
        here.streams[here.device].pop()

    # ---- Work ------------------------------------------------------------------------------------------------------

    def ask(self, work: Callable[[], object]) -> None:
        """Do it now, or in its turn, or write it down."""
        if self._captured is not None:
            self._captured.append(work)
            return
        if (
            self.is_null and capturing()
        ):  # CUDA lets it pass beside a non-blocking stream: it would be missing in the graph
            refuse(IMPLICIT, "work for the legacy stream")
        self.enqueue(work)

    def enqueue(self, work: Callable[[], object]) -> None:
        """Do it now or in its turn, also while the stream is capturing."""
        if settings.streams == "immediate" and not self._queue:
            work()
        else:
            self._queue.append((next(_clock), work))

    def _work_until(self, time: float) -> None:
        while self._queue and self._queue[0][0] <= time:
            asked, work = self._queue.popleft()
            if self.is_null:
                for other in Stream.all_of(self.device_id):
                    if not other.is_null and not other.non_blocking:
                        other._work_until(asked)
            elif not self.non_blocking:
                _null_of(self.device_id)._work_until(asked)
            work()

    # ---- Capture ---------------------------------------------------------------------------------------------------

    def begin_capture(self, mode: int | None = None) -> None:
        if self.is_null:
            raise RuntimeError("cannot capture on the default (legacy) stream")
        if mode not in (None, *range(streamCaptureModeRelaxed + 1)):
            raise CUDARuntimeError(1, f"cudaErrorInvalidValue: capture mode {mode}")
        if self._captured is not None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is capturing already")
        self._captured = []
        here.capturing.append(self)

    def end_capture(self) -> Graph:
        if self._captured is None:
            raise CUDARuntimeError(401, "cudaErrorIllegalState: the stream is not capturing")
        work, self._captured = self._captured, None
        here.capturing.remove(self)
        return Graph(work, self.device_id)

    def is_capturing(self) -> bool:
        return self._captured is not None

    # ---- Waiting ---------------------------------------------------------------------------------------------------

    def synchronize(self) -> None:
        if self._captured is not None:
            refuse(UNSUPPORTED, "the stream is waited for")
        self.here()._work_until(float("inf"))

    @property
    def done(self) -> bool:
        if self._captured is not None:
            refuse(UNSUPPORTED, "the stream is queried")
        return not self.here()._queue

    def record(self, event: "Event | None" = None) -> "Event":
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event: "Event") -> None:
        if self._captured is not None:
            refuse(ISOLATION, "the wait for an event")
        self.here().ask(event.synchronize)


def _null_of(device: int) -> Stream:
    if device not in Stream._nulls:
        stream = Stream._nulls[device] = Stream(null=True)
        stream.device_id = device
    return Stream._nulls[device]


Stream.null = Stream(null=True)


def get_current_stream(device_id: int | None = None) -> Stream:
    stack = here.streams.get(here.device if device_id is None else device_id)
    return stack[-1] if stack else Stream.null


def capturing() -> bool:
    """Whether a stream of this thread is capturing."""
    return bool(here.capturing)


class ExternalStream(Stream):
    """A stream that somebody else made."""

    def __init__(self, ptr: int, device_id: int = -1):
        super().__init__()
        self.ptr = ptr


class Event:
    """A moment in a stream's work."""

    def __init__(self, block: bool = False, disable_timing: bool = False, interprocess: bool = False):
        self._stream: Stream | None = None
        self._time = 0
        self.ptr = next(_handles)

    def record(self, stream: Stream | None = None) -> None:
        self._stream = (stream or get_current_stream()).here()
        if self._stream.is_capturing():
            refuse(UNSUPPORTED, "an event of the host")
        self._time = next(_clock)

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream._work_until(self._time)

    @property
    def done(self) -> bool:
        return self._stream is None or not self._stream._queue or self._stream._queue[0][0] > self._time


def get_elapsed_time(start: Event, end: Event) -> float:
    """Milliseconds; the emulation has no clock that would mean anything."""
    return 0.0


def stream_of(ptr: int) -> Stream:
    """The stream of a handle."""
    for stream in Stream._made:
        if stream.ptr == ptr:
            return stream
    if ptr in (0, 1):  # the legacy default stream by either of its names
        return _null_of(here.device)
    raise CUDARuntimeError(400, "cudaErrorInvalidResourceHandle: invalid resource handle")
