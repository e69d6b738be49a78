# Layer norm over the last axis and batch norm over all others, forward and backward. Both are loops over rows of n elements.
#
# Statistics are those of x - x0 (x0 the first element, or row): with a mean far from 0, float32 keeps its digits. Sums are made in
# lanes (norm.h) or in columns of the element type for a short run, then in double; column sums over a partition that
# depends on the shape alone, added in order: the same bits for every number of threads.

from libc.math cimport NAN, sqrt
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.memoryviews cimport matrix, vector
from needle_ndarray.kernels.rows cimport Cut, cut, finish_rows, source_rows, store, target_rows, total
from needle_ndarray.kernels.strided cimport contiguous, gather
from needle_ndarray.kernels.views cimport FLOAT32, F, View
from needle_ndarray.threads cimport share

cdef extern from "norm.h" nogil:
    void needle_layer_norm_sums_float(const float* x, Py_ssize_t n, double* out) noexcept
    void needle_layer_norm_sums_double(const double* x, Py_ssize_t n, double* out) noexcept
    void needle_layer_norm_grad_sums_float(const float* grad, const float* weight, const float* x, Py_ssize_t n,
                                           double* out) noexcept
    void needle_layer_norm_grad_sums_double(const double* grad, const double* weight, const double* x, Py_ssize_t n,
                                            double* out) noexcept
    double needle_layer_norm_variance_float(const float* x, Py_ssize_t n, float mean) noexcept
    double needle_layer_norm_variance_double(const double* x, Py_ssize_t n, double mean) noexcept
    void needle_layer_norm_derivative_float(const float* grad, const float* x, Py_ssize_t n, const float* weight, float mean,
                                            float scale, float mean_g, float mean_gx, float* dx, float* dweight,
                                            float* dbias) noexcept
    void needle_layer_norm_derivative_double(const double* grad, const double* x, Py_ssize_t n, const double* weight,
                                             double mean, double scale, double mean_g, double mean_gx, double* dx,
                                             double* dweight, double* dbias) noexcept

cdef enum:
    GROUP = 4               # rows at a time: what one waits for (a sum, a root, a division) is hidden behind the others
    ALIGNED = 64            # bytes of a cache line: with vectors across two of them batch norm of 64 columns took 1.2 times as long
    FAR = 8                 # mean(d)^2 / var from which mean(d^2) - mean(d)^2 would lose digits


# ---- Layer norm: rows ------------------------------------------------------------------------------

cdef inline void sums(const F[::1] x, double* out) noexcept nogil:
    """out = the sums of d = x - x[0] and d^2"""
    if F is float:
        needle_layer_norm_sums_float(&x[0], x.shape[0], out)
    else:
        needle_layer_norm_sums_double(&x[0], x.shape[0], out)


cdef inline void grad_sums(const F[::1] grad, const F[::1] weight, const F[::1] x, double* out) noexcept nogil:
    """out = the sums of d = x - x[0], d^2, g = grad weight and g d"""
    if F is float:
        needle_layer_norm_grad_sums_float(&grad[0], &weight[0], &x[0], x.shape[0], out)
    else:
        needle_layer_norm_grad_sums_double(&grad[0], &weight[0], &x[0], x.shape[0], out)


cdef inline double variance(const F[::1] x, F mean) noexcept nogil:
    """mean of ((x - x[0]) - mean)^2"""
    if F is float:
        return needle_layer_norm_variance_float(&x[0], x.shape[0], mean)
    else:
        return needle_layer_norm_variance_double(&x[0], x.shape[0], mean)


cdef inline void moments(const F[::1] x, const double* sums, double eps, F* mean, F* scale) noexcept nogil:
    """mean of d = x - x[0] and (var + eps)^(-1/2), from the sums of d and d^2"""
    cdef Py_ssize_t n = x.shape[0]
    cdef double m = sums[0] / n, var = sums[1] / n - m * m
    if m * m > FAR * var:
        var = variance(x, <F> m)
    mean[0], scale[0] = <F> m, <F> (1 / sqrt(var + eps))


cdef inline void normalise(const F[::1] x, const F[::1] weight, const F[::1] bias, F mean, F scale, F[::1] out) noexcept nogil:
    """out = ((x - x[0]) - mean) scale weight + bias"""
    cdef F x0 = x[0]
    cdef Py_ssize_t j
    for j in range(x.shape[0]):
        out[j] = ((x[j] - x0) - mean) * scale * weight[j] + bias[j]


cdef inline void layer_norm(const F[:, ::1] x, const F[::1] weight, const F[::1] bias, double eps, F[:, ::1] out) noexcept nogil:
    """out = (x - mean) / sqrt(var + eps) weight + bias, mean and variance of each row"""
    cdef double d[GROUP][2]
    cdef F mean[GROUP]
    cdef F scale[GROUP]
    cdef Py_ssize_t first = 0, rows, i
    while first < x.shape[0]:
        rows = min(<Py_ssize_t> GROUP, x.shape[0] - first)
        for i in range(rows):
            sums(x[first + i], d[i])
        for i in range(rows):
            moments(x[first + i], d[i], eps, &mean[i], &scale[i])
        for i in range(rows):
            normalise(x[first + i], weight, bias, mean[i], scale[i], out[first + i])
        first += rows


cdef inline void derivative(const F[::1] grad, const F[::1] x, const F[::1] weight, F mean, F scale, const double* s, F[::1] dx,
                            F[::1] dweight, F[::1] dbias) noexcept nogil:
    """dx = scale (g - mean(g) - x^ mean(g x^)), dweight += grad x^, dbias += grad; s: what grad_sums found"""
    cdef Py_ssize_t n = x.shape[0]
    cdef F mean_g = <F> (s[2] / n), mean_gx = <F> ((s[3] - s[2] * (s[0] / n)) * scale / n)
    if F is float:
        needle_layer_norm_derivative_float(&grad[0], &x[0], n, &weight[0], mean, scale, mean_g, mean_gx, &dx[0], &dweight[0],
                                           &dbias[0])
    else:
        needle_layer_norm_derivative_double(&grad[0], &x[0], n, &weight[0], mean, scale, mean_g, mean_gx, &dx[0], &dweight[0],
                                            &dbias[0])


cdef inline void layer_norm_grad(const F[:, ::1] grad, const F[:, ::1] x, const F[::1] weight, double eps, F[:, ::1] dx,
                                 F[::1] dweight, F[::1] dbias) noexcept nogil:
    """dx = scale (g - mean(g) - x^ mean(g x^)) for g = grad weight, x^ = scale (x - mean);  dweight += grad x^, dbias += grad"""
    cdef double d[GROUP][4]
    cdef F mean[GROUP]
    cdef F scale[GROUP]
    cdef Py_ssize_t first = 0, rows, i
    while first < x.shape[0]:
        rows = min(<Py_ssize_t> GROUP, x.shape[0] - first)
        for i in range(rows):
            grad_sums(grad[first + i], weight, x[first + i], d[i])
        for i in range(rows):
            moments(x[first + i], d[i], eps, &mean[i], &scale[i])
        for i in range(rows):
            derivative(grad[first + i], x[first + i], weight, mean[i], scale[i], d[i], dx[first + i], dweight, dbias)
        first += rows


# ---- Batch norm: rows ------------------------------------------------------------------------------

cdef inline void column_moments(const F[:, ::1] x, const F[::1] first, F[::1] mean, F[::1] squares) noexcept nogil:
    """mean of x - first, and sum of squares of the distance from it, of each column; 4 rows at a time. Both come as 0"""
    cdef Py_ssize_t rows = x.shape[0], whole = rows - rows % 4, n = x.shape[1], i, j
    for i in range(0, whole, 4):
        for j in range(n):
            mean[j] += (((x[i, j] - first[j]) + (x[i + 1, j] - first[j]))
                        + ((x[i + 2, j] - first[j]) + (x[i + 3, j] - first[j])))
    for i in range(whole, rows):
        for j in range(n):
            mean[j] += x[i, j] - first[j]
    for j in range(n):
        mean[j] /= rows
    for i in range(rows):
        for j in range(n):
            squares[j] += ((x[i, j] - first[j]) - mean[j]) * ((x[i, j] - first[j]) - mean[j])


cdef inline void assign(F[:, ::1] a, F value) noexcept nogil:
    """a = value; of a[:] = value Cython makes a loop over strides, which is no vector code"""
    cdef Py_ssize_t i, j
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            a[i, j] = value


cdef inline void add_to(double[:, ::1] partial, const F[:, ::1] sums) noexcept nogil:
    """partial += sums"""
    cdef Py_ssize_t i, j
    for i in range(2):
        for j in range(sums.shape[1]):
            partial[i, j] += sums[i, j]


cdef inline void merge(double[:, ::1] moments, Py_ssize_t count, const F[:, ::1] others, Py_ssize_t other) noexcept nogil:
    """Means and squares of count and other rows together: squares grow by delta^2 count other / (count + other)"""
    cdef double part = <double> other / (count + other), weight = part * count, delta
    cdef Py_ssize_t j
    for j in range(moments.shape[1]):
        delta = others[0, j] - moments[0, j]
        moments[0, j] += delta * part
        moments[1, j] += others[1, j] + delta * delta * weight


cdef inline void batch_norm(const F[:, ::1] x, const F[::1] first, const F[::1] mean, const F[::1] scale, const F[::1] bias,
                            F[:, ::1] out) noexcept nogil:
    """out = ((x - first) - mean) scale + bias"""
    cdef Py_ssize_t i, j
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            out[i, j] = ((x[i, j] - first[j]) - mean[j]) * scale[j] + bias[j]


cdef inline void batch_sums(const F[:, ::1] grad, const F[:, ::1] x, const F[::1] mean, F[::1] dscale, F[::1] dbias) noexcept nogil:
    """dscale, dbias += the sums of grad (x - mean) and of grad over the rows"""
    cdef Py_ssize_t i, j
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            dscale[j] += grad[i, j] * (x[i, j] - mean[j])
            dbias[j] += grad[i, j]


cdef inline void batch_norm_grad(const F[:, ::1] grad, const F[:, ::1] x, const F[::1] mean, const F[::1] mean_g,
                                 const F[::1] mean_gx, const F[::1] scale, F[:, ::1] dx) noexcept nogil:
    """dx = scale ((grad - mean_g) - (x - mean) mean_gx)"""
    cdef Py_ssize_t i, j
    for i in range(x.shape[0]):
        for j in range(x.shape[1]):
            dx[i, j] = scale[j] * ((grad[i, j] - mean_g[j]) - (x[i, j] - mean[j]) * mean_gx[j])


# ---- Tasks: a step of rows each, or a span of steps with column sums of its own ----------------------------------------

cdef enum Phase:
    LAYER_NORM, LAYER_NORM_GRAD, BATCH_MOMENTS, BATCH_NORM, BATCH_SUMS, BATCH_NORM_GRAD


cdef struct Norm:               # a call: what its tasks read and write
    int phase
    Cut cut
    const View* grad            # NULL in the forward pass
    const View* x
    const View* out             # y or dx
    bint grad_flat, flat, out_flat
    double eps
    void* memory                # for all of these:
    double* partial             # (tasks, 2, n) column sums
    char* vectors               # (4, n) in the element type
    char* scratch               # for rows that do not lie side by side; its last 2 n elements for column sums
    Py_ssize_t scratch_size     # elements of it for each thread


cdef void step_of(const Norm* job, Py_ssize_t step, F* scratch) noexcept nogil:
    """Results of one step of rows"""
    cdef Py_ssize_t n = job.cut.n, block = job.cut.step * n, row = step * job.cut.step
    cdef Py_ssize_t count = min(job.cut.step, job.cut.rows - row)
    cdef F[:, ::1] v = matrix(<F*> job.vectors, 4, n), x = source_rows(job.x, job.flat, row, count, n, scratch)
    cdef F[:, ::1] out = target_rows(job.out, job.out_flat, row, count, n, scratch + block), grad
    if job.phase == LAYER_NORM:
        layer_norm(x, v[0], v[1], job.eps, out)
    elif job.phase == BATCH_NORM:
        batch_norm(x, v[0], v[1], v[2], v[3], out)
    else:
        grad = source_rows(job.grad, job.grad_flat, row, count, n, scratch + 2 * block)
        batch_norm_grad(grad, x, v[0], v[1], v[2], v[3], out)
    finish_rows(out, job.out, job.out_flat, row)


cdef void span_of(const Norm* job, Py_ssize_t task, F* scratch) noexcept nogil:
    """Column sums of one span of rows, and dx of layer norm on the way"""
    cdef Py_ssize_t n = job.cut.n, block = job.cut.step * n, start = task * job.cut.span, row = start, count
    cdef Py_ssize_t stop = min(job.cut.rows, start + job.cut.span)
    cdef double[:, ::1] partial = matrix(job.partial + task * 2 * n, 2, n)
    cdef F[:, ::1] sums = matrix(scratch + job.scratch_size - 2 * n, 2, n), x, grad, dx
    cdef F[::1] v = vector(<F*> job.vectors, n)         # weight, the first row, or the mean
    assign(partial, 0)
    while row < stop:
        count = min(job.cut.step, stop - row)
        x = source_rows(job.x, job.flat, row, count, n, scratch)
        assign(sums, 0)
        if job.phase == BATCH_MOMENTS:
            column_moments(x, v, sums[0], sums[1])
            merge(partial, row - start, sums, count)
        else:
            grad = source_rows(job.grad, job.grad_flat, row, count, n, scratch + block)
            if job.phase == BATCH_SUMS:
                batch_sums(grad, x, v, sums[0], sums[1])
            else:
                dx = target_rows(job.out, job.out_flat, row, count, n, scratch + 2 * block)
                layer_norm_grad(grad, x, v, job.eps, dx, sums[0], sums[1])
                finish_rows(dx, job.out, job.out_flat, row)
            add_to(partial, sums)
        row += count


cdef void one_step(const void* given, Py_ssize_t step, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        step_of(job, step, <float*> job.scratch + thread * job.scratch_size)
    else:
        step_of(job, step, <double*> job.scratch + thread * job.scratch_size)


cdef void one_span(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef const Norm* job = <const Norm*> given
    if job.x.dtype == FLOAT32:
        span_of(job, task, <float*> job.scratch + thread * job.scratch_size)
    else:
        span_of(job, task, <double*> job.scratch + thread * job.scratch_size)


cdef inline void run_steps(Norm* job, int phase, int threads) noexcept nogil:
    job.phase = phase
    share(one_step, job, (job.cut.rows + job.cut.step - 1) // job.cut.step, threads)


cdef inline void run_spans(Norm* job, int phase, int threads) noexcept nogil:
    job.phase = phase
    share(one_span, job, job.cut.tasks, threads)


# ---- Calls: -1 when there is no memory; weight and bias may be NULL -------------------------------------------------------

cdef int prepare(Norm* job, const View* grad, const View* x, const View* out, double eps, bint spans, int threads) noexcept nogil:
    """Memory for the vectors, for blocks of rows of every thread, and for the column sums of spans"""
    cdef Cut c = cut(x)
    cdef Py_ssize_t sums = max(c.tasks, <Py_ssize_t> 1) * 2 * c.n * <Py_ssize_t> sizeof(double) if spans else 0
    job.cut, job.grad, job.x, job.out, job.eps = c, grad, x, out, eps
    job.grad_flat, job.flat, job.out_flat = grad is not NULL and contiguous(grad), contiguous(x), contiguous(out)
    job.scratch_size = (2 if grad is NULL else 3) * c.step * c.n + 2 * c.n
    job.memory = malloc(ALIGNED + sums + (4 * c.n + threads * job.scratch_size) * x.itemsize)
    job.partial = <double*> ((<size_t> job.memory + ALIGNED - 1) // ALIGNED * ALIGNED)
    job.vectors = <char*> job.partial + sums
    job.scratch = job.vectors + 4 * c.n * x.itemsize
    return -1 if job.memory is NULL else 0


cdef void set_vector(const Norm* job, Py_ssize_t i, const View* given, double default) noexcept nogil:
    """vectors[i] = a vector of n, or the default where none is given"""
    cdef Py_ssize_t n = job.cut.n
    if given is not NULL:
        gather(given, 0, n, job.vectors + i * n * job.x.itemsize)
    elif job.x.dtype == FLOAT32:
        assign(matrix(<float*> job.vectors + i * n, 1, n), <float> default)
    else:
        assign(matrix(<double*> job.vectors + i * n, 1, n), default)


cdef int layer_norm_views(View* x, View* weight, View* bias, double eps, View* out, int threads) noexcept nogil:
    cdef Norm job
    if prepare(&job, NULL, x, out, eps, False, threads):
        return -1
    set_vector(&job, 0, weight, 1)
    set_vector(&job, 1, bias, 0)
    run_steps(&job, LAYER_NORM, threads)
    free(job.memory)
    return 0


cdef int layer_norm_grad_views(View* grad, View* x, View* weight, double eps, View* dx, View* dweight, View* dbias,
                               int threads) noexcept nogil:
    cdef Norm job
    cdef int status
    if prepare(&job, grad, x, dx, eps, True, threads):
        return -1
    set_vector(&job, 0, weight, 1)
    run_spans(&job, LAYER_NORM_GRAD, threads)
    total(&job.cut, job.partial, 2 * job.cut.n)
    status = store(job.partial, job.cut.n, dweight) or store(job.partial + job.cut.n, job.cut.n, dbias)
    free(job.memory)
    return status


cdef void finish_moments(const Norm* job, F[:, ::1] v) noexcept nogil:
    """Of all spans together: partial = mean, variance; v = first, mean of x - first, weight / sqrt(var + eps), bias"""
    cdef Py_ssize_t n = job.cut.n, span = job.cut.span, t, j
    cdef double[:, ::1] moments = matrix(job.partial, 2, n)
    for t in range(1, job.cut.tasks):
        merge(moments, t * span, matrix(job.partial + t * 2 * n, 2, n), min(span, job.cut.rows - t * span))
    for j in range(n):
        moments[1, j] /= job.cut.rows
        v[1, j] = <F> moments[0, j]
        v[2, j] = <F> (v[2, j] / sqrt(moments[1, j] + job.eps))
        moments[0, j] += v[0, j]


cdef int batch_norm_views(View* x, View* weight, View* bias, double eps, View* out, View* mean, View* var,
                          int threads) noexcept nogil:
    cdef Norm job
    cdef Py_ssize_t n
    cdef int status
    if prepare(&job, NULL, x, out, eps, True, threads):
        return -1
    n = job.cut.n
    if job.cut.rows == 0:
        assign(matrix(job.partial, 2, n), NAN)
    else:
        gather(x, 0, n, job.vectors)
        set_vector(&job, 2, weight, 1)
        set_vector(&job, 3, bias, 0)
        run_spans(&job, BATCH_MOMENTS, threads)
        if x.dtype == FLOAT32:
            finish_moments(&job, matrix(<float*> job.vectors, 4, n))
        else:
            finish_moments(&job, matrix(<double*> job.vectors, 4, n))
        run_steps(&job, BATCH_NORM, threads)
    status = store(job.partial, n, mean) or store(job.partial + n, n, var)
    free(job.memory)
    return status


cdef void finish_sums(const Norm* job, F[:, ::1] v) noexcept nogil:
    """partial = dweight, dbias; v = mean, mean_g, mean_gx, scale from mean, nothing, variance, weight"""
    cdef double[:, ::1] sums = matrix(job.partial, 2, job.cut.n)
    cdef Py_ssize_t rows = job.cut.rows, j
    cdef double r
    for j in range(job.cut.n):
        r = 1 / sqrt(v[2, j] + job.eps)
        sums[0, j] *= r
        v[1, j], v[2, j], v[3, j] = <F> (sums[1, j] / rows), <F> (sums[0, j] * r / rows), <F> (v[3, j] * r)


cdef int batch_norm_grad_views(View* grad, View* x, View* mean, View* var, View* weight, double eps, View* dx, View* dweight,
                               View* dbias, int threads) noexcept nogil:
    cdef Norm job
    cdef Py_ssize_t n
    cdef int status
    if prepare(&job, grad, x, dx, eps, True, threads):
        return -1
    n = job.cut.n
    set_vector(&job, 0, mean, 0)
    set_vector(&job, 2, var, 0)
    set_vector(&job, 3, weight, 1)
    run_spans(&job, BATCH_SUMS, threads)
    total(&job.cut, job.partial, 2 * n)
    if x.dtype == FLOAT32:
        finish_sums(&job, matrix(<float*> job.vectors, 4, n))
    else:
        finish_sums(&job, matrix(<double*> job.vectors, 4, n))
    run_steps(&job, BATCH_NORM_GRAD, threads)
    status = store(job.partial, n, dweight) or store(job.partial + n, n, dbias)
    free(job.memory)
    return status
