"""A backend with kernels in C: memory, copies, arithmetic, sums and products in c_backend.c, the rest as in the toy backend.

The kernels are compiled on first use, by the C compiler that the machine has, and called through ctypes.
"""

import ctypes
import math
import os
import subprocess
import tempfile
import weakref
from functools import cache
from pathlib import Path

import numpy as np
from toy_backend import Block, ToyBackend

HERE = Path(__file__).parent
OPS = "negative abs relu sqrt add subtract multiply divide maximum minimum".split()
MAX_DIMS = 32


class Layout(ctypes.Structure):
    """The struct of c_backend.c"""

    _fields_ = [
        ("ndim", ctypes.c_int64),
        ("shape", ctypes.c_int64 * MAX_DIMS),
        ("strides", (ctypes.c_int64 * MAX_DIMS) * 3),
    ]


@cache
def library():
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "c_backend.so"
        # NumPy's bits: integers wrap around, and no product is fused with a sum
        flags = ["-std=c11", "-O2", "-fwrapv", "-ffp-contract=off", "-shared", "-fPIC"]
        command = [os.environ.get("CC", "cc"), *flags, "-o", str(out), str(HERE / "c_backend.c"), "-lm"]
        subprocess.run(command, check=True, capture_output=True)
        loaded = ctypes.CDLL(str(out))
    loaded.take_memory.restype = ctypes.c_void_p
    return loaded


class CBlock(Block):
    """Memory that C allocates; it goes back when the last array on it is gone."""

    def __init__(self, nbytes):
        address = library().take_memory(ctypes.c_int64(nbytes))
        if not address:
            raise MemoryError(f"c: {nbytes} bytes")
        self.memory = np.frombuffer((ctypes.c_uint8 * nbytes).from_address(address), np.uint8)
        self.nbytes, self.version = nbytes, 0
        weakref.finalize(self.memory, library().give_back, ctypes.c_void_p(address))


def pointer(a):
    """Where the first element of an array lies"""
    return ctypes.c_void_p(a._handle.ptr() + a.offset * a.dtype.itemsize)


def kernel(name, dtype):
    """The function for a dtype; None where C has none"""
    return getattr(library(), f"{name}_{dtype}", None)


def run(function, *operands, op=None):
    """Call a kernel on operands of one shape and any strides."""
    if operands[0].size == 0:
        return
    at = Layout(operands[0].ndim, operands[0].shape)
    for k, a in enumerate(operands):
        at.strides[k][: a.ndim] = a.strides
    number = [] if op is None else [OPS.index(op)]
    function(*number, ctypes.byref(at), *map(pointer, operands))


class CBackend(ToyBackend):
    """The verbs that C has a kernel for; for others, and dtypes it does not have, NumPy computes."""

    name = "c"

    def allocate(self, nbytes):
        return CBlock(nbytes)

    def copy(self, a, out):
        function = kernel("copy", out.dtype)
        if function is None or a.dtype != out.dtype:
            return super().copy(a, out)  # casts
        run(function, a, out)

    def unary(self, op, a, out):
        function = kernel("unary", a.dtype)
        known = op.name in OPS and (op.name != "sqrt" or a.dtype.is_float)
        if function is None or not known:
            return super().unary(op, a, out)
        run(function, a, out, op=op.name)

    def binary(self, op, a, b, out):
        function = kernel("binary", a.dtype)
        known = op.name in OPS and (op.name != "divide" or a.dtype.is_float)
        if function is None or not known or a.dtype != out.dtype:
            return super().binary(op, a, b, out)
        run(function, a, b, out, op=op.name)

    def reduce(self, op, a, out, axes):
        function = kernel("sum", a.dtype)
        if function is None or op.name != "sum" or a.dtype != out.dtype or not out.is_compact():
            return super().reduce(op, a, out, axes)
        kept = [axis for axis in range(a.ndim) if axis not in axes]
        rows = a.permute((*kept, *axes)).compact()  # what is summed lies side by side
        n = math.prod(a.shape[axis] for axis in axes)
        function(pointer(rows), pointer(out), ctypes.c_int64(out.size), ctypes.c_int64(n))

    def matmul(self, a, b, out):
        function = kernel("matmul", out.dtype)
        if function is None or not out.is_compact():
            return super().matmul(a, b, out)
        a, b = a.compact(), b.compact()
        m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
        start, left, right = (pointer(x).value or 0 for x in (out, a, b))
        for i in range(math.prod(out.shape[:-2])):
            places = (x + i * size * out.dtype.itemsize for x, size in ((left, m * k), (right, k * n), (start, m * n)))
            function(*map(ctypes.c_void_p, places), *map(ctypes.c_int64, (m, k, n)))
