from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.optable cimport CONV2D, INPUT_GRAD, WEIGHT_GRAD

cdef struct Conv:               # sizes of a convolution, all of them 1 or more but the padding; arrays are compact
    Py_ssize_t n, h, w, c       # x (n, h, w, c)
    Py_ssize_t kh, kw, f        # weight (kh, kw, c / groups, f)
    Py_ssize_t oh, ow           # y (n, oh, ow, f)
    Py_ssize_t sh, sw           # stride
    Py_ssize_t top, left        # padding; what is below and to the right follows from the other sizes
    Py_ssize_t dh, dw           # dilation
    Py_ssize_t groups

cdef bint needs_blas(int op, const Conv* g, int itemsize) noexcept nogil
cdef Py_ssize_t scratch_elements(int op, const Conv* g, int itemsize, int threads) noexcept nogil
cdef void convolve(int op, const Blas* blas, int dtype, const Conv* g, char* x, char* weight, char* y, char* scratch,
                   int threads) noexcept nogil
