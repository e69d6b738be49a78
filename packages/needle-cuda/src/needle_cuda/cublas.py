"""Matrix products by cuBLAS, through cupy's bindings, where its library is there.

NEEDLE_CUDA_CUBLAS=0 or `use_cublas(False)` switch it off, and products are computed by Needle's own kernels.
"""

import os
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from needle_cuda.views import merged
from needle_ndarray import NDArray

GEMM = {"float32": "sgemmStridedBatched", "float64": "dgemmStridedBatched"}
LARGEST = 2**31 - 1  # of any size that cuBLAS takes

_on = os.environ.get("NEEDLE_CUDA_CUBLAS", "1") != "0"


def use_cublas(on: bool) -> None:
    """Whether products of floats go to cuBLAS where cupy finds it; else to our own kernels."""
    global _on
    _on = bool(on)


@lru_cache(None)
def find(cupy: Any) -> Any:
    """cupy's bindings of cuBLAS; None where they, or the library, are missing. Asked once: a library is looked for slowly."""
    try:
        return cupy.cuda.cublas
    except (ImportError, AttributeError):
        return None


class Operand(NamedTuple):
    """A matrix as BLAS reads it by columns: transposed or as it is, the distance of its columns, and of the batch's matrices."""

    turned: bool
    distance: int
    batch: int


def operand(rows: int, columns: int, row: int, column: int, batch: int) -> Operand | None:
    """What BLAS, which goes by columns, makes of a matrix with these steps; None where it cannot read it.

    >>> operand(2, 3, 3, 1, 0), operand(2, 3, 1, 2, 0), operand(2, 3, 6, 2, 0)
    (Operand(turned=False, distance=3, batch=0), Operand(turned=True, distance=2, batch=0), None)
    """
    if (column == 1 or columns == 1) and (row >= columns or rows == 1):
        distance, turned = row if rows > 1 else max(columns, 1), False
    elif (row == 1 or rows == 1) and (column >= rows or columns == 1):
        distance, turned = column if columns > 1 else max(rows, 1), True
    else:
        return None
    return Operand(turned, distance, batch) if distance <= LARGEST and batch >= 0 else None


def plan(a: NDArray, b: NDArray, out: NDArray) -> tuple | None:
    """(a, b, out, batches, and an Operand of each): out = a b by rows is out^T = b^T a^T by columns. None where BLAS cannot."""
    lead, *batch = merged(out.shape[:-2], *[x.strides[:-2] for x in (a, b, out)])
    if len(lead) > 1 or max(*a.shape, *out.shape, *lead, 0) > LARGEST:
        return None
    steps = [each[0] if each else 0 for each in batch]
    left, right, target = (_operand_of(x, step) for x, step in zip((a, b, out), steps, strict=True))
    if left is None or right is None or target is None:
        return None
    return plan(b.mT, a.mT, out.mT) if target.turned else (a, b, out, lead[0] if lead else 1, left, right, target)


def _operand_of(x: NDArray, batch: int) -> Operand | None:
    (rows, columns), (row, column) = x.shape[-2:], x.strides[-2:]
    return operand(rows, columns, row, column, batch)


def matmul(launcher: Any, a: NDArray, b: NDArray, out: NDArray) -> bool:
    """out = a @ b, queued on the current stream, in full precision; False where it has to be done otherwise."""
    if not _on or out.dtype not in GEMM or (cublas := find(launcher.cupy)) is None:
        return False
    found = plan(a, b, out)
    if found is None:
        return False
    a, b, out, batches, left, right, target = found
    (m, k), n = a.shape[-2:], b.shape[-1]
    one, zero = np.ones((), out.dtype.numpy), np.zeros((), out.dtype.numpy)
    operation = (cublas.CUBLAS_OP_N, cublas.CUBLAS_OP_T)
    launcher.foreign = True  # cupy does not capture it
    with launcher.device:
        handle = launcher.cupy.cuda.get_cublas_handle()
        cublas.setStream(handle, launcher.cupy.cuda.get_current_stream().ptr)
        cublas.setPointerMode(handle, cublas.CUBLAS_POINTER_MODE_HOST)
        cublas.setMathMode(handle, cublas.CUBLAS_DEFAULT_MATH)  # no TF32
        getattr(cublas, GEMM[str(out.dtype)])(
            *(handle, operation[right.turned], operation[left.turned], n, m, k, one.ctypes.data),
            *(_address(b), right.distance, right.batch, _address(a), left.distance, left.batch, zero.ctypes.data),
            *(_address(out), target.distance, target.batch, batches),
        )
    return True


def _address(a: NDArray) -> int:
    return a._handle.ptr() + a.offset * a.itemsize
