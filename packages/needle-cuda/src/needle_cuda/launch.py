"""Kernels: read from their files, compiled on first use for one dtype, launched on the current stream."""

import os
from collections import deque
from functools import lru_cache
from importlib.resources import files
from typing import Any

import numpy as np

from needle_ndarray import NDArray
from needle_ndarray.extension import DTYPES

#: The NumPy type of a scalar argument, by dtype; that of halves is the word.
SCALARS: dict[str, Any] = {str(each): np.uint16 if each.is_half else each.numpy.type for each in DTYPES}
#: Random numbers and steps of optimizers have the same bits everywhere: a product and a sum are rounded one after the other.
FILE_OPTIONS = {"random.cu": ("--fmad=false",), "optim.cu": ("--fmad=false",)}

BLOCK = 256
BLOCKS_PER_PROCESSOR = 16  # of a grid-stride loop: enough to fill a multiprocessor and even out the end


class KernelError(RuntimeError):
    """A kernel that did not compile, was not launched or failed; the message has its name."""


@lru_cache(None)
def source(file: str) -> str:
    """The text of a module: common.cuh and one file, with the files that it includes."""
    return f"{_expanded('common.cuh')}\n{_expanded(file)}"


def _expanded(file: str) -> str:
    """A file's text with `#include "other.cuh"` replaced by that file: cupy compiles one text."""
    lines = [f'#line 1 "{file}"']
    text = (files("needle_cuda") / "kernels" / file).read_text(encoding="utf-8")
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith('#include "'):
            lines += [_expanded(line.split('"')[1]), f'#line {number + 1} "{file}"']
        else:
            lines.append(line)
    return "\n".join(lines) + "\n"


@lru_cache(None)
def options(file: str, dtype: str, defines: tuple[str, ...] = ()) -> tuple[str, ...]:
    """The compiler's options for a module of one dtype."""
    return ("-std=c++17", f"-DT_{dtype.upper()}", *[f"-D{each}" for each in defines], *FILE_OPTIONS.get(file, ()))


class Launcher:
    """The kernels of one device."""

    def __init__(self, cupy: Any, number: int):
        self.cupy, self.number = cupy, number
        self.device = cupy.cuda.Device(number)
        self.several = cupy.cuda.runtime.getDeviceCount() > 1
        self.most_blocks = BLOCKS_PER_PROCESSOR * int(self.device.attributes["MultiProcessorCount"])
        self.recent: deque[str] = deque(maxlen=8)  # launched since the last wait: one of them failed where a wait fails
        self.count = 0  # kernels launched
        self.foreign = False  # set where something else than our kernels was queued
        self.waits = os.environ.get("NEEDLE_CUDA_CHECK") == "1"
        self._kernels: dict[tuple, Any] = {}
        self._modules: dict[tuple, Any] = {}

    def launch(
        self,
        file: str,
        function: str,
        dtype: str,
        work: int,
        *args: Any,
        block: int | tuple[int, ...] = BLOCK,
        shared: int = 0,
        grid: tuple[int, ...] | None = None,
        defines: tuple[str, ...] = (),
    ) -> None:
        """Start a kernel on the current stream; nothing for no work.

        Parameters
        ----------
        file, function : "ewise.cu" and the kernel's name in it.
        dtype : what T is; the module is compiled at its first use.
        work : items of a grid-stride loop, which decide the grid where none is given.
        args : NDArrays (a pointer to the first element), None (a null pointer), layouts of views.py, NumPy scalars of the
            parameter's width. Python numbers are refused: their width would be a guess.
        block, shared, grid : threads of a block, bytes of dynamic shared memory, blocks.
        defines : further macros, "NAME" or "NAME=value".
        """
        if work <= 0:
            return
        size = (block,) if isinstance(block, int) else block
        if grid is None:
            grid = (min(-(-work // size[0]), self.most_blocks),)
        if self.several:
            with self.device:
                self._start(file, function, dtype, args, size, shared, grid, defines)
        else:
            self._start(file, function, dtype, args, size, shared, grid, defines)

    def _start(
        self, file: str, function: str, dtype: str, args: Any, block: Any, shared: int, grid: Any, defines: Any
    ) -> None:
        given = [_argument(function, i, each) for i, each in enumerate(args)]  # a constant may need a launch of its own
        kernel = self.kernel(file, function, dtype, defines)
        self.count += 1
        self.recent.append(f"{function}<{dtype}>")
        try:
            kernel(grid, block, tuple(given), shared_mem=shared)
            if self.waits:
                self.cupy.cuda.get_current_stream().synchronize()
        except Exception as error:
            raise KernelError(f"{function} of {file}, {dtype}, grid {grid}, block {block}: {error}") from error

    def kernel(self, file: str, function: str, dtype: str, defines: tuple[str, ...] = ()) -> Any:
        """The compiled kernel."""
        key = (file, function, dtype, defines)
        found = self._kernels.get(key)
        if found is None:
            found = self._kernels[key] = self._compile(*key)
        return found

    def _compile(self, file: str, function: str, dtype: str, defines: tuple[str, ...]) -> Any:
        key = (file, dtype, defines)
        try:
            if key not in self._modules:
                self._modules[key] = self.cupy.RawModule(
                    code=source(file), options=options(file, str(dtype), defines), backend="nvrtc"
                )
            return self._modules[key].get_function(function)
        except Exception as error:
            raise KernelError(f"{function} of {file} does not compile for {dtype}: {error}") from error

    def wait(self) -> None:
        """Wait for the current stream; an error of a kernel comes with the names of the last ones launched."""
        try:
            if self.several:
                with self.device:
                    self.cupy.cuda.get_current_stream().synchronize()
            else:
                self.cupy.cuda.get_current_stream().synchronize()
        except Exception as error:
            names = ", ".join(self.recent) or "none"
            raise KernelError(
                f"a kernel failed: {error}; the last ones launched: {names}; NEEDLE_CUDA_CHECK=1 waits for each and names it"
            ) from error
        self.recent.clear()


def _argument(function: str, i: int, given: Any) -> Any:
    if isinstance(given, NDArray):
        return np.uint64(given._handle.ptr() + given.offset * given.itemsize)
    if given is None:
        return np.uint64(0)
    if isinstance(given, (np.generic, np.ndarray)):
        return given
    raise TypeError(
        f"{function}: argument {i}: {given!r}: expected an array, a layout or a NumPy scalar of the right width"
    )
