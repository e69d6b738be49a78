"""NDArray: shape, strides and offset over a buffer. Structure is done here, arithmetic by the backend (see backend.pyx)."""

cimport cython
from cpython.buffer cimport PyBUF_FORMAT, PyBUF_ND, PyBUF_STRIDES, PyBUF_WRITABLE
from cpython.object cimport PyObject, Py_EQ, Py_GE, Py_GT, Py_LE, Py_LT, Py_NE
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import math
from operator import index as as_index

import numpy as np

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.buffer cimport Buffer, recycle
from needle_ndarray.kernels.views cimport View
from needle_ndarray.optable cimport BOOL, FLOAT32, FLOAT64, INT32, INT64

from needle_ndarray.backend import ARG_REDUCE, BINARY, REDUCE, SCAN, UNARY
from needle_ndarray.dtypes import DTYPES, dtype as to_dtype_object, promote_types

cdef extern from "Python.h":
    int PySlice_Unpack(object slice, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t* step) except -1
    Py_ssize_t PySlice_AdjustIndices(Py_ssize_t length, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t step)
    Py_ssize_t Py_REFCNT(PyObject*)

cdef Py_ssize_t MAX_SIZE = 0x7fffffffffffffff // 8

cdef Backend NO_BACKEND = Backend()
cdef type HostArray = np.ndarray
cdef type HostScalar = np.generic
cdef int[5] ITEMSIZE = [1, 4, 8, 4, 8]
cdef int[5][5] PROMOTE
for _a in DTYPES:
    for _b in DTYPES:
        PROMOTE[<int> _a.code][<int> _b.code] = promote_types(_a, _b).code

cdef Op ADD = BINARY["add"], SUBTRACT = BINARY["subtract"], MULTIPLY = BINARY["multiply"], DIVIDE = BINARY["divide"]
cdef Op FLOOR_DIVIDE = BINARY["floor_divide"], REMAINDER = BINARY["remainder"], POWER = BINARY["power"]
cdef Op NEGATIVE = UNARY["negative"], ABS = UNARY["abs"], INVERT = UNARY["invert"], SQRT = UNARY["sqrt"]
cdef Op AND = BINARY["bitwise_and"], OR = BINARY["bitwise_or"], XOR = BINARY["bitwise_xor"]
cdef list ALL_AXES = [tuple(range(n)) for n in range(MAX_NDIM + 1)]
cdef tuple COMPARE = (BINARY["less"], BINARY["less_equal"], BINARY["equal"], BINARY["not_equal"], BINARY["greater"],
                      BINARY["greater_equal"])


class BroadcastError(ValueError, AssertionError):
    """Shapes that do not broadcast (an AssertionError too: course code catches that)."""


# ---- Shapes -----------------------------------------------------------------------------------------------------------------

cdef int parse_ints(str what, object given, Py_ssize_t* out) except -1:
    """Read an int or a sequence of ints into out; the count."""
    cdef int n = 0
    cdef tuple items
    if type(given) is tuple:
        items = given
    elif isinstance(given, int) or isinstance(given, HostScalar):
        items = (given,)
    else:
        try:
            items = tuple(given)
        except TypeError:
            raise TypeError(f"{what}: expected an int or a sequence of ints, got {given!r}") from None
    if len(items) > MAX_NDIM:
        raise ValueError(f"{what}: {len(items)} axes, at most {MAX_NDIM} are supported")
    for item in items:
        try:
            out[n] = item if type(item) is int else as_index(item)
        except TypeError:
            raise TypeError(f"{what}: expected ints, got {item!r} in {items}") from None
        except OverflowError:
            raise ValueError(f"{what}: {item} does not fit 64 bits") from None
        n += 1
    return n


cdef tuple as_tuple(int n, const Py_ssize_t* values):
    return tuple([values[i] for i in range(n)])


