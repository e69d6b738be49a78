from needle_ndarray.kernels.views cimport View, int64

cdef enum:
    NO_MEMORY = -1
    OUTSIDE = -2            # an entry of the index is

cdef int take_views(View* a, const int64* index, View* out, int threads) noexcept nogil
cdef int put_views(View* a, const int64* index, View* values) noexcept nogil
cdef int scatter_add_views(View* a, const int64* index, View* values, int threads) noexcept nogil
