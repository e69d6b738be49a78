"""From operands to a call of the backend: promote, broadcast, allocate the result."""

cimport cython

import math

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.layout cimport (
    as_tuple, broadcast_to, check_writable, checked_size, has_shape, normal_axis, overlap, reshape_view, same_dtype_and_device,
    same_shape, widen
)
from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, compact_copy, empty_compact, to_dtype
from needle_ndarray.operands cimport (
    beyond, check_device, is_scalar, operand, scalar_array, scalar_dtype, scalar_like
)
from needle_ndarray.optable cimport BOOL, DTYPE_COUNT, FLOAT16, FLOAT32, FLOAT64, INT32, INT64

from needle_ndarray.backend import BINARY, REDUCE, ROWS, UNARY
from needle_ndarray.dtypes import DTYPES, promote_types
from needle_ndarray.layout import BroadcastError, normal_axes

cdef int[DTYPE_COUNT] KIND = [0, 1, 2, 2, 3, 3, 3, 3]         # bool, unsigned, signed, float: a cast to a lower one is refused
cdef int[DTYPE_COUNT][DTYPE_COUNT] PROMOTE
for _a in DTYPES:
    for _b in DTYPES:
        PROMOTE[<int> _a.code][<int> _b.code] = promote_types(_a, _b).code

cdef Op ADD = BINARY["add"], MULTIPLY = BINARY["multiply"], DIVIDE = BINARY["divide"], POWER = BINARY["power"]
cdef Op SQRT = UNARY["sqrt"], MIN = REDUCE["min"], LOGSUMEXP = ROWS["logsumexp"]
cdef list ALL_AXES = [tuple(range(n)) for n in range(MAX_NDIM + 1)]


# ---- Elementwise --------------------------------------------------------------------------

cdef inline NDArray narrowed(NDArray result, int code):
    """A float32 result in the half `code` that the operands had: rounded once, at the end; anything else as it is"""
    return to_dtype(result, code) if code >= FLOAT16 and result._dtype == FLOAT32 else result


cdef NDArray finish(Op op, NDArray result, NDArray out):
    """Copy a result into out= where it could not be computed there; by NumPy's rule same_kind."""
    if KIND[out._dtype] < KIND[result._dtype]:
        raise TypeError(f"{op.name}: cannot store {result.dtype} in an array of {out.dtype}")
    out._backend.copy(result, out)
    return out


cdef refuse(Op op, int code):
    return TypeError(f"{op.name}: not defined for {DTYPES[code]}")


cpdef NDArray binary_op(Op op, object x, object y, NDArray out=None):
    """op(x, y), promoted and broadcast; into `out` where given"""
    cdef NDArray a, b, result
    cdef int code, kept, ndim
    cdef Py_ssize_t shape[MAX_NDIM]
    if out is None and isinstance(x, NDArray) and isinstance(y, NDArray):
        a, b = <NDArray> x, <NDArray> y
        if same_dtype_and_device(a, b) and op.compute_code[a._dtype] == a._dtype and same_shape(a, b):
            if op is POWER and INT32 <= a._dtype <= INT64:
                check_exponent(b)
            result = empty_compact(a._backend, op.out_code[a._dtype], a._ndim, a._shape)
            a._backend.binary(op, a, b, result)
            return result
    if is_scalar(y) and isinstance(x, NDArray):
        a = <NDArray> x
        code = scalar_dtype(a._dtype, y)
        if beyond(op, code, y):
            code, y = FLOAT64, math.inf if y > 0 else -math.inf
        if op is POWER and code >= FLOAT32 and out is None:
            result = special_power(to_dtype(a, code), y)
            if result is not None:
                return result
        b = number_beside(a, op, code, y)
    elif is_scalar(x) and isinstance(y, NDArray):
        b = <NDArray> y
        code = scalar_dtype(b._dtype, x)
        if beyond(op, code, x):
            code, x = FLOAT64, math.inf if x > 0 else -math.inf
        a = number_beside(b, op, code, x)
    else:
        if not isinstance(x, NDArray) and not isinstance(y, NDArray):
            raise TypeError(f"{op.name}: expected an NDArray, got {type(x).__name__} and {type(y).__name__}")
        a = operand(x, (<NDArray> y)._backend if isinstance(y, NDArray) else None)
        b = operand(y, a._backend)
        check_device(op.name, a, b)
        code = PROMOTE[a._dtype][b._dtype]
    kept, code = code, compute_code(op, code)
    a, b = to_dtype(a, code), to_dtype(b, code)
    if op is POWER and INT32 <= code <= INT64:
        check_exponent(b)
    ndim = widen(widen(0, shape, a), shape, b)
    if ndim < 0:
        raise BroadcastError(f"{op.name}: shapes {a.shape} and {b.shape} do not broadcast")
    a, b = broadcast_to(a, ndim, shape), broadcast_to(b, ndim, shape)
    if out is not None:
        if not has_shape(out, ndim, shape):
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
    return narrowed(result, kept) if out is None else finish(op, result, out)


