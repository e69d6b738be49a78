from needle_ndarray.kernels.views cimport View

cdef int arg_reduce_views(int op, View* a, View* out, int threads) noexcept nogil
cdef int scan_views(View* a, View* out, int threads) noexcept nogil
