"""Device and pinned memory: cupy's pointers and pool over the emulator's blocks."""

import ctypes
from collections import Counter

from ..emulator import PINNED, LaunchError, library
from ..settings import settings
from .graphs import check_unsafe
from .streams import Device, Stream, get_current_stream, here

ROUND = 512  # the pool's unit


class OutOfMemoryError(MemoryError):
    def __init__(self, size: int, total: int, limit: int = 0):
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes).")


def check(device: int | None, address: int, size: int, what: str) -> None:
    """Refuse a range that is not all within one live allocation of the device (None: host memory, not checked)."""
    if device is None or size == 0:
        return
    why = library().emulator_check_range(device, address, size)
    if why is not None:
        raise LaunchError(f"{what}: {why.decode()}")


def copy(stream: Stream, to: int, to_device: int | None, origin: int, origin_device: int | None, size: int) -> None:
    if stream.is_capturing() and None in (to_device, origin_device):
        raise RuntimeError("the current stream is capturing, so transfers from and to the host are disallowed")
    check(to_device, to, size, "copy to device memory")
    check(origin_device, origin, size, "copy from device memory")
    pageable = origin_device is None and library().emulator_region_of(origin) != PINNED
    if not size:
        return
    if pageable and settings.streams == "deferred":  # CUDA, too, takes pageable memory before it returns
        data = ctypes.string_at(origin, size)
        stream.ask(lambda: ctypes.memmove(to, data, size))
    else:
        stream.ask(lambda: ctypes.memmove(to, origin, size))


class UnownedMemory:
    """Memory that somebody else frees."""

    def __init__(self, ptr: int, size: int, owner: object, device_id: int = -1):
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = device_id if device_id >= 0 else library().emulator_region_of(ptr)

    @property
    def device(self) -> Device:
        return Device(self.device_id)


class PooledMemory:
    """Memory of the pool, which takes it back."""

    def __init__(self, ptr: int, size: int, rounded: int, device_id: int, stream: Stream):
        self.ptr, self.size, self.device_id = ptr, size, device_id
        self._rounded, self._stream = rounded, stream

    @property
    def device(self) -> Device:
        return Device(self.device_id)

    def __del__(self) -> None:
        if self.ptr:
            _pool._take_back(self)


class MemoryPointer:
    """An address within a piece of memory."""

    __slots__ = ("mem", "ptr")

    def __init__(self, mem: UnownedMemory | PooledMemory, offset: int):
        self.mem = mem
        self.ptr = mem.ptr + offset

    def __add__(self, offset: int) -> "MemoryPointer":
        return MemoryPointer(self.mem, self.ptr - self.mem.ptr + offset)

    def __sub__(self, offset: int) -> "MemoryPointer":
        return self + -offset

    def __int__(self) -> int:
        return self.ptr

    @property
    def device_id(self) -> int:
        return self.mem.device_id

    @property
    def device(self) -> Device:
        return self.mem.device

    def copy_from_host_async(self, mem: "int | ctypes.c_void_p", size: int, stream: Stream | None = None) -> None:
        copy(_stream(stream), self.ptr, self.device_id, _host(mem), None, size)

    def copy_to_host_async(self, mem: "int | ctypes.c_void_p", size: int, stream: Stream | None = None) -> None:
        copy(_stream(stream), _host(mem), None, self.ptr, self.device_id, size)

    def copy_from_device_async(self, src: "MemoryPointer", size: int, stream: Stream | None = None) -> None:
        copy(_stream(stream), self.ptr, self.device_id, src.ptr, src.device_id, size)

    def memset_async(self, value: int, size: int, stream: Stream | None = None) -> None:
        check(self.device_id, self.ptr, size, "memset")
        if size:
            _stream(stream).ask(lambda: ctypes.memset(self.ptr, value, size))

    def copy_from_host(self, mem: "int | ctypes.c_void_p", size: int) -> None:
        self.copy_from_host_async(mem, size)
        get_current_stream().synchronize()

    def copy_to_host(self, mem: "int | ctypes.c_void_p", size: int) -> None:
        self.copy_to_host_async(mem, size)
        get_current_stream().synchronize()

    def copy_from_device(self, src: "MemoryPointer", size: int) -> None:
        self.copy_from_device_async(src, size)

    def memset(self, value: int, size: int) -> None:
        self.memset_async(value, size)


