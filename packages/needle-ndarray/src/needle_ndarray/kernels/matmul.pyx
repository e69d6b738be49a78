# Matrix products of views. Floats: small ones in tiles of the result, by strips, with any strides; large ones in panels whose size
# depends on the shape alone, by BLAS, for which operands with no unit stride are copied. Integers by a loop of our own.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from needle_ndarray.kernels.gemm cimport NO_TRANS, TRANS, Blas, gemm, gemv, is_small, small_product, strip_width
from needle_ndarray.kernels.strided cimport gather
from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, INT32, F, T, View, int64
from needle_ndarray.threads cimport share

cdef extern from "vectors.h":
    enum:
        ROWS "NEEDLE_ROWS"

cdef enum:
    PANEL = 256             # rows or columns of the result that one thread takes, at most: an even number of equal panels,
    STEP = 4                # in whole tiles of BLAS
    TILE = 8                # of matmul_tiled
    SPLIT = 200000          # multiplications above which a product is cut into panels or tiles
    TILE_WORK = 400000      # multiplications that a tile should have
    TILES = 4               # for every thread, to end at nearly the same time,
    LEAST_ROWS = 48         # unless they would be lower than this


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


cdef struct Product:            # one product in panels
    const Blas* blas
    int dtype
    Matrix left, right
    Py_ssize_t m, k, n
    Py_ssize_t panel
    bint by_rows                # panels of rows of the result, or of columns
    const char* bias            # a row that is added to all of them, or NULL
    char* out
    Py_ssize_t out_row, item


cdef inline char* row_at(const Matrix* a, Py_ssize_t i, Py_ssize_t item) noexcept nogil:
    return a.data + i * (a.ld if a.trans == NO_TRANS else 1) * item


cdef inline char* column_at(const Matrix* a, Py_ssize_t j, Py_ssize_t item) noexcept nogil:
    return a.data + j * (1 if a.trans == NO_TRANS else a.ld) * item


cdef void lay(const char* bias, char* out, Py_ssize_t out_row, Py_ssize_t rows, Py_ssize_t bytes) noexcept nogil:
    """The bias into every row, for a product to be added to it: BLAS would have written zeros"""
    cdef Py_ssize_t i
    for i in range(rows):
        memcpy(out + i * out_row, bias, bytes)


cdef void add_line(const F* bias, Py_ssize_t step, F* out, Py_ssize_t out_step, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i * out_step] += bias[i * step]


cdef void add_bias(const Product* c, const char* bias, char* out, Py_ssize_t count) noexcept nogil:
    """To a result of one column, or one row"""
    cdef Py_ssize_t step = 0 if c.n == 1 else 1, out_step = c.out_row if c.n == 1 else 1
    if c.dtype == FLOAT32:
        add_line(<const float*> bias, step, <float*> out, out_step, count)
    else:
        add_line(<const double*> bias, step, <double*> out, out_step, count)


cdef void one_panel(const void* job, Py_ssize_t p, int thread) noexcept nogil:
    """Some rows of the result, or some columns"""
    cdef const Product* c = <const Product*> job
    cdef const Matrix* a = &c.left
    cdef const Matrix* b = &c.right
    cdef Py_ssize_t first = p * c.panel, count = min(c.panel, (c.m if c.by_rows else c.n) - first)
    cdef char* out = c.out + first * (c.out_row if c.by_rows else 1) * c.item
    cdef const char* bias = c.bias
    cdef bint vector = c.n == 1 or c.m == 1
    if bias is not NULL and not c.by_rows:
        bias += first * c.item
    if bias is not NULL and not vector:
        lay(bias, out, c.out_row * c.item, count if c.by_rows else c.m, (c.n if c.by_rows else count) * c.item)
    if c.n == 1:
        gemv(c.blas, c.dtype, a.trans, count, c.k, row_at(a, first, c.item), a.ld, b.data, b.ld if b.trans == NO_TRANS else 1,
             out, c.out_row)
    elif c.m == 1:              # out^T = b^T a^T
        gemv(c.blas, c.dtype, NO_TRANS if b.trans == TRANS else TRANS, count, c.k, column_at(b, first, c.item), b.ld, a.data,
             1 if a.trans == NO_TRANS else a.ld, out, 1)
    elif c.by_rows:
        gemm(c.blas, c.dtype, a.trans, b.trans, count, c.n, c.k, 1, row_at(a, first, c.item), a.ld, b.data, b.ld,
             bias is not NULL, out, c.out_row)
    else:
        gemm(c.blas, c.dtype, a.trans, b.trans, c.m, count, c.k, 1, a.data, a.ld, column_at(b, first, c.item), b.ld,
             bias is not NULL, out, c.out_row)
    if bias is not NULL and vector:
        add_bias(c, bias, out, count)


cdef inline Py_ssize_t panel_of(Py_ssize_t length) noexcept nogil:
    """Rows of a panel: by the number of all rows alone, so that results do not depend on threads"""
    cdef Py_ssize_t panels = (length + 2 * PANEL - 1) // (2 * PANEL) * 2
    return ((length + panels - 1) // panels + STEP - 1) // STEP * STEP


cdef struct Tiles:              # one product in tiles of the result, each by strips
    int dtype
    const char* a
    const char* b
    const char* bias            # a row that is added to all of them, or NULL
    char* out
    Py_ssize_t a_row, a_col, b_row, b_col, out_row, item
    Py_ssize_t m, k, n
    Py_ssize_t rows, columns    # of a tile
    Py_ssize_t across           # tiles beside each other


cdef void one_tile(const void* job, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Tiles* c = <const Tiles*> job
    cdef Py_ssize_t row = i // c.across * c.rows, column = i % c.across * c.columns
    cdef const char* bias = c.bias
    if bias is not NULL:
        bias += column * c.item
    small_product(c.dtype, c.a + row * c.a_row * c.item, c.a_row, c.a_col, c.b + column * c.b_col * c.item, c.b_row, c.b_col,
                  bias, 0, 1, c.out + (row * c.out_row + column) * c.item,
                  c.out_row, min(c.rows, c.m - row), c.k, min(c.columns, c.n - column), 1)


cdef void in_tiles(Tiles* c, int threads) noexcept nogil:
    """Tiles of whole strips, some for every thread: how they are cut changes no bit"""
    cdef Py_ssize_t wide = strip_width(c.dtype), down
    c.columns = max(TILE_WORK // (c.m * c.k * wide), <Py_ssize_t> 1) * wide
    c.across = (c.n + c.columns - 1) // c.columns
    down = min((TILES * threads + c.across - 1) // c.across, (c.m + LEAST_ROWS - 1) // LEAST_ROWS)
    c.rows = ((c.m + down - 1) // down + ROWS - 1) // ROWS * ROWS
    share(one_tile, c, (c.m + c.rows - 1) // c.rows * c.across, threads)


cdef int one(const Blas* blas, const View* a, Py_ssize_t a_offset, const View* b, Py_ssize_t b_offset, const char* bias,
             View* out, Py_ssize_t out_offset, int threads) noexcept nogil:
    """One matrix product, for floats plus a row `bias` unless that is NULL; rows of `out` are contiguous"""
    cdef int last = out.ndim - 1, status
    cdef Py_ssize_t m = out.shape[last - 1], n = out.shape[last], k = a.shape[last], item = out.itemsize, length
    cdef Py_ssize_t out_row = max(out.strides[last - 1], max(n, <Py_ssize_t> 1)) if m > 1 else max(n, <Py_ssize_t> 1)
    cdef char* target = out.data + out_offset * item
    cdef Product c
    cdef Tiles t
    if m * n == 0:
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
    if is_small(m, k, n) and (m > 1 and n > 1 or m * n * k < SPLIT):
        t.a, t.a_row, t.a_col = a.data + a_offset * item, a.strides[last - 1], a.strides[last]
        t.b, t.b_row, t.b_col = b.data + b_offset * item, b.strides[last - 1], b.strides[last]
        t.bias, t.out, t.out_row, t.dtype, t.item = bias, target, out_row, out.dtype, item
        t.m, t.k, t.n, t.rows, t.columns, t.across = m, k, n, m, n, 1
        if threads > 1 and m * n * k >= SPLIT:
            in_tiles(&t, threads)
        else:
            one_tile(&t, 0, 0)
        return 0
    c.left.copied = c.right.copied = False
    status = operand(a, a_offset, &c.left) or operand(b, b_offset, &c.right)
    if status == 0:
        c.blas, c.dtype, c.m, c.k, c.n, c.by_rows = blas, out.dtype, m, k, n, m >= n
        c.out, c.out_row, c.item, c.bias = target, out_row, item, bias
        length = max(m, n)
        c.panel = panel_of(length) if m * n * k >= SPLIT else length
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
    if one(c.blas, c.a, batch_offset(c.a, i), c.b, batch_offset(c.b, i), NULL, c.out, batch_offset(c.out, i), 1):
        c.failed = 1            # whoever writes it writes the same


cdef int matmul_views(const Blas* blas, View* a, View* b, const char* bias, View* out, int threads) noexcept nogil:
    """out = a @ b over equal leading axes; threads share the batch, or the panels where there is only one, which may have a bias"""
    cdef Py_ssize_t batches = 1, i
    cdef Batch c
    for i in range(out.ndim - 2):
        batches *= out.shape[i]
    if batches == 1:
        return one(blas, a, 0, b, 0, bias, out, 0, threads)
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
