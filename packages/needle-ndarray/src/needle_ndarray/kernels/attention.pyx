# Attention, forward and backward: out = softmax(scale q k^T + mask) v, a block of query rows at a time. A block's scores stay in
# the cache and the whole (tq, tk) matrix is never written; keys that no row of a block may see are not computed. A block's
# result, and the order in which a matrix's blocks add up to dk and dv, depend on the shapes alone.

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.kernels.ewise cimport unary
from needle_ndarray.kernels.gemm cimport product, row_major, transposed
from needle_ndarray.kernels.rows cimport LANES, RUN, clear, folded
from needle_ndarray.kernels.views cimport BOOL, FLOAT32, F, View, boolean
from needle_ndarray.optable cimport EXP
from needle_ndarray.threads cimport share

cdef enum:
    BLOCK = 64              # query rows at a time


# ---- Where things lie --------------------------------------------------------------------------

cdef inline Py_ssize_t rows_of(const View* a) noexcept nogil:
    return a.shape[a.ndim - 2]


cdef inline Py_ssize_t columns_of(const View* a) noexcept nogil:
    return a.shape[a.ndim - 1]


cdef inline Py_ssize_t row_stride(const View* a) noexcept nogil:
    """BLAS wants one that is at least the row's length, also where there is one row only"""
    return max(a.strides[a.ndim - 2], columns_of(a)) if rows_of(a) > 1 else columns_of(a)


cdef char* matrix(const View* a, Py_ssize_t batch) noexcept nogil:
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


cdef inline Py_ssize_t block_of(const Attention* job) noexcept nogil:
    """Query rows at a time"""
    return min(<Py_ssize_t> BLOCK, rows_of(&job.q))


cdef inline Py_ssize_t seen(const Attention* job, Py_ssize_t i) noexcept nogil:
    """Keys that query i may see, counted from the first"""
    cdef Py_ssize_t tq = rows_of(&job.q), tk = rows_of(&job.k)
    return max(<Py_ssize_t> 0, min(tk, i + 1 + tk - tq)) if job.causal else tk


# ---- Rows of scores --------------------------------------------------------------------------

cdef void add_mask(F* scores, const View* mask, const char* row, Py_ssize_t n) noexcept nogil:
    """scores = -inf where a bool mask is False, scores + mask for a float one"""
    cdef Py_ssize_t stride = mask.strides[mask.ndim - 1], j
    cdef const boolean* allowed = <const boolean*> row
    cdef const F* added = <const F*> row
    if mask.dtype == BOOL and stride == 1:
        for j in range(n):
            scores[j] = scores[j] if allowed[j] else -INFINITY
    elif mask.dtype == BOOL:
        for j in range(n):
            scores[j] = scores[j] if allowed[j * stride] else -INFINITY
    elif stride == 1:
        for j in range(n):
            scores[j] += added[j]
    else:
        for j in range(n):
            scores[j] += added[j * stride]


