# One matrix product on one thread, in the words of BLIS: the macro-kernel cuts it into blocks that the caches hold and packs
# micro-panels of b; the micro-kernel (gemm.h) computes a few rows of one with all sums in registers. Large products go to BLAS.

from needle_ndarray.kernels.views cimport FLOAT32

ctypedef void (*sgemm_t)(int order, int ta, int tb, int m, int n, int k, float alpha, const float* a, int lda,
                         const float* b, int ldb, float beta, float* c, int ldc) noexcept nogil
ctypedef void (*dgemm_t)(int order, int ta, int tb, int m, int n, int k, double alpha, const double* a, int lda,
                         const double* b, int ldb, double beta, double* c, int ldc) noexcept nogil
ctypedef void (*sgemv_t)(int order, int trans, int m, int n, float alpha, const float* a, int lda,
                         const float* x, int incx, float beta, float* y, int incy) noexcept nogil
ctypedef void (*dgemv_t)(int order, int trans, int m, int n, double alpha, const double* a, int lda,
                         const double* x, int incx, double beta, double* y, int incy) noexcept nogil

cdef extern from "gemm.h" nogil:
    void micro_panel_float "needle_micro_panel_float"(const Gemm* g, Py_ssize_t skip)
    void micro_panel_double "needle_micro_panel_double"(const Gemm* g, Py_ssize_t skip)
    void one_row_float "needle_one_row_float"(const Gemm* g)
    void one_row_double "needle_one_row_double"(const Gemm* g)
    void pack_float "needle_pack_float"(const float* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                                        float* packed)
    void pack_double "needle_pack_double"(const double* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                                          double* packed)

cdef extern from "gate.h" nogil:
    void enter "needle_enter"(int* running, const int* limit)
    void leave "needle_leave"(int* running)

cdef enum:
    ROW_MAJOR = 101
    NO_TRANS = 111
    TRANS = 112
    DEPTH = 512             # rows of a micro-panel of b, which stays in the first cache,
    HEIGHT = 192            # and of a block of a, which stays in the second
    WIDEST = 128            # bytes of a row of a micro-panel, at any level
    LINE = 64               # bytes that caches move, and that packed rows begin with
    IN_PLACE = 8192         # elements of an operand that is small enough to be read where it lies


cdef Py_ssize_t panel_width(int dtype) noexcept nogil:
    """Columns of a micro-panel"""
    return 2 * VECTOR // (4 if dtype == FLOAT32 else 8)


cdef void micro_panel(int dtype, const Gemm* g, Py_ssize_t skip) noexcept nogil:
    """All rows of at most panel_width columns of the result, without the first `skip`"""
    if dtype == FLOAT32:
        micro_panel_float(g, skip)
    else:
        micro_panel_double(g, skip)


cdef void pack(int dtype, const Matrix* b, Py_ssize_t k, Py_ssize_t columns, void* packed) noexcept nogil:
    """A micro-panel of b (k, columns) in compact rows, as wide as it or half of that, 0 beyond the last column"""
    if dtype == FLOAT32:
        pack_float(<const float*> b.data, b.row, b.col, k, columns, <float*> packed)
    else:
        pack_double(<const double*> b.data, b.row, b.col, k, columns, <double*> packed)


cdef void micro_panels(int dtype, const Gemm* block, void* packed) noexcept nogil:
    """All micro-panels of a block; b is read where it lies unless there is memory to pack it.

    The last micro-panel begins further left, and computes some columns again. One row is not cut into micro-panels.
    """
    cdef Gemm g
    cdef Py_ssize_t wide = panel_width(dtype), j = 0, start, width
    if block.m == 1 and packed is NULL and block.out.col == 1 and (block.base.data is NULL or block.base.col == 1):
        if dtype == FLOAT32:
            one_row_float(block)
        else:
            one_row_double(block)
        return
    g = block[0]
    while j < block.n:
        width = wide if block.n - j > wide // 2 and (block.n >= wide or packed is not NULL) else wide // 2
        start = min(j, max(block.n - width, <Py_ssize_t> 0))
        g.n = min(width, block.n - start)
        g.b, g.base.data = part(dtype, block.b, 0, start), part(dtype, block.base, 0, start).data
        g.out.data = part(dtype, block.out, 0, start).data
        if packed is not NULL:
            pack(dtype, &g.b, g.k, g.n, packed)
            g.b = row_major(packed, width)
        micro_panel(dtype, &g, j - start)
        j = start + width