cdef NDArray number_beside(NDArray a, Op op, int code, object x):
    """A number as an operand beside an array; where it is looked at before it is spread, as a single element"""
    if code >= FLOAT16 and op.out_code[<int> FLOAT32] == BOOL:
        return scalar_array(a._backend, code, x)        # halves are compared: it is rounded to one first
    code = compute_code(op, code)
    return scalar_array(a._backend, code, x) if op is POWER else scalar_like(a, code, x)


cdef inline int compute_code(Op op, int code) except -1:
    if op.compute_code[code] < 0:
        raise refuse(op, code)
    return op.compute_code[code]


cdef int check_exponent(NDArray b) except -1:
    if b._size and reduce_op(MIN, b).item() < 0:
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
    return narrowed(result, (<NDArray> x)._dtype) if out is None else finish(op, result, out)


def unary_function(Op op not None):
    """The op as a function of an array"""
    @cython.binding(True)       # a function with a name and a text that can be set
    def function(x, /, *, out=None):
        return unary_op(op, x, out)
    return function


def binary_function(Op op not None):
    """The op as a function of two arrays, or an array and a number"""
    @cython.binding(True)       # a function with a name and a text that can be set
    def function(x1, x2, /, *, out=None):
        return binary_op(op, x1, x2, out)
    return function


def where_op(condition, x, y):
    """x where condition else y, promoted and broadcast"""
    cdef Backend backend = None
    cdef NDArray c, a, b, result
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef int ndim, kept
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
    kept = PROMOTE[a._dtype][b._dtype]
    code = FLOAT32 if kept >= FLOAT16 else kept
    a, b = to_dtype(a, code), to_dtype(b, code)
    ndim = widen(widen(0, shape, c), shape, a)
    ndim = widen(ndim, shape, b) if ndim >= 0 else -1
    if ndim < 0:
        raise BroadcastError(f"where: shapes {c.shape}, {a.shape} and {b.shape} do not broadcast")
    c, a, b = broadcast_to(c, ndim, shape), broadcast_to(a, ndim, shape), broadcast_to(b, ndim, shape)
    checked_size(ndim, shape)
    result = empty_compact(backend, a._dtype, ndim, shape)
    backend.where(c, a, b, result)
    return narrowed(result, kept)


# ---- Along axes --------------------------------------------------------------------------

cpdef NDArray reduce_op(Op op, NDArray a, object axis=None, bint keepdims=False):
    """op over axes: None for all, an int or a tuple"""
    cdef tuple axes
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef int i, kept = 0, code = compute_code(op, a._dtype), given = a._dtype
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
        if reduced[i] and a._shape[i] == 0 and op.result == "same":
            raise ValueError(f"{op.name}: shape {a.shape} over axis {axis}: no elements, and no identity")
        if keepdims or not reduced[i]:
            shape[kept] = 1 if reduced[i] else a._shape[i]
            kept += 1
    a = to_dtype(a, code)
    out = empty_compact(a._backend, op.out_code[code], kept, shape)
    a._backend.reduce(op, a, out, axes)
    return narrowed(out, given)


