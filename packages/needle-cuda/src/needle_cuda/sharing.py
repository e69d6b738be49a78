"""Between devices: copies from one GPU to another, and DLPack with cupy, PyTorch and others."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from needle_cuda.memory import DeviceBuffer
from needle_cuda.views import compact
from needle_ndarray import NDArray, device

CUDA = 2  # device types of DLPack
CPU = 1


class Sharing:
    """Hooks of CUDABackend: copies from other devices, copies beside other work, DLPack."""

    cupy: Any
    launcher: Any
    number: int
    device: Any
    _copies: Any = None  # the stream of `ahead`
    _empty: Any

    def from_device(self, a: NDArray) -> NDArray | None:
        """A copy of an array on another CUDA device, without a stop at the host; None for every other array."""
        if not isinstance(a.backend, Sharing):
            return None
        source, other = compact(a), a.backend
        out = self._empty(a.shape, a.dtype)
        if a.size:
            nbytes = a.nbytes
            start = other._mark()
            with self.launcher.device:
                stream = self.cupy.cuda.get_current_stream()
                stream.wait_event(start)
                address = source._handle.ptr() + source.offset * source.itemsize
                target = out._handle.ptr()
                self.cupy.cuda.runtime.memcpyPeerAsync(target, self.number, address, other.number, nbytes, stream.ptr)
            other._wait_for(
                self._mark()
            )  # what is written there next, and whoever gets its memory, comes after the copy
        return out

    @contextmanager
    def ahead(self) -> Iterator[Callable[[], None]]:
        """Copies to the device made inside run on a stream of their own, beside what is queued later; before their arrays are
        used, the function that this gives must be called.

        They come after all that is queued now: their memory may have been that of an array which is still being read.
        """
        with self.launcher.device:
            if self._copies is None:
                self._copies = self.cupy.cuda.Stream(non_blocking=True)
            self._copies.wait_event(self._mark())
            done: list[Any] = []
            with self._copies:
                yield lambda: self._wait_for(done[0])
                done.append(self._mark())

    def _mark(self) -> Any:
        """An event behind all that the current stream of this device has to do."""
        with self.launcher.device:
            event = self.cupy.cuda.Event(disable_timing=True)
            event.record(self.cupy.cuda.get_current_stream())
            return event

    def _wait_for(self, event: Any) -> None:
        with self.launcher.device:
            self.cupy.cuda.get_current_stream().wait_event(event)

    # ---- DLPack ------------------------------------------------------------------------------------------------------

    def _as_cupy(self, a: NDArray) -> Any:
        """A cupy.ndarray on the memory of `a`."""
        if a.dtype == "bfloat16":
            raise BufferError("__dlpack__: cupy has no bfloat16: share x.astype('float32'), or x.to('cpu')")
        if a.size == 0:
            return self.cupy.ndarray(a.shape, a.dtype.numpy)
        memory = a._handle.pointer() + a.offset * a.itemsize
        return self.cupy.ndarray(a.shape, a.dtype.numpy, memory, tuple([s * a.itemsize for s in a.strides]))

    def dlpack_device(self) -> tuple[int, int]:
        return CUDA, self.number

    def to_dlpack(
        self, a: NDArray, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None
    ) -> Any:
        """A capsule on the memory of `a`; on the host, or copied, where that is asked for."""
        if dl_device is not None and tuple(dl_device) != self.dlpack_device():
            if tuple(dl_device) != (CPU, 0) or copy is False:
                raise BufferError(
                    f"__dlpack__: cannot share {a.device} memory: dl_device={tuple(dl_device)}, copy={copy}"
                )
            return a.to(device("cpu")).__dlpack__(max_version=max_version)
        a = a.copy() if copy else a
        a._handle.mark_written()  # the consumer may write, and will not tell
        given = {"stream": stream, "max_version": max_version}
        with self.launcher.device:
            return self._as_cupy(a).__dlpack__(**{name: value for name, value in given.items() if value is not None})

    def from_dlpack(self, x: Any, copy: Any = None) -> NDArray:
        """An array on the memory of x, which is on this device or another one of CUDA."""
        number = int(x.__dlpack_device__()[1])
        if number != self.number:
            return device(f"cuda:{number}").backend.from_dlpack(x, copy)
        with self.launcher.device:
            there = self.cupy.from_dlpack(x)
        if there.size == 0:
            return self._empty(tuple(there.shape), str(there.dtype))
        reach = [(n - 1) * s for n, s in zip(there.shape, there.strides, strict=True)]
        low, high = sum(r for r in reach if r < 0), sum(r for r in reach if r > 0)
        size = there.dtype.itemsize
        handle = DeviceBuffer(self, high - low + size, there.data + low)
        layout = tuple(there.shape), tuple([s // size for s in there.strides]), self.device, handle, -low // size
        if there.dtype == "bool" and (found := NDArray.make(*layout, "uint8")).max().item() > 1:
            if copy is False:
                raise BufferError("from_dlpack: the memory is bool with bytes other than 0 and 1, and copy=False")
            return found.astype("bool")
        out = NDArray.make(*layout, str(there.dtype))
        return out.copy() if copy else out
