from needle_ndarray.kernels.views cimport View

cdef void unary(int op, int dtype, const char* a, char* out, Py_ssize_t n) noexcept nogil
cdef void binary(int op, int dtype, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil
cdef void binary_constant(int op, int dtype, const char* a, const char* b, bint left, char* out, Py_ssize_t n) noexcept nogil
cdef int unary_views(int op, View* a, View* out, int threads) noexcept nogil
cdef int binary_views(int op, View* a, View* b, View* out, int threads) noexcept nogil
cdef int where_views(View* condition, View* a, View* b, View* out, int threads) noexcept nogil
