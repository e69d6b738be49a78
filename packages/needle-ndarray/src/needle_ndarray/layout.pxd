from needle_ndarray.ndarray cimport MAX_NDIM, NDArray, view_of


cdef int parse_ints(str what, object given, Py_ssize_t* out) except -1
cdef tuple as_tuple(int n, const Py_ssize_t* values)
cdef Py_ssize_t checked_size(int ndim, const Py_ssize_t* shape) except -1
cdef int normal_axis(str what, object axis, int ndim) except -1
cdef int widen(int ndim, Py_ssize_t* shape, NDArray a) noexcept

cdef NDArray strided_view(str what, NDArray base, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, object shift)
cdef void row_major(int ndim, const Py_ssize_t* shape, Py_ssize_t* strides) noexcept
cdef NDArray broadcast_view(NDArray a, int ndim, const Py_ssize_t* shape)
cdef NDArray swapped(NDArray a, int i, int j)
cdef NDArray reshape_view(NDArray a, int ndim, const Py_ssize_t* shape)
cdef NDArray basic_view(NDArray a, object key)

cdef bint overlap(NDArray a, NDArray b) noexcept
cdef int check_writable(str what, NDArray out) except -1
cdef bint has_order(NDArray a, int flags)


cdef inline bint has_shape(NDArray a, int ndim, const Py_ssize_t* shape) noexcept:
    cdef int i
    if a._ndim != ndim:
        return False
    for i in range(ndim):
        if a._shape[i] != shape[i]:
            return False
    return True


cdef inline bint same_shape(NDArray a, NDArray b) noexcept:
    return has_shape(a, b._ndim, b._shape)


cdef inline bint same_dtype_and_device(NDArray a, NDArray b) noexcept:
    return a._dtype == b._dtype and a._backend is b._backend


cdef inline NDArray broadcast_to(NDArray a, int ndim, const Py_ssize_t* shape):
    """a itself where it has the shape, else a view"""
    return a if has_shape(a, ndim, shape) else broadcast_view(a, ndim, shape)


cdef inline NDArray reversed_axes(NDArray a):
    """What `T` is, whatever a subclass says"""
    cdef Py_ssize_t shape[MAX_NDIM]
    cdef Py_ssize_t strides[MAX_NDIM]
    cdef int i
    for i in range(a._ndim):
        shape[i], strides[i] = a._shape[a._ndim - 1 - i], a._strides[a._ndim - 1 - i]
    return view_of(a, a._ndim, shape, strides, 0)
