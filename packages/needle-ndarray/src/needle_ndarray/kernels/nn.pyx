# Softmax, its relatives, cross-entropy and their gradients, along the last axis: kernels over rows. Each has its reference in
# `defaults`. Rows are independent of each other, so how many a task has changes no bit.

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.memoryviews cimport vector
from needle_ndarray.kernels.softmax cimport (
    exponentials, largest, log_softmax_derivative, logsumexp_derivative, sum_of, sum_of_exponentials, sum_of_products
)
from needle_ndarray.kernels.strided cimport chunk_length, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport CHUNK, FLOAT32, F, View, int64
from needle_ndarray.threads cimport share

cdef extern from "logarithm.h" nogil:
    double log "needle_log"(double x) noexcept

cdef enum:
    TILE = 16               # rows of a transposed view that are staged together: they share cache lines
    STAGED = 131072         # elements of them
    TASK = 2048             # elements of rows that one task has, where rows are shorter
    TASKS = 8               # for each thread at least: one may have lost its core


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


cdef void softmax_grad_row(const F[::1] grad, const F[::1] y, F[::1] out) noexcept nogil:
    """out = y (grad - sum y grad)"""
    cdef F total = <F> sum_of_products(y, grad)
    cdef Py_ssize_t i
    for i in range(y.shape[0]):
        out[i] = y[i] * (grad[i] - total)


cdef void log_softmax_grad_row(const F[::1] grad, const F[::1] y, F[::1] out) noexcept nogil:
    """out = grad - e^y sum grad"""
    log_softmax_derivative(grad, y, <F> sum_of(grad), out)


cdef void logsumexp_grad_row(F grad, const F[::1] x, F y, F[::1] out) noexcept nogil:
    """out = grad e^(x - y), 0 in a row of nothing but -inf"""
    logsumexp_derivative(grad, x, <F> 0 if y == <F> -INFINITY else y, out)


# ---- Tasks of a few rows ------------------------------------------------------------------------------------

ctypedef void (*Row)(Rows* job, Py_ssize_t i, char* a, char* grad, char* out) noexcept nogil     # where row i lies, or is staged

cdef struct Rows:               # a call: what its tasks read and write
    int op
    Row one                     # by its address: as part of the loop over rows, the logarithm of short ones took 1.1 times as long
    const View* a               # rows of n elements
    const View* grad            # of logsumexp and cross-entropy one for each row; NULL for losses
    const View* labels          # one for each row
    const View* values          # of logsumexp, one for each row
    const View* out
    bint flat, grad_flat, out_flat
    bint grads                  # there is a row of them for each row
    Py_ssize_t n, out_n         # elements of a row
    Py_ssize_t rows, step       # all of them, and those of a task
    char* staged
    Py_ssize_t scratch          # bytes of it for each thread
    int outside                 # a label is


cdef inline char* rows_of(const View* a, bint flat, Py_ssize_t start, Py_ssize_t count, char* staged) noexcept nogil:
    """Elements start .. start+count where they lie, or brought into the buffer"""
    if flat:
        return a.data + start * a.itemsize
    gather(a, start, count, staged)
    return staged


cdef void some_rows(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef Rows* job = <Rows*> given
    cdef Py_ssize_t first = task * job.step, count = min(job.step, job.rows - first), n = job.n, item = job.a.itemsize, i
    cdef char* staged = job.staged + thread * job.scratch
    cdef char* a = rows_of(job.a, job.flat, first * n, count * n, staged)
    cdef char* grad = NULL
    cdef char* out = staged + 2 * job.step * n * item
    if job.grads:
        grad = rows_of(job.grad, job.grad_flat, first * n, count * n, staged + job.step * n * item)
    if job.out_flat:
        out = job.out.data + first * job.out_n * item
    for i in range(count):
        job.one(job, first + i, a + i * n * item, grad + i * n * item if job.grads else NULL, out + i * job.out_n * item)
    if not job.out_flat:
        scatter(out, first * job.out_n, count * job.out_n, job.out)


cdef int run_rows(Rows* job, Row one, int threads) noexcept nogil:
    """All rows, a few at a time; -1 when there is no memory for the staging buffers, -2 for a label out of range"""
    cdef View* views[3]
    job.one, job.grads = one, job.grad is not NULL and job.grad.ndim == job.a.ndim
    views[0], views[1], views[2] = <View*> job.a, <View*> job.out, <View*> (job.grad if job.grads else job.a)
    job.n = job.a.shape[job.a.ndim - 1]
    job.out_n = job.n if job.out.ndim == job.a.ndim else 1
    job.rows = job.a.size // job.n if job.n else 0
    job.flat, job.out_flat, job.outside = contiguous(job.a), contiguous(job.out), 0
    job.grad_flat = job.grads and contiguous(job.grad)
    job.step = max(<Py_ssize_t> 1, min(TASK // max(job.n, <Py_ssize_t> 1), job.rows // (TASKS * threads)))
    if job.rows >= TILE and job.n <= STAGED // TILE and chunk_length(views, 3) != CHUNK:
        job.step = max(job.step - job.step % TILE, <Py_ssize_t> TILE)
    job.scratch = job.step * (2 * job.n + job.out_n) * job.a.itemsize
    job.staged = <char*> malloc(max(threads * job.scratch, <Py_ssize_t> 1))        # NULL is no answer for no bytes
    if job.staged is NULL:
        return -1
    share(some_rows, job, (job.rows + job.step - 1) // job.step, threads)
    free(job.staged)
    return -2 if job.outside else 0


# ---- Softmax and its relatives --------------------------------------------------------------------------

cdef inline void softmax_at(const Rows* job, F* row, F* target) noexcept nogil:
    cdef const F[::1] a = vector(row, job.n)
    cdef F[::1] out = vector(target, job.out_n)
    if job.op == SOFTMAX:
        softmax_row(a, out)
    elif job.op == LOG_SOFTMAX:
        log_softmax_row(a, out)
    else:
        out[0] = logsumexp_row(a)


cdef void one_softmax(Rows* job, Py_ssize_t i, char* a, char* grad, char* out) noexcept nogil:
    if job.a.dtype == FLOAT32:
        softmax_at(job, <float*> a, <float*> out)
    else:
        softmax_at(job, <double*> a, <double*> out)


cdef int softmax_views(int op, View* a, View* out, int threads) noexcept nogil:
    """Every row of `a`; -1 when there is no memory for the staging buffers"""
    cdef Rows job
    job.op, job.a, job.grad, job.out = op, a, NULL, out
    return run_rows(&job, one_softmax, threads)


cdef inline void softmax_grad_at(const Rows* job, Py_ssize_t i, F* row, F* upstream, F* target) noexcept nogil:
    cdef const F[::1] a = vector(row, job.n)
    cdef F[::1] out = vector(target, job.n)
    cdef F grad, y
    if job.op == SOFTMAX:
        softmax_grad_row(vector(upstream, job.n), a, out)
    elif job.op == LOG_SOFTMAX:
        log_softmax_grad_row(vector(upstream, job.n), a, out)
    else:
        gather(job.grad, i, 1, <char*> &grad)
        gather(job.values, i, 1, <char*> &y)
        logsumexp_grad_row(grad, a, y, out)


cdef void one_softmax_grad(Rows* job, Py_ssize_t i, char* a, char* grad, char* out) noexcept nogil:
    if job.a.dtype == FLOAT32:
        softmax_grad_at(job, i, <float*> a, <float*> grad, <float*> out)
    else:
        softmax_grad_at(job, i, <double*> a, <double*> grad, <double*> out)


cdef int softmax_grad_views(int op, View* grad, View* x, View* y, View* out, int threads) noexcept nogil:
    """The gradient of every row; x is read by logsumexp only. -1 when there is no memory for the staging buffers"""
    cdef Rows job
    job.op, job.grad, job.values, job.out = op, grad, y, out
    job.a = x if op == LOGSUMEXP else y
    return run_rows(&job, one_softmax_grad, threads)


# ---- Cross-entropy --------------------------------------------------------------------------

cdef inline void cross_entropy_at(Rows* job, Py_ssize_t i, F* row, F* target) noexcept nogil:
    """Row i, its loss or its gradient; a row whose label is out of range is left alone"""
    cdef const F[::1] a = vector(row, job.n)
    cdef F[::1] out = vector(target, job.out_n)
    cdef F grad
    cdef int64 label
    gather(job.labels, i, 1, <char*> &label)
    if label < 0 or label >= job.n:
        job.outside = 1         # benign race: every writer stores 1
        gather(job.out, i * job.out_n, 0 if job.out_flat else job.out_n, <char*> target)
    elif job.grad is NULL:
        out[0] = cross_entropy_row(a, label)
    else:
        gather(job.grad, i, 1, <char*> &grad)
        cross_entropy_grad_row(grad, a, label, out)


cdef void one_cross_entropy(Rows* job, Py_ssize_t i, char* a, char* grad, char* out) noexcept nogil:
    if job.a.dtype == FLOAT32:
        cross_entropy_at(job, i, <float*> a, <float*> out)
    else:
        cross_entropy_at(job, i, <double*> a, <double*> out)


cdef int cross_entropy_views(View* grad, View* logits, View* labels, View* out, int threads) noexcept nogil:
    """The loss of every row, or its gradient where grad is not NULL; -1 when there is no memory, -2 for a label out of range"""
    cdef Rows job
    job.grad, job.a, job.labels, job.out = grad, logits, labels, out
    return run_rows(&job, one_cross_entropy, threads)