cpdef NDArray arg_reduce_op(Op op, NDArray a, object axis=None, bint keepdims=False):
    """Position along an axis, or in row-major order over all"""
    cdef NDArray source = to_dtype(a, FLOAT32) if a._dtype >= FLOAT16 else a, out
    source = source.reshape(-1) if axis is None else source
    cdef int at = normal_axis(op.name, 0 if axis is None else axis, source._ndim), i, j = 0
    cdef Py_ssize_t shape[MAX_NDIM]
    if source._shape[at] == 0:
        raise ValueError(f"{op.name}: shape {a.shape} over axis {axis}: no elements")
    for i in range(source._ndim):
        if i != at:
            shape[j] = source._shape[i]
            j += 1
    out = empty_compact(a._backend, INT64, j, shape)
    a._backend.arg_reduce(op, source, out, at)
    if keepdims:
        return out.reshape((1,) * a._ndim if axis is None else out.shape[:at] + (1,) + out.shape[at:])
    return out


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


def scan_op(Op op, NDArray a, axis=None):
    """Running op along an axis; over all elements in row-major order where axis is None"""
    cdef NDArray source = a.reshape(-1) if axis is None else a, out
    cdef int at = normal_axis(op.name, 0 if axis is None else axis, source._ndim)
    source = to_dtype(source, op.out_code[compute_code(op, a._dtype)])
    out = empty_compact(a._backend, source._dtype, source._ndim, source._shape)
    a._backend.scan(op, source, out, at)
    return narrowed(out, a._dtype)


def last_axis_op(Op op not None, NDArray a not None, axis):
    """An op of rows along axes that are moved to the end and merged; the result is compact"""
    cdef int code = PROMOTE[a._dtype][<int> FLOAT32]
    cdef NDArray out, target
    axes = normal_axes(op.name, axis, a._ndim)
    kept = tuple([i for i in range(a._ndim) if i not in axes])
    lead = tuple([a._shape[i] for i in kept])
    n = math.prod([a._shape[i] for i in axes])
    if n == 0:
        raise ValueError(f"{op.name}: shape {a.shape} over axis {axis}: no elements")
    rows = to_dtype(a, code).permute(kept + axes).reshape(lead + (n,))
    if op is LOGSUMEXP:
        out = NDArray.make(lead, device=a.device, dtype=DTYPES[code])
        a._backend.rows(op, rows, out)
        return narrowed(out, a._dtype)
    out = empty_compact(a._backend, code, a._ndim, a._shape)
    target = out.permute(kept + axes).reshape(lead + (n,))
    a._backend.rows(op, rows, target)
    if target._buffer is not out._buffer:               # the merged axes have no view
        a._backend.copy(target.reshape([a._shape[i] for i in kept + axes]), out.permute(kept + axes))
    return narrowed(out, a._dtype)


# ---- Composed --------------------------------------------------------------------------

def linear(x, weight, bias, /):
    """x @ weight + bias, in one pass where bias is a row: (n,) or (1, n).

    >>> from needle_ndarray import array
    >>> linear(array([[1.0, 2.0]]), array([[3.0], [4.0]]), array([0.5])).tolist()
    [[11.5]]
    """
    cdef NDArray y = None
    cdef int code
    if isinstance(x, NDArray) and isinstance(weight, NDArray) and isinstance(bias, NDArray):
        if (<NDArray> x)._dtype >= FLOAT16:
            code = PROMOTE[(<NDArray> x)._dtype][(<NDArray> weight)._dtype]
            y = linear(to_dtype(<NDArray> x, FLOAT32), weight, bias)
            return narrowed(y, PROMOTE[code][(<NDArray> bias)._dtype])
        y = rows_product(<NDArray> x, <NDArray> weight, <NDArray> bias)
    return binary_op(ADD, matmul_of(x, weight), bias) if y is None else y


