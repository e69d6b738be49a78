from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, F

cdef enum:
    NO_TRANS = 111
    TRANS = 112

cdef struct Blas:               # what was found in the BLAS library; NULL where there is none
    void* sgemm
    void* dgemm
    void* sgemv
    void* dgemv

cdef extern from "strip.h" nogil:
    ctypedef struct Strip "needle_strip":       # see there
        const void* a
        const void* b
        const void* base
        void* out
        Py_ssize_t a_row, a_col, b_row, base_row, base_col, out_row, out_col, rows, k, skip, cols
        double alpha

cdef Py_ssize_t strip_width(int dtype) noexcept nogil
cdef void compute_strip(int dtype, const Strip* s) noexcept nogil
cdef void pack_strip(int dtype, const char* b, Py_ssize_t b_row, Py_ssize_t b_col, Py_ssize_t k, Py_ssize_t cols,
                     char* packed) noexcept nogil
cdef bint is_small(Py_ssize_t m, Py_ssize_t k, Py_ssize_t n) noexcept nogil
cdef void small_product(int dtype, const char* a, Py_ssize_t a_row, Py_ssize_t a_col, const char* b, Py_ssize_t b_row,
                        Py_ssize_t b_col, const char* base, Py_ssize_t base_row, Py_ssize_t base_col, char* out,
                        Py_ssize_t out_row, Py_ssize_t m, Py_ssize_t k, Py_ssize_t n, double alpha) noexcept nogil
cdef void gemm(const Blas* blas, int dtype, int ta, int tb, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, double alpha,
               const char* a, Py_ssize_t lda, const char* b, Py_ssize_t ldb, bint add, char* c, Py_ssize_t ldc) noexcept nogil
cdef void gemv(const Blas* blas, int dtype, int trans, Py_ssize_t m, Py_ssize_t k, const char* a, Py_ssize_t lda, const char* x,
               Py_ssize_t x_step, char* y, Py_ssize_t y_step) noexcept nogil


cdef inline void product(const Blas* blas, int ta, int tb, Py_ssize_t m, Py_ssize_t n, Py_ssize_t k, double alpha, const F* a,
                         Py_ssize_t lda, const F* b, Py_ssize_t ldb, bint add, F* c, Py_ssize_t ldc) noexcept nogil:
    """gemm of what the pointers point to"""
    gemm(blas, FLOAT32 if F is float else FLOAT64, ta, tb, m, n, k, alpha, <const char*> a, lda, <const char*> b, ldb, add,
         <char*> c, ldc)
