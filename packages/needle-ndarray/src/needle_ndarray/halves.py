"""bfloat16 for NumPy, which does not have it: values as the words of 16 bits that lie in memory, and back.

A bfloat16 is the upper half of a float32: 8 bits of precision, and the range of a float32.
"""

from typing import Any, cast

import numpy as np

from needle_ndarray.creation import only_arrays
from needle_ndarray.dtypes import DType
from needle_ndarray.dtypes import dtype as to_dtype
from needle_ndarray.ndarray import NDArray, array_of_words


def bfloat16_words(values: Any) -> np.ndarray:
    """The nearest bfloat16 of each number, ties to even, as uint16: overflow gives inf, NaN stays NaN.

    >>> bfloat16_words([1.0, -2.0, 3.3]).tolist() == [0x3F80, 0xC000, 0x4053]
    True
    """
    shape, values = np.shape(values), np.asarray(values).reshape(-1)  # one axis: scalars would warn of what wraps
    if values.dtype not in (np.float32, np.float16):
        values = _odd_float32(values)
    with np.errstate(all="ignore"):
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + (bits >> 16 & 1))) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    return np.where(nan, bits >> 16 | 0x40, rounded).astype(np.uint16).reshape(shape)


def _odd_float32(values: np.ndarray) -> np.ndarray:
    """As float32, and where that loses something the neighbour whose last bit is 1: rounded again, it is as if rounded once."""
    if values.dtype.kind in "iu" and values.dtype.itemsize == 8:
        large = np.abs(values.astype(np.float64)) >= 2.0**40
        values = np.where(large, values >> 16 << 16 | ((values & 0xFFFF) != 0).astype(values.dtype) << 16, values)
    wide = values.astype(np.float64)
    with np.errstate(all="ignore"):
        near = wide.astype(np.float32)
        back = near.astype(np.float64)
    bits = near.view(np.uint32)
    beyond = np.abs(back) > np.abs(wide)  # rounded away from 0: one step back, and odd
    cut = np.where(beyond, bits - 1, bits)
    odd = np.where((back != wide) & np.isfinite(wide), cut | 1, bits)
    return odd.astype(np.uint32).view(np.float32)


def widened(words: np.ndarray) -> np.ndarray:
    """The float32 numbers of bfloat16 words."""
    return np.asarray(words.astype(np.uint32) << 16).view(np.float32)


def shared_words(a: NDArray) -> np.ndarray:
    """The memory of an array on the host as a NumPy array of its dtype, of uint16 for bfloat16: nothing is copied."""
    if a.dtype != "bfloat16":
        return np.asarray(memoryview(cast(Any, a))) if a.size else np.empty(a.shape, a.dtype.numpy)
    return shared_words(NDArray.make(a.shape, a.strides, a.device, a._handle, a.offset, "float16")).view(np.uint16)


def words(a: NDArray) -> np.ndarray:
    """A copy of the elements as NumPy words of their size: the bits of bfloat16 and float16 as uint16.

    >>> from needle_ndarray import array
    >>> words(array([1.0, 2.0], "bfloat16")).tolist() == [0x3F80, 0x4000]
    True
    """
    only_arrays("words", a)
    held = a.backend.to_host(a)
    return held.view(f"u{held.dtype.itemsize}") if held.dtype.kind == "f" else held


def from_words(values: np.ndarray, dtype: Any, device: Any = None) -> NDArray:
    """An array of these bits: uint16 for bfloat16 and float16.

    >>> from_words(np.array([0x3F80, 0x4000], np.uint16), "bfloat16").tolist()
    [1.0, 2.0]
    """
    kind: DType = to_dtype(dtype)
    given = np.ascontiguousarray(values)
    if given.dtype.itemsize != kind.itemsize:
        raise TypeError(f"from_words: words of {given.dtype}, but {kind} has {kind.itemsize} bytes")
    return array_of_words(given.view(kind.storage).reshape(np.shape(values)), kind, device)


__all__ = ["bfloat16_words", "from_words", "shared_words", "widened", "words"]
