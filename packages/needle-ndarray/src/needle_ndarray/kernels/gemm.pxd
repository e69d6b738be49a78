from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, F

cdef extern from "gemm.h" nogil:
    enum:
        ROWS "NEEDLE_ROWS"
        VECTOR "NEEDLE_VECTOR"                  # bytes
    ctypedef struct Matrix "needle_matrix":     # of floats; see there
        void* data
        Py_ssize_t row, col
    ctypedef struct Gemm "needle_gemm":         # out = base + alpha a @ b
        Matrix a, b, base, out
        Py_ssize_t m, k, n
        double alpha

cdef enum:
    SMALL = 300000              # multiplications up to which the macro-kernel beats the call of BLAS,
    MIDDLE = 60000000           # and up to which it does where multiplications and additions are fused

cdef struct Blas:               # what was found in the BLAS library; NULL where there is none
    void* sgemm
    void* dgemm
    void* sgemv
    void* dgemv
    int running                 # calls at this moment
    int limit                   # of them, 0: none
    int buffers                 # that are certain to be there

cdef Py_ssize_t panel_width(int dtype) noexcept nogil
cdef void micro_panel(int dtype, const Gemm* g, Py_ssize_t skip) noexcept nogil
cdef void pack(int dtype, const Matrix* b, Py_ssize_t k, Py_ssize_t columns, void* packed) noexcept nogil
cdef void small_gemm(int dtype, const Gemm* given) noexcept nogil
cdef bint blas_reads(Matrix* a, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil
cdef void gemv(const Blas* blas, int dtype, Matrix a, Py_ssize_t m, Py_ssize_t k, const void* x, Py_ssize_t x_step, void* y,
               Py_ssize_t y_step) noexcept nogil
cdef void gemm(const Blas* blas, int dtype, const Gemm* g) noexcept nogil


cdef inline bint is_small(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil:
    return m * n * k <= (MIDDLE if VECTOR > 16 else SMALL)


cdef inline Matrix row_major(const void* data, Py_ssize_t row) noexcept nogil:
    """A matrix whose rows are `row` elements apart"""
    cdef Matrix a
    a.data, a.row, a.col = <void*> data, row, 1
    return a


cdef inline Matrix part(int dtype, Matrix a, Py_ssize_t row, Py_ssize_t column) noexcept nogil:
    """A matrix from an element on; of none, none"""
    if a.data is not NULL:
        a.data = <char*> a.data + (row * a.row + column * a.col) * (4 if dtype == FLOAT32 else 8)
    return a


cdef inline Matrix transposed(Matrix a) noexcept nogil:
    a.row, a.col = a.col, a.row
    return a


cdef inline void product(const Blas* blas, int dtype, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, double alpha, Matrix a, Matrix b,
                         bint add, Matrix out) noexcept nogil:
    """out (m, n) = alpha a (m, k) @ b (k, n) [+ out]"""
    cdef Gemm g
    g.a, g.b, g.base, g.out, g.m, g.k, g.n, g.alpha = a, b, out, out, m, k, n, alpha
    if not add:
        g.base.data = NULL
    gemm(blas, dtype, &g)


# ---- Products of memoryviews, whose sizes they tell --------------------------------------------------------------------------

cdef inline Matrix strided(const F[:, ::1] a) noexcept nogil:
    """The matrix by its strides, which transposed() swaps"""
    return row_major(&a[0, 0], a.strides[0] // <Py_ssize_t> sizeof(F))


cdef inline void multiply(const Blas* blas, double alpha, const F[:, ::1] a, const F[:, ::1] b, F[:, ::1] out) noexcept nogil:
    """out = alpha a b"""
    product(blas, FLOAT32 if F is float else FLOAT64, a.shape[0], a.shape[1], b.shape[1], alpha, strided(a), strided(b), False,
            strided(out))


cdef inline void multiply_transposed(const Blas* blas, double alpha, const F[:, ::1] a, const F[:, ::1] b,
                                     F[:, ::1] out) noexcept nogil:
    """out = alpha a b^T"""
    product(blas, FLOAT32 if F is float else FLOAT64, a.shape[0], a.shape[1], b.shape[0], alpha, strided(a),
            transposed(strided(b)), False, strided(out))


cdef inline void add_transposed_product(const Blas* blas, double alpha, const F[:, ::1] a, const F[:, ::1] b,
                                        F[:, ::1] out) noexcept nogil:
    """out = out + alpha a^T b"""
    product(blas, FLOAT32 if F is float else FLOAT64, a.shape[1], a.shape[0], b.shape[1], alpha, transposed(strided(a)),
            strided(b), True, strided(out))
