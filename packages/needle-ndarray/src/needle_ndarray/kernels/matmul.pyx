# Matrix products of views, cut into tiles for threads. Floats: small ones by the macro-kernel, with any strides; large ones by
# BLAS, in panels whose size depends on the shape alone; operands that it cannot read are copied. Integers by a plain loop.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from needle_ndarray.kernels.gemm cimport (
    ROWS, Blas, Gemm, Matrix, blas_reads, gemm, gemv, is_small, panel_width, part, row_major, small_gemm, transposed
)
from needle_ndarray.kernels.memoryviews cimport strided_rows, vector
from needle_ndarray.kernels.strided cimport gather
from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, INT32, UINT8, F, View, int64, uint8
from needle_ndarray.threads cimport share

cdef extern from "weights.h" nogil:
    const Py_ssize_t WEIGHT_COLUMNS "NEEDLE_WEIGHT_COLUMNS"
    void weights "needle_weights"(
        int format, const float* a, Py_ssize_t a_row, const char* w, Py_ssize_t row, Py_ssize_t column, const float* scale,
        float* out, Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept

ctypedef fused Whole:       # integers that are multiplied
    uint8
    int
    int64

cdef extern from *:
    """
    #define NEEDLE_STRIDED(p, m, n, row, col) NEEDLE_SLICE(p, {m, n}, {NEEDLE_BYTES(p, row), NEEDLE_BYTES(p, col)})
    """
    uint8[:, :] strided_uint8 "NEEDLE_STRIDED"(uint8* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row, Py_ssize_t col) nogil
    int[:, :] strided_ints "NEEDLE_STRIDED"(int* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row, Py_ssize_t col) nogil
    int64[:, :] strided_int64 "NEEDLE_STRIDED"(int64* data, Py_ssize_t m, Py_ssize_t n, Py_ssize_t row, Py_ssize_t col) nogil

cdef enum:
    PANEL = 256             # rows or columns of the result that one thread takes, at most: an even number of equal panels,
    STEP = 4                # in whole tiles of BLAS
    ROW_STEP = 64           # columns of a panel of one row: whole cache lines,
    ROW_PANEL = 4096        # at most so many: the sums stay in the first cache
    TILE = 8                # of matmul_tiled
    SPLIT = 200000          # multiplications above which a product is cut into panels or tiles
    TILE_WORK = 400000      # multiplications that a tile should have
    TILES = 4               # for every thread, to end at nearly the same time,
    LEAST_ROWS = 48         # unless they would be lower than this


cdef inline Whole[:, :] strided(Matrix a, Py_ssize_t rows, Py_ssize_t columns, Whole like) noexcept nogil:
    """A matrix of any strides as a memoryview"""
    if Whole is uint8:
        return strided_uint8(<uint8*> a.data, rows, columns, a.row, a.col)
    elif Whole is int:
        return strided_ints(<int*> a.data, rows, columns, a.row, a.col)
    else:
        return strided_int64(<int64*> a.data, rows, columns, a.row, a.col)


cdef void plain(const Whole[:, :] a, const Whole[:, ::1] b, Whole[:, ::1] out) noexcept nogil:
    """out[i, j] = sum of a[i, l] b[l, j], rows of b added up into rows of out, four at a time"""
    cdef Py_ssize_t i, j, l, k = a.shape[1]
    cdef Whole a0, a1, a2, a3
    for i in range(out.shape[0]):
        for j in range(out.shape[1]):
            out[i, j] = 0
        for l in range(0, k - 3, 4):
            a0, a1, a2, a3 = a[i, l], a[i, l + 1], a[i, l + 2], a[i, l + 3]
            for j in range(out.shape[1]):
                out[i, j] += a0 * b[l, j] + a1 * b[l + 1, j] + a2 * b[l + 2, j] + a3 * b[l + 3, j]
        for l in range(k - k % 4, k):
            a0 = a[i, l]
            for j in range(out.shape[1]):
                out[i, j] += a0 * b[l, j]


cdef void plain_product(const Gemm* g, Whole like) noexcept nogil:
    """The product of integers"""
    plain(strided(g.a, g.m, g.k, like), strided_rows(<Whole*> g.b.data, g.k, g.n, g.b.row),
          strided_rows(<Whole*> g.out.data, g.m, g.n, g.out.row))


cdef Matrix matrix(const View* a, Py_ssize_t offset) noexcept nogil:
    """The matrix of the last two axes at an offset"""
    cdef Matrix out
    out.data, out.row, out.col = a.data + offset * a.itemsize, a.strides[a.ndim - 2], a.strides[a.ndim - 1]
    return out


cdef void* for_blas(const View* a, Matrix* out) noexcept nogil:
    """A matrix that BLAS reads: its own memory, or a compact copy, which has to be freed; NULL without memory for that"""
    return out.data if blas_reads(out, a.shape[a.ndim - 2], a.shape[a.ndim - 1]) else copied(a, out)


cdef void* copied(const View* a, Matrix* out) noexcept nogil:
    """A compact copy, which has to be freed; NULL without memory for it"""
    cdef View here = a[0]
    cdef int last = a.ndim - 1
    here.data, here.ndim = <char*> out.data, 2
    here.shape[0], here.shape[1] = a.shape[last - 1], a.shape[last]
    here.strides[0], here.strides[1] = out.row, out.col
    out[0] = row_major(malloc(here.shape[0] * here.shape[1] * a.itemsize), here.shape[1])
    if out.data is not NULL:
        gather(&here, 0, here.shape[0] * here.shape[1], <char*> out.data)
    return out.data


cdef struct Tiles:              # one product, cut into tiles of the result
    const Blas* blas            # NULL: small enough to do without it
    int dtype
    Py_ssize_t item
    Gemm g                      # base: a row that is added to all rows, or NULL
    Py_ssize_t rows, columns    # of a tile
    Py_ssize_t across           # tiles beside each other


cdef void add_bias(const F* bias, Py_ssize_t step, F* out, Py_ssize_t out_step, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(n):
        out[i * out_step] += bias[i * step]


cdef void row_product(const F[:, ::1] a, const F[:, ::1] b, F[::1] out) noexcept nogil:
    """out[j] = out[j] + sum of a[l, 0] b[l, j], eight rows of b at a time

    Reads b in order, 1.1 to 1.2 times as fast as BLAS does. Each element has its sum in one order, however columns are cut.
    """
    cdef Py_ssize_t l, j, k = b.shape[0]
    cdef F a0, a1, a2, a3, a4, a5, a6, a7
    for l in range(0, k - 7, 8):
        a0, a1, a2, a3 = a[l, 0], a[l + 1, 0], a[l + 2, 0], a[l + 3, 0]
        a4, a5, a6, a7 = a[l + 4, 0], a[l + 5, 0], a[l + 6, 0], a[l + 7, 0]
        for j in range(out.shape[0]):
            out[j] = (out[j] + a0 * b[l, j] + a1 * b[l + 1, j] + a2 * b[l + 2, j] + a3 * b[l + 3, j]
                      + a4 * b[l + 4, j] + a5 * b[l + 5, j] + a6 * b[l + 6, j] + a7 * b[l + 7, j])
    for l in range(k - k % 8, k):
        a0 = a[l, 0]
        for j in range(out.shape[0]):
            out[j] += a0 * b[l, j]


cdef void row_of_product(const Gemm* g, F like) noexcept nogil:
    """The product of a row of a, its elements any step apart, and b"""
    if g.base.data is NULL:
        memset(g.out.data, 0, g.n * sizeof(F))
    else:
        memcpy(g.out.data, g.base.data, g.n * sizeof(F))
    row_product(strided_rows(<F*> g.a.data, g.k, 1, g.a.col), strided_rows(<F*> g.b.data, g.k, g.n, g.b.row),
                vector(<F*> g.out.data, g.n))


cdef inline bint is_row(const Gemm* g) noexcept nogil:
    """Whether a product is that of a row and a matrix whose rows are contiguous"""
    return g.m == 1 and g.n > 1 and g.b.col == 1


cdef void vector_product(const Tiles* c, const Gemm* g) noexcept nogil:
    """A result of one column, or of one row: out^T = b^T a^T"""
    cdef bint column = g.n == 1
    cdef Py_ssize_t n = g.m if column else g.n, step = g.out.row if column else 1
    if is_row(&c.g):
        if c.dtype == FLOAT32:
            row_of_product(g, <float> 0)
        else:
            row_of_product(g, <double> 0)
        return
    if column:
        gemv(c.blas, c.dtype, g.a, g.m, g.k, g.b.data, g.b.row, g.out.data, step)
    else:
        gemv(c.blas, c.dtype, transposed(g.b), g.n, g.k, g.a.data, g.a.col, g.out.data, step)
    if g.base.data is NULL:
        return
    if c.dtype == FLOAT32:
        add_bias(<const float*> g.base.data, not column, <float*> g.out.data, step, n)
    else:
        add_bias(<const double*> g.base.data, not column, <double*> g.out.data, step, n)


cdef void matrix_product(const Tiles* c, Gemm* g) noexcept nogil:
    """The bias goes into every row, for the product to be added to it: BLAS would have written zeros"""
    cdef Py_ssize_t i
    if g.base.data is not NULL:
        for i in range(g.m):
            memcpy(<char*> g.out.data + i * g.out.row * c.item, g.base.data, g.n * c.item)
        g.base = g.out
    gemm(c.blas, c.dtype, g)


cdef void one_tile(const void* job, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Tiles* c = <const Tiles*> job
    cdef Py_ssize_t row = i // c.across * c.rows, column = i % c.across * c.columns
    cdef Gemm g = c.g
    g.m, g.n = min(c.rows, c.g.m - row), min(c.columns, c.g.n - column)
    g.a, g.b = part(c.dtype, g.a, row, 0), part(c.dtype, g.b, 0, column)
    g.out, g.base = part(c.dtype, g.out, row, column), part(c.dtype, g.base, 0, column)
    if c.blas is NULL:
        small_gemm(c.dtype, &g)
    elif c.g.n == 1 or c.g.m == 1:
        vector_product(c, &g)
    else:
        matrix_product(c, &g)


cdef void share_tiles(const Tiles* c, int threads) noexcept nogil:
    share(one_tile, c, (c.g.m + c.rows - 1) // c.rows * c.across, threads)


cdef void cut_small(Tiles* c, int threads) noexcept nogil:
    """Tiles of whole micro-panels, some for every thread: how they are cut changes no bit"""
    cdef Py_ssize_t wide = panel_width(c.dtype), down
    c.columns = max(TILE_WORK // (c.g.m * c.g.k * wide), <Py_ssize_t> 1) * wide
    c.across = (c.g.n + c.columns - 1) // c.columns
    down = min((TILES * threads + c.across - 1) // c.across, (c.g.m + LEAST_ROWS - 1) // LEAST_ROWS)
    c.rows = ((c.g.m + down - 1) // down + ROWS - 1) // ROWS * ROWS


cdef void cut_large(Tiles* c) noexcept nogil:
    """Panels of whole rows of the result, or of whole columns: by their number alone, so that results do not depend on threads"""
    cdef Py_ssize_t length = max(c.g.m, c.g.n), panels = (length + 2 * PANEL - 1) // (2 * PANEL) * 2
    cdef Py_ssize_t panel = ((length + panels - 1) // panels + STEP - 1) // STEP * STEP
    if c.g.m >= c.g.n:
        c.rows = panel
    else:
        c.columns, c.across = panel, (c.g.n + panel - 1) // panel


cdef void cut_row(Tiles* c, int threads) noexcept nogil:
    """A wide panel for every thread, whose rows are read in order: how they are cut changes no bit"""
    cdef Py_ssize_t share_of_one = min((c.g.n + threads - 1) // threads, <Py_ssize_t> ROW_PANEL)
    c.columns = (share_of_one + ROW_STEP - 1) // ROW_STEP * ROW_STEP
    c.across = (c.g.n + c.columns - 1) // c.columns


cdef bint needs_blas(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    """Whether a product is too large for the macro-kernel, or one with a vector that is worth the call"""
    return not is_small(m, k, n) or (m == 1 or n == 1) and m * n * k >= SPLIT


cdef int one(const Blas* blas, const View* a, Py_ssize_t a_offset, const View* b, Py_ssize_t b_offset, const char* bias,
             View* out, Py_ssize_t out_offset, int threads) noexcept nogil:
    """One product, for floats plus a row `bias` unless that is NULL; rows of `out` are contiguous. blas: where it `needs_blas`"""
    cdef int last = out.ndim - 1
    cdef Py_ssize_t m = out.shape[last - 1], n = out.shape[last], k = a.shape[last]
    cdef void* left
    cdef void* right
    cdef bint done
    cdef Tiles c
    if m * n == 0:
        return 0
    c.g.a, c.g.b, c.g.out = matrix(a, a_offset), matrix(b, b_offset), matrix(out, out_offset)
    c.g.out.row, c.g.out.col = max(c.g.out.row if m > 1 else n, n), 1
    c.g.m, c.g.k, c.g.n, c.g.alpha = m, k, n, 1
    left, right = c.g.a.data, c.g.b.data
    if out.dtype != FLOAT32 and out.dtype != FLOAT64:
        if c.g.b.col != 1 and n > 1 and k > 0 and copied(b, &c.g.b) is NULL:
            return -1
        if out.dtype == INT32:
            plain_product(&c.g, <int> 0)
        elif out.dtype == UINT8:
            plain_product(&c.g, <uint8> 0)
        else:
            plain_product(&c.g, <int64> 0)
        if c.g.b.data != right:
            free(c.g.b.data)
        return 0
    c.g.base.data, c.g.base.row, c.g.base.col = <void*> bias, 0, 1
    c.blas, c.dtype, c.item, c.rows, c.columns, c.across = blas, out.dtype, out.itemsize, m, n, 1
    if blas is NULL:
        if threads > 1 and m * n * k >= SPLIT:
            cut_small(&c, threads)
            share_tiles(&c, threads)
        else:
            small_gemm(c.dtype, &c.g)
        return 0
    done = for_blas(a, &c.g.a) is not NULL and for_blas(b, &c.g.b) is not NULL
    if done:
        if m * n * k >= SPLIT and is_row(&c.g):
            cut_row(&c, threads)
        elif m * n * k >= SPLIT:
            cut_large(&c)
        share_tiles(&c, threads)
    if c.g.a.data != left:
        free(c.g.a.data)
    if c.g.b.data != right:
        free(c.g.b.data)
    return 0 if done else -1


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
        c.failed = 1            # a benign race: every writer stores 1


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
    """The course's tiled product: a is [m/T][n/T][T][T], b [n/T][p/T][T][T], out [m/T][p/T][T][T]; one tile stays in the cache.

    By pointers: memoryviews, whose strides are no constants, take 1.06 times as long.
    """
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


# ---- Small weights ----------------------------------------------------------------------------------------------------------

cdef void one_weight_block(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Weights* job = <const Weights*> given
    cdef Py_ssize_t j = b * job.width
    weights(job.format, job.a, job.a_row, job.w + j * job.column * job.item, job.row, job.column,
            job.scale + j if job.scale is not NULL else NULL, job.out + j, job.out_row, job.m, job.k, min(job.width, job.n - j))


cdef void matmul_weight(Weights* job, int threads) noexcept nogil:
    """out = (a @ w) scale, in blocks of columns: two for each thread, of whole cache lines"""
    job.width = min(<Py_ssize_t> WEIGHT_COLUMNS, (job.n // (2 * threads) // ROW_STEP + 1) * ROW_STEP)
    share(one_weight_block, job, (job.n + job.width - 1) // job.width, threads)
