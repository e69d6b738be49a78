"""Reductions as functions; NDArray has them as methods."""

from typing import Any

from needle_ndarray.creation import full, only_arrays
from needle_ndarray.ndarray import NDArray, normal_axes

Axis = int | tuple[int, ...] | None


def sum(x: NDArray, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Sum over axes; bool, uint8 and int32 add up in int64, float32 in double."""
    return (x if dtype is None else x.astype(dtype, copy=False)).sum(axis, keepdims)


def prod(x: NDArray, /, axis: Axis = None, *, dtype: Any = None, keepdims: bool = False) -> NDArray:
    """Product over axes."""
    only_arrays("prod", x)
    return (x if dtype is None else x.astype(dtype, copy=False)).prod(axis, keepdims)


def max(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """Largest over axes; NaN where there is one."""
    return x.max(axis, keepdims)


def min(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """Smallest over axes; NaN where there is one."""
    return x.min(axis, keepdims)


def any(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """Whether an element is not 0."""
    return x.any(axis, keepdims)


def all(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """Whether no element is 0."""
    return x.all(axis, keepdims)


def mean(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """sum / n"""
    return x.mean(axis, keepdims)


def var(x: NDArray, /, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> NDArray:
    """Mean squared distance from the mean, over n - correction."""
    only_arrays("var", x)
    return x.var(axis, correction, keepdims)


def std(x: NDArray, /, axis: Axis = None, *, correction: float = 0, keepdims: bool = False) -> NDArray:
    """Square root of the variance."""
    only_arrays("std", x)
    return x.std(axis, correction, keepdims)


def argmax(x: NDArray, /, axis: int | None = None, *, keepdims: bool = False) -> NDArray:
    """Position of the first largest element."""
    return x.argmax(axis, keepdims)


def argmin(x: NDArray, /, axis: int | None = None, *, keepdims: bool = False) -> NDArray:
    """Position of the first smallest element."""
    return x.argmin(axis, keepdims)


def cumsum(x: NDArray, /, axis: int | None = None) -> NDArray:
    """Running sums along an axis."""
    return x.cumsum(axis)


def count_nonzero(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """How many elements are not 0: int64."""
    only_arrays("count_nonzero", x)
    return (x != 0).sum(axis, keepdims)


def cumulative_sum(
    x: NDArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Running sums along an axis, which may be left out where there is only one; first a 0 where `include_initial`."""
    at = _only_axis("cumulative_sum", x, axis)
    return _with_initial((x if dtype is None else x.astype(dtype, copy=False)).cumsum(at), at, 0, include_initial)


def cumulative_prod(
    x: NDArray, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> NDArray:
    """Running products along an axis, which may be left out where there is only one; first a 1 where `include_initial`.

    By doubling: products of 1, 2, 4, ... neighbours, log2(n) passes over the array.

    >>> from needle_ndarray import array
    >>> cumulative_prod(array([1, 2, 3, 4]), include_initial=True).tolist()
    [1.0, 1.0, 2.0, 6.0, 24.0]
    """
    at = _only_axis("cumulative_prod", x, axis)
    out = x.astype(dtype if dtype is not None else x.dtype if x.dtype.is_float else "int64")
    before, step = (slice(None),) * at, 1
    while step < x.shape[at]:
        out[(*before, slice(step, None))] = out[(*before, slice(step, None))] * out[(*before, slice(None, -step))]
        step *= 2
    return _with_initial(out, at, 1, include_initial)


def _only_axis(name: str, x: NDArray, axis: int | None) -> int:
    only_arrays(name, x)
    if axis is None and x.ndim != 1:
        raise ValueError(f"{name}: an array of shape {x.shape}: expected an axis")
    (at,) = normal_axes(name, 0 if axis is None else axis, x.ndim)
    return at


def _with_initial(x: NDArray, axis: int, first: int, wanted: bool) -> NDArray:
    if not wanted:
        return x
    out = full((*x.shape[:axis], x.shape[axis] + 1, *x.shape[axis + 1 :]), first, x.dtype, x.device)
    out[(*((slice(None),) * axis), slice(1, None))] = x
    return out


def softmax(x: NDArray, /, axis: Axis = -1) -> NDArray:
    """e^x / sum e^x along axes, without overflow."""
    return x.softmax(axis)


def log_softmax(x: NDArray, /, axis: Axis = -1) -> NDArray:
    """x - log sum e^x along axes, without overflow."""
    only_arrays("log_softmax", x)
    return x.log_softmax(axis)


def logsumexp(x: NDArray, /, axis: Axis = None, *, keepdims: bool = False) -> NDArray:
    """log sum e^x over axes, without overflow."""
    return x.logsumexp(axis, keepdims)


__all__ = [
    "sum", "prod", "max", "min", "any", "all", "mean", "var", "std", "argmax", "argmin", "cumsum", "softmax",
    "log_softmax", "logsumexp", "count_nonzero", "cumulative_sum", "cumulative_prod",
]  # fmt: skip
