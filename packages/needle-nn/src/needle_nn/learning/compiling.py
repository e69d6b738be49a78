"""The student's C file as a library, and arrays with guard zones for its functions."""

import ctypes
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import numpy as np

from .expect import Wrong

GUARD = 256  # floats before and behind an array
PATTERN = np.float32(-1.25e30)


@cache
def library(path: Path) -> ctypes.CDLL:
    """The compiled file; what the compiler says about the first error is the message."""
    compiler = os.environ.get("CC") or next(filter(shutil.which, ("cc", "gcc", "clang")), None)
    if not path.exists():
        raise Wrong(f"{path.name} is not beside the other file")
    if compiler is None:
        raise Wrong("no C compiler found: install gcc or clang, or set CC")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "kernels.so"
        command = [*compiler.split(), "-std=c11", "-O1", "-shared", "-fPIC", "-w", "-o", str(out), str(path), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.splitlines()
            told = next((line for line in lines if "error" in line), lines[0] if lines else "no message")
            raise Wrong(f"{path.name} does not compile: {told.replace(str(path), path.name)}")
        return ctypes.CDLL(str(out))


class Guarded:
    """An array of floats within guard zones: a store into them is found afterwards, a load gives NaN or -1.25e30."""

    def __init__(self, name: str, values: np.ndarray, inner: float | None = None) -> None:
        self.name, self.shape, self.size = name, values.shape, values.size
        self.memory = np.full(values.size + 2 * GUARD, PATTERN, np.float32)
        self.memory[GUARD : GUARD + self.size] = values.ravel() if inner is None else inner
        self.before = self.memory.copy()

    @property
    def pointer(self) -> int:
        return self.memory.ctypes.data + 4 * GUARD

    @property
    def values(self) -> np.ndarray:
        return self.memory[GUARD : GUARD + self.size].reshape(self.shape)

    def check(self, what: str, written: bool) -> None:
        bits, before = self.memory.view(np.uint32), self.before.view(np.uint32)
        changed = np.flatnonzero(bits != before) - GUARD
        outside = changed[(changed < 0) | (changed >= self.size)]
        if outside.size:
            raise Wrong(f"{what} stored out of bounds: {self.name}[{outside[0]}], which has {self.size} elements")
        if changed.size and not written:
            raise Wrong(f"{what} changed its input: {self.name}[{changed[0]}]")


def call(
    path: Path, name: str, inputs: dict[str, np.ndarray], out_shape: tuple[int, ...], *numbers: object
) -> np.ndarray:
    """What function `name` of the C file makes of the inputs; numbers are ints (64 bits), or arrays of int64."""
    loaded = library(path)
    try:
        function = loaded[name]
    except AttributeError:
        raise Wrong(f"{path.name} defines no `{name}`") from None
    arrays = [Guarded(key, np.asarray(values, np.float32)) for key, values in inputs.items()]
    out = Guarded("out", np.empty(out_shape, np.float32), float("nan"))
    held = [np.ascontiguousarray(n, np.int64) if isinstance(n, (tuple, list)) else n for n in numbers]
    passed = [ctypes.c_void_p(n.ctypes.data) if isinstance(n, np.ndarray) else n for n in held]
    function.restype = ctypes.c_int
    state = function(*[ctypes.c_void_p(a.pointer) for a in (*arrays, out)], *passed)
    if state:
        raise NotImplementedError
    for a in arrays:
        a.check(name, False)
    out.check(name, True)
    return out.values
