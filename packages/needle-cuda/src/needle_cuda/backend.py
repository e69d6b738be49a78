"""The CUDA backend: every verb of the interface as a launch of a kernel from `kernels/`."""

from typing import Any

import numpy as np

from needle_cuda.convolution import Convolution
from needle_cuda.graphs import Graphs
from needle_cuda.indexing import Indexing
from needle_cuda.launch import SCALARS, Launcher
from needle_cuda.memory import DeviceBuffer, DeviceMemory
from needle_cuda.network import Network
from needle_cuda.optimizers import Optimizers
from needle_cuda.products import Products
from needle_cuda.reductions import Reductions
from needle_cuda.sharing import Sharing
from needle_cuda.status import find_cupy, why_disabled
from needle_cuda.views import compact, dense, joint, step, transposition
from needle_ndarray import NDArray, bfloat16_words
from needle_ndarray.backend import INTERFACE_VERSION, Backend, Op

BOUNDED = 1 << 20  # integers from the host whose smallest and largest are looked for


class CUDABackend(Reductions, Indexing, Products, Network, Convolution, Optimizers, Sharing, Graphs, Backend):
    """One NVIDIA GPU. Verbs return once their kernels are queued on cupy's current stream; only reading a value waits."""

    name = "cuda"
    numbered = True  # there may be several: cuda(1)
    interface_version = INTERFACE_VERSION

    def __init__(self, number: int = 0):
        self.number = number
        self.name = f"cuda:{number}" if number else "cuda"
        self._launcher: Launcher | None = None

    def why_disabled(self) -> str | None:
        return why_disabled(self.number)

    @property
    def cupy(self) -> Any:
        return self.launcher.cupy

    @property
    def launcher(self) -> Launcher:
        """Made at the first use: until then no context is opened on the device."""
        if self._launcher is None:
            self._launcher = Launcher(find_cupy(), self.number)
            self.memory = DeviceMemory(self._launcher.cupy, self.number, self._launcher)
        return self._launcher

    def _launch(self, *args: Any, **more: Any) -> None:
        """See Launcher.launch."""
        (self._launcher or self.launcher).launch(*args, **more)

    # ---- Memory ------------------------------------------------------------------------------------------------------

    def allocate(self, nbytes: int) -> DeviceBuffer:
        if self._launcher is None:
            self.launcher  # noqa: B018
        return DeviceBuffer(self, nbytes, None if nbytes <= 8 else self.memory.take(nbytes))

    def _empty(self, shape: tuple[int, ...], dtype: str) -> NDArray:
        """A compact array on this device, for results in between."""
        return NDArray.make(shape, device=self.device, dtype=dtype)

    def from_host(self, values: np.ndarray, out: NDArray) -> None:
        out._handle.bounds = None
        if remembered(out):
            out._handle.constant = values.reshape(())[()]
        elif out.size:
            self.memory.write(values, out._handle.pointer() + out.offset * out.itemsize)
            if (
                not out.dtype.is_half
                and values.dtype.kind in "iu"
                and values.size <= BOUNDED
                and out.nbytes == out._handle.nbytes
            ):
                out._handle.bounds = (out._handle.version, values.min(), values.max())

    def to_host(self, a: NDArray) -> np.ndarray:
        values = np.empty(a.shape, a.dtype.storage)
        if a.size and (constant := self._constant(a)) is not None:
            values[...] = constant
        elif a.size:
            source = compact(a)
            self.memory.read(source._handle.pointer() + source.offset * source.itemsize, values)
        return values

    def synchronize(self) -> None:
        """Wait for the current stream of this device."""
        self.launcher.wait()

    # ---- Elementwise -------------------------------------------------------------------------------------------------

    def _constant(self, a: NDArray) -> np.generic | None:
        """The number that a buffer of one element only remembers, for kernels that take it by value; None: look there."""
        found = a._handle.constant
        return found if found is not None and a.dtype == found.dtype else None

    def _operand(self, a: NDArray) -> tuple:
        """An operand of a dense kernel: its address or null, its step (1, or 0 for a single number), and that number."""
        value = self._constant(a)
        if value is None:
            return a, np.int64(step(a) or 0), SCALARS[a.dtype](0)
        return None, np.int64(0), value

    def fill(self, out: NDArray, value: Any) -> None:
        out._handle.bounds = None
        scalar = word_of(out.dtype, value) if out.dtype.is_half else SCALARS[out.dtype](value)
        if remembered(out):
            out._handle.constant = scalar
        elif dense(out):
            self._launch("strided.cu", "fill", out.dtype, out.size, out, scalar, np.int64(out.size))
        else:
            self._launch("strided.cu", "fill_strided", out.dtype, out.size, out, scalar, joint(out), np.int64(out.size))

    def copy(self, a: NDArray, out: NDArray) -> None:
        out._handle.bounds = None
        n = np.int64(out.size)
        cast = (f"S_{a.dtype.upper()}",)
        if step(a) is not None and dense(out):
            self._launch("strided.cu", "copy", out.dtype, -(-out.size // 4), *self._operand(a), out, n, defines=cast)
        elif (turned := transposition(out, a)) is not None:
            given, grid = turned
            self._launch(
                "strided.cu", "transpose", out.dtype, n, a, out, *given, grid=grid, block=(32, 8), defines=cast
            )
        else:
            self._launch("strided.cu", "copy_strided", out.dtype, out.size, a, out, joint(out, a), n, defines=cast)

    def unary(self, op: Op, a: NDArray, out: NDArray) -> None:
        out._handle.bounds = None
        n, one = np.int64(out.size), (f"UNARY_OP={op.name}",)
        if step(a) is not None and dense(out):
            given = (*self._operand(a), out, n)
            self._launch("ewise.cu", f"unary_{op.name}", a.dtype, -(-out.size // 4), *given, defines=one)
        else:
            given = (a, out, joint(out, a), n)
            self._launch("ewise.cu", f"unary_{op.name}_strided", a.dtype, out.size, *given, defines=one)

    def binary(self, op: Op, a: NDArray, b: NDArray, out: NDArray) -> None:
        out._handle.bounds = None
        n, one = np.int64(out.size), (f"BINARY_OP={op.name}",)
        if step(a) is not None and step(b) is not None and dense(out):
            given = (*self._operand(a), *self._operand(b), out, n)
            self._launch("ewise.cu", f"binary_{op.name}", a.dtype, -(-out.size // 4), *given, defines=one)
        else:
            given = (a, b, out, joint(out, a, b), n)
            self._launch("ewise.cu", f"binary_{op.name}_strided", a.dtype, out.size, *given, defines=one)

    def where(self, condition: NDArray, a: NDArray, b: NDArray, out: NDArray) -> None:
        out._handle.bounds = None
        n = np.int64(out.size)
        if None not in (step(condition), step(a), step(b)) and dense(out):
            given = (*self._operand(condition), *self._operand(a), *self._operand(b), out, n)
            self._launch("ewise.cu", "where", out.dtype, -(-out.size // 4), *given)
        else:
            given = (condition, a, b, out, joint(out, condition, a, b), n)
            self._launch("ewise.cu", "where_strided", out.dtype, out.size, *given)

    def random(self, op: Op, out: NDArray, seed: int, counter: int) -> None:
        blocks = -(-out.size // (16 // out.itemsize))
        given = (np.uint64(seed), np.uint64(counter), out, np.int64(out.size))
        self._launch("random.cu", f"random_{op.name}", out.dtype, blocks, *given)


def word_of(dtype: str, value: Any) -> Any:
    """The bits of a number as float16 or bfloat16."""
    with np.errstate(over="ignore"):
        made = bfloat16_words(value) if dtype == "bfloat16" else np.asarray(value, np.float16).view(np.uint16)
    return made[()]


def remembered(out: NDArray) -> bool:
    """Whether a number for `out` need not be written anywhere yet: its buffer is of one element, and nobody has its address."""
    return not out.dtype.is_half and out.size == 1 and out._handle.memory is None and out._handle.nbytes == out.itemsize
