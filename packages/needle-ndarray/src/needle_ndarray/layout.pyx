"""Shapes, strides and views of NDArrays: nothing here reads or writes an element."""

from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBUF_C_CONTIGUOUS, PyBUF_F_CONTIGUOUS, PyBUF_STRIDES
from libc.string cimport memcpy

from itertools import islice
from operator import index as as_index

import numpy as np

from needle_ndarray.buffer cimport Buffer
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, view_of
from needle_ndarray.optable cimport itemsize

cdef extern from "Python.h":
    int PySlice_Unpack(object slice, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t* step) except -1
    long long PyLong_AsLongLongAndOverflow(object, int* overflow) except? -1
    Py_ssize_t PySlice_AdjustIndices(Py_ssize_t length, Py_ssize_t* start, Py_ssize_t* stop, Py_ssize_t step)

cdef Py_ssize_t MAX_SIZE = 0x7fffffffffffffff // 8
cdef type HostScalar = np.generic


class BroadcastError(ValueError, AssertionError):
    """Shapes that do not broadcast (an AssertionError too: course code catches that)."""


# ---- Shapes --------------------------------------------------------------------------

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
            items = tuple(islice(given, MAX_NDIM + 1))      # an endless iterator is too long, not for ever
        except TypeError:
            raise TypeError(f"{what}: expected an int or a sequence of ints, got {given!r}") from None
    if len(items) > MAX_NDIM:
        raise ValueError(f"{what}: {len(items)} axes or more, at most {MAX_NDIM} are supported")
    try:
        for item in items:
            out[n] = item if type(item) is int else as_index(item)
            n += 1
    except TypeError:
        raise TypeError(f"{what}: expected ints, got {items[n]!r} in {items}") from None
    except OverflowError:
        raise ValueError(f"{what}: {items[n]} does not fit 64 bits") from None
    return n


def bounded(str what not None, items, Py_ssize_t most=1 << 20):
    """The items as a list or tuple: themselves where they are one, else what comes out of them, if that ends soon enough.

    >>> bounded("stack", iter("ab"))
    ['a', 'b']
    """
    if type(items) is list or type(items) is tuple:
        return items
    try:
        source = iter(items)
    except TypeError:
        raise TypeError(f"{what}: expected a sequence, got {type(items).__name__}") from None
    made = list(islice(source, most + 1))
    if len(made) > most:
        raise ValueError(f"{what}: more than {most:,} items from a {type(items).__name__}, at most {most:,} are taken")
    return made


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
        if shape[i] == 0:
            zero = True
        else:
            if (size | shape[i]) >> 29 and size > MAX_SIZE // shape[i]:         # a division takes longer than the rest
                raise ValueError(f"shape {as_tuple(ndim, shape)}: more elements than 64 bits can address")
            size *= shape[i]
    return 0 if zero else size


cdef int normal_axis(str what, object axis, int ndim) except -1:
    cdef int overflow = 0
    cdef long long at
    if type(axis) is not int:
        try:
            axis = as_index(axis)
        except TypeError:
            raise TypeError(f"{what}: expected an int axis, got {axis!r}") from None
    at = PyLong_AsLongLongAndOverflow(axis, &overflow)
    if overflow or not -ndim <= at < ndim:
        raise np.exceptions.AxisError(f"{what}: axis {axis} is out of bounds for {ndim} axes")
    return at + ndim if at < 0 else at


def normal_axes(what, axis, ndim):
    """A sorted tuple of axes in [0, ndim); None means all of them. ValueError where one comes twice."""
    if axis is None:
        return tuple(range(ndim))
    axes = bounded(what, axis, MAX_NDIM) if isinstance(axis, (tuple, list)) else (axis,)
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


def alike(NDArray a not None, NDArray b not None):
    """Whether shapes and dtypes are equal."""
    return a._dtype == b._dtype and same_shape(a, b)


cdef int widen(int ndim, Py_ssize_t* shape, NDArray a) noexcept:
    """Make of a shape what it and a's broadcast to; the number of axes, or -1 where they do not"""
    cdef int i, more = a._ndim - ndim
    for i in range(ndim - 1, -1, -1):
        if more > 0:
            shape[i + more] = shape[i]
    for i in range(more):
        shape[i] = 1
    ndim = max(ndim, a._ndim)
    for i in range(a._ndim):
        more = ndim - a._ndim + i
        if shape[more] == 1:
            shape[more] = a._shape[i]
        elif a._shape[i] != 1 and a._shape[i] != shape[more]:
            return -1
    return ndim


