"""Second spellings, functions and methods too, that put together what is there: scatter_reduce, tensor_split, nan_to_num, ..."""

import itertools
import math
from typing import Any

import numpy as np

import needle_ndarray as nd
from needle import ops
from needle.autograd import Tensor, get_default_dtype
from needle.ops.spelling import any_spelling
from needle.torch_names import both

# ---- Elementwise ------------------------------------------------------------------------------------------


def clamp_min(a: Tensor, min: Any) -> Tensor:
    return both.clamp(a, min)


def clamp_max(a: Tensor, max: Any) -> Tensor:
    return both.clamp(a, None, max)


def exp2(a: Tensor) -> Tensor:
    """2^a"""
    return ops.exp(a * math.log(2))


def erfc(a: Tensor) -> Tensor:
    """1 - erf(a)"""
    return 1 - ops.erf(a)


def logit(a: Tensor, eps: float | None = None) -> Tensor:
    """log(a / (1 - a)); with eps, a within [eps, 1 - eps]"""
    a = a if eps is None else ops.clip(a, eps, 1 - eps)
    return ops.log(a / (1 - a))


def frac(a: Tensor) -> Tensor:
    """a - trunc(a)"""
    return a - ops.trunc(a)


def fmod(a: Tensor, b: Any) -> Tensor:
    """a - b trunc(a / b): the rest of a division, of the sign of a"""
    return a - ops.trunc(a / b) * b


def xlogy(a: Tensor, b: Any) -> Tensor:
    """a log b, 0 where a is 0"""
    zero = ops.equal(a, 0)
    return ops.where(zero, 0.0, a * ops.log(ops.where(zero, 1.0, b)))


def deg2rad(a: Tensor) -> Tensor:
    return a * (math.pi / 180)


def rad2deg(a: Tensor) -> Tensor:
    return a * (180 / math.pi)


def float_power(a: Tensor, exponent: Any) -> Tensor:
    """a^exponent, in float64"""
    return ops.astype(a, "float64") ** exponent


def nan_to_num(a: Tensor, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None) -> Tensor:
    """Numbers in the place of NaN and of the infinities: by default the largest of the dtype."""
    limits = nd.finfo(a.dtype)
    a = ops.where(ops.isnan(a), nan, a)
    a = ops.where(ops.equal(a, math.inf), limits.max if posinf is None else posinf, a)
    return ops.where(ops.equal(a, -math.inf), limits.min if neginf is None else neginf, a)


# ---- Products and reductions ------------------------------------------------------------------------------