cdef Py_ssize_t checked_size(int ndim, const Py_ssize_t* shape) except -1:
    """Number of elements; ValueError where the bytes of a float64 array would not fit 63 bits."""
    cdef Py_ssize_t size = 1
    cdef bint zero = False
    cdef int i
    for i in range(ndim):
        if shape[i] < 0:
            raise ValueError(f"shape {as_tuple(ndim, shape)}: sizes must be 0 or more")
        zero = zero or shape[i] == 0
    for i in range(ndim):
        if shape[i] != 0:
            if size > MAX_SIZE // shape[i]:
                raise ValueError(f"shape {as_tuple(ndim, shape)}: more elements than 64 bits can address")
            size *= shape[i]
    return 0 if zero else size


cdef int normal_axis(str what, object axis, int ndim) except -1:
    try:
        at = axis if type(axis) is int else as_index(axis)
    except TypeError:
        raise TypeError(f"{what}: expected an int axis, got {axis!r}") from None
    if not -ndim <= at < ndim:
        raise np.exceptions.AxisError(f"{what}: axis {at} is out of bounds for {ndim} axes")
    return at + ndim if at < 0 else at


def normal_axes(what, axis, ndim):
    """A sorted tuple of axes in [0, ndim); None means all of them. ValueError where one comes twice."""
    if axis is None:
        return tuple(range(ndim))
    axes = axis if isinstance(axis, (tuple, list)) else (axis,)
    normal = sorted([normal_axis(what, a, ndim) for a in axes])
    if len(set(normal)) != len(normal):
        raise ValueError(f"{what}: axis {axis}: an axis comes twice")
    return tuple(normal)


def broadcast_shapes(*shapes):
    """The common shape; BroadcastError names those that do not fit."""
    try:
        return np.broadcast_shapes(*shapes)
    except ValueError:
        raise BroadcastError(f"shapes {' and '.join(map(str, shapes))} do not broadcast") from None


# ---- Making arrays ------------------------------------------------------------------------------------------------------------

cdef NDArray empty_compact(Backend backend, int dtype, int ndim, const Py_ssize_t* shape):
    """A new compact array, uninitialised; the shape was checked."""
    cdef NDArray out = NDArray.__new__(NDArray)
    cdef int i
    out._backend = backend
    out._dtype = dtype
    out.set_ndim(ndim)
    for i in range(ndim):
        out._shape[i] = shape[i]
    out.set_compact()
    out._buffer = backend.allocate(out._size * ITEMSIZE[dtype])
    if isinstance(out._buffer, Buffer):
        if (<Buffer> out._buffer).nbytes < out._size * ITEMSIZE[dtype]:
            raise ValueError(f"backend {backend.name}: allocate({out._size * ITEMSIZE[dtype]}) returned {out._buffer.nbytes} bytes")
        out._ptr = <char*> &(<Buffer> out._buffer).data[0]
    return out


cdef NDArray view_of(NDArray base, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t shift):
    """Another view of base's buffer, `shift` elements further on; the caller made sure that it stays inside."""
    cdef NDArray out = NDArray.__new__(NDArray)
    cdef int i
    out._backend = base._backend
    out._buffer = base._buffer
    out._dtype = base._dtype
    out.set_ndim(ndim)
    for i in range(ndim):
        out._shape[i] = shape[i]
        out._strides[i] = strides[i]
    out.measure()
    if out._size == 0:
        shift = 0
    out._offset = base._offset + shift
    if base._ptr is not NULL:
        out._ptr = base._ptr + shift * ITEMSIZE[base._dtype]
    return out


cdef NDArray to_dtype(NDArray a, int dtype):
    """a itself, or a compact copy of another dtype"""
    if a._dtype == dtype:
        return a
    cdef NDArray out = empty_compact(a._backend, dtype, a._ndim, a._shape)
    a._backend.copy(a, out)
    return out


cdef NDArray compact_copy(NDArray a):
    cdef NDArray out = empty_compact(a._backend, a._dtype, a._ndim, a._shape)
    a._backend.copy(a, out)
    return out


