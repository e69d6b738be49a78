from cpython.object cimport PyObject

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.calls cimport Call
from needle_ndarray.cpu_backend.guard cimport NOGIL_FROM, done
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray

cdef int prepare_fill(Backend backend, object out, object value, Call* call) except -1
cdef int prepare_copy(object a, object out, Call* call) except -1
cdef int prepare_unary(Op op, object a, object out, Call* call) except -1
cdef int prepare_binary(Op op, object a, object b, object out, Call* call) except -1
cdef int prepare_strided_unary(Op op, NDArray x, NDArray result, Call* call) except -1
cdef int prepare_strided_binary(Op op, NDArray x, NDArray y, NDArray result, Call* call) except -1
cdef int prepare_where(object condition, object a, object b, object out, Call* call) except -1
cdef int prepare_reduce(Op op, object a, object out, tuple axes, Call* call) except -1
cdef bint prepare_product(object a, object b, PyObject* bias, object out, Call* call) except -1
cdef int kept_first(const View* a, tuple axes, View* out, bint* last) except -1


cdef inline int run(Call* call) except -1:
    """Run a call, without the GIL where that pays."""
    cdef int status
    if call.work < NOGIL_FROM:
        status = call.run(call)
    else:
        with nogil:
            status = call.run(call)
    return done(status)


# ---- Small and compact: the loop is called with pointers ---------------------------------------------------------------------

cdef inline bint is_constant(NDArray a) noexcept:
    """Whether every element is the same place in memory"""
    cdef int i
    for i in range(a._ndim):
        if a._strides[i] != 0 and a._shape[i] != 1:
            return False
    return True


cdef inline bint is_flat_unary(Op op, NDArray x, NDArray result) noexcept:
    return x._compact and result._compact and x._size < NOGIL_FROM and x._size == result._size and x._ptr is not result._ptr \
        and x._ptr is not NULL and result._ptr is not NULL and op.out_code[x._dtype] == result._dtype


cdef inline bint is_flat_binary(Op op, NDArray x, NDArray y, NDArray result) noexcept:
    return result._compact and x._dtype == y._dtype and x._size < NOGIL_FROM and x._size == y._size \
        and x._size == result._size and op.out_code[x._dtype] == result._dtype \
        and x._ptr is not NULL and y._ptr is not NULL and result._ptr is not NULL \
        and x._ptr is not result._ptr and y._ptr is not result._ptr \
        and (x._compact and (y._compact or is_constant(y)) or y._compact and is_constant(x))
