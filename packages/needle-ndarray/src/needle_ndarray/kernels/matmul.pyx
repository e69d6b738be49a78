# Matrix products: floats go to BLAS, one thread per call, in panels whose size depends on the shape alone; integers to a loop of
# our own. Transposed operands go as they are; only operands with no unit stride are copied.

from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.kernels.strided cimport gather
from needle_ndarray.kernels.views cimport F, FLOAT32, FLOAT64, INT32, T, View, int64
from needle_ndarray.threads cimport share

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
        float* out, Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t rows, Py_ssize_t cols, Py_ssize_t k)         # OUT
    void product_double "needle_product_double"(
        const double* a, Py_ssize_t a_row, Py_ssize_t a_col, const double* b, Py_ssize_t b_row,                     # IN
        double* out, Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t rows, Py_ssize_t cols, Py_ssize_t k)        # OUT

cdef enum:
    ROW_MAJOR = 101
    NO_TRANS = 111
    TRANS = 112
    PANEL = 256             # rows or columns of the result that one thread takes; half of them where there are fewer than 512,
    STEP = 4                # in whole tiles of BLAS
    TILE = 8                # of matmul_tiled
    SMALL = 16384           # multiplications below which our own loop beats the call of BLAS
    ROOM = 4096             # elements of an operand that it packs, on the stack
    SPLIT = 200000          # and above which a product is cut into panels


cdef struct Matrix:             # a 2-d operand as BLAS wants it
    char* data
    int trans
    Py_ssize_t ld
    bint copied


