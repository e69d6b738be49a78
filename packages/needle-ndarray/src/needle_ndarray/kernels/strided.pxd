from needle_ndarray.kernels.views cimport View

cdef void coalesce(View** views, int count) noexcept nogil
cdef bint contiguous(const View* a) noexcept nogil
cdef Py_ssize_t chunk_length(View** views, int count) noexcept nogil
cdef Py_ssize_t offset_of(const View* a, Py_ssize_t flat) noexcept nogil
cdef void gather(const View* a, Py_ssize_t start, Py_ssize_t n, char* out) noexcept nogil
cdef void scatter(const char* a, Py_ssize_t start, Py_ssize_t n, const View* out) noexcept nogil
cdef void cast(int from_, int to, const char* a, char* out, Py_ssize_t n) noexcept nogil
cdef int copy(View* a, View* out, int threads) noexcept nogil
cdef void fill(View* out, const char* value, int threads) noexcept nogil
