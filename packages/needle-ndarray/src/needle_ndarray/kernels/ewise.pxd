from needle_ndarray.kernels.staging cimport binary_views, unary_views, where_views

cdef int unary(int op, int dtype, const char* a, char* out, Py_ssize_t n) noexcept nogil
cdef int binary(int op, int dtype, const char* a, const char* b, char* out, Py_ssize_t n, bint p, bint q) noexcept nogil
cdef void where(const char* condition, int dtype, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil
