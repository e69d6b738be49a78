"""Matrix products: each kernel at sizes of its own, parts of k, large batches, and what cuBLAS would be asked for."""

import ctypes
import os
import subprocess
import sys

import numpy as np
import pytest

from needle_cuda import cublas
from needle_ndarray.devices import device
from needle_ndarray.ndarray import make_array
from needle_ndarray.testing.cases import plain
from needle_ndarray.testing.oracle import WIDER, assert_same, assert_within, product_bound

DTYPES = ["uint8", "int32", "int64", "float32", "float64"]


@pytest.fixture
def backend():
    return device("cuda").backend


def arrays(shapes, dtype, turned=()):
    """Operands and their values; those named in `turned` have their last two axes swapped in memory."""
    hosts = [plain(dtype, shape, salt) for salt, shape in enumerate(shapes)]
    made = [
        make_array(np.ascontiguousarray(x.swapaxes(-1, -2)), dtype, device("cuda")).mT
        if i in turned
        else make_array(x, dtype, device("cuda"))
        for i, x in enumerate(hosts)
    ]
    return made, hosts


def check(got, x, y):
    if x.dtype.kind == "f":
        wide = WIDER[x.dtype.name]
        assert_within(got, np.matmul(x.astype(wide), y.astype(wide)), product_bound(x, y), "matmul")
    else:
        assert_same(got, np.matmul(x, y), context="matmul")


# ---- Kernels ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("turned", [(), (0,), (1,), (0, 1)], ids=str)
@pytest.mark.parametrize("m, k, n", [(1, 1, 1), (31, 17, 33), (130, 40, 129), (65, 16, 200)])
@pytest.mark.parametrize(
    "side, dtype", [(side, d) for side in (32, 64, 128) for d in DTYPES if side < 128 or "32" in d]
)
def test_every_tile(backend, side, dtype, m, k, n, turned):
    (a, b), (x, y) = arrays([(m, k), (k, n)], dtype, turned)
    out = backend._empty((m, n), dtype)
    backend._tiled(a, b, out, side)
    check(backend.to_host(out), x, y)


@pytest.mark.parametrize("m, k, n", [(3, 3000, 4), (40, 1100, 33), (2, 513, 2)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_parts_of_k(backend, dtype, m, k, n):
    """Few tiles and a long k: it is cut into parts, which are added up in order."""
    (a, b), (x, y) = arrays([(2, m, k), (2, k, n)], dtype)
    out = backend._empty((2, m, n), dtype)
    backend.matmul(a, b, out)
    check(backend.to_host(out), x, y)


@pytest.mark.parametrize("shape", [(9, 3000), (3000, 9), (300, 40)], ids=str)
@pytest.mark.parametrize("turned", [(), (0,)], ids=["rows", "columns"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_vectors(backend, dtype, turned, shape):
    """A matrix and a column, and a row and a matrix, with rows of the matrix in memory or its columns."""
    m, k = shape
    (a, b), (x, y) = arrays([(2, m, k), (2, k, 1)], dtype, turned)
    out = backend._empty((2, m, 1), dtype)
    backend.matmul(a, b, out)
    check(backend.to_host(out), x, y)
    row = backend._empty((2, 1, m), dtype)
    backend.matmul(b.mT, a.mT, row)
    assert_same(backend.to_host(row)[:, 0], backend.to_host(out)[..., 0])


@pytest.mark.parametrize("n", [1, 2])
def test_more_matrices_than_blocks(backend, n):
    count = 65535 + 3
    (a, b), (x, y) = arrays([(count, 2, 2), (2, n)], "float32")
    out = backend._empty((count, 2, n), "float32")
    backend.matmul(a, b.broadcast_to((count, 2, n)), out)
    check(backend.to_host(out), x, y)


# ---- cuBLAS ----------------------------------------------------------------------------------------------------------


class FakeCublas:
    """gemmStridedBatched as cuBLAS documents it, matrices by columns, on memory of the host; and what it was told before."""

    CUBLAS_OP_N, CUBLAS_OP_T, CUBLAS_POINTER_MODE_HOST, CUBLAS_DEFAULT_MATH = 0, 1, 0, 0

    def __init__(self):
        self.told: list = []
        self.calls = 0

    def setStream(self, handle, stream):
        self.told.append(("stream", stream))

    def setPointerMode(self, handle, mode):
        self.told.append(("pointers", mode))

    def setMathMode(self, handle, mode):
        self.told.append(("math", mode))

    def sgemmStridedBatched(self, *args):
        self.gemm(np.dtype(np.float32), *args)

    def dgemmStridedBatched(self, *args):
        self.gemm(np.dtype(np.float64), *args)

    def gemm(
        self, dtype, handle, ta, tb, m, n, k, alpha, a, lda, step_a, b, ldb, step_b, beta, c, ldc, step_c, batches
    ):
        self.calls += 1
        x = self.matrices(dtype, a, *((k, m) if ta else (m, k)), lda, step_a, batches)
        y = self.matrices(dtype, b, *((n, k) if tb else (k, n)), ldb, step_b, batches)
        out = self.matrices(dtype, c, m, n, ldc, step_c, batches)
        assert self.number(dtype, alpha) == 1 and self.number(dtype, beta) == 0
        out[...] = (x.swapaxes(1, 2) if ta else x) @ (y.swapaxes(1, 2) if tb else y)

    @staticmethod
    def number(dtype, address):
        return np.frombuffer((ctypes.c_char * dtype.itemsize).from_address(address), dtype)[0]

    @staticmethod
    def matrices(dtype, address, rows, columns, distance, step, batches):
        assert distance >= max(rows, 1), "leading dimension"
        size = (batches - 1) * step + (columns - 1) * distance + rows
        flat = np.frombuffer((ctypes.c_char * (size * dtype.itemsize)).from_address(address), dtype)
        strides = tuple(each * dtype.itemsize for each in (step, 1, distance))
        return np.lib.stride_tricks.as_strided(flat, (batches, rows, columns), strides)


@pytest.fixture
def fake(backend, monkeypatch):
    fake = FakeCublas()
    monkeypatch.setattr(cublas, "find", lambda cupy: fake)
    monkeypatch.setattr(cublas, "_on", True)
    monkeypatch.setattr(backend.cupy.cuda, "get_cublas_handle", lambda: 7, raising=False)
    return fake


#: Shapes of a and b, and which of a, b and out are transposed in memory.
CASES = [
    ((3, 4), (4, 5), ()),
    ((3, 4), (4, 5), (0,)),
    ((3, 4), (4, 5), (1,)),
    ((3, 4), (4, 5), (0, 1)),
    ((3, 4), (4, 5), (2,)),
    ((3, 4), (4, 5), (0, 1, 2)),
    ((3, 1), (1, 5), ()),
    ((3, 1), (1, 5), (0, 1)),
    ((7, 3, 4), (7, 4, 5), ()),
    ((7, 3, 4), (7, 4, 5), (0, 2)),
    ((2, 3, 6, 4), (2, 3, 4, 5), (1,)),
]


@pytest.mark.parametrize("a, b, turned", CASES, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cublas_arguments(backend, fake, dtype, a, b, turned):
    (left, right), (x, y) = arrays([a, b], dtype, turned)
    shape = (*a[:-1], b[-1])
    out = backend._empty((*shape[:-2], shape[-1], shape[-2]), dtype).mT if 2 in turned else backend._empty(shape, dtype)
    backend.matmul(left, right, out)
    check(backend.to_host(out), x, y)
    assert fake.calls == 1
    assert ("math", 0) in fake.told and ("pointers", 0) in fake.told  # full precision, and numbers from the host


def test_cublas_of_views(backend, fake):
    """Columns of a wider matrix, and one matrix for a whole batch, as they lie; steps that cuBLAS has no words for, by us."""
    (wide, b), (x, y) = arrays([(4, 3, 10), (6, 5)], "float32")
    out = backend._empty((4, 3, 5), "float32")
    backend.matmul(wide[..., 2:8], b.broadcast_to((4, 6, 5)), out)
    check(backend.to_host(out), x[..., 2:8], y)
    assert fake.calls == 1
    for view, values in (
        (wide[..., :6:2], x[..., :6:2]),
        (wide[..., 8:2:-2], x[..., 8:2:-2]),
        (wide[::-1, :, :3], x[::-1, :, :3]),
    ):
        backend.matmul(view, b[:3].broadcast_to((4, 3, 5)), out)
        check(backend.to_host(out), values, y[:3])
    assert fake.calls == 1


def test_cublas_is_asked_for_floats_only_and_not_when_off(backend, fake):
    for dtype, calls in (("uint8", 0), ("int32", 0), ("int64", 0), ("float32", 1)):
        (a, b), (x, y) = arrays([(3, 4), (4, 5)], dtype)
        out = backend._empty((3, 5), dtype)
        backend.matmul(a, b, out)
        check(backend.to_host(out), x, y)
        assert fake.calls == calls
    cublas.use_cublas(False)
    backend.matmul(a, b, out)
    assert fake.calls == 1


@pytest.mark.parametrize("value, on", [("0", False), ("1", True), (None, True)])
def test_environment_switch(value, on):
    environment = {name: each for name, each in os.environ.items() if name != "NEEDLE_CUDA_CUBLAS"}
    environment |= {} if value is None else {"NEEDLE_CUDA_CUBLAS": value}
    code = f"from needle_cuda import cublas; assert cublas._on is {on}"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_without_the_library():
    class Cuda:
        @property
        def cublas(self):
            raise ImportError("libcublas.so.12: cannot open shared object file")

    class Cupy:
        cuda = Cuda()

    assert cublas.find(Cupy()) is None