def baddbmm(a: Any, b: Tensor, c: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta a + alpha b @ c, of batches"""
    return a * beta + both.bmm(b, c) * alpha


def inner(a: Tensor, b: Tensor) -> Tensor:
    """Sums over the last axes of both."""
    return ops.matmul(a, b) if b.ndim < 2 else ops.matmul(a, ops.transpose(b))


def matrix_power(a: Tensor, n: int) -> Tensor:
    """a @ a @ ..., n times"""
    if n < 1:
        raise ValueError(f"matrix_power: n {n}: expected 1 or more")
    y = a
    for _ in range(n - 1):
        y = ops.matmul(y, a)
    return y


def dist(a: Tensor, b: Tensor, p: Any = 2) -> Tensor:
    """The p-norm of a - b"""
    return both.norm(a - b, p)


def aminmax(a: Tensor, *, dim: int | None = None, keepdim: bool = False) -> tuple[Tensor, ...]:
    """The smallest and the largest element, over all axes or one"""
    return ops.amin(a, dim, keepdim), ops.amax(a, dim, keepdim)


def var_mean(
    a: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, ...]:
    """The variance, with n - 1 below the line, and the mean"""
    ddof = int(unbiased) if correction is None else correction
    return ops.var(a, dim, keepdim, ddof), ops.mean(a, dim, keepdim)


def std_mean(
    a: Tensor, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: Any = None
) -> tuple[Tensor, ...]:
    """The deviation, with n - 1 below the line, and the mean"""
    ddof = int(unbiased) if correction is None else correction
    return ops.std(a, dim, keepdim, ddof), ops.mean(a, dim, keepdim)


def cov(a: Tensor, *, correction: int = 1) -> Tensor:
    """Covariances of rows, (n, observations) -> (n, n)"""
    centred = a - ops.mean(a, -1, True)
    return ops.matmul(centred, ops.transpose(centred)) / (a.shape[-1] - correction)


# ---- Shapes and places ------------------------------------------------------------------------------------


def select(a: Tensor, dim: int, index: int) -> Tensor:
    """The slice at one place of an axis."""
    return a[(slice(None),) * (dim % a.ndim) + (index,)]


def unflatten(a: Tensor, dim: int, sizes: Any) -> Tensor:
    """One axis as several."""
    at = dim % a.ndim
    return ops.reshape(a, (*a.shape[:at], *sizes, *a.shape[at + 1 :]))


def tensor_split(a: Tensor, indices_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Parts of nearly the same size, or what lies between places, along an axis."""
    n = a.shape[dim]
    if isinstance(indices_or_sections, (tuple, list)):
        stops = [0, *[min(i if i >= 0 else n + i, n) for i in indices_or_sections], n]
    else:
        parts = indices_or_sections
        stops = [i * (n // parts) + min(i, n % parts) for i in range(parts + 1)]
    before = (slice(None),) * (dim % a.ndim)
    return tuple([a[(*before, slice(i, j))] for i, j in itertools.pairwise(stops)])


def split_with_sizes(a: Tensor, split_sizes: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Pieces of these sizes along an axis."""
    return ops.split_sizes(a, list(split_sizes), dim)


def fliplr(a: Tensor) -> Tensor:
    return ops.flip(a, (1,))


def flipud(a: Tensor) -> Tensor:
    return ops.flip(a, (0,))


def rot90(a: Tensor, k: int = 1, dims: Any = (0, 1)) -> Tensor:
    """Turned by k quarters in the plane of two axes, from the first towards the second."""
    k %= 4
    if k == 2:
        return ops.flip(a, tuple(dims))
    turned = ops.transpose(a, tuple(dims)) if k else a
    return ops.flip(turned, (dims[0],)) if k == 1 else ops.flip(turned, (dims[1],)) if k == 3 else a


def diagonal(a: Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Tensor:
    """The diagonal of two axes, as the last axis."""
    first, second = dim1 % a.ndim, dim2 % a.ndim
    rest = [i for i in range(a.ndim) if i not in (first, second)]
    y = ops.permute(a, (*rest, first, second))
    rows, columns = y.shape[-2:]
    n = max(min(rows + min(offset, 0), columns - max(offset, 0)), 0)
    at = np.arange(n)
    return y[(..., at - min(offset, 0), at + max(offset, 0))]


def diag_embed(a: Tensor) -> Tensor:
    """Matrices with the last axis on their diagonals."""
    return ops.expand_dims(a, -1) * Tensor(np.eye(a.shape[-1]), device=a.device, dtype=a.dtype, requires_grad=False)


def argwhere(a: Tensor) -> Tensor:
    """The places of what is not 0, a row for each."""
    return ops.nonzero(a, as_tuple=False)


def unique_consecutive(a: Tensor) -> Tensor:
    """One of each run of equal elements, of the flattened tensor."""
    flat = both.ravel(a)
    if flat.shape[0] < 2:
        return flat
    host = flat.numpy()
    return flat[np.flatnonzero(np.concatenate([[True], host[1:] != host[:-1]]))]


def index_fill(a: Tensor, dim: int, index: Any, value: Any) -> Tensor:
    """A copy with a number at integer positions along an axis."""
    return ops.setitem(a, (slice(None),) * (dim % a.ndim) + (index,), value)


def index_copy(a: Tensor, dim: int, index: Any, source: Tensor) -> Tensor:
    """A copy with the entries of source at integer positions along an axis."""
    return ops.setitem(a, (slice(None),) * (dim % a.ndim) + (index,), source)


def index_put(a: Tensor, indices: Any, values: Any, accumulate: bool = False) -> Tensor:
    """A copy with values at positions, `y[indices] = values`; with accumulate added to what is there, repeated places too."""
    key = tuple(indices)
    if not accumulate:
        return ops.setitem(a, key, values)
    part = values if isinstance(values, Tensor) else Tensor(values, device=a.device, dtype=a.dtype, requires_grad=False)
    return a + ops.AddAt(key, a.shape)(ops.broadcast_to(part, a[key].shape))


def scatter_reduce(a: Tensor, dim: int, index: Any, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    """A copy with y[index[i, j], j] = "sum" or "mean" of what src brings there, for axis 0; what nothing reaches stays."""
    if reduce not in ("sum", "mean"):
        raise ValueError(f"scatter_reduce: reduce {reduce!r}: expected 'sum' or 'mean'")
    zeros, part = a * 0, both._part(src, index)
    count = both.scatter_add(zeros.detach(), dim, index, part.detach() * 0 + 1)
    total = both.scatter_add(zeros, dim, index, src)
    reached = ops.greater(count, 0)
    if reduce == "mean":
        shares = count + 1 if include_self else both.clamp(count, 1)
        total = (total + a if include_self else total) / shares
        return ops.where(reached, total, a)
    return a + total if include_self else ops.where(reached, total, a)


def masked_scatter(a: Tensor, mask: Any, source: Tensor) -> Tensor:
    """A copy with the first elements of source where the mask is true."""
    wide = ops.broadcast_to(mask, a.shape)
    n = int(ops.count_nonzero(wide).item())
    return ops.setitem(a, wide, both.ravel(source)[:n])


def is_nonzero(a: Tensor) -> bool:
    """Whether the only element is not 0."""
    return bool(a.item())


_OWN = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__ and f.__name__[0] != "_"]
_SPELLED: dict[str, Any] = {f.__name__: any_spelling(f) for f in _OWN}
_SPELLED |= {"fix": ops.trunc, "positive": lambda a: a, "swapdims": ops.swapaxes, "vdot": both.dot, "ger": both.outer}
_SPELLED |= {"fmax": ops.maximum, "fmin": ops.minimum, "sgn": ops.sign}
METHODS = dict(_SPELLED)


# ---- Functions alone --------------------------------------------------------------------------------------


def atleast_1d(a: Tensor) -> Tensor:
    return ops.reshape(a, (1,)) if a.ndim == 0 else a


def atleast_2d(a: Tensor) -> Tensor:
    return ops.reshape(a, (1, -1)) if a.ndim < 2 else a


def column_stack(tensors: Any) -> Tensor:
    """Side by side, vectors as columns."""
    return ops.concatenate([ops.reshape(x, (-1, 1)) if x.ndim < 2 else x for x in tensors], 1)


def dstack(tensors: Any) -> Tensor:
    """Along a third axis."""
    wide = [ops.expand_dims(atleast_2d(x), -1) if x.ndim < 3 else x for x in tensors]
    return ops.concatenate(wide, 2)


def tril_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Rows and columns of the places on and below a diagonal, (2, n)."""
    return Tensor(np.stack(np.tril_indices(row, offset, col)), dtype="int64", requires_grad=False)


def triu_indices(row: int, col: int, offset: int = 0) -> Tensor:
    """Rows and columns of the places on and above a diagonal, (2, n)."""
    return Tensor(np.stack(np.triu_indices(row, offset, col)), dtype="int64", requires_grad=False)


def logspace(start: float, end: float, steps: int, base: float = 10.0, *, dtype: Any = None) -> Tensor:
    """base^start to base^end, in equal ratios."""
    made = np.logspace(start, end, steps, base=base)
    return Tensor(made, dtype=dtype or get_default_dtype(), requires_grad=False)


def cartesian_prod(*tensors: Tensor) -> Tensor:
    """Every choice of one element from each, a row for each."""
    if len(tensors) == 1:
        return tensors[0]
    return ops.stack([both.ravel(x) for x in ops.meshgrid(*tensors, indexing="ij")], -1)


def block_diag(*tensors: Tensor) -> Tensor:
    """Matrices along the diagonal of a larger one."""
    blocks = [atleast_2d(x) for x in tensors]
    columns, left, rows = sum(x.shape[1] for x in blocks), 0, []
    for x in blocks:
        rows.append(ops.pad(x, ((0, 0), (left, columns - left - x.shape[1]))))
        left += x.shape[1]
    return ops.concatenate(rows, 0)


def scalar_tensor(value: Any, *, dtype: Any = None) -> Tensor:
    """A number as a tensor without axes."""
    return Tensor(float(value), dtype=dtype or get_default_dtype(), requires_grad=False)


_ALONE = (
    atleast_1d,
    atleast_2d,
    column_stack,
    dstack,
    tril_indices,
    triu_indices,
    logspace,
    cartesian_prod,
    block_diag,
)
FUNCTIONS = _SPELLED | {f.__name__: any_spelling(f) for f in (*_ALONE, scalar_tensor)}
FUNCTIONS |= {"spmm": both.mm}
