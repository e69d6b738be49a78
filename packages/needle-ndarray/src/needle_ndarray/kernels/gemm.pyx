# One product of matrices with one thread: small ones in strips of our own, the others by BLAS.

from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, F

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
        VECTOR "NEEDLE_VECTOR"
    void strip_float "needle_strip_float"(const Strip* s)
    void strip_double "needle_strip_double"(const Strip* s)
    void pack_float "needle_pack_float"(const float* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                                        float* packed)
    void pack_double "needle_pack_double"(const double* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                                          double* packed)

cdef enum:
    ROW_MAJOR = 101
    SMALL = 300000          # multiplications up to which strips of our own beat the call of BLAS,
    MIDDLE = 60000000       # and up to which they beat it where multiplications and additions are fused
    DEPTH = 512             # of a strip: it stays in the first cache, a block of as many
    HEIGHT = 192            # rows of the other operand in the second
    WIDEST = 128            # bytes of its rows, at any level
    LINE = 64               # bytes that caches move, and that rows begin with
    IN_PLACE = 8192         # elements of an operand that is small enough to be read where it lies


cdef Py_ssize_t strip_width(int dtype) noexcept nogil:
    """Columns of a strip"""
    return 2 * VECTOR // (4 if dtype == FLOAT32 else 8)


cdef void compute_strip(int dtype, const Strip* s) noexcept nogil:
    """What product.h says of it"""
    if dtype == FLOAT32:
        strip_float(s)
    else:
        strip_double(s)


cdef void pack_strip(int dtype, const char* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                     char* packed) noexcept nogil:
    """b (k, cols) in compact rows, as wide as the strip or half of it, 0 beyond the last column"""
    if dtype == FLOAT32:
        pack_float(<const float*> b, b_row, b_col, k, cols, <float*> packed)
    else:
        pack_double(<const double*> b, b_row, b_col, k, cols, <double*> packed)


cdef void block(const F* a, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, Strip* s, Py_ssize_t n, F* packed) noexcept nogil:
    """s.rows rows of all columns, s.k deep; b is read where it lies if there is no room to pack it.

    The last strip begins further left, and computes some columns again.
    """
    cdef F* out = <F*> s.out
    cdef const F* base = <const F*> s.base
    cdef int dtype = FLOAT32 if F is float else FLOAT64
    cdef Py_ssize_t wide = strip_width(dtype), j = 0, start, width
    s.a = a
    while j < n:
        width = wide if n - j > wide // 2 and (n >= wide or packed is not NULL) else wide // 2
        start = min(j, max(n - width, <Py_ssize_t> 0))
        s.skip, s.cols, s.b, s.b_row = j - start, min(width, n - start), b + start, b_row
        if packed is not NULL:
            pack_strip(dtype, <const char*> (b + start * b_col), b_row, b_col, s.k, s.cols, <char*> packed)
            s.b, s.b_row = packed, width
        s.out = out + start * s.out_col
        if base is not NULL:
            s.base = base + start * s.base_col
        compute_strip(dtype, s)
        j = start + width


cdef void blocks(const F* a, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, const F* base, Py_ssize_t base_row,
                 Py_ssize_t base_col, F* out, Strip* s, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, F* packed) noexcept nogil:
    """All rows and the whole depth, in parts that the caches hold; parts of equal depth are added up"""
    cdef Py_ssize_t parts = (k + DEPTH - 1) // DEPTH, depth = k if parts <= 1 else (k + parts - 1) // parts, i = 0, l
    while i < m:
        s.rows, s.k, s.out = min(<Py_ssize_t> HEIGHT, m - i), depth, out + i * s.out_row
        s.base, s.base_row, s.base_col = base, base_row, base_col
        if base is not NULL:
            s.base = base + i * base_row
        block(a + i * s.a_row, b, b_row, b_col, s, n, packed)
        l = depth
        while l < k:
            s.k, s.out = min(depth, k - l), out + i * s.out_row
            s.base, s.base_row, s.base_col = s.out, s.out_row, s.out_col
            block(a + i * s.a_row + l * s.a_col, b + l * b_row, b_row, b_col, s, n, packed)
            l += depth
        i += HEIGHT


