"""Numbers, lists and NumPy arrays as operands: what an op takes beside NDArrays, and what is assigned to one."""

import math

import numpy as np

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.layout cimport broadcast_to, broadcast_view, check_writable, overlap, parse_ints, same_shape
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, compact_copy, empty_compact
from needle_ndarray.optable cimport (
    BFLOAT16, BOOL, DTYPE_COUNT, EQUAL, FLOAT32, FLOAT64, GREATER_EQUAL, INT32, INT64, UINT8
)

from needle_ndarray.dtypes import DTYPES, DType, dtype as to_dtype_object, holding
from needle_ndarray.layout import BroadcastError

cdef extern from "half.h" nogil:
    unsigned short narrow_one "needle_narrow_one"(int brain, double value) noexcept

cdef type HostArray = np.ndarray
cdef type HostScalar = np.generic


# ---- Scalars --------------------------------------------------------------------------

cdef bint is_numpy_scalar(object x) noexcept:
    return isinstance(x, HostScalar)


cdef int scalar_dtype(int other, object x) except -1:
    """What an array of dtype `other` and a scalar compute in: scalars bend to the array, as in NumPy 2."""
    if isinstance(x, float):
        return other if other >= FLOAT32 else FLOAT64
    if isinstance(x, bool):
        return other
    if isinstance(x, int):
        return INT64 if other == BOOL else other
    kind = x.dtype.kind         # of a NumPy scalar; the item of a longdouble would be a longdouble again
    if kind == "f":
        return other if other >= FLOAT32 else FLOAT64
    if kind == "b":
        return other
    if kind != "i" and kind != "u":
        raise TypeError(f"expected a bool, int or float scalar, got {type(x).__name__}")
    return INT64 if other == BOOL else other


cdef NDArray scalar_array(Backend backend, int dtype, object x):
    cdef NDArray out = empty_compact(backend, dtype, 0, NULL)
    store(out, x)
    return out


cdef int store(NDArray out, object x) except -1:
    """out[...] = x for a scalar, with a range check; a single element on the host without a call"""
    cdef bint heard = out._backend.listener is not None and hears_numbers(out._backend.listener)
    if out._ptr is not NULL and out._size == 1 and out._dtype >= FLOAT32 and not heard:
        if out._dtype == FLOAT32:
            (<float*> out._ptr)[0] = <float> (<double> x)
        elif out._dtype == FLOAT64:
            (<double*> out._ptr)[0] = x
        else:
            (<unsigned short*> out._ptr)[0] = narrow_one(out._dtype == BFLOAT16, x)
        return 0
    cdef object value
    if out._dtype >= FLOAT32:
        value = float(x)
    elif out._dtype == BOOL:
        value = bool(x)
    else:
        value = integer_for(out._dtype, x)
    if out._ptr is NULL or out._size != 1 or heard:
        out._backend.fill(out, value)
    elif out._dtype == INT32:
        (<int*> out._ptr)[0] = value
    elif out._dtype == INT64:
        (<long long*> out._ptr)[0] = value
    else:
        (<unsigned char*> out._ptr)[0] = value          # uint8 or bool
    return 0


cdef object integer_for(int dtype, object x):
    """A scalar as an int of that dtype, cut towards 0; OverflowError where it does not fit"""
    if not isinstance(x, int) and not math.isfinite(x):
        raise ValueError(f"cannot convert {x} to {DTYPES[dtype]}")
    value = int(x)
    if not in_range(dtype, value):
        raise OverflowError(f"{value} is out of range for {DTYPES[dtype]}")
    return value


cdef bint in_range(int dtype, object value) except -1:
    """Whether an integer dtype holds a Python int"""
    if dtype == UINT8:
        return 0 <= value < 256
    bits = 31 if dtype == INT32 else 63
    return -(1 << bits) <= value < 1 << bits


cdef bint beyond(Op op, int code, object x) except -1:
    """Whether an int is compared with integers that do not reach it: as in NumPy it is then above or below all of them"""
    return UINT8 <= code <= INT64 and EQUAL <= op.code <= GREATER_EQUAL and not in_range(code, int(x))