# ---- Views --------------------------------------------------------------------------

cdef NDArray strided_view(str what, NDArray base, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, object shift):
    """view_of, once it was checked that the view stays inside the buffer"""
    cdef int i
    cdef Py_ssize_t size = checked_size(ndim, shape)
    if size == 0:
        return view_of(base, ndim, shape, strides, 0)
    first = last = base._offset + shift                     # Python ints: they do not overflow
    for i in range(ndim):
        reach = (<object> shape[i] - 1) * <object> strides[i]
        first, last = first + min(reach, 0), last + max(reach, 0)
    capacity = base._buffer.nbytes // itemsize(base._dtype)
    if first < 0 or last >= capacity:
        raise ValueError(f"{what}: shape {as_tuple(ndim, shape)} with strides {as_tuple(ndim, strides)} reaches"
                         f" elements {first} to {last} of a buffer of {capacity}")
    return view_of(base, ndim, shape, strides, shift)


cdef void row_major(int ndim, const Py_ssize_t* shape, Py_ssize_t* strides) noexcept:
    """The strides of a compact array"""
    cdef Py_ssize_t stride = 1
    cdef int i
    for i in range(ndim - 1, -1, -1):
        strides[i] = stride
        stride *= shape[i]


cdef NDArray broadcast_view(NDArray a, int ndim, const Py_ssize_t* shape):
    """a with stride 0 along axes it lacks; BroadcastError where it does not fit"""
    cdef Py_ssize_t strides[MAX_NDIM]
    cdef int lead = ndim - a._ndim, i
    cdef bint possible = lead >= 0
    for i in range(ndim):
        strides[i] = 0
    for i in range(a._ndim if possible else 0):
        if a._shape[i] == shape[lead + i]:
            strides[lead + i] = a._strides[i] if a._shape[i] != 1 else 0
        elif a._shape[i] != 1:
            possible = False
    if not possible:
        raise BroadcastError(f"cannot broadcast shape {a.shape} to {as_tuple(ndim, shape)}")
    return view_of(a, ndim, shape, strides, 0)


cdef NDArray swapped(NDArray a, int i, int j):
    """A view with two axes swapped"""
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t strides[MAX_NDIM]
    memcpy(shape, a._shape, a._ndim * sizeof(Py_ssize_t))
    memcpy(strides, a._strides, a._ndim * sizeof(Py_ssize_t))
    shape[i], shape[j] = a._shape[j], a._shape[i]
    strides[i], strides[j] = a._strides[j], a._strides[i]
    return view_of(a, a._ndim, shape, strides, 0)


cdef NDArray reshape_view(NDArray a, int ndim, const Py_ssize_t* shape):
    """The same elements as another shape without a copy; None where the strides do not allow it"""
    cdef Py_ssize_t strides[MAX_NDIM]
    cdef Py_ssize_t old_shape[MAX_NDIM]
    cdef Py_ssize_t old_strides[MAX_NDIM]
    cdef Py_ssize_t step = 1, have, want
    cdef int n = 0, i, j, oi, ni, k
    if a._compact:
        for i in range(ndim - 1, -1, -1):
            strides[i] = step
            step *= shape[i]
        return view_of(a, ndim, shape, strides, 0)
    for i in range(a._ndim):                    # axes of size 1 say nothing
        if a._shape[i] != 1:
            old_shape[n], old_strides[n] = a._shape[i], a._strides[i]
            n += 1
    oi = ni = 0
    while oi < n:                               # match groups of old axes with groups of new axes of the same size
        i, j = oi + 1, ni
        have, want = old_shape[oi], 1
        while have != want:
            if want < have:
                want *= shape[j]
                j += 1
            else:
                have *= old_shape[i]
                i += 1
        for k in range(oi, i - 1):
            if old_strides[k] != old_shape[k + 1] * old_strides[k + 1]:
                return None
        step = old_strides[i - 1]
        for k in range(j - 1, ni - 1, -1):
            strides[k] = step
            step *= shape[k]
        oi, ni = i, j
    for k in range(ni, ndim):                   # trailing ones
        strides[k] = 1
    return view_of(a, ndim, shape, strides, 0)


cdef inline bint is_position(object item):
    return type(item) is int or (isinstance(item, (int, np.integer)) and not isinstance(item, bool))