cdef NDArray broadcast_view(NDArray a, int ndim, const Py_ssize_t* shape):
    """a with stride 0 along axes it lacks; BroadcastError where it does not fit"""
    cdef Py_ssize_t strides[MAX_NDIM]
    cdef int lead = ndim - a._ndim, i
    cdef bint fits = lead >= 0
    for i in range(ndim):
        strides[i] = 0
    for i in range(a._ndim if fits else 0):
        if a._shape[i] == shape[lead + i]:
            strides[lead + i] = a._strides[i] if a._shape[i] != 1 else 0
        elif a._shape[i] != 1:
            fits = False
    if not fits:
        raise BroadcastError(f"cannot broadcast shape {a.shape} to {as_tuple(ndim, shape)}")
    return view_of(a, ndim, shape, strides, 0)


cdef bint same_shape(NDArray a, NDArray b) noexcept:
    cdef int i
    if a._ndim != b._ndim:
        return False
    for i in range(a._ndim):
        if a._shape[i] != b._shape[i]:
            return False
    return True


cdef bint same_view(NDArray a, NDArray b) noexcept:
    cdef int i
    if a._offset != b._offset or a._dtype != b._dtype or not same_shape(a, b):
        return False
    for i in range(a._ndim):
        if a._strides[i] != b._strides[i] and a._shape[i] != 1:
            return False
    return True


cdef void extent(NDArray a, Py_ssize_t* low, Py_ssize_t* high) noexcept:
    """Byte range [low, high) that a touches, from the start of its buffer"""
    cdef int i
    low[0] = high[0] = a._offset
    for i in range(a._ndim if a._size else 0):
        if a._strides[i] < 0:
            low[0] += (a._shape[i] - 1) * a._strides[i]
        else:
            high[0] += (a._shape[i] - 1) * a._strides[i]
    low[0] *= ITEMSIZE[a._dtype]
    high[0] = (high[0] + (a._size > 0)) * ITEMSIZE[a._dtype]


cdef bint overlap(NDArray a, NDArray b) noexcept:
    """Whether writing b may change what is read from a (never for the very same view: elementwise loops read first)."""
    cdef Py_ssize_t a_low, a_high, b_low, b_high
    if a._buffer is not b._buffer:
        if a._ptr is NULL or b._ptr is NULL or (
                (<Buffer> a._buffer).size_class >= 0 and (<Buffer> b._buffer).size_class >= 0):
            return False                # our own blocks are apart; borrowed memory need not be
        a_low, b_low = <Py_ssize_t> a._ptr - a._offset * ITEMSIZE[a._dtype], <Py_ssize_t> b._ptr - b._offset * ITEMSIZE[b._dtype]
        return not (a_low + (<Buffer> a._buffer).nbytes <= b_low or b_low + (<Buffer> b._buffer).nbytes <= a_low)
    if same_view(a, b):
        return False
    extent(a, &a_low, &a_high)
    extent(b, &b_low, &b_high)
    return a_low < b_high and b_low < a_high


# ---- Operands ---------------------------------------------------------------------------------------------------------------

cdef inline bint is_scalar(object x):
    return isinstance(x, float) or isinstance(x, int) or isinstance(x, HostScalar)


cdef int scalar_dtype(int other, object x) except -1:
    """What an array of dtype `other` and a scalar compute in: scalars bend to the array, as in NumPy 2."""
    if isinstance(x, float):
        return other if other >= FLOAT32 else FLOAT64
    if isinstance(x, bool):
        return other
    if isinstance(x, int):
        return INT64 if other == BOOL else other
    if x.dtype.kind not in "biuf":
        raise TypeError(f"expected a bool, int or float scalar, got {type(x).__name__}")
    return scalar_dtype(other, x.item())


cdef NDArray scalar_array(Backend backend, int dtype, object x):
    cdef NDArray out = empty_compact(backend, dtype, 0, NULL)
    store(out, x)
    return out


cdef int store(NDArray out, object x) except -1:
    """out[...] = x for a scalar, with a range check; a single element on the host without a call"""
    if out._ptr is not NULL and out._size == 1 and out._dtype >= FLOAT32:
        if out._dtype == FLOAT32:
            (<float*> out._ptr)[0] = <float> (<double> x)
        else:
            (<double*> out._ptr)[0] = x
        return 0
    cdef object value
    if out._dtype >= FLOAT32:
        value = float(x)
    elif out._dtype == BOOL:
        value = bool(x)
    else:
        value = integer_for(out._dtype, x)
    if out._ptr is NULL or out._size != 1:
        out._backend.fill(out, value)
    elif out._dtype == INT32:
        (<int*> out._ptr)[0] = value
    elif out._dtype == INT64:
        (<long long*> out._ptr)[0] = value
    else:
        (<unsigned char*> out._ptr)[0] = value
    return 0


cdef object integer_for(int dtype, object x):
    """A scalar as an int of that dtype, cut towards 0; OverflowError where it does not fit"""
    if not math.isfinite(x):
        raise ValueError(f"cannot convert {x} to {DTYPES[dtype]}")
    value = int(x)
    bits = 31 if dtype == INT32 else 63
    if not -(1 << bits) <= value < 1 << bits:
        raise OverflowError(f"{value} is out of range for {DTYPES[dtype]}")
    return value


cdef NDArray operand(object x, Backend backend):
    """x as an array on the backend: an NDArray, or something NumPy reads"""
    if isinstance(x, NDArray):
        return x
    if isinstance(x, (HostArray, list, tuple)):
        return from_host(np.asarray(x), backend)
    raise TypeError(f"expected an NDArray, a NumPy array or a number, got {type(x).__name__}")


cdef NDArray from_host(object values, Backend backend, object dtype=None):
    """A new array with the values of a numpy.ndarray"""
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef object target = to_dtype_object(values.dtype if dtype is None else dtype)
    if values.dtype.kind not in "biuf":
        raise TypeError(f"array: cannot convert values of type {values.dtype}, expected bool, int or float")
    cdef int ndim = parse_ints("array", values.shape, shape)
    cdef NDArray out = empty_compact(backend, target.code, ndim, shape)
    with np.errstate(all="ignore"):
        backend.from_host(np.ascontiguousarray(values, dtype=target.numpy).reshape(values.shape), out)
    return out


cdef int check_device(str what, NDArray a, NDArray b) except -1:
    if a._backend is not b._backend:
        raise ValueError(f"{what}: operands on {a.device} and {b.device}; move one with .to(device)")
    return 0


cdef int check_writable(str what, NDArray out) except -1:
    """Refuse a broadcast view: many elements, one place in memory."""
    cdef int i
    for i in range(out._ndim):
        if out._strides[i] == 0 and out._shape[i] > 1:
            raise ValueError(f"{what}: the target of shape {out.shape} is a broadcast view (strides {out.strides})")
    return 0


cdef NDArray finish(Op op, NDArray result, NDArray out):
    """Copy a result into out= where it could not be computed there."""
    if out._dtype < result._dtype and (out._dtype == BOOL or (out._dtype < FLOAT32) != (result._dtype < FLOAT32)):
        raise TypeError(f"{op.name}: cannot store {result.dtype} in an array of {out.dtype}")
    out._backend.copy(result, out)
    return out


cdef refuse(Op op, int code):
    return TypeError(f"{op.name}: not defined for {DTYPES[code]}")


cpdef NDArray binary_op(Op op, object x, object y, NDArray out=None):
    """op(x, y), promoted and broadcast; into `out` where given"""
    cdef NDArray a, b, result
    cdef int code, ndim, i, lead
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t n
    if out is None and isinstance(x, NDArray) and isinstance(y, NDArray):
        a, b = <NDArray> x, <NDArray> y
        if a._dtype == b._dtype and a._backend is b._backend and op.compute_code[a._dtype] == a._dtype and same_shape(a, b):
            if op is POWER and a._dtype < FLOAT32:
                check_exponent(b)
            result = empty_compact(a._backend, op.out_code[a._dtype], a._ndim, a._shape)
            a._backend.binary(op, a, b, result)
            return result
    if is_scalar(y) and isinstance(x, NDArray):
        a = <NDArray> x
        code = scalar_dtype(a._dtype, y)
        if op is POWER and code >= FLOAT32 and out is None:
            result = special_power(to_dtype(a, code), y)
            if result is not None:
                return result
        b = scalar_array(a._backend, compute_code(op, code), y)
    elif is_scalar(x) and isinstance(y, NDArray):
        b = <NDArray> y
        code = scalar_dtype(b._dtype, x)
        a = scalar_array(b._backend, compute_code(op, code), x)
    else:
        if not isinstance(x, NDArray) and not isinstance(y, NDArray):
            raise TypeError(f"{op.name}: expected an NDArray, got {type(x).__name__} and {type(y).__name__}")
        a = operand(x, (<NDArray> y)._backend if isinstance(y, NDArray) else None)
        b = operand(y, a._backend)
        check_device(op.name, a, b)
        code = PROMOTE[a._dtype][b._dtype]
    code = compute_code(op, code)
    a, b = to_dtype(a, code), to_dtype(b, code)
    if op is POWER and code < FLOAT32:
        check_exponent(b)
    ndim = max(a._ndim, b._ndim)
    for i in range(ndim):
        lead = i - (ndim - a._ndim)
        shape[i] = a._shape[lead] if lead >= 0 else 1
        lead = i - (ndim - b._ndim)
        n = b._shape[lead] if lead >= 0 else 1
        if shape[i] == 1:
            shape[i] = n
        elif n != 1 and n != shape[i]:
            raise BroadcastError(f"{op.name}: shapes {a.shape} and {b.shape} do not broadcast")
    if a._ndim != ndim or not shape_is(a, shape):
        a = broadcast_view(a, ndim, shape)
    if b._ndim != ndim or not shape_is(b, shape):
        b = broadcast_view(b, ndim, shape)
    if out is not None:
        if out._ndim != ndim or not shape_is(out, shape):
            raise BroadcastError(f"{op.name}: out has shape {out.shape}, the result {as_tuple(ndim, shape)}")
        check_device(op.name, a, out)
        check_writable(op.name, out)
        out.mark_written()
        if out._dtype == op.out_code[code]:
            if overlap(a, out):
                a = compact_copy(a)
            if overlap(b, out):
                b = compact_copy(b)
            out._backend.binary(op, a, b, out)
            return out
    checked_size(ndim, shape)
    result = empty_compact(a._backend, op.out_code[code], ndim, shape)
    a._backend.binary(op, a, b, result)
    return result if out is None else finish(op, result, out)


cdef inline int compute_code(Op op, int code) except -1:
    if op.compute_code[code] < 0:
        raise refuse(op, code)
    return op.compute_code[code]


cdef inline bint shape_is(NDArray a, const Py_ssize_t* shape) noexcept:
    cdef int i
    for i in range(a._ndim):
        if a._shape[i] != shape[i]:
            return False
    return True


cdef int check_exponent(NDArray b) except -1:
    if b._size and reduce_op(REDUCE["min"], b).item() < 0:
        raise ValueError("power: integers to negative integer powers are not allowed; cast to a float dtype first")
    return 0


cdef NDArray special_power(NDArray a, object y):
    """The exponents that have an exact and faster form, as NumPy picks them; None for the others"""
    if y == 2:
        return binary_op(MULTIPLY, a, a)
    if y == 1:
        return compact_copy(a)
    if y == 0.5:
        return unary_op(SQRT, a)
    if y == -1:
        return binary_op(DIVIDE, 1.0, a)
    return None


