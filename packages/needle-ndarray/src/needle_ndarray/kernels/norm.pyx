# Layer norm over the last axis and batch norm over all others, forward and backward. Both are loops over rows of n elements.
#
# Statistics are those of x - x0 (x0 the first element, or row): with a mean far from 0, float32 keeps its digits. Sums are made
# in lane blocks (lane_block.h) or in columns of the element type for a short run, then in double; column sums over a partition that
# depends on the shape alone, added in order: the same bits for every number of threads.

from libc.math cimport NAN, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.kernels.rows cimport Cut, coefficients, cut, room_for, rows_of, store, total
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F, View
from needle_ndarray.threads cimport share

cdef extern from "norm.h" nogil:
    void needle_layer_norm_float(const float* x, Py_ssize_t rows, Py_ssize_t n, const float* weight, const float* bias, double eps,
                                 float* out) noexcept
    void needle_layer_norm_double(const double* x, Py_ssize_t rows, Py_ssize_t n, const double* weight, const double* bias,
                                  double eps, double* out) noexcept
    void needle_layer_norm_grad_float(const float* grad, const float* x, Py_ssize_t rows, Py_ssize_t n, const float* weight,
                                      double eps, float* dx, float* dweight, float* dbias) noexcept
    void needle_layer_norm_grad_double(const double* grad, const double* x, Py_ssize_t rows, Py_ssize_t n, const double* weight,
                                       double eps, double* dx, double* dweight, double* dbias) noexcept

cdef struct Norm:               # a call: what its tasks read and write
    Cut cut
    const View* grad
    const View* x
    const View* out             # y or dx
    bint grad_flat, flat, out_flat
    double eps
    double* partial             # 2 n sums of each task
    double* wide                # batch norm: 2 n for each thread
    char* vectors               # a few vectors of n in the element type
    char* staged                # room for rows
    Py_ssize_t room             # elements of it for each thread


cdef void prepare(Norm* job, const View* grad, const View* x, const View* out, double eps) noexcept nogil:
    job.cut, job.grad, job.x, job.out, job.eps = cut(x), grad, x, out, eps
    job.grad_flat, job.flat, job.out_flat = grad is not NULL and contiguous(grad), contiguous(x), contiguous(out)

# ---- Layer norm --------------------------------------------------------------------------

cdef inline void normalise(const F* x, Py_ssize_t rows, Py_ssize_t n, const F* weight, const F* bias, double eps,
                           F* out) noexcept nogil:
    if F is float:
        needle_layer_norm_float(x, rows, n, weight, bias, eps, out)
    else:
        needle_layer_norm_double(x, rows, n, weight, bias, eps, out)


