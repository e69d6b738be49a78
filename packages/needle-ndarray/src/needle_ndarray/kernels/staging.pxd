from needle_ndarray.kernels.views cimport View

cdef int unary_views(int op, View* a, View* out, int threads) noexcept nogil
cdef int binary_views(int op, View* a, View* b, View* out, int threads) noexcept nogil
cdef int where_views(View* condition, View* a, View* b, View* out, int threads) noexcept nogil
