# Steps of optimizers, in place, over a list of parameters in one go: each element is read and written once, and many small
# parameters cost one call. Everything is elementwise in the parameter's dtype: the same bits however blocks fall to threads.

from libc.math cimport sqrt, sqrtf

from needle_ndarray.kernels.memoryviews cimport vector
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport BLOCK, CHUNK, FLOAT32, F
from needle_ndarray.threads cimport share

# ---- The rules --------------------------------------------------------------------------

cdef void penalise(const F[::1] g, const F[::1] p, F weight_decay, F l1, F[::1] out) noexcept nogil:
    """out = g + weight_decay p + l1 sign(p); a penalty of 0 is left out"""
    cdef F sign
    cdef Py_ssize_t i
    if weight_decay != 0:
        for i in range(p.shape[0]):
            out[i] = g[i] + weight_decay * p[i]
        g = out
    if l1 != 0:
        for i in range(p.shape[0]):
            sign = <F> 1 if p[i] > 0 else <F> -1 if p[i] < 0 else <F> 0 if p[i] == 0 else p[i]
            out[i] = g[i] + l1 * sign


cdef void shrink(F[::1] p, F decay) noexcept nogil:
    """p -= decay p"""
    cdef Py_ssize_t i
    for i in range(p.shape[0]):
        p[i] -= decay * p[i]


cdef void sgd(F[::1] p, const F[::1] g, F lr) noexcept nogil:
    """p -= lr g"""
    cdef Py_ssize_t i
    for i in range(p.shape[0]):
        p[i] -= lr * g[i]


cdef void momentum(const Rule* r, F[::1] p, const F[::1] g, F[::1] u) noexcept nogil:
    """u = beta1 u + one_minus_beta1 g;  p -= lr u / correction1"""
    cdef F lr = <F> r.lr, beta1 = <F> r.beta1, one_minus_beta1 = <F> r.one_minus_beta1, correction1 = <F> r.correction1
    cdef Py_ssize_t i
    if correction1 != 1:
        for i in range(p.shape[0]):
            u[i] = beta1 * u[i] + one_minus_beta1 * g[i]
            p[i] -= lr * (u[i] / correction1)
    else:
        for i in range(p.shape[0]):
            u[i] = beta1 * u[i] + one_minus_beta1 * g[i]
            p[i] -= lr * u[i]


cdef void nesterov(const Rule* r, F[::1] p, const F[::1] g, F[::1] u) noexcept nogil:
    """u = beta1 u + one_minus_beta1 g;  p -= lr (beta1 u + one_minus_beta1 g) / correction1"""
    cdef F lr = <F> r.lr, beta1 = <F> r.beta1, one_minus_beta1 = <F> r.one_minus_beta1, correction1 = <F> r.correction1, each
    cdef Py_ssize_t i
    for i in range(p.shape[0]):
        each = one_minus_beta1 * g[i]
        u[i] = beta1 * u[i] + each
        p[i] -= lr * ((beta1 * u[i] + each) / correction1)


cdef inline F root(F x) noexcept nogil:
    if F is float:
        return sqrtf(x)
    else:
        return sqrt(x)


cdef void adam(const Rule* r, F[::1] p, const F[::1] g, F[::1] m, F[::1] v) noexcept nogil:
    """p -= decay p;  m = beta1 m + one_minus_beta1 g;  v = beta2 v + one_minus_beta2 g g;
    p -= lr (m / correction1) / (sqrt(v / correction2) + eps)
    """
    cdef F lr = <F> r.lr, beta1 = <F> r.beta1, one_minus_beta1 = <F> r.one_minus_beta1, correction1 = <F> r.correction1
    cdef F beta2 = <F> r.beta2, one_minus_beta2 = <F> r.one_minus_beta2, correction2 = <F> r.correction2
    cdef F eps = <F> r.eps, decay = <F> r.decay, mean, square, kept
    cdef Py_ssize_t i
    for i in range(p.shape[0]):
        mean = beta1 * m[i] + one_minus_beta1 * g[i]
        square = beta2 * v[i] + one_minus_beta2 * g[i] * g[i]
        m[i] = mean
        v[i] = square
        kept = p[i] - decay * p[i] if decay != 0 else p[i]
        # In float32 correction1 = 1 - 0.9^t is 1 from t = 165 on: x / 1 = x, and a division less is 0.85 of the time in the cache.
        p[i] = kept - lr * (mean / correction1 if correction1 != 1 else mean) / (root(square / correction2) + eps)


