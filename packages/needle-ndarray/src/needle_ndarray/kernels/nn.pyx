# Fused kernels of neural networks: softmax and its relatives, along the last axis. Each has its composed twin in backend.pyx.

from cython.parallel cimport prange
from libc.math cimport INFINITY, log
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.reduce cimport fold_floats
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F, View, thread_number
from needle_ndarray.optable cimport EXP, MAX, SUM


cdef void softmax_row(int op, int dtype, const F* a, F* shifted, F* out, Py_ssize_t n) noexcept nogil:
    """out = e^(a - max) / sum, or its logarithm; for LOGSUMEXP one number, max + log sum"""
    cdef Py_ssize_t i
    cdef double largest = fold_floats(MAX, dtype, <const char*> a, n), total
    cdef F shift = <F> largest, scale
    if op == LOGSUMEXP and (largest == INFINITY or largest == -INFINITY):
        shift = 0
    for i in range(n):
        shifted[i] = a[i] - shift
    if op == SOFTMAX:
        unary(EXP, dtype, <const char*> shifted, <char*> out, n)
        scale = <F> fold_floats(SUM, dtype, <const char*> out, n)
        for i in range(n):
            out[i] = out[i] / scale
        return
    # the exponentials take the place of a second buffer: `shifted + n` was allocated for them
    unary(EXP, dtype, <const char*> shifted, <char*> (shifted + n), n)
    total = log(fold_floats(SUM, dtype, <const char*> (shifted + n), n))
    if op == LOGSUMEXP:
        out[0] = <F> (total + shift)
        return
    for i in range(n):
        out[i] = <F> (shifted[i] - total)


cdef int softmax_of(int op, View* a, View* out, F like, int threads) noexcept nogil:
    cdef Py_ssize_t n = a.shape[a.ndim - 1], rows = a.size // n if n else 0, out_n = 1 if op == LOGSUMEXP else n, i
    cdef bint flat = contiguous(a), out_flat = contiguous(out)
    cdef F* staged = <F*> malloc(threads * (4 * n + 1) * sizeof(F))
    cdef F* here
    cdef F* source
    cdef F* target
    if staged is NULL:
        return -1
    for i in prange(rows, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        here = staged + thread_number() * (4 * n + 1)
        source = <F*> a.data + i * n if flat else here
        target = <F*> out.data + i * out_n if out_flat else here + 3 * n
        if not flat:
            gather(a, i * n, n, <char*> source)
        softmax_row(op, a.dtype, source, here + n, target, n)
        if not out_flat:
            scatter(<char*> target, i * out_n, out_n, out)
    free(staged)
    return 0


cdef int softmax_views(int op, View* a, View* out, int threads) noexcept nogil:
    """Every row of `a`; -1 when there is no memory for the staging buffers"""
    if a.dtype == FLOAT32:
        return softmax_of(op, a, out, <float> 0, threads)
    return softmax_of(op, a, out, <double> 0, threads)