cpdef NDArray unary_op(Op op, object x, NDArray out=None):
    """op(x); into `out` where given"""
    cdef NDArray a, result
    if not isinstance(x, NDArray):
        raise TypeError(f"{op.name}: expected an NDArray, got {type(x).__name__}")
    a = to_dtype(<NDArray> x, compute_code(op, (<NDArray> x)._dtype))
    if out is not None:
        if not same_shape(a, out):
            raise BroadcastError(f"{op.name}: out has shape {out.shape}, the result {a.shape}")
        check_device(op.name, a, out)
        check_writable(op.name, out)
        out.mark_written()
        if out._dtype == op.out_code[a._dtype]:
            if overlap(a, out):
                a = compact_copy(a)
            out._backend.unary(op, a, out)
            return out
    result = empty_compact(a._backend, op.out_code[a._dtype], a._ndim, a._shape)
    a._backend.unary(op, a, result)
    return result if out is None else finish(op, result, out)


def where_op(condition, x, y):
    """x where condition else y, promoted and broadcast"""
    cdef Backend backend = None
    cdef NDArray c, a, b, result
    for each in (condition, x, y):
        if isinstance(each, NDArray):
            backend = (<NDArray> each)._backend
            break
    if backend is None:
        raise TypeError("where: expected an NDArray among condition, x and y")
    c = scalar_array(backend, BOOL, condition) if is_scalar(condition) else operand(condition, backend)
    if is_scalar(x) and is_scalar(y):
        code = scalar_dtype(scalar_dtype(BOOL, x), y)
        if code == FLOAT64:
            code = FLOAT32                      # two Python floats: the default float
        a, b = scalar_array(backend, code, x), scalar_array(backend, code, y)
    elif is_scalar(x):
        b = operand(y, backend)
        a = scalar_array(backend, scalar_dtype(b._dtype, x), x)
    else:
        a = operand(x, backend)
        b = scalar_array(backend, scalar_dtype(a._dtype, y), y) if is_scalar(y) else operand(y, backend)
    check_device("where", c, a)
    check_device("where", a, b)
    c = to_dtype(c, BOOL)
    a, b = to_dtype(a, PROMOTE[a._dtype][b._dtype]), to_dtype(b, PROMOTE[a._dtype][b._dtype])
    shape = broadcast_shapes(c.shape, a.shape, b.shape)
    c, a, b = c.broadcast_to(shape), a.broadcast_to(shape), b.broadcast_to(shape)
    checked_size(c._ndim, c._shape)
    result = empty_compact(backend, a._dtype, a._ndim, a._shape)
    backend.where(c, a, b, result)
    return result


cpdef NDArray reduce_op(Op op, NDArray a, object axis=None, bint keepdims=False):
    """op over axes: None for all, an int or a tuple"""
    cdef tuple axes
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t kept_shape[MAX_NDIM]
    cdef int i, kept = 0, code = compute_code(op, a._dtype)
    cdef bint reduced[MAX_NDIM]
    cdef NDArray out
    if axis is None:
        axes = ALL_AXES[a._ndim]
    elif isinstance(axis, int):
        axes = (normal_axis(op.name, axis, a._ndim),)
    else:
        axes = normal_axes(op.name, axis, a._ndim)
    for i in range(a._ndim):
        reduced[i] = False
    for i in axes:
        reduced[i] = True
    for i in range(a._ndim):
        kept_shape[i] = 1 if reduced[i] else a._shape[i]
        if not reduced[i]:
            shape[kept] = a._shape[i]
            kept += 1
        elif a._shape[i] == 0 and op.result == "same":
            raise ValueError(f"{op.name}: shape {a.shape} over axis {axis}: no elements, and no identity")
    a = to_dtype(a, code)
    out = empty_compact(a._backend, op.out_code[code], kept, shape)
    a._backend.reduce(op, a, axes, out)
    if keepdims and kept != a._ndim:
        out.set_ndim(a._ndim)
        for i in range(a._ndim):
            out._shape[i] = kept_shape[i]
        out.set_compact()
    return out


