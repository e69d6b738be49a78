# Fused kernels of neural networks: softmax, its relatives and cross-entropy, along the last axis. Each has its composed twin in
# backend.pyx.

from cython.parallel cimport prange
from libc.math cimport INFINITY, log
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.reduce cimport fold_floats
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport CHUNK, FLOAT32, F, View, int64, thread_number
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


# ---- Cross-entropy --------------------------------------------------------------------------

cdef double exponentials(int dtype, const F* a, F shift, F* out, bint kept, Py_ssize_t n) noexcept nogil:
    """The sum of e^(a - shift), a chunk at a time; out = all of them where they are kept, else one chunk's room"""
    cdef F shifted[CHUNK]
    cdef double total = 0
    cdef Py_ssize_t start = 0, length, i
    while start < n:
        length = min(<Py_ssize_t> CHUNK, n - start)
        for i in range(length):
            shifted[i] = a[start + i] - shift
        unary(EXP, dtype, <const char*> shifted, <char*> out, length)
        total += fold_floats(SUM, dtype, <const char*> out, length)
        start += length
        if kept:
            out += length
    return total


cdef void cross_entropy_row(int dtype, const F* a, Py_ssize_t label, F* out, Py_ssize_t n) noexcept nogil:
    """out = log sum e^(a - max) - (a[label] - max)"""
    cdef F chunk[CHUNK]
    cdef F largest = <F> fold_floats(MAX, dtype, <const char*> a, n)
    cdef double total = exponentials(dtype, a, largest, chunk, False, n)
    out[0] = <F> (log(total) - (<double> a[label] - <double> largest))


cdef void cross_entropy_grad_row(int dtype, F grad, const F* a, Py_ssize_t label, F* out, Py_ssize_t n) noexcept nogil:
    """out = (softmax(a) - onehot(label)) grad"""
    cdef F largest = <F> fold_floats(MAX, dtype, <const char*> a, n), scale
    cdef double total = exponentials(dtype, a, largest, out, True, n), picked = out[label] / total
    cdef Py_ssize_t i
    scale = <F> (grad / total)
    for i in range(n):
        out[i] *= scale
    out[label] = <F> ((picked - 1) * grad)


cdef int cross_entropy_at(View* grad, View* logits, View* labels, View* out, Py_ssize_t i, F* staged) noexcept nogil:
    """Row i, its loss or its gradient; 1 for a label out of range, which is left alone"""
    cdef Py_ssize_t n = logits.shape[logits.ndim - 1], out_n = 1 if grad is NULL else n
    cdef bint flat = contiguous(logits), out_flat = contiguous(out)
    cdef F* source = <F*> logits.data + i * n if flat else staged
    cdef F* target = <F*> out.data + i * out_n if out_flat else staged + n
    cdef F slope
    cdef int64 label
    gather(labels, i, 1, <char*> &label)
    if label < 0 or label >= n:
        return 1
    if not flat:
        gather(logits, i * n, n, <char*> source)
    if grad is NULL:
        cross_entropy_row(logits.dtype, source, label, target, n)
    else:
        gather(grad, i, 1, <char*> &slope)
        cross_entropy_grad_row(logits.dtype, slope, source, label, target, n)
    if not out_flat:
        scatter(<char*> target, i * out_n, out_n, out)
    return 0


cdef int cross_entropy_of(View* grad, View* logits, View* labels, View* out, F like, int threads) noexcept nogil:
    cdef Py_ssize_t n = logits.shape[logits.ndim - 1], rows = logits.size // n, i
    cdef int outside = 0
    cdef F* staged = <F*> malloc(threads * 2 * n * sizeof(F))
    if staged is NULL:
        return -1
    for i in prange(rows, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        outside += cross_entropy_at(grad, logits, labels, out, i, staged + thread_number() * 2 * n)
    free(staged)
    return -2 if outside else 0


cdef int cross_entropy_views(View* grad, View* logits, View* labels, View* out, int threads) noexcept nogil:
    """The loss of every row, or its gradient where grad is not NULL; -1 when there is no memory, -2 for a label out of range"""
    if logits.dtype == FLOAT32:
        return cross_entropy_of(grad, logits, labels, out, <float> 0, threads)
    return cross_entropy_of(grad, logits, labels, out, <double> 0, threads)
