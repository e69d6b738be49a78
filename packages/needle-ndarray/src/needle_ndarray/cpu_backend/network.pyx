"""Norms, cross-entropy and attention of the CPU backend: checks that guard the memory, threads, and the call of the kernel."""

from needle_ndarray.backend cimport NORM_OP, ROWS_OP, Op
from needle_ndarray.blas cimport blas, make_room
from needle_ndarray.cpu_backend.guard cimport (
    LARGEST, THREADS_FROM_FLOPS, THREADS_FROM_MATH, TOO_MANY, agree, done, host, known, refuse
)
from needle_ndarray.kernels cimport attention as attentions, matmul as products, nn, norm as norms
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, compact_copy, empty_compact
from needle_ndarray.optable cimport BATCH_NORM, FLOAT32, INT64, LOGSUMEXP
from needle_ndarray.threads cimport threads_for

cdef enum:
    THREADS_FROM_ROWS = 32768       # elements of a norm from which a second thread pays


cdef int floats(str verb, object given, View* view) except -1:
    """An array of rows: a float dtype, one axis or more, the last one not empty"""
    host(given, view)
    if view.ndim == 0 or view.dtype < FLOAT32 or view.shape[view.ndim - 1] == 0:
        raise refuse(verb)
    if view.size > TOO_MANY:
        raise MemoryError(f"{verb}: {view.size} elements")
    return 0


cdef int like(str verb, object given, const View* x, View* view) except -1:
    """An array of x's shape and dtype"""
    host(given, view)
    return agree(view, x, True)


cdef View* column(str verb, object given, const View* x, View* view) except? NULL:
    """A vector over the last axis of x; NULL for None"""
    if given is None:
        return NULL
    host(given, view)
    if view.ndim != 1 or view.dtype != x.dtype or view.shape[0] != x.shape[x.ndim - 1]:
        raise refuse(verb)
    return view


cdef View* required(str verb, object given, const View* x, View* view) except NULL:
    if given is None:
        raise refuse(verb)
    return column(verb, given, x, view)


# ---- Softmax and its relatives --------------------------------------------------------------------------

cdef int rows(Op op, object a, object out) except -1:
    known(op, ROWS_OP)
    cdef View source, target
    cdef int threads, status, code = op.code
    host(a, &source)
    host(out, &target)
    if source.ndim == 0 or source.dtype < FLOAT32 or source.dtype != target.dtype or source.shape[source.ndim - 1] == 0 \
            or target.size * (source.shape[source.ndim - 1] if code == LOGSUMEXP else 1) != source.size:
        raise refuse(op.name)
    threads = threads_for(source.size, THREADS_FROM_MATH)
    with nogil:
        status = nn.softmax_views(code, &source, &target, threads)
    return done(status)


# ---- Norms --------------------------------------------------------------------------

cdef int norm(Op op, object x, object weight, object bias, object out, object mean, object var, double eps) except -1:
    known(op, NORM_OP)
    cdef View source, w, b, target, m_target, v_target
    cdef int threads, status
    cdef bint batch = op.code == BATCH_NORM
    floats(op.name, x, &source)
    like(op.name, out, &source, &target)
    if batch:
        required(op.name, mean, &source, &m_target)
        required(op.name, var, &source, &v_target)
    cdef View* scale = column(op.name, weight, &source, &w)
    cdef View* shift = column(op.name, bias, &source, &b)
    threads = threads_for(source.size, THREADS_FROM_ROWS)
    with nogil:
        if batch:
            status = norms.batch_norm_views(&source, scale, shift, eps, &target, &m_target, &v_target, threads)
        else:
            status = norms.layer_norm_views(&source, scale, shift, eps, &target, threads)
    return done(status)


