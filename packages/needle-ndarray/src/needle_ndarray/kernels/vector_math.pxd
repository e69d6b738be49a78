from needle_ndarray.kernels.views cimport F

cdef int math_chunk(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil
cdef int pair_chunk(int op, const F* a, const F* b, F* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil
