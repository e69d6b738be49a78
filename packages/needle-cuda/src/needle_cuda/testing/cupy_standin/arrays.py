"""`cupy.ndarray`, as much as an exchange of arrays needs."""

import math

import numpy as np

from . import dlpack
from .memory import MemoryPointer, UnownedMemory, alloc
from .streams import Device, Stream, get_current_stream


class ndarray:
    """Shape, dtype and strides over device memory."""

    def __init__(self, shape, dtype=float, memptr: MemoryPointer | None = None, strides=None):
        self.shape = (int(shape),) if isinstance(shape, (int, np.integer)) else tuple(map(int, shape))
        self.dtype = np.dtype(dtype)
        self.ndim, self.size = len(self.shape), math.prod(self.shape)
        self.itemsize, self.nbytes = self.dtype.itemsize, self.size * self.dtype.itemsize
        if strides is None:  # rows first
            strides = [self.itemsize * math.prod(self.shape[i + 1 :]) for i in range(self.ndim)]
        self.strides = tuple(map(int, strides))
        self.data = alloc(self.nbytes) if memptr is None else memptr

    @property
    def device(self) -> Device:
        return self.data.device

    @property
    def __cuda_array_interface__(self) -> dict:
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "strides": self.strides,
            "data": (self.data.ptr, False),
            "version": 3,
            "stream": 1,
        }

    def __array__(self, *_: object, **__: object):
        raise TypeError("Implicit conversion to a NumPy array is not allowed. Please use `.get()` explicitly.")

    def _on_host(self) -> np.ndarray:
        """The memory itself under NumPy's name: only once all work on it is done."""
        get_current_stream().synchronize()
        if self.size == 0:
            return np.empty(self.shape, self.dtype)
        spans = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        low, high = sum(min(0, span) for span in spans), sum(max(0, span) for span in spans) + self.itemsize
        owner = type("_", (), {})()
        owner.__array_interface__ = {
            "shape": (high - low,),
            "typestr": "|u1",
            "data": (self.data.ptr + low, False),
            "version": 3,
        }
        return np.ndarray(self.shape, self.dtype, np.asarray(owner), -low, self.strides)

    def get(self, stream: Stream | None = None) -> np.ndarray:
        if stream is not None:
            stream.synchronize()
        return self._on_host().copy()

    def set(self, values, stream: Stream | None = None) -> None:
        self._on_host()[...] = values

    def __dlpack_device__(self) -> tuple[int, int]:
        return dlpack.CUDA, self.data.device_id

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        return dlpack.export(self, versioned=bool(max_version and max_version[0] >= 1))


def from_dlpack(array, device=None, copy=None) -> ndarray:
    """An array over memory that another library owns."""
    kind, number = array.__dlpack_device__()
    if kind != dlpack.CUDA:
        raise BufferError(f"from_dlpack: the array is on a device of type {kind}, not on CUDA")
    with Device(number):
        try:
            capsule = array.__dlpack__(stream=1, max_version=(1, 0))
        except TypeError:
            capsule = array.__dlpack__(stream=1)
    address, shape, dtype, strides, owner = dlpack.take(capsule)
    memory = UnownedMemory(address, 0, owner, number)
    return ndarray(shape, dtype, MemoryPointer(memory, 0), [stride * dtype.itemsize for stride in strides])


def asarray(values, dtype=None) -> ndarray:
    values = np.asarray(values, dtype)
    out = ndarray(values.shape, values.dtype)
    out.set(values)
    return out


def asnumpy(array: ndarray) -> np.ndarray:
    return array.get()
