"""`cupy.cuda.runtime`: the functions of the CUDA runtime that are called by name."""

import ctypes

from ..settings import settings

streamCaptureModeGlobal, streamCaptureModeThreadLocal, streamCaptureModeRelaxed = range(3)
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = range(5)


class CUDARuntimeError(RuntimeError):
    def __init__(self, status: int, message: str = ""):
        self.status = status
        super().__init__(message or f"cudaError {status}")


def getDeviceCount() -> int:
    return settings.devices


def getDevice() -> int:
    from .streams import here

    return here.device


def setDevice(device: int) -> None:
    from .streams import Device

    Device(device).use()


def driverGetVersion() -> int:
    return 12040


def runtimeGetVersion() -> int:
    return 12040


def getDeviceProperties(device: int) -> dict[str, object]:
    return {
        "name": b"Emulated device",
        "totalGlobalMem": settings.memory,
        "major": 7,
        "minor": 5,
        "multiProcessorCount": 1,
    }


def deviceSynchronize() -> None:
    from .streams import Device

    Device().synchronize()


def deviceCanAccessPeer(device: int, peer: int) -> int:
    return 0


def memcpyPeerAsync(dst: int, dst_device: int, src: int, src_device: int, size: int, stream: int) -> None:
    from . import memory
    from .streams import stream_of

    memory.copy(stream_of(stream), dst, dst_device, src, src_device, size)


def memcpyAsync(dst: int, src: int, size: int, kind: int, stream: int) -> None:
    from . import memory
    from .streams import here, stream_of

    to_host = kind in (memcpyHostToHost, memcpyDeviceToHost)
    from_host = kind in (memcpyHostToHost, memcpyHostToDevice)
    device = here.device
    memory.copy(stream_of(stream), dst, None if to_host else device, src, None if from_host else device, size)


def memsetAsync(ptr: int, value: int, size: int, stream: int) -> None:
    from . import memory
    from .streams import here, stream_of

    memory.check(here.device, ptr, size, "memset")
    stream_of(stream).ask(lambda: ctypes.memset(ptr, value, size))


def streamIsCapturing(stream: int) -> bool:
    from .streams import stream_of

    return stream_of(stream).is_capturing()


def streamSynchronize(stream: int) -> None:
    from .streams import stream_of

    stream_of(stream).synchronize()
