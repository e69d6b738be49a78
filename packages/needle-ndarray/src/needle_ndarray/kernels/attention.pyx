# Attention, forward and backward: out = softmax(scale q k^T + mask) v, a block of query rows at a time. A block's scores stay in
# the cache and the whole (tq, tk) matrix is never written; keys that no row of a block may see are not computed. A block's
# result, and the order in which a matrix's blocks add up to dk and dv, depend on the shapes alone. A single query, that of a token
# which is generated, is multiplied with keys and values row by row (queries.h).

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.gemm cimport add_transposed_product, multiply, multiply_transposed
from needle_ndarray.kernels.memoryviews cimport booleans, matrix, strided_rows, vector
from needle_ndarray.kernels.rows cimport LANES, RUN, clear, folded
from needle_ndarray.kernels.softmax cimport largest
from needle_ndarray.kernels.strided cimport gather
from needle_ndarray.kernels.views cimport BOOL, FLOAT32, FLOAT64, F, View, boolean
from needle_ndarray.optable cimport EXP
from needle_ndarray.threads cimport share

cdef extern from "queries.h" nogil:
    void dots_float "needle_dots_float"(
        const float* q, const float* k, Py_ssize_t step, Py_ssize_t n, Py_ssize_t d, float scale, float* out) noexcept
    void dots_double "needle_dots_double"(
        const double* q, const double* k, Py_ssize_t step, Py_ssize_t n, Py_ssize_t d, double scale, double* out) noexcept
    void weighted_rows_float "needle_weighted_rows_float"(
        const float* w, const float* v, Py_ssize_t step, Py_ssize_t n, Py_ssize_t d, float* out) noexcept
    void weighted_rows_double "needle_weighted_rows_double"(
        const double* w, const double* v, Py_ssize_t step, Py_ssize_t n, Py_ssize_t d, double* out) noexcept

cdef enum:
    BLOCK = 64              # query rows at a time


# ---- Rows of scores --------------------------------------------------------------------------

cdef inline void forbid(const boolean[::1] allowed, F[::1] scores) noexcept nogil:
    """scores = -inf where it is not allowed to look"""
    cdef Py_ssize_t j
    for j in range(scores.shape[0]):
        scores[j] = scores[j] if allowed[j] else <F> -INFINITY


cdef inline void add(const F[::1] mask, F[::1] scores) noexcept nogil:
    """scores = scores + mask"""
    cdef Py_ssize_t j
    for j in range(scores.shape[0]):
        scores[j] += mask[j]


cdef inline void shift(F[::1] scores, Py_ssize_t visible) noexcept nogil:
    """scores = scores - max, and 1 where there is nothing to see: e^1 is computed fast, e^-inf is not, and 1 is above the max"""
    cdef Py_ssize_t j
    cdef F highest
    for j in range(visible, scores.shape[0]):
        scores[j] = <F> -INFINITY
    highest = largest(scores)
    for j in range(scores.shape[0]):
        scores[j] = 1 if scores[j] == <F> -INFINITY else scores[j] - highest


cdef inline void clear_unseen(const F[::1] shifted, F[::1] weights) noexcept nogil:
    """weights = 0 where there was nothing to see"""
    cdef Py_ssize_t j
    for j in range(weights.shape[0]):
        weights[j] = 0 if shifted[j] > 0 else weights[j]


cdef inline double sum_of(const F[::1] a) noexcept nogil:
    """The sum of a row, in lanes, RUN elements at a time"""
    cdef F lane[LANES]
    cdef Py_ssize_t n = a.shape[0], start = 0, run, i, k
    cdef double total = 0
    while start < n:
        run = min(n - start, <Py_ssize_t> RUN)
        clear(lane)
        for i in range(run // LANES):
            for k in range(LANES):
                lane[k] += a[start + LANES * i + k]
        start += run - run % LANES
        for k in range(run % LANES):
            lane[k] += a[start + k]
        start += run % LANES
        total += folded(lane)
    return total


cdef inline double dot(const F[::1] a, const F[::1] b) noexcept nogil:
    """The sum of a b, as sum_of"""
    cdef F lane[LANES]
    cdef Py_ssize_t n = a.shape[0], start = 0, run, i, k
    cdef double total = 0
    while start < n:
        run = min(n - start, <Py_ssize_t> RUN)
        clear(lane)
        for i in range(run // LANES):
            for k in range(LANES):
                lane[k] += a[start + LANES * i + k] * b[start + LANES * i + k]
        start += run - run % LANES
        for k in range(run % LANES):
            lane[k] += a[start + k] * b[start + k]
        start += run % LANES
        total += folded(lane)
    return total


cdef inline void scale_rows(const F[::1] factor, F[:, ::1] a) noexcept nogil:
    """a[i] = factor[i] a[i]"""
    cdef Py_ssize_t i, j
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] *= factor[i]


cdef inline void fill(F[:, ::1] a, F value) noexcept nogil:
    cdef Py_ssize_t i, j
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = value


# ---- A block of queries, n keys that they may see --------------------------------------------------------------------------

cdef void score(const Attention* job, const F[:, ::1] q, const F[:, ::1] k, F[:, ::1] scores) noexcept nogil:
    """scores = scale q k^T"""
    cdef Py_ssize_t step = k.strides[0] // <Py_ssize_t> sizeof(F)
    if q.shape[0] > 1:
        multiply_transposed(job.blas, job.scale, q, k, scores)
    elif F is float:
        dots_float(&q[0, 0], &k[0, 0], step, k.shape[0], k.shape[1], <float> job.scale, &scores[0, 0])
    else:
        dots_double(&q[0, 0], &k[0, 0], step, k.shape[0], k.shape[1], job.scale, &scores[0, 0])


cdef void weighted_sum(const Attention* job, const F[:, ::1] weights, const F[:, ::1] v, F[:, ::1] out) noexcept nogil:
    """out = weights v"""
    cdef Py_ssize_t step = v.strides[0] // <Py_ssize_t> sizeof(F)
    if weights.shape[0] > 1:
        multiply(job.blas, 1, weights, v, out)
    elif F is float:
        weighted_rows_float(&weights[0, 0], &v[0, 0], step, v.shape[0], v.shape[1], &out[0, 0])
    else:
        weighted_rows_double(&weights[0, 0], &v[0, 0], step, v.shape[0], v.shape[1], &out[0, 0])


cdef inline Py_ssize_t seen(const Attention* job, Py_ssize_t i) noexcept nogil:
    """Keys that query i may see, counted from the first"""
    cdef Py_ssize_t tq = rows_of(&job.q), tk = rows_of(&job.k)
    return max(<Py_ssize_t> 0, min(tk, i + 1 + tk - tq)) if job.causal else tk


cdef void add_mask(const View* mask, Py_ssize_t batch, Py_ssize_t first, F[:, ::1] scores, F* scratch) noexcept nogil:
    """Rows of the mask from `first` on: where they lie, or gathered in scratch where their elements are not beside each other"""
    cdef Py_ssize_t stride = mask.strides[mask.ndim - 2], tk = columns_of(mask), n = scores.shape[1], i
    cdef char* rows = matrix_of(mask, batch) + first * stride * mask.itemsize
    if mask.strides[mask.ndim - 1] != 1:
        gather(mask, (batch * rows_of(mask) + first) * tk, scores.shape[0] * tk, <char*> scratch)
        rows, stride = <char*> scratch, tk
    for i in range(scores.shape[0]):
        if mask.dtype == BOOL:
            forbid(booleans(<boolean*> rows + i * stride, n), scores[i])
        else:
            add(vector(<F*> rows + i * stride, n), scores[i])


cdef void weigh(const Attention* job, Py_ssize_t batch, Py_ssize_t first, const F[:, ::1] q, const F[:, ::1] k,
                F[:, ::1] scores, F[:, ::1] weights, F[::1] inverse) noexcept nogil:
    """weights (rows, n) = e^(scale q k^T + mask - max) of the queries from `first` on; inverse = 1 / sum, 0 where that is 0"""
    cdef Py_ssize_t i
    cdef double total
    score(job, q, k, scores)
    if job.masked:
        add_mask(&job.mask, batch, first, scores, &weights[0, 0])       # whose memory has room for a block of whole rows
    for i in range(q.shape[0]):
        shift(scores[i], seen(job, first + i))
    unary(EXP, FLOAT32 if F is float else FLOAT64, <const char*> &scores[0, 0], <char*> &weights[0, 0],
          scores.shape[0] * scores.shape[1])
    for i in range(q.shape[0]):
        clear_unseen(scores[i], weights[i])
        total = sum_of(weights[i])
        inverse[i] = 0 if total == 0 else <F> (1 / total)


cdef inline void softmax_grad(const F[:, ::1] p, F[:, ::1] grad) noexcept nogil:
    """For p = softmax(s) and grad that of p: grad = p (grad - sum p grad), that of s"""
    cdef Py_ssize_t i, j
    cdef F mean
    for i in range(p.shape[0]):
        mean = <F> dot(p[i], grad[i])
        for j in range(p.shape[1]):
            grad[i, j] = p[i, j] * (grad[i, j] - mean)


# ---- Where things lie --------------------------------------------------------------------------

cdef inline Py_ssize_t rows_of(const View* a) noexcept nogil:
    return a.shape[a.ndim - 2]


cdef inline Py_ssize_t columns_of(const View* a) noexcept nogil:
    return a.shape[a.ndim - 1]


cdef inline Py_ssize_t row_stride(const View* a) noexcept nogil:
    """BLAS wants one that is at least the row's length, also where there is one row only"""
    return max(a.strides[a.ndim - 2], columns_of(a)) if rows_of(a) > 1 else columns_of(a)


cdef char* matrix_of(const View* a, Py_ssize_t batch) noexcept nogil:
    """The batch-th matrix of the view"""
    cdef Py_ssize_t offset = 0
    cdef int i
    for i in range(a.ndim - 3, -1, -1):
        offset += batch % a.shape[i] * a.strides[i]
        batch //= a.shape[i]
    return a.data + offset * a.itemsize


cdef Py_ssize_t batches_of(const View* a) noexcept nogil:
    cdef Py_ssize_t count = 1
    cdef int i
    for i in range(a.ndim - 2):
        count *= a.shape[i]
    return count


cdef char* row_of(const View* a, Py_ssize_t batch, Py_ssize_t i) noexcept nogil:
    """Row i of the batch-th matrix of the view"""
    return matrix_of(a, batch) + i * row_stride(a) * a.itemsize


cdef inline F[:, ::1] part(F* first, Py_ssize_t rows, const View* a) noexcept nogil:
    """So many rows of a matrix of the view, from the first"""
    return strided_rows(first, rows, columns_of(a), row_stride(a))


# ---- Tasks --------------------------------------------------------------------------

cdef struct Call:               # what the tasks of a call share
    const Attention* job
    const View* grad
    const View* out             # forward
    const View* dq              # backward
    const View* dk
    const View* dv
    Py_ssize_t block            # query rows at a time
    Py_ssize_t blocks           # of them in a matrix
    Py_ssize_t size             # elements of a thread's scratch: scores, weights, their inverse sums
    char* scratch


cdef void attend(const Call* c, Py_ssize_t batch, Py_ssize_t first, F* scratch) noexcept nogil:
    """out = weights v for one block of queries, each row over its sum"""
    cdef const Attention* job = c.job
    cdef Py_ssize_t rows = min(c.block, rows_of(&job.q) - first), n = seen(job, first + rows - 1), size = c.block * rows_of(&job.k)
    cdef const F[:, ::1] q = part(<F*> row_of(&job.q, batch, first), rows, &job.q)
    cdef const F[:, ::1] k = part(<F*> row_of(&job.k, batch, 0), n, &job.k)
    cdef const F[:, ::1] v = part(<F*> row_of(&job.v, batch, 0), n, &job.v)
    cdef F[:, ::1] out = part(<F*> row_of(c.out, batch, first), rows, c.out)
    cdef F[:, ::1] scores = matrix(scratch, rows, n), weights = matrix(scratch + size, rows, n)
    cdef F[::1] inverse = vector(scratch + 2 * size, rows)
    if n == 0:
        fill(out, 0)
        return
    weigh(job, batch, first, q, k, scores, weights, inverse)
    weighted_sum(job, weights, v, out)
    scale_rows(inverse, out)


cdef void attend_grad(const Call* c, Py_ssize_t batch, Py_ssize_t first, F* scratch) noexcept nogil:
    """For p = softmax(s), ds = p (grad v^T - sum p grad v^T):  dq = scale ds k, dk += scale ds^T q, dv += p^T grad"""
    cdef const Attention* job = c.job
    cdef Py_ssize_t rows = min(c.block, rows_of(&job.q) - first), n = seen(job, first + rows - 1), size = c.block * rows_of(&job.k)
    cdef const F[:, ::1] q = part(<F*> row_of(&job.q, batch, first), rows, &job.q)
    cdef const F[:, ::1] k = part(<F*> row_of(&job.k, batch, 0), n, &job.k)
    cdef const F[:, ::1] v = part(<F*> row_of(&job.v, batch, 0), n, &job.v)
    cdef const F[:, ::1] grad = part(<F*> row_of(c.grad, batch, first), rows, c.grad)
    cdef F[:, ::1] dq = part(<F*> row_of(c.dq, batch, first), rows, c.dq)
    cdef F[:, ::1] dk = part(<F*> row_of(c.dk, batch, 0), n, c.dk)
    cdef F[:, ::1] dv = part(<F*> row_of(c.dv, batch, 0), n, c.dv)
    cdef F[:, ::1] ds = matrix(scratch, rows, n), p = matrix(scratch + size, rows, n)
    cdef F[::1] inverse = vector(scratch + 2 * size, rows)
    if n == 0:
        fill(dq, 0)
        return
    weigh(job, batch, first, q, k, ds, p, inverse)
    scale_rows(inverse, p)
    add_transposed_product(job.blas, 1, p, grad, dv)
    multiply_transposed(job.blas, 1, grad, v, ds)
    softmax_grad(p, ds)
    multiply(job.blas, job.scale, ds, k, dq)
    add_transposed_product(job.blas, job.scale, ds, q, dk)


cdef void all_blocks(const Call* c, Py_ssize_t batch, F* scratch) noexcept nogil:
    """The gradients of one matrix: dk and dv add up over its blocks"""
    cdef Py_ssize_t t, tk = rows_of(&c.job.k)
    fill(part(<F*> row_of(c.dk, batch, 0), tk, c.dk), 0)
    fill(part(<F*> row_of(c.dv, batch, 0), tk, c.dv), 0)
    for t in range(c.blocks):
        attend_grad(c, batch, t * c.block, scratch)


cdef void one_block(const void* given, Py_ssize_t t, int thread) noexcept nogil:
    cdef const Call* c = <const Call*> given
    if c.job.q.dtype == FLOAT32:
        attend(c, t // c.blocks, t % c.blocks * c.block, <float*> c.scratch + thread * c.size)
    else:
        attend(c, t // c.blocks, t % c.blocks * c.block, <double*> c.scratch + thread * c.size)


cdef void one_matrix(const void* given, Py_ssize_t batch, int thread) noexcept nogil:
    cdef const Call* c = <const Call*> given
    if c.job.q.dtype == FLOAT32:
        all_blocks(c, batch, <float*> c.scratch + thread * c.size)
    else:
        all_blocks(c, batch, <double*> c.scratch + thread * c.size)


cdef int prepare(const Attention* job, int threads, Call* out) noexcept nogil:
    """The sizes of a call and its scratch memory; -1 when there is none"""
    out.job, out.block = job, min(<Py_ssize_t> BLOCK, rows_of(&job.q))
    out.blocks = (rows_of(&job.q) + out.block - 1) // out.block
    out.size = 2 * out.block * rows_of(&job.k) + out.block
    out.scratch = <char*> malloc(threads * out.size * job.q.itemsize)
    return -1 if out.scratch is NULL else 0


cdef int attention_views(const Attention* job, View* out, int threads) noexcept nogil:
    """Every matrix of the batch; -1 when there is no memory for the scores of a block"""
    cdef Call c
    if prepare(job, threads, &c):
        return -1
    c.out = out
    share(one_block, &c, c.blocks * batches_of(&job.q), threads)
    free(c.scratch)
    return 0


cdef int attention_grad_views(const Attention* job, View* grad, View* dq, View* dk, View* dv, int threads) noexcept nogil:
    """Every matrix of the batch; one thread each, so that dk and dv add up in order"""
    cdef Call c
    if prepare(job, threads, &c):
        return -1
    c.grad, c.dq, c.dk, c.dv = grad, dq, dk, dv
    share(one_matrix, &c, batches_of(&job.q), threads)
    free(c.scratch)
    return 0
