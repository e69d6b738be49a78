"""`RawModule` and its kernels."""

from collections import Counter
from collections.abc import Sequence

from .. import emulator
from ..compiler import CompileError
from .arrays import ndarray
from .graphs import check_unsafe
from .memory import MemoryPointer
from .streams import Stream, get_current_stream, here

launches: Counter[str] = Counter()  # kernel name -> launches since the counter was cleared


class CompileException(Exception):
    """The compiler's message, as cupy's exception of this name has it."""

    def __init__(self, msg: str, source: str, name: str, options: Sequence[str], backend: str = "nvrtc"):
        self._msg, self.source, self.name, self.options, self.backend = msg, source, name, options, backend
        super().__init__(msg)

    def get_message(self) -> str:
        return self._msg


def _address(argument: object) -> int | None:
    """The address that a device array or pointer stands for; None for anything else."""
    if isinstance(argument, MemoryPointer):
        return argument.ptr
    if isinstance(argument, ndarray):
        return argument.data.ptr
    return None


class Kernel:
    """A kernel of a module; calling it puts a launch on the current stream."""

    num_regs = 0
    local_size_bytes = 0
    const_size_bytes = 0

    def __init__(self, launchable: emulator.Launchable):
        self._launchable = launchable
        self.name = launchable.name

    @property
    def max_threads_per_block(self) -> int:
        return self._launchable.max_threads

    @property
    def shared_size_bytes(self) -> int:
        """Of the largest launch so far: the emulator learns of shared memory when a thread comes to it."""
        return self._launchable.shared_size

    def __call__(
        self,
        grid: Sequence[int],
        block: Sequence[int],
        args: Sequence[object],
        *,
        shared_mem: int = 0,
        stream: Stream | None = None,
    ) -> None:
        packed = self._launchable.pack(args, _address)
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        for numbers in (grid, block):
            if not all(0 <= number < 2**32 for number in numbers):
                raise emulator.LaunchError(f"{self.name}: grid {grid} of blocks {block} is out of range")
        device = here.device
        queue = (get_current_stream() if stream is None else stream).here()
        if queue.device_id != device:
            raise emulator.LaunchError(
                f"{self.name}: launched on device {device} with a stream of device {queue.device_id}"
            )
        if not queue.is_capturing():
            launches[self.name] += 1
        start = self._launchable.start
        queue.ask(lambda: start(grid, block, packed, shared_mem, device))


class RawModule:
    """Kernels from text, compiled when the first of them is asked for."""

    def __init__(
        self,
        *,
        code: str,
        options: tuple[str, ...] = (),
        backend: str = "nvrtc",
        translate_cucomplex: bool = False,
        enable_cooperative_groups: bool = False,
        name_expressions: object = None,
        jitify: bool = False,
    ):
        if not isinstance(options, tuple):
            raise TypeError("options must be a tuple")
        self.code, self.options, self.backend = code, options, backend
        self._kernels: dict[str, emulator.Launchable] | None = None

    def compile(self, log_stream: object = None) -> None:
        if self._kernels is None:
            check_unsafe("a module is loaded")
            try:
                self._kernels = emulator.load(self.code, self.options)
            except CompileError as error:
                raise CompileException(str(error), self.code, "", self.options) from None

    def get_function(self, name: str) -> Kernel:
        self.compile()
        assert self._kernels is not None
        if name not in self._kernels:
            raise RuntimeError(f"CUDA_ERROR_NOT_FOUND: named symbol not found: {name}")
        return Kernel(self._kernels[name])


class RawKernel(Kernel):
    def __init__(self, code: str, name: str, options: tuple[str, ...] = (), backend: str = "nvrtc"):
        super().__init__(RawModule(code=code, options=options).get_function(name)._launchable)