# ---- Blocks --------------------------------------------------------------------------

cdef void block_of(const Rule* r, const Item* item, Py_ssize_t start, Py_ssize_t n, F like) noexcept nogil:
    """Elements start .. start + n of a parameter; what is not compact is staged, CHUNK elements at a time"""
    cdef F staged[5][CHUNK]
    cdef F* at[4]
    cdef bint penalty = r.weight_decay != 0 or r.l1 != 0
    cdef bint shrinks = r.decay != 0 and r.op == SGD        # adam does it on the way
    cdef Py_ssize_t step = CHUNK if penalty or shrinks or item.views is not NULL else n, stop = start + n
    cdef F[::1] p, g
    cdef int k
    while start < stop:
        n = min(step, stop - start)
        for k in range(4):
            at[k] = NULL if item.at[k] is NULL else <F*> item.at[k] + start
            if item.views is not NULL and at[k] is not NULL and not contiguous(&item.views[k]):
                at[k] = staged[k]
                gather(&item.views[k], start, n, <char*> at[k])
        p, g = vector(at[0], n), vector(at[1], n)
        if penalty:
            penalise(g, p, <F> r.weight_decay, <F> r.l1, vector(staged[4], n))
            g = vector(staged[4], n)
        if shrinks:
            shrink(p, <F> r.decay)
        if r.op == ADAM:
            adam(r, p, g, vector(at[2], n), vector(at[3], n))
        elif at[2] is NULL:
            sgd(p, g, <F> r.lr)
        elif r.nesterov:
            nesterov(r, p, g, vector(at[2], n))
        else:
            momentum(r, p, g, vector(at[2], n))
        for k in range(4):
            if k != 1 and at[k] is staged[k]:
                scatter(<char*> at[k], start, n, &item.views[k])
        start += n


cdef void run_block(const Rule* r, const Item* item, Py_ssize_t start, Py_ssize_t n) noexcept nogil:
    if item.dtype == FLOAT32:
        block_of(r, item, start, n, <float> 0)
    else:
        block_of(r, item, start, n, <double> 0)


cdef struct Job:
    const Rule* rule
    const Item* items
    Py_ssize_t count


cdef void one_block(const void* given, Py_ssize_t number, int thread) noexcept nogil:
    """The block of that number, counted through all parameters"""
    cdef const Job* job = <const Job*> given
    cdef const Item* items = job.items
    cdef Py_ssize_t low = 0, high = job.count, middle, start
    while high - low > 1:               # the last item that begins at or before it; empty ones have no blocks
        middle = (low + high) // 2
        if items[middle].first <= number:
            low = middle
        else:
            high = middle
    start = (number - items[low].first) * BLOCK
    run_block(job.rule, &items[low], start, min(<Py_ssize_t> BLOCK, items[low].size - start))


cdef void run_steps(const Rule* r, Item* items, Py_ssize_t count, int threads) noexcept nogil:
    cdef Py_ssize_t blocks = 0, i
    cdef Job job
    if threads == 1:
        for i in range(count):
            run_block(r, &items[i], 0, items[i].size)
        return
    for i in range(count):
        items[i].first = blocks
        blocks += (items[i].size + BLOCK - 1) // BLOCK
    job.rule, job.items, job.count = r, items, count
    share(one_block, &job, blocks, threads)
