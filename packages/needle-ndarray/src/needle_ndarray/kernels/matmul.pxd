from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View

cdef int matmul_views(const Blas* blas, View* a, View* b, const char* bias, View* out, int threads) noexcept nogil
cdef void matmul_tiled(const float* a, const float* b, float* out, Py_ssize_t m, Py_ssize_t n, Py_ssize_t p) noexcept nogil
cdef bint needs_blas(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil
