"""What functions of arrays ask about their arguments, once per call: compiled, because in Python the asking would cost more
than the work on a small array."""

from needle_ndarray.layout cimport same_shape
from needle_ndarray.ndarray cimport NDArray
from needle_ndarray.optable cimport INT64


def alike(NDArray a not None, NDArray b not None):
    """Whether shapes and dtypes are equal: what autograd asks of a value and its gradient."""
    return a._dtype == b._dtype and same_shape(a, b)


def bounds(NDArray a not None):
    """(lowest, highest) of an array of integers that is not empty: two numbers, in one pass where they lie side by side.

    >>> from needle_ndarray import array
    >>> bounds(array([3, -1, 2], dtype="int64"))
    (-1, 3)
    """
    cdef const long long* at = <const long long*> a._ptr
    cdef long long low, high
    cdef Py_ssize_t i
    if a._ptr is NULL or a._dtype != INT64 or not a._compact or a._size == 0:
        return int(a.min()), int(a.max())
    low = high = at[0]
    for i in range(1, a._size):
        low, high = min(low, at[i]), max(high, at[i])
    return low, high
