from needle_ndarray.kernels.views cimport View

cdef double fold_floats(int op, int dtype, const char* a, Py_ssize_t n) noexcept nogil
cdef void reduce_rows(int op, int dtype, const char* a, Py_ssize_t rows, Py_ssize_t columns, int out_dtype,
                      char* out) noexcept nogil
cdef void reduce_all(int op, int dtype, const char* a, Py_ssize_t n, int out_dtype, char* out) noexcept nogil
cdef int reduce_views(int op, View* a, int kept, View* out, int threads) noexcept nogil
cdef int arg_reduce_views(int op, View* a, View* out, int threads) noexcept nogil
cdef int scan_views(View* a, View* out, int threads) noexcept nogil
