cimport cython

from needle_ndarray.backend cimport Backend, Op
from needle_ndarray.kernels.views cimport View

cdef enum:
    MAX_NDIM = 32
    INLINE = 6              # axes kept inside the object; arrays with more get memory for them


cdef class NDArray:
    cdef Backend _backend
    cdef object _buffer                 # what the backend's allocate returned
    cdef char* _ptr                     # first element, for buffers on the host; else NULL
    cdef readonly Py_ssize_t _offset    # in elements, from the start of the buffer
    cdef Py_ssize_t _size
    cdef int _dtype                     # code, see optable.pxd
    cdef int _ndim
    cdef bint _compact                  # row-major without gaps
    cdef Py_ssize_t* _shape
    cdef Py_ssize_t* _strides
    cdef Py_ssize_t _small[12]
    cdef tuple _shape_tuple             # the property, once somebody has asked for it

    @cython.final
    cdef int set_ndim(self, int ndim) except -1

    @cython.final
    cdef void measure(self) noexcept

    @cython.final
    cdef void view_into(self, View* out) noexcept

    @cython.final
    cdef int mark_written(self) except -1


cdef NDArray empty_compact(Backend backend, int dtype, int ndim, const Py_ssize_t* shape)
cdef NDArray view_of(NDArray base, int ndim, const Py_ssize_t* shape, const Py_ssize_t* strides, Py_ssize_t shift)
cdef NDArray cast_copy(NDArray a, int dtype)
cdef NDArray compact_copy(NDArray a)


cdef inline NDArray to_dtype(NDArray a, int dtype):
    """a itself, or a compact copy of another dtype"""
    return a if a._dtype == dtype else cast_copy(a, dtype)
