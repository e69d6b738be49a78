"""What functions of arrays ask about their arguments, once per call: compiled, because in Python the asking would cost more
than the work on a small array."""

from libc.math cimport INFINITY

from needle_ndarray.layout cimport checked_size, has_shape, parse_ints, same_dtype_and_device, same_shape
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, empty_compact
from needle_ndarray.optable cimport FLOAT32, INT64


def alike(NDArray a not None, NDArray b not None):
    """Whether shapes and dtypes are equal: what autograd asks of a value and its gradient."""
    return a._dtype == b._dtype and same_shape(a, b)


cdef bint matches(NDArray a, object b, int ndim, const Py_ssize_t* shape):
    """Whether b is an NDArray of this shape, with a's dtype and on its device"""
    return isinstance(b, NDArray) and same_dtype_and_device(a, <NDArray> b) and has_shape(<NDArray> b, ndim, shape)


def fits(NDArray a not None, b, tuple shape not None):
    """Whether b is an NDArray of this shape, with a's dtype and on its device."""
    cdef Py_ssize_t sizes[MAX_NDIM]
    cdef int ndim = parse_ints("shape", shape, sizes)
    return matches(a, b, ndim, sizes)


def suits_norm(x, eps, grad, tuple needed not None, tuple optional not None):
    """Whether arrays are what a norm over the last axis of x asks for: what is nearly always so.

    Parameters
    ----------
    x : floats (..., n)
    eps : a float
    grad : None, or an array like x
    needed, optional : arrays (n,), the optional ones may be None
    """
    cdef NDArray a
    cdef Py_ssize_t* last
    if not isinstance(x, NDArray) or type(eps) is not float or not 0 <= <double> eps < INFINITY:
        return False
    a = <NDArray> x
    if a._dtype < FLOAT32 or a._ndim == 0 or grad is not None and not matches(a, grad, a._ndim, a._shape):
        return False
    last = a._shape + a._ndim - 1
    if last[0] == 0:
        return False
    for vector in needed:
        if not matches(a, vector, 1, last):
            return False
    for vector in optional:
        if vector is not None and not matches(a, vector, 1, last):
            return False
    return True


def beside(NDArray a not None, tuple shape not None):
    """A new array, uninitialised, of this shape, with a's dtype and on its device."""
    cdef Py_ssize_t sizes[MAX_NDIM]
    cdef int ndim = parse_ints("empty", shape, sizes)
    checked_size(ndim, sizes)
    return empty_compact(a._backend, a._dtype, ndim, sizes)


def norm_results(NDArray a not None):
    """New arrays, uninitialised: one like a, and two vectors over its last axis."""
    cdef Py_ssize_t* last
    if a._ndim == 0:
        raise ValueError("norm_results: expected one axis or more, got a 0-d array")
    last = a._shape + a._ndim - 1
    return (empty_compact(a._backend, a._dtype, a._ndim, a._shape), empty_compact(a._backend, a._dtype, 1, last),
            empty_compact(a._backend, a._dtype, 1, last))


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
