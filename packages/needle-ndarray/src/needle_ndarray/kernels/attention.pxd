from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View

cdef struct Attention:          # rows of q, k, v and of the results have unit stride and a row stride that BLAS takes
    const Blas* blas
    View q                      # (..., tq, d)
    View k                      # (..., tk, d)
    View v                      # (..., tk, dv)
    View mask                   # (..., tq, tk), bool or of q's dtype
    bint masked
    bint causal
    double scale

cdef int attention_views(const Attention* job, View* out, int threads) noexcept nogil
cdef int attention_grad_views(const Attention* job, View* grad, View* dq, View* dk, View* dv, int threads) noexcept nogil