cdef NDArray scalar_like(NDArray a, int dtype, object value):
    """A number in the shape of an array: one element, with strides 0"""
    cdef NDArray one = scalar_array(a._backend, dtype, value)
    cdef int i
    if a._backend.listener is not None:     # it has perhaps kept the array, so that has to stay what it is
        return broadcast_to(one, a._ndim, a._shape)
    one.set_ndim(a._ndim)
    for i in range(a._ndim):
        one._shape[i], one._strides[i] = a._shape[i], 0
    one.measure()
    return one


def constant_like(NDArray a not None, value):
    """One value in the shape of `a`, its dtype and on its device: a view of a single element, with strides 0.

    >>> from needle_ndarray import zeros
    >>> constant_like(zeros((2, 3)), 7).strides
    (0, 0)
    """
    return scalar_like(a, a._dtype, value)


# ---- Arrays --------------------------------------------------------------------------

cdef bint is_array_like(object x) noexcept:
    return isinstance(x, (HostArray, list, tuple))


cdef int dtype_code(object given) except -1:
    """Of a DType, or what `dtype` makes one of"""
    cdef int code = (given if type(given) is DType else to_dtype_object(given)).code
    if not 0 <= code < DTYPE_COUNT:             # one made by hand
        raise TypeError(f"dtype {given!r} has code {code}, expected one of {', '.join(DTYPES)}")
    return code


cdef NDArray operand(object x, Backend backend):
    """x as an array on the backend: an NDArray, or something NumPy reads"""
    if isinstance(x, NDArray):
        return x
    if is_array_like(x):
        return from_host(np.asarray(x), backend)
    raise TypeError(f"expected an NDArray, a NumPy array or a number, got {type(x).__name__}")


cdef NDArray from_host(object values, Backend backend, object dtype=None):
    """A new array with the values of a numpy.ndarray"""
    cdef Py_ssize_t shape[MAX_NDIM]
    if values.dtype.kind not in "biuf":
        raise TypeError(f"array: cannot convert values of type {values.dtype}, expected bool, int or float")
    cdef object target = holding(values.dtype) if dtype is None else to_dtype_object(dtype)
    if values.dtype.kind == "b":
        values = values.view(np.uint8) != 0         # files and views may hold other bytes than 0 and 1
    cdef int ndim = parse_ints("array", values.shape, shape)
    cdef NDArray out = empty_compact(backend, dtype_code(target), ndim, shape)
    with np.errstate(all="ignore"):
        if out._dtype == BFLOAT16:
            values = words_of(values)
        backend.from_host(np.ascontiguousarray(values, dtype=target.storage).reshape(values.shape), out)
    return out


cdef object words_of(object values):
    """The bfloat16 nearest to each, as uint16"""
    from needle_ndarray.halves import bfloat16_words
    return bfloat16_words(values)


cdef int check_device(str what, NDArray a, NDArray b) except -1:
    if a._backend is not b._backend:
        raise ValueError(f"{what}: operands on {a.device} and {b.device}; move one with .to(device)")
    return 0


cdef int assign(NDArray view, object value) except -1:
    """view[...] = value, cast to its dtype, broadcast as NumPy does; axes of size 1 of the value may differ"""
    cdef NDArray source
    check_writable("setitem", view)
    if is_scalar(value):
        store(view, value)
        view.mark_written()
        return 0
    source = operand(value, view._backend)
    check_device("setitem", view, source)
    while source._ndim > view._ndim and source._shape[0] == 1:
        source = source.reshape(source.shape[1:])
    if not same_shape(source, view):
        try:
            source = broadcast_view(source, view._ndim, view._shape)
        except BroadcastError:
            if [n for n in source.shape if n != 1] != [n for n in view.shape if n != 1]:
                raise BroadcastError(f"setitem: cannot put shape {source.shape} into {view.shape}") from None
            source = source.reshape(view.shape)
    if overlap(source, view):
        source = compact_copy(source)
    view._backend.copy(source, view)
    view.mark_written()
    return 0
