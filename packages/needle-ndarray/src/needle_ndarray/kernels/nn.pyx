# Fused kernels of neural networks: softmax, its relatives and cross-entropy, along the last axis. Each has its composed twin in
# backend.pyx.

from libc.math cimport INFINITY, log
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.rows cimport room_for, rows_of
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F, View, int64
from needle_ndarray.threads cimport Task, share

cdef extern from "softmax.h" nogil:
    float needle_largest_float(const float* x, Py_ssize_t n) noexcept
    double needle_largest_double(const double* x, Py_ssize_t n) noexcept
    double needle_exps_float(bint subnormal, const float* x, Py_ssize_t n, float shift, float* out) noexcept
    double needle_exps_double(bint subnormal, const double* x, Py_ssize_t n, double shift, double* out) noexcept

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


cdef inline F largest_of(const F* a, Py_ssize_t n) noexcept nogil:
    if F is float:
        return needle_largest_float(a, n)
    else:
        return needle_largest_double(a, n)


cdef inline double exponentials(bint subnormal, const F* a, F shift, F* out, Py_ssize_t n) noexcept nogil:
    """The sum of e^(a - shift); out = each of them, unless it is NULL, or 0 for what is no normal number"""
    if F is float:
        return needle_exps_float(subnormal, a, n, shift, out)
    else:
        return needle_exps_double(subnormal, a, n, shift, out)


cdef void softmax_row(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil:
    """out = e^(a - max) / sum, or its logarithm; for LOGSUMEXP one number, max + log sum"""
    cdef Py_ssize_t i
    cdef F shift = largest_of(a, n), scale
    cdef double total
    if op == LOGSUMEXP and (shift == <F> INFINITY or shift == <F> -INFINITY):
        out[0] = shift
        for i in range(n):
            if a[i] != a[i]:
                out[0] = a[i]           # NaN
        return
    total = exponentials(op == SOFTMAX, a, shift, out if op == SOFTMAX else <F*> NULL, n)
    if op == SOFTMAX:
        scale = <F> (1 / total)
        for i in range(n):
            out[i] *= scale
        return
    total = log(total)
    if op == LOGSUMEXP:
        out[0] = <F> (total + shift)
        return
    for i in range(n):
        out[i] = <F> (<F> (a[i] - shift) - total)


cdef void softmax_at(const Rows* job, Py_ssize_t i, F* staged) noexcept nogil:
    cdef Py_ssize_t n = job.n
    cdef F* source = rows_of(job.a, job.flat, i * n, n, staged)
    cdef F* target = room_for(job.out, job.out_flat, i * job.out_n, staged + n)
    softmax_row(job.op, source, target, n)
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
    job.staged = <char*> malloc(max(threads * job.room, <Py_ssize_t> 1))        # NULL is no answer for no bytes
    if job.staged is NULL:
        return -1
    share(task, job, job.a.size // job.n if job.n else 0, threads)
    free(job.staged)
    return -2 if job.outside else 0


cdef int softmax_views(int op, View* a, View* out, int threads) noexcept nogil:
    """Every row of `a`; -1 when there is no memory for the staging buffers"""
    cdef Rows job
    job.op, job.a, job.out = op, a, out
    return run_rows(&job, one_softmax, 2 * a.shape[a.ndim - 1], threads)


# ---- Cross-entropy --------------------------------------------------------------------------

cdef void cross_entropy_row(const F* a, Py_ssize_t label, F* out, Py_ssize_t n) noexcept nogil:
    """out = log sum e^(a - max) - (a[label] - max)"""
    cdef F largest = largest_of(a, n)
    cdef double total = exponentials(False, a, largest, <F*> NULL, n)
    out[0] = <F> (log(total) - (<double> a[label] - <double> largest))


cdef void cross_entropy_grad_row(F grad, const F* a, Py_ssize_t label, F* out, Py_ssize_t n) noexcept nogil:
    """out = (softmax(a) - onehot(label)) grad"""
    cdef F largest = largest_of(a, n), scale
    cdef double total = exponentials(False, a, largest, out, n), picked = out[label] / total
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
        cross_entropy_row(source, label, target, n)
    else:
        gather(job.grad, i, 1, <char*> &slope)
        cross_entropy_grad_row(slope, source, label, target, n)
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
