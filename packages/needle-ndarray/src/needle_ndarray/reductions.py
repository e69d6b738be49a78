"""Reductions as functions; NDArray has them as methods."""

from typing import Any

from needle_ndarray.creation import only_arrays
from needle_ndarray.ndarray import NDArray

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


__all__ = "sum prod max min any all mean var std argmax argmin cumsum softmax log_softmax logsumexp".split()