cdef void layer_norm_step(const Norm* job, Py_ssize_t step, F* staged) noexcept nogil:
    cdef Py_ssize_t n = job.cut.n, block = job.cut.step * n, start = step * block, count = min(block, job.x.size - start)
    cdef const F* w = <const F*> job.vectors
    cdef F* source = rows_of(job.x, job.flat, start, count, staged)
    cdef F* target = room_for(job.out, job.out_flat, start, staged + block)
    normalise(source, count // n, n, w, w + n, job.eps, target)
    if not job.out_flat:
        scatter(<char*> target, start, count, job.out)


cdef void one_layer_norm(const void* given, Py_ssize_t step, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        layer_norm_step(job, step, <float*> job.staged + thread * job.room)
    else:
        layer_norm_step(job, step, <double*> job.staged + thread * job.room)


cdef int layer_norm_of(View* x, View* weight, View* bias, double eps, View* out, F like, int threads) noexcept nogil:
    cdef Norm job
    cdef Cut c = cut(x)
    cdef F* w
    prepare(&job, NULL, x, out, eps)
    job.room = 2 * c.step * c.n
    w = <F*> malloc((2 * c.n + threads * job.room) * sizeof(F))
    if w is NULL:
        return -1
    coefficients(weight, c.n, <F> 1, w)
    coefficients(bias, c.n, <F> 0, w + c.n)
    job.vectors, job.staged = <char*> w, <char*> (w + 2 * c.n)
    share(one_layer_norm, &job, (c.rows + c.step - 1) // c.step, threads)
    free(w)
    return 0


cdef inline void slopes(const F* grad, const F* x, Py_ssize_t rows, Py_ssize_t n, const F* weight, double eps, F* dx, F* dweight,
                        F* dbias) noexcept nogil:
    if F is float:
        needle_layer_norm_grad_float(grad, x, rows, n, weight, eps, dx, dweight, dbias)
    else:
        needle_layer_norm_grad_double(grad, x, rows, n, weight, eps, dx, dweight, dbias)


cdef void layer_norm_grad_span(const Norm* job, Py_ssize_t task, F* staged) noexcept nogil:
    """One task's rows, and its part of dweight and dbias"""
    cdef const Cut* c = &job.cut
    cdef Py_ssize_t n = c.n, block = c.step * n, row = task * c.span, stop = min(c.rows, row + c.span), count, j
    cdef const F* weight = <const F*> job.vectors
    cdef double* partial = job.partial + task * 2 * n
    cdef F* sums = staged + 3 * block
    cdef const F* g
    cdef const F* source
    cdef F* target
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        g = rows_of(job.grad, job.grad_flat, row * n, count * n, staged)
        source = rows_of(job.x, job.flat, row * n, count * n, staged + block)
        target = room_for(job.out, job.out_flat, row * n, staged + 2 * block)
        memset(sums, 0, 2 * n * sizeof(F))
        slopes(g, source, count, n, weight, job.eps, target, sums, sums + n)
        for j in range(2 * n):
            partial[j] += sums[j]
        if not job.out_flat:
            scatter(<char*> target, row * n, count * n, job.out)
        row += count


cdef void one_layer_norm_grad(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        layer_norm_grad_span(job, task, <float*> job.staged + thread * job.room)
    else:
        layer_norm_grad_span(job, task, <double*> job.staged + thread * job.room)


cdef int layer_norm_grad_of(View* grad, View* x, View* weight, double eps, View* dx, View* dweight, View* dbias, F like,
                            int threads) noexcept nogil:
    cdef Norm job
    cdef Cut c = cut(x)
    cdef double* partial
    cdef F* w
    cdef int status
    prepare(&job, grad, x, dx, eps)
    job.room = 3 * c.step * c.n + 2 * c.n
    partial = <double*> malloc(max(c.tasks, 1) * 2 * c.n * sizeof(double) + (c.n + threads * job.room) * sizeof(F))
    if partial is NULL:
        return -1
    w = <F*> (partial + max(c.tasks, 1) * 2 * c.n)
    coefficients(weight, c.n, <F> 1, w)
    job.partial, job.vectors, job.staged = partial, <char*> w, <char*> (w + c.n)
    share(one_layer_norm_grad, &job, c.tasks, threads)
    total(&c, partial, 2 * c.n)
    status = store(partial, c.n, dweight) or store(partial + c.n, c.n, dbias)
    free(partial)
    return status


# ---- Batch norm --------------------------------------------------------------------------

cdef void column_moments(const F* x, const F* first, Py_ssize_t rows, Py_ssize_t n, F* mean, F* squares) noexcept nogil:
    """mean of x - first, and sum of squares of the distance from it, for each column of a block in the cache; 4 rows at a time"""
    cdef Py_ssize_t whole = rows - rows % 4, i, j
    cdef const F* a
    memset(mean, 0, n * sizeof(F))
    memset(squares, 0, n * sizeof(F))
    for i in range(whole // 4):
        a = x + 4 * i * n
        for j in range(n):
            mean[j] += ((a[j] - first[j]) + (a[n + j] - first[j])) + ((a[2 * n + j] - first[j]) + (a[3 * n + j] - first[j]))
    for i in range(whole, rows):
        for j in range(n):
            mean[j] += x[i * n + j] - first[j]
    for j in range(n):
        mean[j] /= rows
    for i in range(rows):
        a = x + i * n
        for j in range(n):
            squares[j] += ((a[j] - first[j]) - mean[j]) * ((a[j] - first[j]) - mean[j])


cdef void merge(double* mean, double* squares, Py_ssize_t count, const double* other_mean, const double* other_squares,
                Py_ssize_t other, Py_ssize_t n) noexcept nogil:
    """Moments of count and other rows together: the squares grow by delta^2 count other / (count + other)"""
    cdef double part = <double> other / (count + other), weight = part * count, delta
    cdef Py_ssize_t j
    for j in range(n):
        delta = other_mean[j] - mean[j]
        mean[j] += delta * part
        squares[j] += other_squares[j] + delta * delta * weight


cdef void moments_span(const Norm* job, Py_ssize_t task, F* staged, double* wide) noexcept nogil:
    """Mean of x - first and sum of squares of one task's rows"""
    cdef const Cut* c = &job.cut
    cdef Py_ssize_t n = c.n, start = task * c.span, row = start, stop = min(c.rows, row + c.span), count, j
    cdef const F* first = <const F*> job.vectors
    cdef double* partial = job.partial + task * 2 * n
    cdef F* block
    cdef F* sums = staged + c.step * n
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        block = rows_of(job.x, job.flat, row * n, count * n, staged)
        column_moments(block, first, count, n, sums, sums + n)
        for j in range(2 * n):
            wide[j] = sums[j]
        merge(partial, partial + n, row - start, wide, wide + n, count, n)
        row += count


cdef void batch_norm_rows(const F* x, const F* first, const F* mean, const F* scale, const F* bias, F* out, Py_ssize_t rows,
                          Py_ssize_t n) noexcept nogil:
    """out = ((x - first) - mean) scale + bias"""
    cdef Py_ssize_t _i, j
    for _i in range(rows):
        for j in range(n):
            out[j] = ((x[j] - first[j]) - mean[j]) * scale[j] + bias[j]
        x += n
        out += n


cdef void batch_norm_step(const Norm* job, Py_ssize_t step, F* staged) noexcept nogil:
    cdef Py_ssize_t n = job.cut.n, block = job.cut.step * n, start = step * block, count = min(block, job.x.size - start)
    cdef const F* first = <const F*> job.vectors
    cdef F* target = room_for(job.out, job.out_flat, start, staged + block)
    batch_norm_rows(rows_of(job.x, job.flat, start, count, staged), first, first + n, first + 2 * n, first + 3 * n, target,
                    count // n, n)
    if not job.out_flat:
        scatter(<char*> target, start, count, job.out)


cdef void one_moments(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    cdef double* wide = job.wide + thread * 2 * job.cut.n
    if job.x.dtype == FLOAT32:
        moments_span(job, task, <float*> job.staged + thread * job.room, wide)
    else:
        moments_span(job, task, <double*> job.staged + thread * job.room, wide)


cdef void one_batch_norm(const void* given, Py_ssize_t step, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        batch_norm_step(job, step, <float*> job.staged + thread * job.room)
    else:
        batch_norm_step(job, step, <double*> job.staged + thread * job.room)


cdef int batch_norm_of(View* x, View* weight, View* bias, double eps, View* out, View* mean, View* var, F like,
                       int threads) noexcept nogil:
    cdef Norm job
    cdef Cut c = cut(x)
    cdef Py_ssize_t n = c.n, t, j
    cdef double* partial
    cdef F* first
    cdef F* m
    cdef F* w
    cdef int status
    prepare(&job, NULL, x, out, eps)
    job.room = 2 * c.step * n + 2 * n
    partial = <double*> malloc((max(c.tasks, 1) + threads) * 2 * n * sizeof(double) + (4 * n + threads * job.room) * sizeof(F))
    if partial is NULL:
        return -1
    job.partial, job.wide = partial, partial + max(c.tasks, 1) * 2 * n
    first = <F*> (job.wide + threads * 2 * n)
    m, w = first + n, first + 2 * n
    job.vectors, job.staged = <char*> first, <char*> (first + 4 * n)
    if c.rows == 0:
        for j in range(2 * n):
            partial[j] = NAN
    else:
        gather(x, 0, n, <char*> first)
        coefficients(weight, n, <F> 1, w)
        coefficients(bias, n, <F> 0, w + n)
        share(one_moments, &job, c.tasks, threads)
        for t in range(1, c.tasks):
            merge(partial, partial + n, t * c.span, partial + t * 2 * n, partial + (t * 2 + 1) * n,
                  min(c.span, c.rows - t * c.span), n)
        for j in range(n):
            partial[n + j] /= c.rows
            m[j] = <F> partial[j]
            w[j] = <F> (w[j] / sqrt(partial[n + j] + eps))
            partial[j] += first[j]
        share(one_batch_norm, &job, (c.rows + c.step - 1) // c.step, threads)
    status = store(partial, n, mean) or store(partial + n, n, var)
    free(partial)
    return status


cdef void batch_sums_span(const Norm* job, Py_ssize_t task, F* staged) noexcept nogil:
    """sums of grad (x - mean) and of grad over one task's rows"""
    cdef const Cut* c = &job.cut
    cdef Py_ssize_t n = c.n, row = task * c.span, stop = min(c.rows, row + c.span), count, _i, j
    cdef const F* mean = <const F*> job.vectors
    cdef double* partial = job.partial + task * 2 * n
    cdef F* sums = staged + 2 * c.step * n
    cdef const F* g
    cdef const F* a
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        g = rows_of(job.grad, job.grad_flat, row * n, count * n, staged)
        a = rows_of(job.x, job.flat, row * n, count * n, staged + c.step * n)
        memset(sums, 0, 2 * n * sizeof(F))
        for _i in range(count):
            for j in range(n):
                sums[j] += g[j] * (a[j] - mean[j])
                sums[n + j] += g[j]
            g += n
            a += n
        for j in range(2 * n):
            partial[j] += sums[j]
        row += count


cdef void batch_norm_grad_rows(const F* grad, const F* x, const F* mean, const F* mean_g, const F* slope, const F* scale, F* dx,
                               Py_ssize_t rows, Py_ssize_t n) noexcept nogil:
    """dx = scale ((grad - mean_g) - (x - mean) slope)"""
    cdef Py_ssize_t _i, j
    for _i in range(rows):
        for j in range(n):
            dx[j] = scale[j] * ((grad[j] - mean_g[j]) - (x[j] - mean[j]) * slope[j])
        grad += n
        x += n
        dx += n


cdef void batch_norm_grad_step(const Norm* job, Py_ssize_t step, F* staged) noexcept nogil:
    cdef Py_ssize_t n = job.cut.n, block = job.cut.step * n, start = step * block, count = min(block, job.x.size - start)
    cdef const F* m = <const F*> job.vectors
    cdef F* target = room_for(job.out, job.out_flat, start, staged + 2 * block)
    batch_norm_grad_rows(rows_of(job.grad, job.grad_flat, start, count, staged),
                         rows_of(job.x, job.flat, start, count, staged + block),
                         m, m + n, m + 2 * n, m + 3 * n, target, count // n, n)
    if not job.out_flat:
        scatter(<char*> target, start, count, job.out)


cdef void one_batch_sums(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        batch_sums_span(job, task, <float*> job.staged + thread * job.room)
    else:
        batch_sums_span(job, task, <double*> job.staged + thread * job.room)


cdef void one_batch_norm_grad(const void* given, Py_ssize_t step, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        batch_norm_grad_step(job, step, <float*> job.staged + thread * job.room)
    else:
        batch_norm_grad_step(job, step, <double*> job.staged + thread * job.room)


cdef int batch_norm_grad_of(View* grad, View* x, View* mean, View* var, View* weight, double eps, View* dx, View* dweight,
                            View* dbias, F like, int threads) noexcept nogil:
    cdef Norm job
    cdef Cut c = cut(x)
    cdef Py_ssize_t n = c.n, j
    cdef double* partial
    cdef F* m
    cdef F* mean_g
    cdef F* slope
    cdef F* scale
    cdef double r
    cdef int status
    prepare(&job, grad, x, dx, eps)
    job.room = 3 * c.step * n + 2 * n
    partial = <double*> malloc(max(c.tasks, 1) * 2 * n * sizeof(double) + (4 * n + threads * job.room) * sizeof(F))
    if partial is NULL:
        return -1
    m = <F*> (partial + max(c.tasks, 1) * 2 * n)
    mean_g, slope, scale = m + n, m + 2 * n, m + 3 * n
    job.partial, job.vectors, job.staged = partial, <char*> m, <char*> (m + 4 * n)
    coefficients(mean, n, <F> 0, m)
    coefficients(var, n, <F> 0, slope)
    coefficients(weight, n, <F> 1, scale)
    share(one_batch_sums, &job, c.tasks, threads)
    total(&c, partial, 2 * n)
    for j in range(n):
        r = 1 / sqrt(slope[j] + eps)
        partial[j] *= r
        mean_g[j], slope[j], scale[j] = <F> (partial[n + j] / c.rows), <F> (partial[j] * r / c.rows), <F> (scale[j] * r)
    share(one_batch_norm_grad, &job, (c.rows + c.step - 1) // c.step, threads)
    status = store(partial, n, dweight) or store(partial + n, n, dbias)
    free(partial)
    return status


# ---- By dtype: -1 when there is no memory; weight and bias may be NULL ------------------------------------------------------

cdef int layer_norm_views(View* x, View* weight, View* bias, double eps, View* out, int threads) noexcept nogil:
    if x.dtype == FLOAT32:
        return layer_norm_of(x, weight, bias, eps, out, <float> 0, threads)
    return layer_norm_of(x, weight, bias, eps, out, <double> 0, threads)


cdef int layer_norm_grad_views(View* grad, View* x, View* weight, double eps, View* dx, View* dweight, View* dbias,
                               int threads) noexcept nogil:
    if x.dtype == FLOAT32:
        return layer_norm_grad_of(grad, x, weight, eps, dx, dweight, dbias, <float> 0, threads)
    return layer_norm_grad_of(grad, x, weight, eps, dx, dweight, dbias, <double> 0, threads)


cdef int batch_norm_views(View* x, View* weight, View* bias, double eps, View* out, View* mean, View* var,
                          int threads) noexcept nogil:
    if x.dtype == FLOAT32:
        return batch_norm_of(x, weight, bias, eps, out, mean, var, <float> 0, threads)
    return batch_norm_of(x, weight, bias, eps, out, mean, var, <double> 0, threads)


cdef int batch_norm_grad_views(View* grad, View* x, View* mean, View* var, View* weight, double eps, View* dx, View* dweight,
                               View* dbias, int threads) noexcept nogil:
    if x.dtype == FLOAT32:
        return batch_norm_grad_of(grad, x, mean, var, weight, eps, dx, dweight, dbias, <float> 0, threads)
    return batch_norm_grad_of(grad, x, mean, var, weight, eps, dx, dweight, dbias, <double> 0, threads)
