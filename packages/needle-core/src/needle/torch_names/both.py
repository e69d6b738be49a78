"""Second spellings that are functions of `needle` and methods of Tensor: the tensor comes first."""

import math
from typing import Any

from needle import ops
from needle.autograd import Tensor, array_api, constant
from needle.ops.helpers import ValuesAndIndices
from needle.ops.spelling import any_spelling

# ---- Arithmetic -------------------------------------------------------------------------------------------


def add(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a + alpha b"""
    return a + b if alpha == 1 else a + b * alpha


def sub(a: Any, b: Any, *, alpha: float = 1) -> Tensor:
    """a - alpha b"""
    return a - b if alpha == 1 else a - b * alpha


def mul(a: Any, b: Any) -> Tensor:
    return a * b


def div(a: Any, b: Any, *, rounding_mode: str | None = None) -> Tensor:
    """a / b, as it is, or rounded: "floor", "trunc"."""
    if rounding_mode not in (None, "floor", "trunc"):
        raise ValueError(f"div: rounding_mode {rounding_mode!r}: expected None, 'floor' or 'trunc'")
    return a // b if rounding_mode == "floor" else ops.trunc(a / b) if rounding_mode else a / b


def pow(a: Any, exponent: Any) -> Tensor:
    return a**exponent


def neg(a: Tensor) -> Tensor:
    return -a


def square(a: Tensor) -> Tensor:
    return a * a


def reciprocal(a: Tensor) -> Tensor:
    return 1.0 / a


def rsqrt(a: Tensor) -> Tensor:
    return a**-0.5


def clamp(a: Tensor, min: Any = None, max: Any = None) -> Tensor:
    """Every element between min and max, which may be tensors; None: no bound."""
    if isinstance(min, Tensor) or isinstance(max, Tensor):
        low = a if min is None else ops.maximum(a, min)
        return low if max is None else ops.minimum(low, max)
    return ops.clip(a, min, max)


def lerp(a: Tensor, end: Tensor, weight: Any) -> Tensor:
    """a + weight (end - a)"""
    return a + (end - a) * weight


def addcmul(a: Tensor, b: Tensor, c: Tensor, *, value: float = 1) -> Tensor:
    """a + value b c"""
    return a + b * c * value


def addcdiv(a: Tensor, b: Tensor, c: Tensor, *, value: float = 1) -> Tensor:
    """a + value b / c"""
    return a + b / c * value


# ---- Comparisons ------------------------------------------------------------------------------------------


def eq(a: Any, b: Any) -> Tensor:
    return ops.equal(a, b)


def ne(a: Any, b: Any) -> Tensor:
    return ops.not_equal(a, b)


def lt(a: Any, b: Any) -> Tensor:
    return ops.less(a, b)


def le(a: Any, b: Any) -> Tensor:
    return ops.less_equal(a, b)


def gt(a: Any, b: Any) -> Tensor:
    return ops.greater(a, b)


def ge(a: Any, b: Any) -> Tensor:
    return ops.greater_equal(a, b)


def isclose(a: Tensor, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Tensor:
    """Whether |a - b| <= atol + rtol |b|; equal infinities are close, and NaN is to NaN where `equal_nan`."""
    b = b if isinstance(b, Tensor) else Tensor(b, device=a.device, requires_grad=False)
    found = ops.logical_or(ops.equal(a, b), ops.less_equal(ops.abs(a - b), ops.abs(b) * rtol + atol) & ops.isfinite(b))
    return ops.logical_or(found, ops.isnan(a) & ops.isnan(b)) if equal_nan else found


def allclose(a: Tensor, b: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> bool:
    """Whether all elements are close: a Python bool."""
    return bool(isclose(a, b, rtol, atol, equal_nan).all().item())


# ---- Products ---------------------------------------------------------------------------------------------


def mm(a: Tensor, b: Any) -> Tensor:
    """The product of two matrices."""
    return _product("mm", a, b, 2, 2)


def bmm(a: Tensor, b: Any) -> Tensor:
    """The products of two batches of matrices."""
    return _product("bmm", a, b, 3, 3)


def mv(a: Tensor, b: Any) -> Tensor:
    """A matrix times a vector."""
    return _product("mv", a, b, 2, 1)


def dot(a: Tensor, b: Any) -> Tensor:
    """The sum of the products of two vectors."""
    return _product("dot", a, b, 1, 1)


def _product(name: str, a: Any, b: Any, m: int, n: int) -> Tensor:
    if len(a.shape) != m or len(b.shape) != n:
        raise ValueError(f"{name}: {tuple(a.shape)} @ {tuple(b.shape)}: expected {m} and {n} axes")
    return ops.matmul(a, b)


def addmm(a: Any, b: Tensor, c: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
    """beta a + alpha b @ c"""
    return a * beta + mm(b, c) * alpha


def outer(a: Tensor, b: Any) -> Tensor:
    """y[i, j] = a[i] b[j]"""
    if len(a.shape) != 1 or len(b.shape) != 1:
        raise ValueError(f"outer: shapes {tuple(a.shape)} and {tuple(b.shape)}: expected one axis each")
    return ops.expand_dims(a, 1) * b


def norm(a: Tensor, p: Any = 2, axes: Any = None, keepdims: bool = False) -> Tensor:
    """(sum |a|^p)^(1/p) over axes, its gradient 0 where it is 0; for p = inf the largest |a|, for -inf the smallest."""
    if p == 2 or p in ("fro", None):
        return ops.Deviation()(ops.summation(a * a, axes, keepdims))
    size = ops.abs(a)
    if p == 1:
        return ops.summation(size, axes, keepdims)
    if p in (math.inf, -math.inf):
        return ops.amax(size, axes, keepdims) if p > 0 else ops.amin(size, axes, keepdims)
    if p == 0:
        return ops.astype(ops.count_nonzero(a, axes, keepdims), a.dtype)
    if not isinstance(p, (int, float)):
        raise ValueError(f"norm: p {p!r}: expected a number or 'fro'")
    return ops.summation(size**p, axes, keepdims) ** (1 / p)


def trace(a: Tensor) -> Tensor:
    """The sum of the main diagonal."""
    return ops.summation(ops.diag(a))


# ---- Shapes -----------------------------------------------------------------------------------------------


def unsqueeze(a: Tensor, dim: int) -> Tensor:
    """With an axis of size 1 put in."""
    return ops.expand_dims(a, dim)


def t(a: Tensor) -> Tensor:
    """A matrix transposed; a vector as it is."""
    if a.ndim > 2:
        raise ValueError(
            f"t: shape {a.shape}: expected two axes or fewer; transpose(i, j) swaps two, permute orders all"
        )
    return ops.transpose(a) if a.ndim == 2 else a


def ravel(a: Tensor) -> Tensor:
    """All elements along one axis."""
    return ops.reshape(a, (-1,))


def numel(a: Tensor) -> int:
    """The number of elements."""
    return int(a.size)


def movedim(a: Tensor, source: Any, destination: Any) -> Tensor:
    return ops.moveaxis(a, source, destination)


def unbind(a: Tensor, dim: int = 0) -> tuple[Tensor, ...]:
    """The slices along an axis, as a tuple."""
    return tuple(ops.Split(dim)(a))


def repeat_interleave(a: Tensor, repeats: Any, dim: int | None = None) -> Tensor:
    """Every element `repeats` times along an axis; flattened where dim is None."""
    return ops.repeat(a, repeats, dim)


# ---- Selecting --------------------------------------------------------------------------------------------


def index_select(a: Tensor, dim: int, index: Any) -> Tensor:
    """Entries at integer positions along an axis."""
    return ops.take(a, index, dim)


def masked_fill(a: Tensor, mask: Any, value: Any) -> Tensor:
    """value where the mask is true, else a."""
    return ops.where(mask, value, a)


def masked_select(a: Tensor, mask: Any) -> Tensor:
    """The elements where the mask is true, along one axis."""
    return ops.broadcast_to(a, mask.shape)[mask] if a.shape != mask.shape else a[mask]


def take_along_dim(a: Tensor, index: Any, dim: int) -> Tensor:
    return ops.gather(a, index, dim)


def scatter(a: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """A copy of a with y[index[i, j], j] = src[i, j] for axis 0, and so on for other axes; src may be a number."""
    return ops.setitem(a, _places("scatter", a, dim, index), _part(src, index))


def scatter_add(a: Tensor, dim: int, index: Any, src: Any) -> Tensor:
    """A copy of a with y[index[i, j], j] += src[i, j] for axis 0, and so on for other axes; repeated places add up."""
    return a + ops.AddAt(_places("scatter_add", a, dim, index), a.shape)(_part(src, index))


def index_add(a: Tensor, dim: int, index: Any, source: Tensor, *, alpha: float = 1) -> Tensor:
    """A copy of a with alpha times the entries of source added at integer positions along an axis."""
    return a + ops.ScatterAdd(dim, a.shape)(source * alpha, index)


def _part(src: Any, index: Any) -> Any:
    return src[tuple([slice(n) for n in index.shape])] if isinstance(src, Tensor) and src.shape != index.shape else src


def _places(name: str, a: Tensor, dim: int, index: Any) -> tuple:
    if len(index.shape) != a.ndim:
        raise ValueError(f"{name}: index has shape {tuple(index.shape)}, the tensor {a.shape}: expected as many axes")
    if not -a.ndim <= dim < a.ndim:
        raise ValueError(f"{name}: axis {dim} of shape {a.shape}")
    return tuple(
        index
        if i == dim % a.ndim
        else array_api.arange(n, device=a.device).reshape((1,) * i + (-1,) + (1,) * (a.ndim - i - 1))
        for i, n in enumerate(index.shape)
    )


def median(a: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element, the lower one of two; along an axis the pair (values, indices)."""
    if dim is None:
        return ops.sort(ravel(a)).values[(a.size - 1) // 2]
    values, indices = ops.sort(a, dim)
    values, indices = (ops.narrow(x, dim, (a.shape[dim] - 1) // 2, 1) for x in (values, indices))
    if keepdim:
        return ValuesAndIndices(values, indices)
    return ValuesAndIndices(ops.squeeze(values, dim), ops.squeeze(indices, dim))


# ---- The same under two names -----------------------------------------------------------------------------

_OWN = [f for f in list(globals().values()) if getattr(f, "__module__", None) == __name__ and f.__name__[0] != "_"]
ALIASES = {
    "sum": ops.summation,
    "log_softmax": ops.logsoftmax,
    "absolute": ops.abs,
    "negative": neg,
    "subtract": sub,
    "true_divide": div,
    "arcsin": ops.asin,
    "arccos": ops.acos,
    "arctan": ops.atan,
    "arctan2": ops.atan2,
}
FUNCTIONS: dict[str, Any] = {f.__name__: any_spelling(f) for f in _OWN} | ALIASES
#: Methods of Tensor; `sum` is one already.
METHODS = {name: function for name, function in FUNCTIONS.items() if name != "sum"}
