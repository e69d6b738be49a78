# From Python operands to a call of the backend: promotion, broadcasting, results. Included by ndarray.pyx.

# ---- Operands --------------------------------------------------------------------------

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


cdef inline bint beyond(Op op, int code, object x) except -1:
    """Whether an int is compared with integers that do not reach it: as in NumPy it is then above or below all of them"""
    return UINT8 <= code <= INT64 and EQUAL <= op.code <= GREATER_EQUAL and not in_range(code, int(x))


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
    if values.dtype.kind not in "biuf":
        raise TypeError(f"array: cannot convert values of type {values.dtype}, expected bool, int or float")
    cdef object target = holding(values.dtype) if dtype is None else to_dtype_object(dtype)
    if values.dtype.kind == "b":
        values = values.view(np.uint8) != 0         # files and views may hold other bytes than 0 and 1
    cdef int ndim = parse_ints("array", values.shape, shape)
    cdef NDArray out = empty_compact(backend, dtype_code(target), ndim, shape)
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
    for i in range(out._ndim if out._size else 0):
        if out._strides[i] == 0 and out._shape[i] > 1:
            raise ValueError(f"{what}: the target of shape {out.shape} is a broadcast view (strides {out.strides})")
    return 0


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
    cdef int code, ndim
    cdef Py_ssize_t shape[MAX_NDIM]
    if out is None and isinstance(x, NDArray) and isinstance(y, NDArray):
        a, b = <NDArray> x, <NDArray> y
        if a._dtype == b._dtype and a._backend is b._backend and op.compute_code[a._dtype] == a._dtype and same_shape(a, b):
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
        b = scalar_array(a._backend, compute_code(op, code), y)
    elif is_scalar(x) and isinstance(y, NDArray):
        b = <NDArray> y
        code = scalar_dtype(b._dtype, x)
        if beyond(op, code, x):
            code, x = FLOAT64, math.inf if x > 0 else -math.inf
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
    if op is POWER and INT32 <= code <= INT64:
        check_exponent(b)
    ndim = widen(widen(0, shape, a), shape, b)
    if ndim < 0:
        raise BroadcastError(f"{op.name}: shapes {a.shape} and {b.shape} do not broadcast")
    a, b = fitted(a, ndim, shape), fitted(b, ndim, shape)
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


cdef inline NDArray fitted(NDArray a, int ndim, const Py_ssize_t* shape):
    return a if a._ndim == ndim and shape_is(a, shape) else broadcast_view(a, ndim, shape)


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


def alike(NDArray a not None, NDArray b not None):
    """Whether shapes and dtypes are equal: what autograd asks of a value and its gradient."""
    return a._dtype == b._dtype and same_shape(a, b)


def beside(NDArray a not None, tuple shape not None):
    """A new array, uninitialised, of this shape, with a's dtype and on its device."""
    cdef Py_ssize_t sizes[MAX_NDIM]
    cdef int ndim = parse_ints("empty", shape, sizes)
    checked_size(ndim, sizes)
    return empty_compact(a._backend, a._dtype, ndim, sizes)


cdef int dtype_code(object given) except -1:
    """Of a DType, or what `dtype` makes one of"""
    cdef int code = (given if type(given) is DType else to_dtype_object(given)).code
    if not 0 <= code < DTYPE_COUNT:             # one made by hand
        raise TypeError(f"dtype {given!r} has code {code}, expected one of {', '.join(DTYPES)}")
    return code


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


def fits(NDArray a not None, b, tuple shape not None):
    """Whether b is an array of this shape, with a's dtype and on its device."""
    cdef NDArray other
    if not isinstance(b, NDArray):
        return False
    other = <NDArray> b
    return other._dtype == a._dtype and other._backend is a._backend and other.shape == shape


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
    if not isinstance(x, NDArray) or type(eps) is not float or not 0 <= <double> eps < math.inf:
        return False
    a = <NDArray> x
    if a._dtype < FLOAT32 or a._ndim == 0 or a._shape[a._ndim - 1] == 0:
        return False
    if grad is not None and not (is_beside(a, grad) and same_shape(a, <NDArray> grad)):
        return False
    for vector in needed:
        if not is_vector(a, vector):
            return False
    for vector in optional:
        if vector is not None and not is_vector(a, vector):
            return False
    return True


cdef inline bint is_beside(NDArray a, object b):
    return isinstance(b, NDArray) and (<NDArray> b)._dtype == a._dtype and (<NDArray> b)._backend is a._backend


cdef inline bint is_vector(NDArray a, object b):
    """Whether b is one number for each place of a's last axis, beside a"""
    return is_beside(a, b) and (<NDArray> b)._ndim == 1 and (<NDArray> b)._shape[0] == a._shape[a._ndim - 1]


def norm_results(NDArray a not None):
    """Room for something like a, and for two vectors over its last axis."""
    cdef Py_ssize_t* last
    if a._ndim == 0:
        raise ValueError("norm_results: expected one axis or more, got a 0-d array")
    last = a._shape + a._ndim - 1
    return (empty_compact(a._backend, a._dtype, a._ndim, a._shape), empty_compact(a._backend, a._dtype, 1, last),
            empty_compact(a._backend, a._dtype, 1, last))


cdef Py_ssize_t nbytes_of(PyObject* a) noexcept:
    return (<NDArray> a)._size * ITEMSIZE[(<NDArray> a)._dtype] if isinstance(<object> a, NDArray) else -1


#: The bytes of an array for compiled code of other packages: a capsule around a Py_ssize_t (*)(PyObject*); -1: not an NDArray.
NBYTES = PyCapsule_New(<void*> nbytes_of, "needle_ndarray.nbytes", NULL)


cdef long long version_of(PyObject* a) noexcept:
    if isinstance(<object> a, NDArray) and isinstance((<NDArray> a)._buffer, Buffer):
        return (<Buffer> (<NDArray> a)._buffer).version
    return -1


cdef int code_of(PyObject* a) noexcept:
    return (<NDArray> a)._dtype if isinstance(<object> a, NDArray) else -1


#: The same for the dtype's code: a capsule around an int (*)(PyObject*); -1: not an NDArray.
DTYPE_CODE = PyCapsule_New(<void*> code_of, "needle_ndarray.dtype_code", NULL)


#: The same for `version`: a capsule around a long long (*)(PyObject*); -1: ask the object.
VERSION = PyCapsule_New(<void*> version_of, "needle_ndarray.version", NULL)


cdef int is_sole_owner(PyObject* a) noexcept:
    """Whether nobody else sees a write to `a`: one reference to it, one to its buffer, and no element stands for several"""
    cdef NDArray array
    cdef int i
    if Py_REFCNT(a) != 1 or not isinstance(<object> a, NDArray):
        return 0
    array = <NDArray> a
    if Py_REFCNT(<PyObject*> array._buffer) != 1:
        return 0
    for i in range(array._ndim):
        if array._strides[i] == 0 and array._shape[i] > 1:
            return 0
    return 1


#: The same for `is_sole_owner`: a capsule around an int (*)(PyObject*).
SOLE_OWNER = PyCapsule_New(<void*> is_sole_owner, "needle_ndarray.sole_owner", NULL)


def constant_like(NDArray a not None, value):
    """One value in the shape of `a`, its dtype and on its device: a view of a single element, with strides 0.

    >>> from needle_ndarray import zeros
    >>> constant_like(zeros((2, 3)), 7).strides
    (0, 0)
    """
    return scalar_like(a, value)


def where_op(condition, x, y):
    """x where condition else y, promoted and broadcast"""
    cdef Backend backend = None
    cdef NDArray c, a, b, result
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef int ndim
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
    ndim = widen(widen(0, shape, c), shape, a)
    ndim = widen(ndim, shape, b) if ndim >= 0 else -1
    if ndim < 0:
        raise BroadcastError(f"where: shapes {c.shape}, {a.shape} and {b.shape} do not broadcast")
    c, a, b = fitted(c, ndim, shape), fitted(a, ndim, shape), fitted(b, ndim, shape)
    checked_size(ndim, shape)
    result = empty_compact(backend, a._dtype, ndim, shape)
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


