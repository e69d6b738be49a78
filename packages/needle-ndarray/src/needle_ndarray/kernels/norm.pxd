from needle_ndarray.kernels.views cimport View

cdef int layer_norm_views(View* x, View* weight, View* bias, double eps, View* out, int threads) noexcept nogil
cdef int layer_norm_grad_views(View* grad, View* x, View* weight, double eps, View* dx, View* dweight, View* dbias,
                               int threads) noexcept nogil
cdef int batch_norm_views(View* x, View* weight, View* bias, double eps, View* out, View* mean, View* var,
                          int threads) noexcept nogil
cdef int batch_norm_grad_views(View* grad, View* x, View* mean, View* var, View* weight, double eps, View* dx, View* dweight,
                               View* dbias, int threads) noexcept nogil