def accumulate(NDArray kept not None, NDArray new not None, keep, take):
    """kept = keep kept + take new, in place: a running mean with keep + take = 1.

    >>> from needle_ndarray import array
    >>> mean = array([1.0, 2.0])
    >>> accumulate(mean, array([5.0, 2.0]), 0.75, 0.25)
    >>> mean.tolist()
    [2.0, 2.0]
    """
    cdef NDArray part
    # A float stays the object that it is: by it a recording knows a number that is another one in each replay.
    if type(keep) is not float or type(take) is not float:
        keep, take = <double> keep, <double> take
    if not same_dtype_and_device(kept, new) or not FLOAT32 <= kept._dtype <= FLOAT64 or not same_shape(kept, new) \
            or not kept._compact or overlap(new, kept):
        binary_op(ADD, binary_op(MULTIPLY, kept, keep), binary_op(MULTIPLY, new, take), kept)
        return
    part = empty_compact(new._backend, new._dtype, new._ndim, new._shape)
    kept.mark_written()
    new._backend.binary(MULTIPLY, new, scalar_like(new, new._dtype, take), part)
    new._backend.binary(MULTIPLY, kept, scalar_like(kept, kept._dtype, keep), kept)
    new._backend.binary(ADD, kept, part, kept)


cdef object matmul_function = None


cdef object matmul_of(object x, object y):
    """x @ y: of a matrix, or rows with more leading axes, and a matrix at once; every other case by linalg.matmul"""
    global matmul_function
    cdef NDArray out
    if isinstance(x, NDArray) and isinstance(y, NDArray):
        out = rows_product(<NDArray> x, <NDArray> y, None)
        if out is not None:
            return out
    if matmul_function is None:
        from needle_ndarray.linalg import matmul
        matmul_function = matmul
    return matmul_function(x, y)


cdef inline bint is_row(NDArray a, Py_ssize_t n) noexcept:
    """Whether the shape is (n,) or (1, n)"""
    return a._ndim == 1 and a._shape[0] == n or a._ndim == 2 and a._shape[0] == 1 and a._shape[1] == n


cdef NDArray rows_product(NDArray a, NDArray b, NDArray bias):
    """a (..., k) @ b (k, n), plus bias (n,) or (1, n) unless that is None; None where the operands are of another kind"""
    cdef NDArray rows, out, target
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t flat[2]
    cdef int i, last = a._ndim - 1
    cdef bint halves = a._dtype == FLOAT32 and b._dtype >= FLOAT16 and a._backend is b._backend and bias is None
    if last <= 0 or b._ndim != 2 or not (same_dtype_and_device(a, b) or halves) or a._dtype == BOOL or a._dtype >= FLOAT16 \
            or a._shape[last] != b._shape[0] or last > 1 and a._size == 0 \
            or bias is not None and not (same_dtype_and_device(a, bias) and is_row(bias, b._shape[1])):
        return None
    flat[0], flat[1] = 1, a._shape[last]
    for i in range(last):
        shape[i] = a._shape[i]
        flat[0] *= a._shape[i]
    shape[last] = b._shape[1]
    checked_size(a._ndim, shape)
    rows = a if last == 1 else reshape_view(a, 2, flat)
    if rows is None:
        return None
    out = empty_compact(a._backend, a._dtype, a._ndim, shape)
    flat[1] = b._shape[1]
    target = out if last == 1 else reshape_view(out, 2, flat)
    if halves:
        a._backend.matmul_weight(rows, b, None, target)
    elif bias is None:
        a._backend.matmul(rows, b, target)
    else:
        a._backend.linear(rows, b, bias, target)
    return out