def last_axis_op(str verb, NDArray a, axis, bint keeps_axis):
    """One of the fused verbs along axes that are moved to the end and merged; the result is compact"""
    cdef int code = PROMOTE[a._dtype][<int> FLOAT32]
    cdef NDArray out, target
    axes = normal_axes(verb, axis, a._ndim)
    kept = tuple([i for i in range(a._ndim) if i not in axes])
    lead = tuple([a._shape[i] for i in kept])
    n = math.prod([a._shape[i] for i in axes])
    if n == 0:
        raise ValueError(f"{verb}: shape {a.shape} over axis {axis}: no elements")
    rows = to_dtype(a, code).permute(kept + axes).reshape(lead + (n,))
    if not keeps_axis:
        out = NDArray.make(lead, device=a.device, dtype=DTYPES[code])
        getattr(a._backend, verb)(rows, out)
        return out
    out = empty_compact(a._backend, code, a._ndim, a._shape)
    target = out.permute(kept + axes).reshape(lead + (n,))
    getattr(a._backend, verb)(rows, target)
    if target._buffer is not out._buffer:               # the merged axes have no view
        a._backend.copy(target.reshape([a._shape[i] for i in kept + axes]), out.permute(kept + axes))
    return out


def linear(x, weight, bias, /):
    """x @ weight + bias, in one pass where bias is a row: (n,) or (1, n).

    >>> from needle_ndarray import array
    >>> linear(array([[1.0, 2.0]]), array([[3.0], [4.0]]), array([0.5])).tolist()
    [[11.5]]
    """
    cdef NDArray y = None, row
    cdef Py_ssize_t n
    if isinstance(x, NDArray) and isinstance(weight, NDArray) and isinstance(bias, NDArray) \
            and (<NDArray> weight)._ndim == 2 and suits_rows(<NDArray> bias, <NDArray> weight):
        n = (<NDArray> weight)._shape[1]
        row = reshape_view(<NDArray> bias, 1, &n)
        if row is not None:
            y = rows_product(<NDArray> x, <NDArray> weight, row)
    return binary_op(ADD, matmul_of(x, weight), bias) if y is None else y


def accumulate(NDArray kept not None, NDArray new not None, double keep, double take):
    """kept = keep kept + take new, in place: a running mean with keep + take = 1.

    >>> from needle_ndarray import array
    >>> mean = array([1.0, 2.0])
    >>> accumulate(mean, array([5.0, 2.0]), 0.75, 0.25)
    >>> mean.tolist()
    [2.0, 2.0]
    """
    cdef NDArray part
    if kept._dtype != new._dtype or kept._dtype < FLOAT32 or kept._backend is not new._backend or not same_shape(kept, new) \
            or not kept._compact or overlap(new, kept):
        binary_op(ADD, binary_op(MULTIPLY, kept, keep), binary_op(MULTIPLY, new, take), kept)
        return
    part = empty_compact(new._backend, new._dtype, new._ndim, new._shape)
    kept.mark_written()
    new._backend.binary(MULTIPLY, new, scalar_like(new, take), part)
    new._backend.binary(MULTIPLY, kept, scalar_like(kept, keep), kept)
    new._backend.binary(ADD, kept, part, kept)


cdef inline NDArray scalar_like(NDArray a, object value):
    cdef NDArray one = scalar_array(a._backend, a._dtype, value)
    return broadcast_view(one, a._ndim, a._shape) if a._ndim else one


def suits_linear(NDArray x not None, NDArray weight not None, NDArray bias not None):
    """Whether bias is a row for a matrix x (..., k) times a matrix weight: all of one dtype and on one device."""
    return x._ndim > 1 and weight._ndim == 2 and x._dtype == weight._dtype and x._backend is weight._backend \
        and suits_rows(bias, weight)


cdef bint suits_rows(NDArray bias, NDArray y) noexcept:
    """Whether bias is (n,) or (1, n), where y is (..., n), with y's dtype and on its device"""
    return y._dtype != BOOL and 0 < bias._ndim <= 2 and bias._ndim <= y._ndim and (bias._ndim == 1 or bias._shape[0] == 1) \
        and bias._shape[bias._ndim - 1] == y._shape[y._ndim - 1] and bias._dtype == y._dtype and bias._backend is y._backend


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


cdef NDArray rows_product(NDArray a, NDArray b, NDArray bias):
    """a (..., k) @ b (k, n), plus bias (n,) unless that is None; None where the operands are of another kind"""
    cdef NDArray rows, out, target
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t flat[2]
    cdef int i, last = a._ndim - 1
    if last <= 0 or b._ndim != 2 or a._dtype != b._dtype or a._dtype == BOOL or a._backend is not b._backend \
            or a._shape[last] != b._shape[0] or last > 1 and a._size == 0:
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
    if bias is None:
        a._backend.matmul(rows, b, target)
    else:
        a._backend.linear(rows, b, bias, target)
    return out
