from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.ndarray cimport NDArray


cdef bint is_numpy_scalar(object x) noexcept
cdef int scalar_dtype(int other, object x) except -1
cdef NDArray scalar_array(Backend backend, int dtype, object x)
cdef NDArray scalar_like(NDArray a, int dtype, object value)
cdef bint beyond(Op op, int code, object x) except -1

cdef bint is_array_like(object x) noexcept
cdef int dtype_code(object given) except -1
cdef NDArray operand(object x, Backend backend)
cdef NDArray from_host(object values, Backend backend, object dtype=*)
cdef int check_device(str what, NDArray a, NDArray b) except -1
cdef int assign(NDArray view, object value) except -1


cdef inline bint hears_numbers(object listener) except -1:
    """Whether it wants to hear of single numbers that the host reads and writes without a verb."""
    return listener.numbers


cdef inline bint is_scalar(object x) noexcept:
    return isinstance(x, float) or isinstance(x, int) or is_numpy_scalar(x)
