"""Second spellings put together of sorting and selecting: quantiles, buckets, windows, sums without NaN."""

from typing import Any

import numpy as np

from needle import ops
from needle.autograd import Tensor
from needle.ops.helpers import ValuesAndIndices
from needle.ops.spelling import any_spelling
from needle.torch_names import both


def quantile(
    a: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Tensor:
    """Values that a share q lies below, along an axis or of all elements; a tensor of shares is a first axis"""
    if interpolation != "linear":
        raise ValueError(f"quantile: interpolation {interpolation!r}: expected 'linear'")
    axes = a.ndim
    ordered = ops.moveaxis(
        ops.sort(both.ravel(a) if dim is None else a, -1 if dim is None else dim).values, -1 if dim is None else dim, 0
    )
    shares = np.asarray(q.numpy() if isinstance(q, Tensor) else q, dtype="float64")
    if shares.size and not (shares.min() >= 0 and shares.max() <= 1):
        raise ValueError(f"quantile: q from {shares.min()} to {shares.max()}: expected shares from 0 to 1")
    at = np.atleast_1d(shares) * (ordered.shape[0] - 1)
    low = np.floor(at).astype("int64")
    part = Tensor(
        (at - low).reshape(-1, *[1] * (ordered.ndim - 1)), dtype=a.dtype, device=a.device, requires_grad=False
    )
    below, above = ops.take(ordered, low, 0), ops.take(ordered, np.ceil(at).astype("int64"), 0)
    found = below + (above - below) * part
    if keepdim:
        found = ops.reshape(found, (len(at), *[1] * axes)) if dim is None else ops.expand_dims(found, dim % axes + 1)
    return found if shares.ndim else found[0]


def kthvalue(a: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> ValuesAndIndices:
    """The k-th smallest element along an axis, counted from 1, and where it is"""
    n = a.shape[dim]
    if not 1 <= k <= n:
        raise ValueError(f"kthvalue: k {k}: expected 1 to {n}")
    places = both.unsqueeze(both.unbind(ops.argsort(a, dim), dim)[k - 1], dim % a.ndim)
    values = ops.gather(a, places, dim % a.ndim)
    return ValuesAndIndices(*[x if keepdim else ops.squeeze(x, dim % a.ndim) for x in (values, places)])


def bucketize(a: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> Tensor:
    """In which of the buckets between boundaries every element lies"""
    found = ops.searchsorted(boundaries, a, side="right" if right else "left")
    return ops.astype(found, "int32") if out_int32 else found


def unfold(a: Tensor, dimension: int, size: int, step: int) -> Tensor:
    """Windows along an axis, each as a new last axis"""
    at = dimension % a.ndim
    if not 1 <= size <= a.shape[at] or step < 1:
        raise ValueError(f"unfold: size {size} and step {step} for an axis of {a.shape[at]}")
    first = np.arange(0, a.shape[at] - size + 1, step)
    windows = ops.take(a, (first[:, None] + np.arange(size)).ravel(), at)
    split = ops.reshape(windows, (*a.shape[:at], len(first), size, *a.shape[at + 1 :]))
    return ops.moveaxis(split, at + 1, -1)


def nansum(a: Tensor, axes: Any = None, keepdims: bool = False) -> Tensor:
    """The sum of what is no NaN"""
    return ops.summation(ops.where(ops.isnan(a), 0.0, a), axes, keepdims)


def nanmean(a: Tensor, axes: Any = None, keepdims: bool = False) -> Tensor:
    """The mean of what is no NaN"""
    return nansum(a, axes, keepdims) / ops.count_nonzero(ops.logical_not(ops.isnan(a)), axes, keepdims)


_OWN = (quantile, kthvalue, nansum, nanmean)
METHODS: dict[str, Any] = {f.__name__: any_spelling(f) for f in _OWN} | {"unfold": unfold}
FUNCTIONS: dict[str, Any] = {name: METHODS[name] for name in ("quantile", "kthvalue", "nansum", "nanmean")}
FUNCTIONS["bucketize"] = bucketize
