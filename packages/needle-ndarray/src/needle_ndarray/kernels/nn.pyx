# Fused kernels of neural networks: softmax, its relatives and cross-entropy, along the last axis. Each has its composed twin in
# backend.pyx.

from libc.math cimport INFINITY, log
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.reduce cimport fold_floats
from needle_ndarray.kernels.rows cimport room_for, rows_of
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport CHUNK, FLOAT32, F, View, int64
from needle_ndarray.optable cimport EXP, MAX, SUM
from needle_ndarray.threads cimport Task, share

cdef struct Rows:               # a call: what its tasks, one for each row, read and write
    int op
    const View* a
    const View* grad            # cross-entropy: NULL for the losses
    const View* labels
    const View* out
    bint flat, out_flat
    Py_ssize_t n, out_n         # elements of a row
    char* staged
    Py_ssize_t room             # bytes of it for each thread
    int outside                 # a label is


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


cdef void softmax_at(const Rows* job, Py_ssize_t i, F* staged) noexcept nogil:
    cdef Py_ssize_t n = job.n
    cdef F* source = rows_of(job.a, job.flat, i * n, n, staged)
    cdef F* target = room_for(job.out, job.out_flat, i * job.out_n, staged + 3 * n)
    softmax_row(job.op, job.a.dtype, source, staged + n, target, n)
    if not job.out_flat:
        scatter(<char*> target, i * job.out_n, job.out_n, job.out)


cdef void one_softmax(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Rows* job = <const Rows*> given
    cdef char* staged = job.staged + thread * job.room
    if job.a.dtype == FLOAT32:
        softmax_at(job, i, <float*> staged)
    else:
        softmax_at(job, i, <double*> staged)


cdef int run_rows(Rows* job, Task task, Py_ssize_t elements, int threads) noexcept nogil:
    """A task for every row, with room for so many elements"""
    job.n = job.a.shape[job.a.ndim - 1]
    job.out_n = job.n if job.out.ndim == job.a.ndim else 1
    job.flat, job.out_flat, job.outside = contiguous(job.a), contiguous(job.out), 0
    job.room = elements * job.a.itemsize
    job.staged = <char*> malloc(threads * job.room)
    if job.staged is NULL:
        return -1
    share(task, job, job.a.size // job.n if job.n else 0, threads)
    free(job.staged)
    return -2 if job.outside else 0


cdef int softmax_views(int op, View* a, View* out, int threads) noexcept nogil:
    """Every row of `a`; -1 when there is no memory for the staging buffers"""
    cdef Rows job
    job.op, job.a, job.out = op, a, out
    return run_rows(&job, one_softmax, 4 * a.shape[a.ndim - 1] + 1, threads)


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


cdef void cross_entropy_at(Rows* job, Py_ssize_t i, F* staged) noexcept nogil:
    """Row i, its loss or its gradient; a row whose label is out of range is left alone"""
    cdef Py_ssize_t n = job.n
    cdef F* source
    cdef F* target = room_for(job.out, job.out_flat, i * job.out_n, staged + n)
    cdef F slope
    cdef int64 label
    gather(job.labels, i, 1, <char*> &label)
    if label < 0 or label >= n:
        job.outside = 1         # whoever writes it writes the same
        return
    source = rows_of(job.a, job.flat, i * n, n, staged)
    if job.grad is NULL:
        cross_entropy_row(job.a.dtype, source, label, target, n)
    else:
        gather(job.grad, i, 1, <char*> &slope)
        cross_entropy_grad_row(job.a.dtype, slope, source, label, target, n)
    if not job.out_flat:
        scatter(<char*> target, i * job.out_n, job.out_n, job.out)


cdef void one_cross_entropy(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef Rows* job = <Rows*> given
    cdef char* staged = job.staged + thread * job.room
    if job.a.dtype == FLOAT32:
        cross_entropy_at(job, i, <float*> staged)
    else:
        cross_entropy_at(job, i, <double*> staged)


cdef int cross_entropy_views(View* grad, View* logits, View* labels, View* out, int threads) noexcept nogil:
    """The loss of every row, or its gradient where grad is not NULL; -1 when there is no memory, -2 for a label out of range"""
    cdef Rows job
    job.grad, job.a, job.labels, job.out = grad, logits, labels, out
    return run_rows(&job, one_cross_entropy, 2 * logits.shape[logits.ndim - 1], threads)