cdef void macro_kernel(int dtype, const Gemm* g, void* packed) noexcept nogil:
    """The product in blocks of HEIGHT rows and equal parts of the depth, which are added up"""
    cdef Gemm block
    cdef Py_ssize_t parts = (g.k + DEPTH - 1) // DEPTH, depth = g.k if parts <= 1 else (g.k + parts - 1) // parts, i = 0, l
    if parts <= 1 and g.m <= HEIGHT:    # a copy of what was written a moment ago would wait for it: a tenth of an 8x8 product
        micro_panels(dtype, g, packed)
        return
    block = g[0]
    while i < g.m:
        block.m, block.out, block.base = min(<Py_ssize_t> HEIGHT, g.m - i), part(dtype, g.out, i, 0), part(dtype, g.base, i, 0)
        l = 0
        while l == 0 or l < g.k:
            block.k = min(depth, g.k - l)
            block.a, block.b = part(dtype, g.a, i, l), part(dtype, g.b, l, 0)
            micro_panels(dtype, &block, packed)
            block.base = block.out
            l += max(depth, <Py_ssize_t> 1)
        i += HEIGHT


cdef void packing_kernel(int dtype, const Gemm* g) noexcept nogil:
    """The macro-kernel with memory for a micro-panel; its own function, since small products do without that much stack"""
    cdef char memory[DEPTH * WIDEST + LINE]
    macro_kernel(dtype, g, memory + LINE - <size_t> memory % LINE)


cdef void small_gemm(int dtype, const Gemm* given) noexcept nogil:
    """The product without BLAS, of any strides; a tall, narrow result as a wide one: out^T = base^T + alpha b^T @ a^T"""
    cdef Gemm g
    cdef Py_ssize_t lanes = panel_width(dtype) // 2
    if given.n < lanes and given.m > given.n:
        g = given[0]
        g.a, g.b, g.m, g.n = transposed(given.b), transposed(given.a), given.n, given.m
        g.base, g.out = transposed(g.base), transposed(g.out)
        given = &g
    if given.b.col == 1 and given.n >= lanes and (given.k * given.b.row <= IN_PLACE or given.m <= 2 * ROWS):
        macro_kernel(dtype, given, NULL)
    else:
        packing_kernel(dtype, given)


# ---- BLAS --------------------------------------------------------------------------

cdef bint blas_reads(Matrix* a, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    """Whether BLAS can read a matrix where it lies; strides along axes of one element become what BLAS asks for"""
    cdef Py_ssize_t one = 1
    if (a.col == 1 or columns == 1) and (a.row >= max(columns, one) or rows == 1):
        a.row, a.col = max(a.row, max(columns, one)), 1
        return a.row < 0x7fffffff
    if (a.row == 1 or rows == 1) and (a.col >= max(rows, one) or columns == 1):
        a.row, a.col = 1, max(a.col, max(rows, one))
        return a.col < 0x7fffffff
    return False


cdef inline int trans(Matrix a) noexcept nogil:
    return NO_TRANS if a.col == 1 else TRANS


cdef inline int leading(Matrix a) noexcept nogil:
    return <int> (a.row if a.col == 1 else a.col)


cdef void gemv(const Blas* blas, int dtype, Matrix a, Py_ssize_t m, Py_ssize_t k, const void* x, Py_ssize_t x_step, void* y,
               Py_ssize_t y_step) noexcept nogil:
    """y (m,) = a (m, k) x"""
    blas_reads(&a, m, k)
    cdef int rows = <int> (m if a.col == 1 else k), columns = <int> (k if a.col == 1 else m)
    enter(&(<Blas*> blas).running, &blas.limit)
    if dtype == FLOAT32:
        (<sgemv_t> blas.sgemv)(ROW_MAJOR, trans(a), rows, columns, 1, <float*> a.data, leading(a), <const float*> x, <int> x_step,
                               0, <float*> y, <int> y_step)
    else:
        (<dgemv_t> blas.dgemv)(ROW_MAJOR, trans(a), rows, columns, 1, <double*> a.data, leading(a), <const double*> x,
                               <int> x_step, 0, <double*> y, <int> y_step)
    leave(&(<Blas*> blas).running)


cdef void gemm(const Blas* blas, int dtype, const Gemm* g) noexcept nogil:
    """Small products by the macro-kernel, large ones by BLAS: a and b must be such that it reads them; base is out or NULL"""
    cdef Matrix a = g.a, b = g.b
    cdef bint add = g.base.data is not NULL
    if is_small(g.m, g.k, g.n):
        small_gemm(dtype, g)
        return
    blas_reads(&a, g.m, g.k)
    blas_reads(&b, g.k, g.n)
    enter(&(<Blas*> blas).running, &blas.limit)
    if dtype == FLOAT32:
        (<sgemm_t> blas.sgemm)(ROW_MAJOR, trans(a), trans(b), <int> g.m, <int> g.n, <int> g.k, <float> g.alpha,
                               <float*> a.data, leading(a), <float*> b.data, leading(b), add, <float*> g.out.data,
                               <int> g.out.row)
    else:
        (<dgemm_t> blas.dgemm)(ROW_MAJOR, trans(a), trans(b), <int> g.m, <int> g.n, <int> g.k, g.alpha,
                               <double*> a.data, leading(a), <double*> b.data, leading(b), add, <double*> g.out.data,
                               <int> g.out.row)
    leave(&(<Blas*> blas).running)
