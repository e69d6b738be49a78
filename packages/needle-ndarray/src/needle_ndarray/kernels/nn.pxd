from needle_ndarray.kernels.views cimport View
from needle_ndarray.optable cimport LOGSUMEXP, LOG_SOFTMAX, SOFTMAX

cdef int softmax_views(int op, View* a, View* out, int threads) noexcept nogil
cdef int softmax_grad_views(int op, View* grad, View* x, View* y, View* out, int threads) noexcept nogil
cdef int cross_entropy_views(View* grad, View* logits, View* labels, View* out, int threads) noexcept nogil
