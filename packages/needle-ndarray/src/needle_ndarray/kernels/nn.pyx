# Softmax, its relatives and cross-entropy, along the last axis: kernels over rows. Each has its reference in `defaults`.

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.memoryviews cimport vector
from needle_ndarray.kernels.rows cimport rows_of, target_for
from needle_ndarray.kernels.softmax cimport exponentials, largest, sum_of_exponentials
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F, View, int64
from needle_ndarray.threads cimport Task, share

cdef extern from "logarithm.h" nogil:
    double log "needle_log"(double x) noexcept


# ---- Rows ------------------------------------------------------------------------------------

cdef void softmax_row(const F[::1] a, F[::1] out) noexcept nogil:
    """out = e^(a - max) / sum e^(a - max)"""
    cdef F scale = <F> (1 / exponentials(True, a, largest(a), out))
    cdef Py_ssize_t i
    for i in range(a.shape[0]):
        out[i] *= scale


cdef void log_softmax_row(const F[::1] a, F[::1] out) noexcept nogil:
    """out = a - max - log sum e^(a - max)"""
    cdef F shift = largest(a)
    cdef double total = log(sum_of_exponentials(a, shift))
    cdef Py_ssize_t i
    for i in range(a.shape[0]):
        out[i] = <F> (<F> (a[i] - shift) - total)


cdef F logsumexp_row(const F[::1] a) noexcept nogil:
    """max + log sum e^(a - max); a max of +-inf is left out of the shift"""
    cdef F shift = largest(a)
    cdef Py_ssize_t i
    if shift == <F> INFINITY or shift == <F> -INFINITY:
        for i in range(a.shape[0]):
            if a[i] != a[i]:
                shift = a[i]            # NaN
        return shift
    return <F> (log(sum_of_exponentials(a, shift)) + shift)


cdef F cross_entropy_row(const F[::1] a, Py_ssize_t label) noexcept nogil:
    """log sum e^(a - max) - (a[label] - max)"""
    cdef F shift = largest(a)
    return <F> (log(sum_of_exponentials(a, shift)) - (<double> a[label] - <double> shift))


cdef void cross_entropy_grad_row(F grad, const F[::1] a, Py_ssize_t label, F[::1] out) noexcept nogil:
    """out = (softmax(a) - onehot(label)) grad"""
    cdef double total = exponentials(False, a, largest(a), out), picked = out[label] / total
    cdef F scale = <F> (grad / total)
    cdef Py_ssize_t i
    for i in range(a.shape[0]):
        out[i] *= scale
    out[label] = <F> ((picked - 1) * grad)


# ---- A task for every row ------------------------------------------------------------------------------------

cdef struct Rows:               # a call: what its tasks read and write
    int op
    const View* a
    const View* grad            # cross-entropy: NULL for the losses
    const View* labels
    const View* out
    bint flat, out_flat
    Py_ssize_t n, out_n         # elements of a row
    char* staged
    Py_ssize_t scratch           # bytes of it for each thread
    int outside                 # a label is


cdef void softmax_at(const Rows* job, Py_ssize_t i, F* staged) noexcept nogil:
    cdef F* target = target_for(job.out, job.out_flat, i * job.out_n, staged + job.n)
    cdef const F[::1] a = vector(rows_of(job.a, job.flat, i * job.n, job.n, staged), job.n)
    cdef F[::1] out = vector(target, job.out_n)
    if job.op == SOFTMAX:
        softmax_row(a, out)
    elif job.op == LOG_SOFTMAX:
        log_softmax_row(a, out)
    else:
        out[0] = logsumexp_row(a)
    if not job.out_flat:
        scatter(<char*> target, i * job.out_n, job.out_n, job.out)


cdef void one_softmax(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Rows* job = <const Rows*> given
    cdef char* staged = job.staged + thread * job.scratch
    if job.a.dtype == FLOAT32:
        softmax_at(job, i, <float*> staged)
    else:
        softmax_at(job, i, <double*> staged)


cdef int run_rows(Rows* job, Task task, Py_ssize_t elements, int threads) noexcept nogil:
    """A task for every row, with scratch memory for so many elements"""
    job.n = job.a.shape[job.a.ndim - 1]
    job.out_n = job.n if job.out.ndim == job.a.ndim else 1
    job.flat, job.out_flat, job.outside = contiguous(job.a), contiguous(job.out), 0
    job.scratch = elements * job.a.itemsize
    job.staged = <char*> malloc(max(threads * job.scratch, <Py_ssize_t> 1))        # NULL is no answer for no bytes
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

cdef void cross_entropy_at(Rows* job, Py_ssize_t i, F* staged) noexcept nogil:
    """Row i, its loss or its gradient; a row whose label is out of range is left alone"""
    cdef F* target = target_for(job.out, job.out_flat, i * job.out_n, staged + job.n)
    cdef F[::1] out = vector(target, job.out_n)
    cdef const F[::1] a
    cdef F grad
    cdef int64 label
    gather(job.labels, i, 1, <char*> &label)
    if label < 0 or label >= job.n:
        job.outside = 1         # benign race: every writer stores 1
        return
    a = vector(rows_of(job.a, job.flat, i * job.n, job.n, staged), job.n)
    if job.grad is NULL:
        out[0] = cross_entropy_row(a, label)
    else:
        gather(job.grad, i, 1, <char*> &grad)
        cross_entropy_grad_row(grad, a, label, out)
    if not job.out_flat:
        scatter(<char*> target, i * job.out_n, job.out_n, job.out)


cdef void one_cross_entropy(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef Rows* job = <Rows*> given
    cdef char* staged = job.staged + thread * job.scratch
    if job.a.dtype == FLOAT32:
        cross_entropy_at(job, i, <float*> staged)
    else:
        cross_entropy_at(job, i, <double*> staged)


cdef int cross_entropy_views(View* grad, View* logits, View* labels, View* out, int threads) noexcept nogil:
    """The loss of every row, or its gradient where grad is not NULL; -1 when there is no memory, -2 for a label out of range"""
    cdef Rows job
    job.grad, job.a, job.labels, job.out = grad, logits, labels, out
    return run_rows(&job, one_cross_entropy, 2 * logits.shape[logits.ndim - 1], threads)