cpdef NDArray arg_reduce_op(Op op, NDArray a, object axis=None, bint keepdims=False):
    """Position along an axis, or in row-major order over all"""
    cdef NDArray source = a.reshape(-1) if axis is None else a, out
    cdef int at = normal_axis(op.name, 0 if axis is None else axis, source._ndim), i, j = 0
    cdef Py_ssize_t shape[MAX_NDIM]
    if source._shape[at] == 0:
        raise ValueError(f"{op.name}: shape {a.shape} over axis {axis}: no elements")
    for i in range(source._ndim):
        if i != at:
            shape[j] = source._shape[i]
            j += 1
    out = empty_compact(a._backend, INT64, j, shape)
    a._backend.arg_reduce(op, source, at, out)
    if keepdims:
        return out.reshape((1,) * a._ndim if axis is None else out.shape[:at] + (1,) + out.shape[at:])
    return out


def scan_op(Op op, NDArray a, axis=None):
    """Running op along an axis; over all elements in row-major order where axis is None"""
    cdef NDArray source = a.reshape(-1) if axis is None else a, out
    cdef int at = normal_axis(op.name, 0 if axis is None else axis, source._ndim)
    source = to_dtype(source, op.out_code[compute_code(op, a._dtype)])
    out = empty_compact(a._backend, source._dtype, source._ndim, source._shape)
    a._backend.scan(op, source, at, out)
    return out


def last_axis_op(str verb, NDArray a, axis, keeps_axis):
    """One of the fused verbs along axes that are moved to the end and merged"""
    cdef int code = a._dtype if a._dtype >= FLOAT32 else (FLOAT32 if a._dtype == BOOL else FLOAT64)
    axes = normal_axes(verb, axis, a._ndim)
    kept = tuple([i for i in range(a._ndim) if i not in axes])
    moved = to_dtype(a, code).permute(kept + axes)
    lead, shape = moved.shape[:len(kept)], moved.shape
    rows = moved.reshape(lead + (math.prod(shape[len(kept):]),))
    if rows.shape[len(lead)] == 0:
        raise ValueError(f"{verb}: shape {a.shape} over axis {axis}: no elements")
    out_shape = rows.shape if keeps_axis else lead
    cdef Py_ssize_t out_c[MAX_NDIM]
    cdef int ndim = parse_ints(verb, out_shape, out_c)
    cdef NDArray out = empty_compact(a._backend, code, ndim, out_c)
    getattr(a._backend, verb)(rows, out)
    if not keeps_axis:
        return out
    back = [0] * a._ndim
    for i, j in enumerate(kept + axes):
        back[j] = i
    return out.reshape(shape).permute(tuple(back))


cdef object matmul_function = None


cdef object matmul_of(object x, object y):
    """x @ y: two matrices at once, every other case by linalg.matmul"""
    global matmul_function
    cdef NDArray a, b, out
    cdef Py_ssize_t shape[2]
    if isinstance(x, NDArray) and isinstance(y, NDArray):
        a, b = <NDArray> x, <NDArray> y
        if a._ndim == 2 and b._ndim == 2 and a._dtype == b._dtype and a._dtype != BOOL and a._backend is b._backend \
                and a._shape[1] == b._shape[0]:
            shape[0], shape[1] = a._shape[0], b._shape[1]
            checked_size(2, shape)
            out = empty_compact(a._backend, a._dtype, 2, shape)
            a._backend.matmul(a, b, out)
            return out
    if matmul_function is None:
        from needle_ndarray.linalg import matmul
        matmul_function = matmul
    return matmul_function(x, y)


# ---- The array ---------------------------------------------------------------------------------------------------------------

include "ndarray_class.pxi"