cdef void plain(const T* a, Py_ssize_t a_row, Py_ssize_t a_col, const T* b, Py_ssize_t b_row, Py_ssize_t b_col,
                T* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """out[i, j] = sum of a[i, l] b[l, j], rows of b added up into rows of out"""
    cdef Py_ssize_t i, j, l
    cdef T x
    for i in range(m):
        memset(out + i * out_row, 0, n * sizeof(T))
        for l in range(k):
            x = a[i * a_row + l * a_col]
            for j in range(n):
                out[i * out_row + j] += x * b[l * b_row + j * b_col]


cdef void tiles(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col, F* out,
                Py_ssize_t out_row, Py_ssize_t out_col, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """out = a @ b in tiles, for a b that fits ROOM: packed in rows of whole tiles where it does not lie like that"""
    cdef F packed[ROOM]
    cdef Py_ssize_t tile = WIDE_FLOAT if F is float else WIDE_DOUBLE
    cdef Py_ssize_t wide = (n + tile - 1) // tile * tile, i = 0, j, l
    if b_col != 1 or n != wide:
        for l in range(k):
            for j in range(n):
                packed[l * wide + j] = b[l * b_row + j * b_col]
            for j in range(n, wide):
                packed[l * wide + j] = 0
        b, b_row = packed, wide
    while i < m:
        j = 0
        while j < n:
            if F is float:
                product_float(a + i * a_row, a_row, a_col, b + j, b_row, out + i * out_row + j * out_col, out_row, out_col,
                              min(<Py_ssize_t> ROWS, m - i), min(tile, n - j), k)
            else:
                product_double(a + i * a_row, a_row, a_col, b + j, b_row, out + i * out_row + j * out_col, out_row, out_col,
                               min(<Py_ssize_t> ROWS, m - i), min(tile, n - j), k)
            j += tile
        i += ROWS


cdef void small(const F* a, Py_ssize_t a_row, Py_ssize_t a_col, const F* b, Py_ssize_t b_row, Py_ssize_t b_col,
                F* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """out = a @ b without BLAS; a tall, narrow result is made as a wide one, out^T = b^T @ a^T"""
    if n < WIDE_DOUBLE and m > n and k * (m + WIDE_FLOAT) <= ROOM:
        tiles(b, b_col, b_row, a, a_col, a_row, out, <Py_ssize_t> 1, out_row, n, k, m)
    elif k * (n + WIDE_FLOAT) <= ROOM:
        tiles(a, a_row, a_col, b, b_row, b_col, out, out_row, <Py_ssize_t> 1, m, k, n)
    else:
        plain(a, a_row, a_col, b, b_row, b_col, out, out_row, m, k, n)


cdef bint as_blas(const View* a, char* data, Py_ssize_t row, Py_ssize_t col, Matrix* out) noexcept nogil:
    """Describe rows x cols with the given strides to BLAS; False where it has to be copied"""
    cdef Py_ssize_t rows = a.shape[a.ndim - 2], cols = a.shape[a.ndim - 1]
    out.data, out.copied = data, False
    if (col == 1 or cols == 1) and (row >= max(cols, <Py_ssize_t> 1) or rows == 1):
        out.trans, out.ld = NO_TRANS, max(row, max(cols, <Py_ssize_t> 1))
        return out.ld < 0x7fffffff
    if (row == 1 or rows == 1) and (col >= max(rows, <Py_ssize_t> 1) or cols == 1):
        out.trans, out.ld = TRANS, max(col, max(rows, <Py_ssize_t> 1))
        return out.ld < 0x7fffffff
    return False


cdef int operand(const View* a, Py_ssize_t offset, Matrix* out) noexcept nogil:
    """The matrix at an offset, copied to a compact one if BLAS cannot read it where it lies"""
    cdef View here = a[0]
    cdef int last = a.ndim - 1
    cdef char* data = a.data + offset * a.itemsize
    if as_blas(a, data, a.strides[last - 1], a.strides[last], out):
        return 0
    here.data, here.ndim = data, 2
    here.shape[0], here.shape[1] = a.shape[last - 1], a.shape[last]
    here.strides[0], here.strides[1] = a.strides[last - 1], a.strides[last]
    out.data = <char*> malloc(here.shape[0] * here.shape[1] * a.itemsize)
    out.trans, out.ld, out.copied = NO_TRANS, max(here.shape[1], <Py_ssize_t> 1), True
    if out.data is NULL:
        return -1
    gather(&here, 0, here.shape[0] * here.shape[1], out.data)
    return 0


cdef void gemm(const Blas* blas, int dtype, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, const Matrix* a, const Matrix* b,
               Py_ssize_t i, Py_ssize_t j, char* out, Py_ssize_t out_row, Py_ssize_t item) noexcept nogil:
    """out[i:i+m, j:j+n] = a[i:i+m] @ b[:, j:j+n]"""
    cdef char* a_here = a.data + i * (a.ld if a.trans == NO_TRANS else 1) * item
    cdef char* b_here = b.data + j * (1 if b.trans == NO_TRANS else b.ld) * item
    cdef char* out_here = out + (i * out_row + j) * item
    if dtype == FLOAT32:
        (<sgemm_t> blas.sgemm)(ROW_MAJOR, a.trans, b.trans, <int> m, <int> n, <int> k, 1, <float*> a_here, <int> a.ld,
                               <float*> b_here, <int> b.ld, 0, <float*> out_here, <int> out_row)
    else:
        (<dgemm_t> blas.dgemm)(ROW_MAJOR, a.trans, b.trans, <int> m, <int> n, <int> k, 1, <double*> a_here, <int> a.ld,
                               <double*> b_here, <int> b.ld, 0, <double*> out_here, <int> out_row)


cdef void gemv(const Blas* blas, int dtype, Py_ssize_t rows, Py_ssize_t k, const Matrix* a, Py_ssize_t first, const char* x,
               Py_ssize_t x_step, char* out, Py_ssize_t out_step, Py_ssize_t item) noexcept nogil:
    """out[first:first+rows] = a[first:first+rows] @ x"""
    cdef char* here = a.data + first * (a.ld if a.trans == NO_TRANS else 1) * item
    cdef int m = <int> (rows if a.trans == NO_TRANS else k), n = <int> (k if a.trans == NO_TRANS else rows)
    out += first * out_step * item
    if dtype == FLOAT32:
        (<sgemv_t> blas.sgemv)(ROW_MAJOR, a.trans, m, n, 1, <float*> here, <int> a.ld, <float*> x, <int> x_step,
                               0, <float*> out, <int> out_step)
    else:
        (<dgemv_t> blas.dgemv)(ROW_MAJOR, a.trans, m, n, 1, <double*> here, <int> a.ld, <double*> x, <int> x_step,
                               0, <double*> out, <int> out_step)


cdef struct Product:            # one product in panels
    const Blas* blas
    int dtype
    Matrix left, right
    Py_ssize_t m, k, n
    Py_ssize_t panel
    bint by_rows                # panels of rows of the result, or of columns
    char* out
    Py_ssize_t out_row, item


cdef void one_panel(const void* job, Py_ssize_t p, int thread) noexcept nogil:
    cdef const Product* c = <const Product*> job
    cdef Py_ssize_t first = p * c.panel
    cdef Matrix turned = c.right
    if c.n == 1:
        gemv(c.blas, c.dtype, min(c.panel, c.m - first), c.k, &c.left, first, c.right.data,
             c.right.ld if c.right.trans == NO_TRANS else 1, c.out, c.out_row, c.item)
    elif c.m == 1:              # out^T = right^T @ left^T
        turned.trans = TRANS if c.right.trans == NO_TRANS else NO_TRANS
        gemv(c.blas, c.dtype, min(c.panel, c.n - first), c.k, &turned, first, c.left.data,
             c.left.ld if c.left.trans == TRANS else 1, c.out, 1, c.item)
    elif c.by_rows:
        gemm(c.blas, c.dtype, min(c.panel, c.m - first), c.k, c.n, &c.left, &c.right, first, 0, c.out, c.out_row, c.item)
    else:
        gemm(c.blas, c.dtype, c.m, c.k, min(c.panel, c.n - first), &c.left, &c.right, 0, first, c.out, c.out_row, c.item)


cdef int one(const Blas* blas, const View* a, Py_ssize_t a_offset, const View* b, Py_ssize_t b_offset, View* out,
             Py_ssize_t out_offset, int threads) noexcept nogil:
    """One matrix product; rows of `out` are contiguous"""
    cdef int last = out.ndim - 1, status
    cdef Py_ssize_t m = out.shape[last - 1], n = out.shape[last], k = a.shape[last], item = out.itemsize, length
    cdef Py_ssize_t out_row = max(out.strides[last - 1], max(n, <Py_ssize_t> 1)) if m > 1 else max(n, <Py_ssize_t> 1)
    cdef char* target = out.data + out_offset * item
    cdef Product c
    if m * n == 0:
        return 0
    if out.dtype == FLOAT32 and m * n * k <= SMALL:
        small(<const float*> a.data + a_offset, a.strides[last - 1], a.strides[last], <const float*> b.data + b_offset,
              b.strides[last - 1], b.strides[last], <float*> target, out_row, m, k, n)
        return 0
    if out.dtype == FLOAT64 and m * n * k <= SMALL:
        small(<const double*> a.data + a_offset, a.strides[last - 1], a.strides[last], <const double*> b.data + b_offset,
              b.strides[last - 1], b.strides[last], <double*> target, out_row, m, k, n)
        return 0
    if out.dtype == INT32:
        plain(<const int*> a.data + a_offset, a.strides[last - 1], a.strides[last], <const int*> b.data + b_offset,
              b.strides[last - 1], b.strides[last], <int*> target, out_row, m, k, n)
        return 0
    if out.dtype != FLOAT32 and out.dtype != FLOAT64:
        plain(<const int64*> a.data + a_offset, a.strides[last - 1], a.strides[last],
              <const int64*> b.data + b_offset, b.strides[last - 1], b.strides[last],
              <int64*> target, out_row, m, k, n)
        return 0
    c.left.copied = c.right.copied = False
    status = operand(a, a_offset, &c.left) or operand(b, b_offset, &c.right)
    if status == 0:
        c.blas, c.dtype, c.m, c.k, c.n, c.by_rows, c.out, c.out_row, c.item = blas, out.dtype, m, k, n, m >= n, target, out_row, item
        length = max(m, n)
        c.panel = min(<Py_ssize_t> PANEL, (length // 2 + STEP - 1) // STEP * STEP) if m * n * k >= SPLIT else length
        share(one_panel, &c, (length + c.panel - 1) // c.panel, threads)
    if c.left.copied:
        free(c.left.data)
    if c.right.copied:
        free(c.right.data)
    return status


cdef Py_ssize_t batch_offset(const View* a, Py_ssize_t batch) noexcept nogil:
    cdef Py_ssize_t offset = 0
    cdef int i
    for i in range(a.ndim - 3, -1, -1):
        offset += batch % a.shape[i] * a.strides[i]
        batch //= a.shape[i]
    return offset


cdef struct Batch:
    const Blas* blas
    const View* a
    const View* b
    View* out
    int failed


cdef void one_of_batch(const void* job, Py_ssize_t i, int thread) noexcept nogil:
    cdef Batch* c = <Batch*> job
    if one(c.blas, c.a, batch_offset(c.a, i), c.b, batch_offset(c.b, i), c.out, batch_offset(c.out, i), 1):
        c.failed = 1            # whoever writes it writes the same


cdef int matmul_views(const Blas* blas, View* a, View* b, View* out, int threads) noexcept nogil:
    """out = a @ b over equal leading axes; threads share the batch, or the panels where there is only one"""
    cdef Py_ssize_t batches = 1, i
    cdef Batch c
    for i in range(out.ndim - 2):
        batches *= out.shape[i]
    if batches == 1:
        return one(blas, a, 0, b, 0, out, 0, threads)
    c.blas, c.a, c.b, c.out, c.failed = blas, a, b, out, 0
    share(one_of_batch, &c, batches, threads)
    return -c.failed


cdef void matmul_tiled(const float* a, const float* b, float* out, Py_ssize_t m, Py_ssize_t n, Py_ssize_t p) noexcept nogil:
    """The course's tiled product: a is [m/T][n/T][T][T], b [n/T][p/T][T][T], out [m/T][p/T][T][T]; one tile stays in the cache"""
    cdef Py_ssize_t i, j, l, x, y, z, tile = TILE * TILE
    cdef const float* left
    cdef const float* right
    cdef float* target
    for i in range(m // TILE):
        for j in range(p // TILE):
            target = out + (i * (p // TILE) + j) * tile
            memset(target, 0, tile * sizeof(float))
            for l in range(n // TILE):
                left = a + (i * (n // TILE) + l) * tile
                right = b + (l * (p // TILE) + j) * tile
                for x in range(TILE):
                    for z in range(TILE):
                        for y in range(TILE):
                            target[x * TILE + y] += left[x * TILE + z] * right[z * TILE + y]
