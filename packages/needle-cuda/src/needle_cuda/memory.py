"""Memory of a device: buffers from cupy's pool, and copies to and from the host through pinned memory."""

import threading
from typing import Any

import numpy as np

from needle_ndarray import next_version
from needle_ndarray.extension import format_bytes

STAGED = 64 << 20  # bytes of pinned memory for one copy; larger ones go without


class DeviceBuffer:
    """Bytes on a device: what `NDArray._handle` is on cuda devices.

    A buffer of a single element that was filled with a number only remembers it: kernels take it by value, and memory is
    taken and written when somebody asks for the address. Integers that came from the host leave their smallest and largest
    behind: indices and labels are checked by them, without a wait for the device.
    A verb that writes forgets them: a replay counts its writes only at its end.
    """

    __slots__ = ("bounds", "constant", "memory", "nbytes", "owner", "version")

    def __init__(self, owner: Any, nbytes: int, memory: Any = None):
        self.owner, self.nbytes, self.memory = owner, nbytes, memory
        self.version = 0
        self.constant: np.generic | None = None
        self.bounds: tuple[int, np.generic, np.generic] | None = None  # the version they are of, smallest, largest

    def ptr(self) -> int:
        """The address of the first byte."""
        return self.pointer().ptr

    def pointer(self) -> Any:
        """The memory, as a cupy MemoryPointer."""
        if self.memory is None:
            self.memory = self.owner.memory.take(self.nbytes)
        if self.constant is not None:
            value, self.constant = self.constant, None
            self.owner.launcher.launch(
                "strided.cu", "fill_one", value.dtype.name, 1, np.uint64(self.memory.ptr), value, block=32
            )
        return self.memory

    def mark_written(self) -> None:
        """Count a write."""
        self.version = next_version()


class Watch(threading.local):
    """Who else has to do with memory that a thread takes: see graphs.py."""

    counts: Any = None  # told of it
    lends: Any = None  # gives it instead of the pool


class DeviceMemory:
    """What one device's memory is taken from and copied through."""

    def __init__(self, cupy: Any, number: int, launcher: Any):
        self.cupy, self.number, self.launcher = cupy, number, launcher
        self.watch = Watch()
        self._under_way: list[tuple[Any, Any]] = []  # pinned memory of copies, and the event behind each

    def take(self, nbytes: int) -> Any:
        """Uninitialised memory from cupy's pool."""
        if self.watch.lends is not None:
            return self.watch.lends.take(nbytes)
        if self.watch.counts is not None:
            self.watch.counts.count(nbytes)
        try:
            if not self.launcher.several:
                return self.cupy.cuda.alloc(nbytes)
            with self.launcher.device:
                return self.cupy.cuda.alloc(nbytes)
        except MemoryError as error:
            held = self.cupy.get_default_memory_pool().total_bytes()
            raise MemoryError(
                f"cuda({self.number}): cannot allocate {nbytes:,} bytes ({format_bytes(nbytes)});"
                f" the pool holds {format_bytes(held)}, needle_cuda.empty_cache() gives back what is unused"
            ) from error

    def write(self, values: np.ndarray, target: Any) -> None:
        """Copy host values to device memory, asynchronously: the values may change as soon as this returns."""
        with self.launcher.device:
            stream = self.cupy.cuda.get_current_stream()
            if values.nbytes > STAGED:
                target.copy_from_host_async(values.ctypes.data, values.nbytes, stream)
                return
            pinned = self.cupy.cuda.alloc_pinned_memory(values.nbytes)
            np.frombuffer(pinned, np.uint8, values.nbytes)[...] = np.frombuffer(values, np.uint8)
            target.copy_from_host_async(pinned.ptr, values.nbytes, stream)
            self._keep(pinned, stream)

    def read(self, source: Any, values: np.ndarray) -> None:
        """Copy device memory to the host, and wait for it."""
        with self.launcher.device:
            stream = self.cupy.cuda.get_current_stream()
            if values.nbytes > STAGED:
                source.copy_to_host_async(values.ctypes.data, values.nbytes, stream)
                self.launcher.wait()
                return
            pinned = self.cupy.cuda.alloc_pinned_memory(values.nbytes)
            source.copy_to_host_async(pinned.ptr, values.nbytes, stream)
            self._keep(pinned, stream)  # the wait may end in an error or an interrupt
            self.launcher.wait()
            values.reshape(-1).view(np.uint8)[...] = np.frombuffer(pinned, np.uint8, values.nbytes)

    def _keep(self, pinned: Any, stream: Any) -> None:
        """Hold pinned memory until the stream has come to this point; let go of what is done."""
        event = self.cupy.cuda.Event(disable_timing=True)
        event.record(stream)
        self._under_way = [pair for pair in self._under_way if not pair[1].done]
        self._under_way.append((pinned, event))
