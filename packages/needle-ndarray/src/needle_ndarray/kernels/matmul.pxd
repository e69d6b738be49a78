from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View

cdef struct Weights:            # a product of m float32 rows and a k x n matrix of small elements (weights.h)
    int format                  # 0: float16, 1: bfloat16, 2: bytes that mean w - 128
    const float* a              # rows that are contiguous
    const char* w
    const float* scale          # of each column, or NULL
    float* out
    Py_ssize_t a_row, row, column, item, out_row, m, k, n, width

cdef void matmul_weight(Weights* job, int threads) noexcept nogil
cdef int matmul_views(const Blas* blas, View* a, View* b, const char* bias, View* out, int threads) noexcept nogil
cdef void matmul_tiled(const float* a, const float* b, float* out, Py_ssize_t m, Py_ssize_t n, Py_ssize_t p) noexcept nogil
cdef bint needs_blas(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil
