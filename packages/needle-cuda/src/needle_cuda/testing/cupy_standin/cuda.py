"""`cupy.cuda`."""

from types import SimpleNamespace

from . import memory, nccl, runtime
from .graphs import Graph
from .memory import (
    MemoryPointer,
    MemoryPool,
    UnownedMemory,
    alloc,
    alloc_pinned_memory,
)
from .module import CompileException
from .streams import Device, Event, ExternalStream, Stream, get_current_stream, get_elapsed_time


def is_available() -> bool:
    return runtime.getDeviceCount() > 0


compiler = SimpleNamespace(CompileException=CompileException)
nvrtc = SimpleNamespace(getVersion=lambda: (12, 4))

__all__ = [
    "Device",
    "Event",
    "ExternalStream",
    "Graph",
    "MemoryPointer",
    "MemoryPool",
    "Stream",
    "UnownedMemory",
    "alloc",
    "alloc_pinned_memory",
    "compiler",
    "get_current_stream",
    "get_elapsed_time",
    "is_available",
    "memory",
    "nccl",
    "nvrtc",
    "runtime",
]