def _stream(stream: Stream | None) -> Stream:
    return (get_current_stream() if stream is None else stream).here()


def _host(mem: "int | ctypes.c_void_p") -> int:
    return mem.value or 0 if isinstance(mem, ctypes.c_void_p) else mem


class MemoryPool:
    """Statistics like those of cupy's pool, per device; the blocks are the emulator's."""

    def __init__(self) -> None:
        self._used: Counter[int] = Counter()
        self._total: Counter[int] = Counter()
        self._free: Counter[tuple[int, int]] = Counter()  # (device, size) -> blocks
        self._limit: Counter[int] = Counter()

    def malloc(self, size: int) -> MemoryPointer:
        device = here.device
        if size == 0:
            return MemoryPointer(UnownedMemory(0, 0, None, device), 0)
        rounded = -(-size // ROUND) * ROUND
        check_unsafe(f"{size:,} bytes taken from the device")
        reused = self._free[device, rounded] > 0
        limit = min(self._limit[device] or settings.memory, settings.memory)
        if not reused and self._total[device] + rounded > limit:
            self.free_all_blocks()  # cupy does, too, before it gives up
            if self._total[device] + rounded > limit:
                raise OutOfMemoryError(rounded, self._total[device], limit)
            reused = False
        ptr = library().emulator_allocate(device, size)
        if not ptr:
            raise OutOfMemoryError(rounded, self._total[device])
        if reused:
            self._free[device, rounded] -= 1
        else:
            self._total[device] += rounded
        self._used[device] += rounded
        return MemoryPointer(PooledMemory(ptr, size, rounded, device, get_current_stream().here()), 0)

    def _take_back(self, memory: PooledMemory) -> None:
        self._used[memory.device_id] -= memory._rounded
        self._free[memory.device_id, memory._rounded] += 1
        ptr = memory.ptr
        memory._stream.enqueue(lambda: library().emulator_release(ptr))  # a graph frees nothing

    def used_bytes(self) -> int:
        return self._used[here.device]

    def total_bytes(self) -> int:
        return self._total[here.device]

    def free_bytes(self) -> int:
        return self.total_bytes() - self.used_bytes()

    def n_free_blocks(self) -> int:
        return sum(count for (device, _), count in self._free.items() if device == here.device)

    def free_all_blocks(self, stream: Stream | None = None) -> None:
        for device, size in list(self._free):
            if device == here.device:
                self._total[device] -= size * self._free.pop((device, size))

    def set_limit(self, size: int | None = None, fraction: float | None = None) -> None:
        self._limit[here.device] = int(settings.memory * fraction) if fraction is not None else size or 0

    def get_limit(self) -> int:
        return self._limit[here.device]


_pool = MemoryPool()


def get_default_memory_pool() -> MemoryPool:
    return _pool


def alloc(size: int) -> MemoryPointer:
    return _pool.malloc(size)


# ---- Pinned host memory -------------------------------------------------------------------------------------------


class PinnedMemory:
    ptr = 0

    def __init__(self, size: int):
        check_unsafe(f"{size:,} bytes of pinned memory")
        self.size = size
        self.ptr = library().emulator_allocate(PINNED, max(size, 1))

    def __del__(self) -> None:
        if self.ptr:
            library().emulator_release(self.ptr)


_pinned_types: dict[int, type] = {}


def alloc_pinned_memory(size: int):
    """Pinned host memory: has `.ptr` and `.size()`, and offers its bytes by the buffer protocol."""
    kind = _pinned_types.get(size)
    if kind is None:
        members = {"ptr": property(ctypes.addressof), "size": lambda self: size}
        kind = _pinned_types[size] = type("PinnedMemoryPointer", (ctypes.c_uint8 * size,), members)
    mem = PinnedMemory(size)
    pointer = kind.from_address(mem.ptr)  # type: ignore[attr-defined]
    pointer.mem = mem
    return pointer


class PinnedMemoryPool:
    def free_all_blocks(self) -> None:
        pass

    def n_free_blocks(self) -> int:
        return 0


def get_default_pinned_memory_pool() -> PinnedMemoryPool:
    return PinnedMemoryPool()
