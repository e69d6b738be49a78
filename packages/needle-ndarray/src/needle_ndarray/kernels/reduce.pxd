from needle_ndarray.kernels.views cimport View

cdef void reduce_rows(int op, int dtype, const char* a, Py_ssize_t rows, Py_ssize_t columns, int out_dtype,
                      char* out) noexcept nogil
cdef int reduce_views(int op, View* a, int kept, View* out, int threads) noexcept nogil
