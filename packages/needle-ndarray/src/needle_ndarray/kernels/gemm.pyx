# One product of matrices with one thread: small ones in tiles of our own, the others by BLAS.

from needle_ndarray.kernels.views cimport FLOAT32, F

ctypedef void (*sgemm_t)(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc) noexcept nogil
ctypedef void (*dgemm_t)(int order, int ta, int tb, int m, int n, int k, double alpha, const double* a, int lda,
                         const double* b, int ldb, double beta, double* c, int ldc) noexcept nogil
ctypedef void (*sgemv_t)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                         const float* x, int incx, float beta, float* y, int incy) noexcept nogil
ctypedef void (*dgemv_t)(int order, int trans, int m, int n, double alpha, const double* a, int lda,
                         const double* x, int incx, double beta, double* y, int incy) noexcept nogil

cdef extern from "product.h" nogil:
    enum:
        ROWS "NEEDLE_ROWS"
        WIDE_FLOAT "needle_wide_float"
        WIDE_DOUBLE "needle_wide_double"
    void product_float "needle_product_float"(
        const float* a, Py_ssize_t a_row, Py_ssize_t a_col, const float* b, Py_ssize_t b_row,                       # IN
        float* out, Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t rows, Py_ssize_t skip, Py_ssize_t cols,      # OUT
        Py_ssize_t k, float alpha, bint add)
    void product_double "needle_product_double"(
        const double* a, Py_ssize_t a_row, Py_ssize_t a_col, const double* b, Py_ssize_t b_row,                     # IN
        double* out, Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t rows, Py_ssize_t skip, Py_ssize_t cols,     # OUT
        Py_ssize_t k, double alpha, bint add)

cdef enum:
    ROW_MAJOR = 101
    SMALL = 300000          # multiplications up to which tiles of our own beat the call of BLAS
    ROOM = 8192             # elements of an operand that they pack, on the stack


cdef void pack(const F* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t n, F* packed,
               Py_ssize_t wide) noexcept nogil:
    """b (k, n) in rows of whole tiles, 0 beyond the last column"""
    cdef Py_ssize_t l, j
    for l in range(k):
        for j in range(n):
            packed[l * wide + j] = b[l * b_row + j * b_col]
        for j in range(n, wide):
            packed[l * wide + j] = 0


cdef void tiles(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, F* out,
                Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, F alpha, bint add) noexcept nogil:
    """out = alpha a @ b [+ out] in tiles, for a b that fits ROOM: packed where its rows do not lie as vectors can read them.

    The last columns are a tile that begins further left, and computes some of them again.
    """
    cdef F packed[ROOM]
    cdef Py_ssize_t tile = WIDE_FLOAT if F is float else WIDE_DOUBLE
    cdef Py_ssize_t wide = (n + tile - 1) // tile * tile, limit = n, i = 0, j, start, width
    if b_col != 1 or n < tile // 2:
        pack(b, b_row, b_col, k, n, packed, wide)
        b, b_row, limit = packed, wide, wide
    while i < m:
        j = 0
        while j < n:
            width = tile if n - j > tile // 2 and limit >= tile else tile // 2
            start = min(j, limit - width)
            if F is float:
                product_float(a + i * a_row, a_row, a_col, b + start, b_row, out + i * out_row + start * out_col, out_row, out_col,
                              min(<Py_ssize_t> ROWS, m - i), j - start, min(width, n - start), k, alpha, add)
            else:
                product_double(a + i * a_row, a_row, a_col, b + start, b_row, out + i * out_row + start * out_col, out_row,
                               out_col, min(<Py_ssize_t> ROWS, m - i), j - start, min(width, n - start), k, alpha, add)
            j = start + width
        i += ROWS


cdef bint small(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col,
                F* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, F alpha, bint add) noexcept nogil:
    """out = alpha a @ b [+ out] without BLAS, where that is faster; a tall, narrow result as a wide one, out^T = b^T @ a^T"""
    if m * n * k > SMALL:
        return False
    if n < WIDE_DOUBLE and m > n and k * (m + WIDE_FLOAT) <= ROOM:
        tiles(b, b_col, b_row, a, a_col, a_row, out, <Py_ssize_t> 1, out_row, n, k, m, alpha, add)
    elif k * (n + WIDE_FLOAT) <= ROOM:
        tiles(a, a_row, a_col, b, b_row, b_col, out, out_row, <Py_ssize_t> 1, m, k, n, alpha, add)
    else:
        return False
    return True


cdef bint small_product(int dtype, const char* a, Py_ssize_t a_row, Py_ssize_t a_col, const char* b, Py_ssize_t b_row,
                        Py_ssize_t b_col, char* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, double alpha,
                        bint add) noexcept nogil:
    """out = alpha a @ b [+ out], any strides of a and b; False where it is left to BLAS"""
    if dtype == FLOAT32:
        return small(<const float*> a, a_row, a_col, <const float*> b, b_row, b_col, <float*> out, out_row, m, k, n,
                     <float> alpha, add)
    return small(<const double*> a, a_row, a_col, <const double*> b, b_row, b_col, <double*> out, out_row, m, k, n, alpha, add)


cdef void gemm(const Blas* blas, int dtype, int ta, int tb, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, double alpha,
               const char* a, Py_ssize_t lda, const char* b, Py_ssize_t ldb, bint add, char* c, Py_ssize_t ldc) noexcept nogil:
    """c (m, n) = alpha a b [+ c]; lda, ldb, ldc from row to row, of a^T and b^T where they are given so"""
    if small_product(dtype, a, lda if ta == NO_TRANS else 1, 1 if ta == NO_TRANS else lda, b, ldb if tb == NO_TRANS else 1,
                     1 if tb == NO_TRANS else ldb, c, ldc, m, k, n, alpha, add):
        return
    if dtype == FLOAT32:
        (<sgemm_t> blas.sgemm)(ROW_MAJOR, ta, tb, <int> m, <int> n, <int> k, <float> alpha, <float*> a, <int> lda,
                               <float*> b, <int> ldb, add, <float*> c, <int> ldc)
    else:
        (<dgemm_t> blas.dgemm)(ROW_MAJOR, ta, tb, <int> m, <int> n, <int> k, alpha, <double*> a, <int> lda,
                               <double*> b, <int> ldb, add, <double*> c, <int> ldc)


cdef void gemv(const Blas* blas, int dtype, int trans, Py_ssize_t m, Py_ssize_t k, const char* a, Py_ssize_t lda, const char* x,
               Py_ssize_t x_step, char* y, Py_ssize_t y_step) noexcept nogil:
    """y (m,) = a x; lda from row to row, of a^T where it is given so"""
    cdef int rows = <int> (m if trans == NO_TRANS else k), columns = <int> (k if trans == NO_TRANS else m)
    if dtype == FLOAT32:
        (<sgemv_t> blas.sgemv)(ROW_MAJOR, trans, rows, columns, 1, <float*> a, <int> lda, <float*> x, <int> x_step,
                               0, <float*> y, <int> y_step)
    else:
        (<dgemv_t> blas.dgemv)(ROW_MAJOR, trans, rows, columns, 1, <double*> a, <int> lda, <double*> x, <int> x_step,
                               0, <double*> y, <int> y_step)