cdef F largest_of(const F* a, Py_ssize_t n) noexcept nogil:
    """The largest of a row; NaN is left out, it comes through the differences"""
    cdef F lane[LANES]
    cdef Py_ssize_t i, k, whole = n - n % LANES
    for k in range(LANES):
        lane[k] = -INFINITY
    for i in range(whole // LANES):
        for k in range(LANES):
            lane[k] = a[LANES * i + k] if a[LANES * i + k] > lane[k] else lane[k]
    for k in range(n - whole):
        lane[k] = a[whole + k] if a[whole + k] > lane[k] else lane[k]
    for k in range(16):
        lane[k] = lane[16 + k] if lane[16 + k] > lane[k] else lane[k]
    for k in range(1, 16):
        lane[0] = lane[k] if lane[k] > lane[0] else lane[0]
    return lane[0]


cdef void shift(F* scores, Py_ssize_t visible, Py_ssize_t n) noexcept nogil:
    """scores = scores - max, and 1 where there is nothing to see: e^1 is computed fast, e^-inf is not, and 1 is above the max"""
    cdef F largest
    cdef Py_ssize_t j
    for j in range(visible, n):
        scores[j] = -INFINITY
    largest = largest_of(scores, n)
    for j in range(n):
        scores[j] = 1 if scores[j] == -INFINITY else scores[j] - largest


cdef double clear_unseen(const F* shifted, F* weights, Py_ssize_t n) noexcept nogil:
    """weights = 0 where there was nothing to see; their sum"""
    cdef F lane[LANES]
    cdef Py_ssize_t run, k, _i
    cdef double total = 0
    while n > 0:
        run = min(n, <Py_ssize_t> RUN)
        clear(lane)
        for k in range(run):
            weights[k] = 0 if shifted[k] > 0 else weights[k]
        for _i in range(run // LANES):
            for k in range(LANES):
                lane[k] += weights[k]
            weights += LANES
        for k in range(run % LANES):
            lane[k] += weights[k]
        weights += run % LANES
        shifted += run
        n -= run
        total += folded(lane)
    return total


cdef void weigh(const Attention* job, Py_ssize_t batch, Py_ssize_t first, Py_ssize_t rows, Py_ssize_t n, F* scores, F* weights,
                F* inverse) noexcept nogil:
    """weights (rows, n) = e^(scale q k^T + mask - max) of the queries from `first` on; inverse = 1 / sum, 0 where that is 0"""
    cdef Py_ssize_t i, row
    cdef double total
    cdef const char* mask
    product(job.blas, job.q.dtype, rows, columns_of(&job.q), n, job.scale,
            row_major(<const F*> matrix(&job.q, batch) + first * row_stride(&job.q), row_stride(&job.q)),
            transposed(row_major(matrix(&job.k, batch), row_stride(&job.k))), False, row_major(scores, n))
    if job.masked:
        mask = matrix(&job.mask, batch)
        for i in range(rows):
            row = (first + i) * job.mask.strides[job.mask.ndim - 2]
            add_mask(scores + i * n, &job.mask, mask + row * job.mask.itemsize, n)
    for i in range(rows):
        shift(scores + i * n, seen(job, first + i), n)
    unary(EXP, job.q.dtype, <const char*> scores, <char*> weights, rows * n)
    for i in range(rows):
        total = clear_unseen(scores + i * n, weights + i * n, n)
        inverse[i] = 0 if total == 0 else <F> (1 / total)


cdef inline void multiply(F* row, F factor, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t j
    for j in range(n):
        row[j] *= factor


cdef double dot(const F* a, const F* b, Py_ssize_t n) noexcept nogil:
    """sum of a b"""
    cdef F lane[LANES]
    cdef Py_ssize_t run, k, _i
    cdef double total = 0
    while n > 0:
        run = min(n, <Py_ssize_t> RUN)
        clear(lane)
        for _i in range(run // LANES):
            for k in range(LANES):
                lane[k] += a[k] * b[k]
            a += LANES
            b += LANES
        for k in range(run % LANES):
            lane[k] += a[k] * b[k]
        a += run % LANES
        b += run % LANES
        n -= run
        total += folded(lane)
    return total


# ---- Forward --------------------------------------------------------------------------

cdef void attend(const Attention* job, Py_ssize_t batch, Py_ssize_t first, View* out, F* room) noexcept nogil:
    """out = weights v for one block of queries, each row over its sum"""
    cdef Py_ssize_t block = block_of(job), rows = min(block, rows_of(&job.q) - first), dv = columns_of(&job.v), i
    cdef Py_ssize_t n = seen(job, first + rows - 1), row = row_stride(out)
    cdef F* target = <F*> matrix(out, batch) + first * row
    cdef F* weights = room + block * rows_of(&job.k)
    cdef F* inverse = weights + block * rows_of(&job.k)
    if n == 0:
        for i in range(rows):
            memset(target + i * row, 0, dv * sizeof(F))
        return
    weigh(job, batch, first, rows, n, room, weights, inverse)
    product(job.blas, job.q.dtype, rows, n, dv, 1, row_major(weights, n), row_major(matrix(&job.v, batch), row_stride(&job.v)),
            False, row_major(target, row))
    for i in range(rows):
        multiply(target + i * row, inverse[i], dv)


cdef struct Work:               # what the tasks of a call share
    const Attention* job
    const View* grad
    View* out                   # forward
    View* dq                    # backward
    View* dk
    View* dv
    Py_ssize_t block
    Py_ssize_t blocks           # of query rows in a matrix
    Py_ssize_t room             # elements of a thread's
    char* staged


cdef void one_block(const void* given, Py_ssize_t t, int thread) noexcept nogil:
    cdef const Work* c = <const Work*> given
    if c.job.q.dtype == FLOAT32:
        attend(c.job, t // c.blocks, t % c.blocks * c.block, c.out, <float*> c.staged + thread * c.room)
    else:
        attend(c.job, t // c.blocks, t % c.blocks * c.block, c.out, <double*> c.staged + thread * c.room)


cdef int prepare(const Attention* job, int threads, Work* out) noexcept nogil:
    """The sizes of a call and its room; -1 when there is none"""
    out.job, out.block = job, block_of(job)
    out.blocks = (rows_of(&job.q) + out.block - 1) // out.block
    out.room = 2 * out.block * rows_of(&job.k) + out.block
    out.staged = <char*> malloc(threads * out.room * job.q.itemsize)
    return -1 if out.staged is NULL else 0


cdef int attention_views(const Attention* job, View* out, int threads) noexcept nogil:
    """Every matrix of the batch; -1 when there is no memory for the scores of a block"""
    cdef Work c
    if prepare(job, threads, &c):
        return -1
    c.out = out
    share(one_block, &c, c.blocks * batches_of(&job.q), threads)
    free(c.staged)
    return 0


# ---- Backward --------------------------------------------------------------------------

cdef void attend_grad(const Attention* job, Py_ssize_t batch, const View* grad, View* dq, View* dk, View* dv,
                      F* room) noexcept nogil:
    """One matrix: for p = softmax(s), ds = p (grad v^T - sum p grad v^T);  dq = scale ds k, dk = scale ds^T q, dv = p^T grad"""
    cdef Py_ssize_t tq = rows_of(&job.q), tk = rows_of(&job.k), d = columns_of(&job.q), width = columns_of(&job.v)
    cdef Py_ssize_t first = 0, block = block_of(job), rows, n, i, j
    cdef F* p = room + block * tk
    cdef F* inverse = p + block * tk
    cdef F* dk_at = <F*> matrix(dk, batch)
    cdef F* dv_at = <F*> matrix(dv, batch)
    cdef F* dq_at
    cdef const F* grad_at
    cdef const F* q_at
    cdef const F* k_at = <const F*> matrix(&job.k, batch)
    cdef F* ds
    cdef F mean
    for i in range(tk):
        memset(dk_at + i * row_stride(dk), 0, d * sizeof(F))
        memset(dv_at + i * row_stride(dv), 0, width * sizeof(F))
    while first < tq:
        rows = min(block, tq - first)
        n = seen(job, first + rows - 1)
        grad_at = <const F*> matrix(grad, batch) + first * row_stride(grad)
        q_at = <const F*> matrix(&job.q, batch) + first * row_stride(&job.q)
        dq_at = <F*> matrix(dq, batch) + first * row_stride(dq)
        if n == 0:
            for i in range(rows):
                memset(dq_at + i * row_stride(dq), 0, d * sizeof(F))
            first += rows
            continue
        weigh(job, batch, first, rows, n, room, p, inverse)
        for i in range(rows):
            multiply(p + i * n, inverse[i], n)
        product(job.blas, job.q.dtype, n, rows, width, 1, transposed(row_major(p, n)), row_major(grad_at, row_stride(grad)), True,
                row_major(dv_at, row_stride(dv)))
        product(job.blas, job.q.dtype, rows, width, n, 1, row_major(grad_at, row_stride(grad)),
                transposed(row_major(matrix(&job.v, batch), row_stride(&job.v))), False, row_major(room, n))
        for i in range(rows):
            ds = room + i * n
            mean = <F> dot(p + i * n, ds, n)
            for j in range(n):
                ds[j] = p[i * n + j] * (ds[j] - mean)
        product(job.blas, job.q.dtype, rows, n, d, job.scale, row_major(room, n), row_major(k_at, row_stride(&job.k)), False,
                row_major(dq_at, row_stride(dq)))
        product(job.blas, job.q.dtype, n, rows, d, job.scale, transposed(row_major(room, n)),
                row_major(q_at, row_stride(&job.q)), True, row_major(dk_at, row_stride(dk)))
        first += rows


cdef void one_matrix(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* c = <const Work*> given
    if c.job.q.dtype == FLOAT32:
        attend_grad(c.job, b, c.grad, c.dq, c.dk, c.dv, <float*> c.staged + thread * c.room)
    else:
        attend_grad(c.job, b, c.grad, c.dq, c.dk, c.dv, <double*> c.staged + thread * c.room)


cdef int attention_grad_views(const Attention* job, View* grad, View* dq, View* dk, View* dv, int threads) noexcept nogil:
    """Every matrix of the batch; one thread each, so that dk and dv add up in order"""
    cdef Work c
    if prepare(job, threads, &c):
        return -1
    c.grad, c.dq, c.dk, c.dv = grad, dq, dk, dv
    share(one_matrix, &c, batches_of(&job.q), threads)
    free(c.staged)
    return 0
