from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.optable cimport CONV2D, INPUT_GRAD, WEIGHT_GRAD

cdef enum:
    DEPTHWISE               # every channel has one filter of its own
    POINTWISE               # a kernel of one element: the images are a matrix as they lie
    TILES                   # direct.pyx
    COLUMNS                 # im2col and BLAS

cdef struct Conv:               # sizes of a convolution, all of them 1 or more but the padding; y is compact
    Py_ssize_t n, h, w, c       # x (n, h, w, c)
    Py_ssize_t kh, kw, f        # weight (kh, pitch, c / groups, f)
    Py_ssize_t oh, ow           # y (n, oh, ow, f)
    Py_ssize_t sh, sw           # stride
    Py_ssize_t top, left        # padding; what is below and to the right follows from the other sizes
    Py_ssize_t dh, dw           # dilation
    Py_ssize_t groups
    Py_ssize_t pitch            # columns of the kernel in memory: more than kw where only some of them see the image
    bint strided                # x lies elsewhere in memory, with `steps` from image to image, row to row, place to place, channel
    Py_ssize_t steps[4]
    bint plane                  # x has one channel, and y so few that vectors hold places

cdef struct Plan:               # how a call is computed: decided once, by `planned`
    int op, dtype, algorithm
    bint adjoint                # INPUT_GRAD as a convolution of y's gradient with the flipped kernel: then `g` is that one
    Py_ssize_t input_dh, input_dw       # dilation of its input: zeros between the places, as many as the stride asks for
    Conv g
    Py_ssize_t rows             # output places of a block, or rows of a band
    Py_ssize_t tasks
    Py_ssize_t thread_elements  # scratch memory of every thread
    Py_ssize_t shared_elements  # and of all together: partial sums of the weights' gradient, or packed weights

cdef Plan planned(int op, int dtype, const Conv* g) noexcept nogil
cdef bint needs_blas(const Plan* plan) noexcept nogil
cdef Py_ssize_t scratch_elements(const Plan* plan, int threads) noexcept nogil
cdef void convolve(const Plan* plan, const Blas* blas, char* x, char* weight, char* y, const void* epilogue, char* scratch,
                   int threads) noexcept nogil
