"""New arrays."""

import math
from typing import Any

import numpy as np

from needle_ndarray.dtypes import dtype as to_dtype
from needle_ndarray.dtypes import holding
from needle_ndarray.interop import from_numpy
from needle_ndarray.ndarray import NDArray, make_array


def only_arrays(name: str, *given: Any) -> None:
    """Raise unless all are NDArrays. For functions that would take a Tensor's method of the same name for an NDArray's."""
    for x in given:
        if not isinstance(x, NDArray):
            hint = "; its array is .realize_cached_data()" if hasattr(x, "realize_cached_data") else ""
            raise TypeError(f"{name}: expected an NDArray, got {type(x).__name__}{hint}")


def array(a: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    """A copy of `a`: numbers, nested lists, NumPy arrays, NDArrays. dtype None keeps the dtype `a` has.

    >>> array([[1, 2], [3, 4]]).dtype
    'float32'
    """
    return make_array(a, dtype, device)


def asarray(a: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None) -> NDArray:
    """`a` as an NDArray of its own dtype: itself or shared memory where possible, a copy where `copy` is True or one is needed."""
    if isinstance(a, NDArray):
        made = a if dtype is None else a.astype(dtype, copy=False)
        made = made if device is None else made.to(device)
        needs_copy = made is not a
        made = a.copy() if copy and not needs_copy else made
    else:
        host = np.asarray(a)
        kind = holding(host.dtype) if dtype is None else to_dtype(dtype)
        sharing = isinstance(a, np.ndarray) and device is None and kind == host.dtype and not copy
        made = from_numpy(a) if sharing else make_array(host, kind, device)
        needs_copy = not sharing or (host.size > 0 and not np.shares_memory(np.asarray(made), host))
    if copy is False and needs_copy:
        raise ValueError("asarray: this needs a copy, and copy=False was given")
    return made


def empty(shape: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    """Uninitialised."""
    return NDArray.make(shape, device=device, dtype=dtype)


def full(shape: Any, fill_value: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    """Every element is fill_value."""
    out = empty(shape, dtype, device)
    out[...] = fill_value
    return out


def zeros(shape: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    return full(shape, 0, dtype, device)


def ones(shape: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    return full(shape, 1, dtype, device)


def _like(x: NDArray, dtype: Any, device: Any) -> tuple:
    return x.shape, x.dtype if dtype is None else dtype, x.device if device is None else device


def empty_like(x: NDArray, /, *, dtype: Any = None, device: Any = None) -> NDArray:
    return empty(*_like(x, dtype, device))


def full_like(x: NDArray, /, fill_value: Any, *, dtype: Any = None, device: Any = None) -> NDArray:
    shape, kind, where = _like(x, dtype, device)
    return full(shape, fill_value, kind, where)


def zeros_like(x: NDArray, /, *, dtype: Any = None, device: Any = None) -> NDArray:
    return full_like(x, 0, dtype=dtype, device=device)


def ones_like(x: NDArray, /, *, dtype: Any = None, device: Any = None) -> NDArray:
    return full_like(x, 1, dtype=dtype, device=device)


def _from_numpy(values: np.ndarray, dtype: Any, device: Any) -> NDArray:
    default = "float32" if values.dtype == np.float64 else values.dtype
    return make_array(values, default if dtype is None else dtype, device)


def _checked_count(what: str, count: float) -> None:
    if not count < 2**60:
        raise ValueError(f"{what}: {count:.3g} elements: more than 64 bits can address")


def arange(start: Any, /, stop: Any = None, step: Any = 1, *, dtype: Any = None, device: Any = None) -> NDArray:
    """start, start + step, ... before stop; int64 for ints, else float32."""
    first, last = (0, start) if stop is None else (start, stop)
    if step == 0:
        raise ValueError("arange: step is 0")
    _checked_count("arange", math.ceil(max((last - first) / step, 0)))
    return _from_numpy(np.arange(first, last, step), dtype, device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: Any = None, device: Any = None, endpoint: bool = True
) -> NDArray:
    """`num` evenly spaced numbers from start to stop."""
    _checked_count("linspace", num)
    return _from_numpy(np.linspace(start, stop, num, endpoint=endpoint), dtype, device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: Any = "float32", device: Any = None
) -> NDArray:
    """1 on the k-th diagonal, 0 elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    out = zeros((n_rows, columns), dtype, device)
    row, column = max(-k, 0), max(k, 0)
    length = min(n_rows - row, columns - column)
    if length > 0:
        out.as_strided((length,), (columns + 1,), row * columns + column)[...] = 1
    return out


def tril(x: NDArray, /, *, k: int = 0) -> NDArray:
    """x with zeros above the k-th diagonal."""
    return _triangle("tril", x, k, lambda row, column: column <= row + k)


def triu(x: NDArray, /, *, k: int = 0) -> NDArray:
    """x with zeros below the k-th diagonal."""
    return _triangle("triu", x, k, lambda row, column: column >= row + k)


def _triangle(name: str, x: NDArray, k: int, keep: Any) -> NDArray:
    only_arrays(name, x)
    if x.ndim < 2:
        raise ValueError(f"{name}: expected two axes or more, got shape {x.shape}")
    rows = arange(x.shape[-2], device=x.device).reshape(-1, 1)
    return x.where(keep(rows, arange(x.shape[-1], device=x.device)), 0)


def one_hot(n: int, i: Any, dtype: Any = "float32", device: Any = None) -> NDArray:
    """Shape of i + (n,): 1 at position i along the last axis; `i` an int or integers of any shape.

    >>> one_hot(3, [2, 0]).tolist()
    [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    index = np.asarray(i).astype(np.int64)
    if index.size and not (index.min() >= 0 and index.max() < n):
        raise IndexError(f"one_hot: entries from {index.min()} to {index.max()} do not fit {n} classes")
    out = zeros((*index.shape, n), dtype, device)
    flat = out.reshape(-1)
    flat[np.arange(index.size) * n + index.reshape(-1)] = 1
    return out


def astype(x: NDArray, dtype: Any, /, *, copy: bool = True) -> NDArray:
    """x as another dtype."""
    return x.astype(dtype, copy)


class finfo:
    """Limits of a float dtype: bits, eps, max, min, smallest_normal."""

    def __init__(self, kind: Any) -> None:
        self.dtype = to_dtype(getattr(kind, "dtype", kind))
        if self.dtype == "bfloat16":
            self.bits, self.eps, self.smallest_normal = 16, 2.0**-7, 2.0**-126
            self.max = (2.0 - 2.0**-7) * 2.0**127
            self.min = -self.max
            return
        limits = np.finfo(self.dtype.numpy)
        self.bits = int(limits.bits)
        self.eps, self.max, self.min = float(limits.eps), float(limits.max), float(limits.min)
        self.smallest_normal = float(limits.smallest_normal)


class iinfo:
    """Limits of an integer dtype: bits, max, min."""

    def __init__(self, kind: Any) -> None:
        self.dtype = to_dtype(getattr(kind, "dtype", kind))
        limits = np.iinfo(self.dtype.numpy)
        self.bits, self.max, self.min = int(limits.bits), int(limits.max), int(limits.min)
