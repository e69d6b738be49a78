"""Second spellings put together of products: distances, Kronecker and tensor products, and `needle.linalg`."""

import math
from types import ModuleType
from typing import Any

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle.ops.spelling import any_spelling
from needle.torch_names import both, composed


def cdist(a: Tensor, b: Tensor, p: float = 2.0, compute_mode: str | None = None) -> Tensor:
    """The p-norms of the differences between rows, (..., m, k), (..., n, k) -> (..., m, n)"""
    return both.norm(ops.expand_dims(a, -2) - ops.expand_dims(b, -3), p, -1)


def kron(a: Tensor, b: Tensor) -> Tensor:
    """Blocks a[i, j] b"""
    n = max(a.ndim, b.ndim)
    rows, columns = [(1,) * (n - x.ndim) + tuple(x.shape) for x in (a, b)]
    outer = ops.reshape(a, [s for m in rows for s in (m, 1)]) * ops.reshape(b, [s for m in columns for s in (1, m)])
    return ops.reshape(outer, [m * k for m, k in zip(rows, columns, strict=True)])


def cross(a: Tensor, b: Tensor, dim: int | None = None) -> Tensor:
    """a x b along an axis of three: the first such axis, unless one is given"""
    shape = np.broadcast_shapes(tuple(a.shape), tuple(b.shape))
    at = dim if dim is not None else next((i for i, n in enumerate(shape) if n == 3), None)
    if at is None or shape[at] != 3:
        raise ValueError(f"cross: shapes {tuple(a.shape)} and {tuple(b.shape)}: expected an axis of three")
    a, b = ops.broadcast_to(a, shape), ops.broadcast_to(b, shape)
    return ops.roll(a, -1, at) * ops.roll(b, -2, at) - ops.roll(a, -2, at) * ops.roll(b, -1, at)


def tensordot(a: Tensor, b: Tensor, dims: Any = 2) -> Tensor:
    """Sums of products over axes: so many, last of a and first of b, or two lists of them"""
    if isinstance(dims, int):
        dims = list(range(a.ndim - dims, a.ndim)), list(range(dims))
    over_a, over_b = [[i % x.ndim for i in over] for x, over in zip((a, b), dims, strict=True)]
    rows, columns = [i for i in range(a.ndim) if i not in over_a], [i for i in range(b.ndim) if i not in over_b]
    shape = [a.shape[i] for i in rows] + [b.shape[i] for i in columns]
    inner = math.prod([a.shape[i] for i in over_a])
    left = ops.reshape(ops.permute(a, (*rows, *over_a)), (-1, inner))
    right = ops.reshape(ops.permute(b, (*over_b, *columns)), (inner, -1))
    return ops.reshape(ops.matmul(left, right), shape)


FUNCTIONS: dict[str, Any] = {
    "cdist": cdist, "kron": any_spelling(kron), "cross": any_spelling(cross), "tensordot": tensordot,
}  # fmt: skip
METHODS = {name: FUNCTIONS[name] for name in ("kron", "cross")}


# ---- needle.linalg ----------------------------------------------------------------------------------------


def norm(a: Tensor, ord: Any = None, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The norm of a vector, or, for ord None or "fro", the root of the sum of squares of anything"""
    if ord not in (None, "fro") and dim is None and a.ndim != 1:
        raise ValueError(f"linalg.norm: ord {ord!r} of shape {tuple(a.shape)}: expected dim, or a vector")
    return both.norm(a, 2 if ord is None else ord, dim, keepdim)


def vector_norm(a: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False) -> Tensor:
    """(sum |a|^ord)^(1/ord), of all elements or along axes"""
    return both.norm(a, ord, dim, keepdim)


def vecdot(a: Tensor, b: Tensor, dim: int = -1) -> Tensor:
    """Sums of products along an axis"""
    return ops.summation(a * b, dim)


def multi_dot(tensors: Any) -> Tensor:
    """a @ b @ c ..."""
    first, *rest = tensors
    for x in rest:
        first = ops.matmul(first, x)
    return first


class _Linalg(ModuleType):
    """PyTorch's `linalg`, as far as it has derivatives here."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"needle.linalg has no {name!r}; numpy.linalg has it for x.numpy(), without a derivative")


linalg = _Linalg("needle.linalg", _Linalg.__doc__)
vars(linalg).update({f.__name__: any_spelling(f) for f in (norm, vector_norm, vecdot, multi_dot, cross)})
vars(linalg).update(
    matmul=ops.matmul, diagonal=composed.FUNCTIONS["diagonal"], matrix_power=composed.FUNCTIONS["matrix_power"]
)
FUNCTIONS["linalg"] = linalg