cdef NDArray basic_view(NDArray a, object key):
    """The view for ints, slices, None and ...; None where the key holds an array"""
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t strides[MAX_NDIM]
    cdef Py_ssize_t shift = 0, start, stop, step, n
    cdef int ndim = a._ndim, axis = 0, out = 0, used = 0, dots = 0, added = 0, i, _i
    cdef tuple keys = key if type(key) is tuple else (key,)
    for item in keys:
        if item is Ellipsis:
            dots += 1
        elif item is None:
            added += 1
        elif isinstance(item, slice):
            used += 1
        elif is_position(item):
            used += 1
            added -= 1
        else:
            return None
    if dots > 1:
        raise IndexError("an index can have only one ellipsis ('...')")
    if used > ndim:
        raise IndexError(f"too many indices: {used} for shape {a.shape}")
    if ndim + added > MAX_NDIM:
        raise IndexError(f"index would make more than {MAX_NDIM} axes")
    for item in keys:
        if item is None:
            shape[out], strides[out] = 1, 0
            out += 1
        elif item is Ellipsis:
            for _i in range(ndim - used):
                shape[out], strides[out] = a._shape[axis], a._strides[axis]
                out += 1
                axis += 1
        elif isinstance(item, slice):
            PySlice_Unpack(item, &start, &stop, &step)
            n = PySlice_AdjustIndices(a._shape[axis], &start, &stop, step)
            shape[out] = n
            strides[out] = a._strides[axis] * step if n > 1 else a._strides[axis]
            if n:
                shift += start * a._strides[axis]
            out += 1
            axis += 1
        else:
            try:
                n = item
            except OverflowError:
                n = a._shape[axis]
            if not -a._shape[axis] <= n < a._shape[axis]:
                raise IndexError(f"index {item} is out of bounds for axis {axis} of shape {a.shape}")
            shift += (n + a._shape[axis] if n < 0 else n) * a._strides[axis]
            axis += 1
    if a._ndim != ndim:
        raise RuntimeError("the array was initialised while it was being indexed")
    for i in range(axis, ndim):
        shape[out], strides[out] = a._shape[i], a._strides[i]
        out += 1
    return view_of(a, out, shape, strides, shift)


# ---- Memory --------------------------------------------------------------------------

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
    low[0] *= itemsize(a._dtype)
    high[0] = (high[0] + (a._size > 0)) * itemsize(a._dtype)


cdef bint overlap(NDArray a, NDArray b) noexcept:
    """Whether writing b may change what is read from a (never for the very same view: elementwise loops read first)."""
    cdef Py_ssize_t a_low, a_high, b_low, b_high
    if a._buffer is not b._buffer:
        if a._ptr is NULL or b._ptr is NULL or (
                (<Buffer> a._buffer).size_class >= 0 and (<Buffer> b._buffer).size_class >= 0):
            return False                # two blocks of our allocator never overlap; borrowed memory may
        a_low, b_low = <Py_ssize_t> a._ptr - a._offset * itemsize(a._dtype), <Py_ssize_t> b._ptr - b._offset * itemsize(b._dtype)
        return not (a_low + (<Buffer> a._buffer).nbytes <= b_low or b_low + (<Buffer> b._buffer).nbytes <= a_low)
    if same_view(a, b):
        return False
    extent(a, &a_low, &a_high)
    extent(b, &b_low, &b_high)
    return a_low < b_high and b_low < a_high


cdef int check_writable(str what, NDArray out) except -1:
    """Refuse a broadcast view: many elements, one place in memory."""
    cdef int i
    for i in range(out._ndim if out._size else 0):
        if out._strides[i] == 0 and out._shape[i] > 1:
            raise ValueError(f"{what}: the target of shape {out.shape} is a broadcast view (strides {out.strides})")
    return 0


cdef bint has_order(NDArray a, int flags):
    """Whether the memory has the order a consumer asked for: row-major, column-major, either, or any at all"""
    cdef bint column_major = reversed_axes(a)._compact
    if flags & PyBUF_ANY_CONTIGUOUS == PyBUF_ANY_CONTIGUOUS:
        return a._compact or column_major
    if flags & PyBUF_F_CONTIGUOUS == PyBUF_F_CONTIGUOUS:
        return column_major
    if flags & PyBUF_C_CONTIGUOUS == PyBUF_C_CONTIGUOUS or flags & PyBUF_STRIDES != PyBUF_STRIDES:
        return a._compact
    return True