cdef int norm_grad(Op op, object grad, object x, object weight, object mean, object var, object dx, object dweight, object dbias,
                   double eps) except -1:
    known(op, NORM_OP)
    cdef View g, source, m, v, w, target, w_target, b_target
    cdef int threads, status
    cdef bint batch = op.code == BATCH_NORM
    floats(op.name, x, &source)
    like(op.name, grad, &source, &g)
    like(op.name, dx, &source, &target)
    if batch:
        required(op.name, mean, &source, &m)
        required(op.name, var, &source, &v)
    required(op.name, dweight, &source, &w_target)
    required(op.name, dbias, &source, &b_target)
    cdef View* scale = column(op.name, weight, &source, &w)
    threads = threads_for(source.size, THREADS_FROM_ROWS)
    with nogil:
        if batch:
            status = norms.batch_norm_grad_views(&g, &source, &m, &v, scale, eps, &target, &w_target, &b_target, threads)
        else:
            status = norms.layer_norm_grad_views(&g, &source, scale, eps, &target, &w_target, &b_target, threads)
    return done(status)


# ---- Cross-entropy --------------------------------------------------------------------------

cdef int cross_entropy(object grad, object logits, object labels, object out) except -1:
    """The losses, or their gradient where `grad` is given"""
    cdef View source, at, g, target, lead
    cdef int threads, status
    floats("cross_entropy", logits, &source)
    host(labels, &at)
    lead = source
    lead.ndim -= 1
    agree(&at, &lead, False)
    if at.dtype != INT64:
        raise refuse("cross_entropy")
    if grad is None:
        host(out, &target)
        agree(&target, &lead, True)
    else:
        host(grad, &g)
        agree(&g, &lead, True)
        like("cross_entropy", out, &source, &target)
    threads = threads_for(source.size, THREADS_FROM_MATH)
    with nogil:
        status = nn.cross_entropy_views(NULL if grad is None else &g, &source, &at, &target, threads)
    if status == -2:
        raise IndexError(f"cross_entropy: a label is out of range for {source.shape[source.ndim - 1]} classes")
    return done(status)


# ---- Attention --------------------------------------------------------------------------

cdef bint blas_rows(const View* a) noexcept:
    """Whether BLAS reads, and we write, the view's matrices where they lie: unit stride along rows that do not overlap"""
    cdef Py_ssize_t rows = a.shape[a.ndim - 2], columns = a.shape[a.ndim - 1]
    return (a.strides[a.ndim - 1] == 1 or columns == 1) \
        and (rows == 1 or columns <= a.strides[a.ndim - 2] < LARGEST)


cdef NDArray matrices(str verb, object given, const View* lead, Py_ssize_t rows, Py_ssize_t columns, View* view,
                      bint or_bool=False):
    """An array (..., rows, columns) of lead's leading axes and dtype, or bool where that is allowed; -1 for any number of rows"""
    cdef NDArray a = host(given, view)
    cdef int i, n = view.ndim
    cdef bint fits = n == lead.ndim and (view.dtype == lead.dtype or or_bool and view.dtype == 0)
    for i in range(n - 2 if fits else 0):
        fits = fits and view.shape[i] == lead.shape[i]
    if not fits or (rows >= 0 and view.shape[n - 2] != rows) or (columns >= 0 and view.shape[n - 1] != columns):
        raise refuse(verb)
    if view.size > TOO_MANY:
        raise MemoryError(f"{verb}: {view.size} elements")
    return a


cdef NDArray readable(NDArray a, View* view):
    """The array, or a compact copy where BLAS cannot read its rows"""
    if not blas_rows(view):
        a = compact_copy(a)
        a.view_into(view)
    return a


cdef list plan_attention(str verb, object q, object k, object v, object mask, bint causal, double scale, attentions.Attention* job):
    """The arrays that the job reads, once it fits together; an empty list where the default has to do it"""
    cdef NDArray queries = host(q, &job.q), keys, values
    cdef int n = job.q.ndim
    cdef Py_ssize_t largest
    if n < 2 or job.q.dtype < FLOAT32:
        raise refuse(verb)
    matrices(verb, q, &job.q, -1, -1, &job.q)
    keys = matrices(verb, k, &job.q, -1, job.q.shape[n - 1], &job.k)
    values = matrices(verb, v, &job.q, job.k.shape[n - 2], -1, &job.v)
    job.masked, job.causal, job.scale = mask is not None, causal, scale
    if job.masked:
        matrices(verb, mask, &job.q, job.q.shape[n - 2], job.k.shape[n - 2], &job.mask, True)
    job.blas = blas()
    largest = max(max(job.q.shape[n - 2], job.q.shape[n - 1]), max(job.v.shape[n - 2], job.v.shape[n - 1]))
    if job.blas.sgemm is NULL or largest > LARGEST or job.q.size == 0 or job.k.size == 0 or job.v.size == 0:
        return []
    return [readable(queries, &job.q), readable(keys, &job.k), readable(values, &job.v), mask]


cdef int attention_threads(const attentions.Attention* job) noexcept:
    cdef int n = job.q.ndim
    return threads_for(job.q.size * job.k.shape[n - 2], THREADS_FROM_FLOPS)


cdef NDArray writable(NDArray a, View* view):
    """The result, or room for it where its rows have no unit stride"""
    if not blas_rows(view):
        a = empty_compact(a._backend, a._dtype, a._ndim, a._shape)
        a.view_into(view)
    return a


cdef bint attention(object q, object k, object v, object mask, object out, bint causal, double scale) except -1:
    """False where the default has to do it: no BLAS, or nothing to multiply"""
    cdef attentions.Attention job
    cdef View target
    cdef int n, threads, status
    arrays = plan_attention("attention", q, k, v, mask, causal, scale, &job)
    n = job.q.ndim
    cdef NDArray result = matrices("attention", out, &job.q, job.q.shape[n - 2], job.v.shape[n - 1], &target)
    if not arrays:
        return False
    cdef NDArray room = writable(result, &target)
    threads = attention_threads(&job)
    if products.needs_blas(job.q.shape[n - 2], max(job.q.shape[n - 1], job.v.shape[n - 1]), job.k.shape[n - 2]):
        make_room(threads)
    with nogil:
        status = attentions.attention_views(&job, &target, threads)
    done(status)
    if room is not result:
        result._backend.copy(room, result)
    return True


cdef bint attention_grad(object grad, object q, object k, object v, object mask, object dq, object dk, object dv, bint causal,
                         double scale) except -1:
    cdef attentions.Attention job
    cdef View g
    cdef View targets[3]
    cdef int n, i, threads, status
    arrays = plan_attention("attention_grad", q, k, v, mask, causal, scale, &job)
    n = job.q.ndim
    given = matrices("attention_grad", grad, &job.q, job.q.shape[n - 2], job.v.shape[n - 1], &g)
    matrices("attention_grad", dq, &job.q, job.q.shape[n - 2], job.q.shape[n - 1], &targets[0])
    matrices("attention_grad", dk, &job.q, job.k.shape[n - 2], job.k.shape[n - 1], &targets[1])
    matrices("attention_grad", dv, &job.q, job.v.shape[n - 2], job.v.shape[n - 1], &targets[2])
    if not arrays:
        return False
    results = [dq, dk, dv]
    rooms = [writable(results[i], &targets[i]) for i in range(3)]
    arrays.append(readable(given, &g))
    threads = attention_threads(&job)
    if products.needs_blas(job.q.shape[n - 2], max(job.q.shape[n - 1], job.v.shape[n - 1]), job.k.shape[n - 2]):
        make_room(threads)
    with nogil:
        status = attentions.attention_grad_views(&job, &g, &targets[0], &targets[1], &targets[2], threads)
    done(status)
    for result, room in zip(results, rooms):
        if room is not result:
            (<NDArray> result)._backend.copy(room, result)
    return True
