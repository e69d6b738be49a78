# Rows of exponentials, as softmax and attention need them. Rows are not empty.

from needle_ndarray.kernels.views cimport F

cdef extern from "softmax.h" nogil:
    float needle_largest_float(const float* x, Py_ssize_t n) noexcept
    double needle_largest_double(const double* x, Py_ssize_t n) noexcept
    double needle_exps_float(bint subnormal, const float* x, Py_ssize_t n, float shift, float* out) noexcept
    double needle_exps_double(bint subnormal, const double* x, Py_ssize_t n, double shift, double* out) noexcept
    double needle_products_float(const float* a, const float* b, Py_ssize_t n) noexcept
    double needle_products_double(const double* a, const double* b, Py_ssize_t n) noexcept
    void needle_log_softmax_derivative_float(const float* grad, const float* y, float total, Py_ssize_t n, float* out) noexcept
    void needle_log_softmax_derivative_double(const double* grad, const double* y, double total, Py_ssize_t n,
                                              double* out) noexcept
    void needle_logsumexp_derivative_float(float grad, const float* x, float y, Py_ssize_t n, float* out) noexcept
    void needle_logsumexp_derivative_double(double grad, const double* x, double y, Py_ssize_t n, double* out) noexcept


cdef inline F largest(const F[::1] a) noexcept nogil:
    """The largest of a row; NaNs do not count"""
    if F is float:
        return needle_largest_float(&a[0], a.shape[0])
    else:
        return needle_largest_double(&a[0], a.shape[0])


cdef inline double sum_of_exponentials(const F[::1] a, F shift) noexcept nogil:
    """The sum of e^(a - shift), without those that are no normal numbers"""
    if F is float:
        return needle_exps_float(False, &a[0], a.shape[0], shift, NULL)
    else:
        return needle_exps_double(False, &a[0], a.shape[0], shift, NULL)


cdef inline double exponentials(bint subnormal, const F[::1] a, F shift, F[::1] out) noexcept nogil:
    """out = e^(a - shift), 0 for what is no normal number unless `subnormal`; their sum"""
    if F is float:
        return needle_exps_float(subnormal, &a[0], a.shape[0], shift, &out[0])
    else:
        return needle_exps_double(subnormal, &a[0], a.shape[0], shift, &out[0])


cdef inline double sum_of_products(const F[::1] a, const F[::1] b) noexcept nogil:
    """The sum of a b"""
    if F is float:
        return needle_products_float(&a[0], &b[0], a.shape[0])
    else:
        return needle_products_double(&a[0], &b[0], a.shape[0])


cdef inline double sum_of(const F[::1] a) noexcept nogil:
    if F is float:
        return needle_products_float(&a[0], NULL, a.shape[0])
    else:
        return needle_products_double(&a[0], NULL, a.shape[0])


cdef inline void log_softmax_derivative(const F[::1] grad, const F[::1] y, F total, F[::1] out) noexcept nogil:
    """out = grad - e^y total"""
    if F is float:
        needle_log_softmax_derivative_float(&grad[0], &y[0], total, y.shape[0], &out[0])
    else:
        needle_log_softmax_derivative_double(&grad[0], &y[0], total, y.shape[0], &out[0])


cdef inline void logsumexp_derivative(F grad, const F[::1] x, F y, F[::1] out) noexcept nogil:
    """out = grad e^(x - y)"""
    if F is float:
        needle_logsumexp_derivative_float(grad, &x[0], y, x.shape[0], &out[0])
    else:
        needle_logsumexp_derivative_double(grad, &x[0], y, x.shape[0], &out[0])
