# Rows of exponentials, as softmax and attention need them. Rows are not empty.

from needle_ndarray.kernels.views cimport F

cdef extern from "softmax.h" nogil:
    float needle_largest_float(const float* x, Py_ssize_t n) noexcept
    double needle_largest_double(const double* x, Py_ssize_t n) noexcept
    double needle_exps_float(bint subnormal, const float* x, Py_ssize_t n, float shift, float* out) noexcept
    double needle_exps_double(bint subnormal, const double* x, Py_ssize_t n, double shift, double* out) noexcept


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