cdef void packed_blocks(const F* a, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, const F* base, Py_ssize_t base_row,
                        Py_ssize_t base_col, F* out, Strip* s, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    cdef char room[DEPTH * WIDEST + LINE]
    cdef F* packed = <F*> (<size_t> room + LINE - <size_t> room % LINE)
    blocks(a, b, b_row, b_col, base, base_row, base_col, out, s, m, k, n, packed)


cdef void strips(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, const F* base,
                 Py_ssize_t base_row, Py_ssize_t base_col, F* out, Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t m,
                 Py_ssize_t k, Py_ssize_t n, double alpha) noexcept nogil:
    """out = base + alpha a @ b, with any strides; base may be NULL, or out"""
    cdef Strip s
    s.a_row, s.a_col, s.out_row, s.out_col, s.alpha = a_row, a_col, out_row, out_col, alpha
    if b_col == 1 and n >= VECTOR // <Py_ssize_t> sizeof(F) and (k * b_row <= IN_PLACE or m <= 2 * ROWS):
        blocks(a, b, b_row, b_col, base, base_row, base_col, out, &s, m, k, n, <F*> NULL)
    else:
        packed_blocks(a, b, b_row, b_col, base, base_row, base_col, out, &s, m, k, n)


cdef void either(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, const F* base,
                 Py_ssize_t base_row, Py_ssize_t base_col, F* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n,
                 double alpha) noexcept nogil:
    """A tall, narrow result as a wide one: out^T = base^T + b^T @ a^T"""
    if n < VECTOR // <Py_ssize_t> sizeof(F) and m > n:
        strips(b, b_col, b_row, a, a_col, a_row, base, base_col, base_row, out, <Py_ssize_t> 1, out_row, n, k, m, alpha)
    else:
        strips(a, a_row, a_col, b, b_row, b_col, base, base_row, base_col, out, out_row, <Py_ssize_t> 1, m, k, n, alpha)


cdef bint is_small(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    return m * n * k <= (MIDDLE if VECTOR > 16 else SMALL)


cdef void small_product(int dtype, const char* a, Py_ssize_t a_row, Py_ssize_t a_col, const char* b, Py_ssize_t b_row,
                        Py_ssize_t b_col, const char* base, Py_ssize_t base_row, Py_ssize_t base_col, char* out,
                        Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, double alpha) noexcept nogil:
    """out = base + alpha a @ b, any strides of a, b and base; base may be NULL, or out"""
    if dtype == FLOAT32:
        either(<const float*> a, a_row, a_col, <const float*> b, b_row, b_col, <const float*> base, base_row, base_col,
               <float*> out, out_row, m, k, n, alpha)
    else:
        either(<const double*> a, a_row, a_col, <const double*> b, b_row, b_col, <const double*> base, base_row, base_col,
               <double*> out, out_row, m, k, n, alpha)


cdef void gemm(const Blas* blas, int dtype, int ta, int tb, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, double alpha,
               const char* a, Py_ssize_t lda, const char* b, Py_ssize_t ldb, bint add, char* c, Py_ssize_t ldc) noexcept nogil:
    """c (m, n) = alpha a b [+ c]; lda, ldb, ldc from row to row, of a^T and b^T where they are given so"""
    if is_small(m, k, n):
        small_product(dtype, a, lda if ta == NO_TRANS else 1, 1 if ta == NO_TRANS else lda, b, ldb if tb == NO_TRANS else 1,
                      1 if tb == NO_TRANS else ldb, c if add else NULL, ldc, 1, c, ldc, m, k, n, alpha)
    elif dtype == FLOAT32:
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
