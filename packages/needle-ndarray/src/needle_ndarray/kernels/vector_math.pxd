from needle_ndarray.kernels.views cimport F

cdef int math_chunk(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil
cdef int grad_chunk(int op, const F* grad, const F* x, F* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil
