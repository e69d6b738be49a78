"""Norms, cross-entropy and attention of the CPU backend: what guards the memory (rules), threads, and the call of the kernel."""

from needle_ndarray.backend cimport NORM_OP, ROWS_OP, Op
from needle_ndarray.blas cimport blas, reserve_buffers
from needle_ndarray.cpu_backend.guard cimport (
    LARGEST, THREADS_FROM_FLOPS, THREADS_FROM_MATH, done, known
)
from needle_ndarray.kernels cimport attention as attentions, matmul as products, nn, norm as norms
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, compact_copy, empty_compact
from needle_ndarray.optable cimport BATCH_NORM, LOGSUMEXP, SOFTMAX
from needle_ndarray.rules cimport Borrowed, Rule
from needle_ndarray.threads cimport threads_for

from needle_ndarray.backend import NORM, ROWS
from needle_ndarray.rules import RULES

cdef enum:
    THREADS_FROM_ROWS = 32768       # elements of a norm, or of softmax's gradient, from which a second thread pays


cdef list ROWS_RULES = [RULES[name] for name in ROWS]
cdef list ROWS_GRAD_RULES = [RULES[name + "_grad"] for name in ROWS]
cdef list NORM_RULES = [RULES[name] for name in NORM]
cdef list NORM_GRAD_RULES = [RULES[name + "_grad"] for name in NORM]
cdef Rule CROSS_ENTROPY = RULES["cross_entropy"], CROSS_ENTROPY_GRAD = RULES["cross_entropy_grad"]
cdef Rule ATTENTION = RULES["attention"], ATTENTION_GRAD = RULES["attention_grad"]


cdef inline View* seen(object given, View* view) noexcept:
    """The view of an array, NULL for None"""
    return NULL if given is None else view


# ---- Softmax and its relatives --------------------------------------------------------------------------

cdef int rows(Op op, object a, object out) except -1:
    known(op, ROWS_OP)
    cdef View[2] v
    cdef Borrowed[2] given = [<Borrowed> a, <Borrowed> out]
    cdef int threads, status, code = op.code
    (<Rule> ROWS_RULES[code]).guard(given, v)
    threads = threads_for(v[0].size, THREADS_FROM_MATH)
    with nogil:
        status = nn.softmax_views(code, &v[0], &v[1], threads)
    return done(status)


cdef int rows_grad(Op op, object grad, object x, object y, object out) except -1:
    known(op, ROWS_OP)
    cdef View[4] v
    cdef Borrowed[4] given = [<Borrowed> y, <Borrowed> grad, <Borrowed> out, NULL]
    cdef View* source = NULL
    cdef View* values = &v[0]
    cdef View* upstream = &v[1]
    cdef View* target = &v[2]
    cdef int threads, status, code = op.code
    if code == LOGSUMEXP:
        given = [<Borrowed> x, <Borrowed> y, <Borrowed> grad, <Borrowed> out]
        source, values, upstream, target = &v[0], &v[1], &v[2], &v[3]
    (<Rule> ROWS_GRAD_RULES[code]).guard(given, v)
    threads = threads_for(target.size, THREADS_FROM_ROWS if code == SOFTMAX else THREADS_FROM_MATH)
    with nogil:
        status = nn.softmax_grad_views(code, upstream, source, values, target, threads)
    return done(status)


# ---- Norms --------------------------------------------------------------------------

cdef int norm(Op op, object x, object weight, object bias, object out, object mean, object var, double eps) except -1:
    known(op, NORM_OP)
    cdef View[6] v
    cdef Borrowed[6] given = [<Borrowed> x, <Borrowed> weight, <Borrowed> bias, <Borrowed> out, <Borrowed> mean, <Borrowed> var]
    cdef View* scale = seen(weight, &v[1])
    cdef View* shift = seen(bias, &v[2])
    cdef int threads, status
    (<Rule> NORM_RULES[op.code]).guard(given, v)
    threads = threads_for(v[0].size, THREADS_FROM_ROWS)
    with nogil:
        if op.code == BATCH_NORM:
            status = norms.batch_norm_views(&v[0], scale, shift, eps, &v[3], &v[4], &v[5], threads)
        else:
            status = norms.layer_norm_views(&v[0], scale, shift, eps, &v[3], threads)
    return done(status)


cdef int norm_grad(Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight, object dbias,
                   double eps) except -1:
    known(op, NORM_OP)
    cdef View[8] v
    cdef Borrowed[8] given = [<Borrowed> x, <Borrowed> grad, <Borrowed> weight, <Borrowed> dx, <Borrowed> dweight, <Borrowed> dbias,
                              NULL, NULL]
    cdef View* scale = seen(weight, &v[2])
    cdef int threads, status
    if op.code == BATCH_NORM:
        given[3:] = [<Borrowed> mean, <Borrowed> var, <Borrowed> dx, <Borrowed> dweight, <Borrowed> dbias]
    (<Rule> NORM_GRAD_RULES[op.code]).guard(given, v)
    threads = threads_for(v[0].size, THREADS_FROM_ROWS)
    with nogil:
        if op.code == BATCH_NORM:
            status = norms.batch_norm_grad_views(&v[1], &v[0], &v[3], &v[4], scale, eps, &v[5], &v[6], &v[7], threads)
        else:
            status = norms.layer_norm_grad_views(&v[1], &v[0], scale, eps, &v[3], &v[4], &v[5], threads)
    return done(status)


# ---- Cross-entropy --------------------------------------------------------------------------

cdef int cross_entropy(bint backward, object grad, object logits, object labels, object out) except -1:
    """The losses; backward: the gradient of the logits from that of the losses"""
    cdef View[4] v
    cdef Borrowed[4] given = [<Borrowed> logits, <Borrowed> labels, <Borrowed> out, NULL]
    cdef View* g = NULL
    cdef View* target = &v[2]
    cdef int threads, status
    if not backward:
        CROSS_ENTROPY.guard(given, v)
    else:
        given[2], given[3], g, target = <Borrowed> grad, <Borrowed> out, &v[2], &v[3]
        CROSS_ENTROPY_GRAD.guard(given, v)
    threads = threads_for(v[0].size, THREADS_FROM_MATH)
    with nogil:
        status = nn.cross_entropy_views(g, &v[0], &v[1], target, threads)
    if status == -2:
        raise IndexError(f"cross_entropy: a label is out of range for {v[0].shape[v[0].ndim - 1]} classes")
    return done(status)


# ---- Attention --------------------------------------------------------------------------

cdef bint blas_rows(const View* a) noexcept:
    """Whether BLAS reads, and we write, the view's matrices where they lie: unit stride along rows that do not overlap"""
    cdef Py_ssize_t rows = a.shape[a.ndim - 2], columns = a.shape[a.ndim - 1]
    return (a.strides[a.ndim - 1] == 1 or columns == 1) \
        and (rows == 1 or columns <= a.strides[a.ndim - 2] < LARGEST)


cdef NDArray readable(NDArray a, View* view):
    """The array, or a compact copy where BLAS cannot read its rows"""
    if not blas_rows(view):
        a = compact_copy(a)
        a.view_into(view)
    return a


cdef bint start_attention(attentions.Attention* job, const View* v, object mask, bint causal, double scale) noexcept:
    """The job of q, k, v and mask; False where the default has to do it: no BLAS, or nothing to multiply"""
    cdef int n = v[0].ndim
    cdef Py_ssize_t largest = max(max(v[0].shape[n - 2], v[0].shape[n - 1]), max(v[2].shape[n - 2], v[2].shape[n - 1]))
    job.q, job.k, job.v = v[0], v[1], v[2]
    job.masked, job.causal, job.scale, job.blas = mask is not None, causal, scale, blas()
    if job.masked:
        job.mask = v[3]
    return job.blas.sgemm is not NULL and largest <= LARGEST and v[0].size and v[1].size and v[2].size


cdef int attention_threads(const attentions.Attention* job) except -1:
    """How many threads pay; OpenBLAS has its buffers by then"""
    cdef int n = job.q.ndim, threads = threads_for(job.q.size * job.k.shape[n - 2], THREADS_FROM_FLOPS)
    if products.needs_blas(job.q.shape[n - 2], max(job.q.shape[n - 1], job.v.shape[n - 1]), job.k.shape[n - 2]):
        reserve_buffers(threads)
    return threads


cdef NDArray writable(NDArray a, View* view):
    """The result, or scratch for it where its rows have no unit stride"""
    if not blas_rows(view):
        a = empty_compact(a._backend, a._dtype, a._ndim, a._shape)
        a.view_into(view)
    return a


cdef bint attention(object q, object k, object v, object mask, object out, bint causal, double scale) except -1:
    """False where the default has to do it"""
    cdef attentions.Attention job
    cdef View[5] views
    cdef Borrowed[5] given = [<Borrowed> q, <Borrowed> k, <Borrowed> v, <Borrowed> mask, <Borrowed> out]
    cdef View* target = &views[4]
    cdef int threads, status
    ATTENTION.guard(given, views)
    if not start_attention(&job, views, mask, causal, scale):
        return False
    _held = readable(q, &job.q), readable(k, &job.k), readable(v, &job.v)
    cdef NDArray scratch = writable(out, target)
    threads = attention_threads(&job)
    with nogil:
        status = attentions.attention_views(&job, target, threads)
    done(status)
    if scratch is not out:
        scratch._backend.copy(scratch, out)
    return True


cdef bint attention_grad(object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale) except -1:
    cdef attentions.Attention job
    cdef View[8] views
    cdef Borrowed[8] given = [<Borrowed> q, <Borrowed> k, <Borrowed> v, <Borrowed> mask, <Borrowed> grad,
                              <Borrowed> dq, <Borrowed> dk, <Borrowed> dv]
    cdef int i, threads, status
    ATTENTION_GRAD.guard(given, views)
    if not start_attention(&job, views, mask, causal, scale):
        return False
    _held = readable(q, &job.q), readable(k, &job.k), readable(v, &job.v), readable(grad, &views[4])
    results = [dq, dk, dv]
    made = [writable(results[i], &views[5 + i]) for i in range(3)]
    threads = attention_threads(&job)
    with nogil:
        status = attentions.attention_grad_views(&job, &views[4], &views[5], &views[6], &views[7], threads)
    done(status)
    for result, scratch in zip(results, made):
        if scratch is not result:
            (<NDArray> result)._backend.copy(scratch, result)
    return True
