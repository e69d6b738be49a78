# Layer norm over the last axis and batch norm over all others, forward and backward. Both are loops over rows of n elements.
#
# Statistics are those of x - x0 (x0 the first element, or row): with a mean far from 0, float32 keeps its digits. Sums are made
# in LANES or columns of the element type for a short run, then in double; column sums over a partition that depends on the
# shape alone, added in order: the same bits for every number of threads.

from cython.parallel cimport prange
from libc.math cimport NAN, sqrt
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from needle_ndarray.kernels.rows cimport LANES, RUN, Cut, clear, coefficients, cut, folded, room_for, rows_of, store, total
from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, F, View, thread_number

# ---- Sums along a row --------------------------------------------------------------------------

cdef double sum_from(const F* x, F x0, Py_ssize_t n) noexcept nogil:
    """sum of x - x0"""
    cdef F lane[LANES]
    cdef double acc = 0
    cdef Py_ssize_t run, k, _i
    while n > 0:
        run = min(n, <Py_ssize_t> RUN)
        clear(lane)
        for _i in range(run // LANES):
            for k in range(LANES):
                lane[k] += x[k] - x0
            x += LANES
        for k in range(run % LANES):
            lane[k] += x[k] - x0
        x += run % LANES
        n -= run
        acc += folded(lane)
    return acc


cdef double squares_from(const F* x, F x0, F m, Py_ssize_t n) noexcept nogil:
    """sum of ((x - x0) - m)^2"""
    cdef F lane[LANES]
    cdef double acc = 0
    cdef Py_ssize_t run, k, _i
    while n > 0:
        run = min(n, <Py_ssize_t> RUN)
        clear(lane)
        for _i in range(run // LANES):
            for k in range(LANES):
                lane[k] += ((x[k] - x0) - m) * ((x[k] - x0) - m)
            x += LANES
        for k in range(run % LANES):
            lane[k] += ((x[k] - x0) - m) * ((x[k] - x0) - m)
        x += run % LANES
        n -= run
        acc += folded(lane)
    return acc


cdef void gradient_sums(const F* grad, const F* weight, const F* x, Py_ssize_t n, double* d, double* g, double* gd) noexcept nogil:
    """d = sum of x - x0, g = sum of grad weight, gd = sum of grad weight (x - x0): one pass, while the row comes in"""
    cdef F lane[LANES]
    cdef F lane_g[LANES]
    cdef F lane_gd[LANES]
    cdef F each, x0 = x[0]
    cdef Py_ssize_t run, k, _i
    d[0] = g[0] = gd[0] = 0
    while n > 0:
        run = min(n, <Py_ssize_t> RUN)
        clear(lane)
        clear(lane_g)
        clear(lane_gd)
        for _i in range(run // LANES):
            for k in range(LANES):
                each = grad[k] * weight[k]
                lane[k] += x[k] - x0
                lane_g[k] += each
                lane_gd[k] += each * (x[k] - x0)
            grad += LANES
            weight += LANES
            x += LANES
        for k in range(run % LANES):
            each = grad[k] * weight[k]
            lane[k] += x[k] - x0
            lane_g[k] += each
            lane_gd[k] += each * (x[k] - x0)
        grad += run % LANES
        weight += run % LANES
        x += run % LANES
        n -= run
        d[0] += folded(lane)
        g[0] += folded(lane_g)
        gd[0] += folded(lane_gd)


cdef inline F mean_from(const F* x, Py_ssize_t n) noexcept nogil:
    """mean - x[0]"""
    return <F> (sum_from(x, x[0], n) / n)


cdef inline F rsqrt_of(const F* x, F m, Py_ssize_t n, double eps) noexcept nogil:
    """(var + eps)^(-1/2)"""
    return <F> (1 / sqrt(squares_from(x, x[0], m, n) / n + eps))


# ---- Layer norm --------------------------------------------------------------------------

cdef void layer_norm_row(const F* x, const F* weight, const F* bias, double eps, F* out, Py_ssize_t n) noexcept nogil:
    cdef F x0 = x[0], m = mean_from(x, n), r = rsqrt_of(x, m, n, eps)
    cdef Py_ssize_t j
    for j in range(n):
        out[j] = ((x[j] - x0) - m) * r * weight[j] + bias[j]


cdef int layer_norm_of(View* x, View* weight, View* bias, double eps, View* out, F like, int threads) noexcept nogil:
    cdef Cut c = cut(x)
    cdef Py_ssize_t block = c.step * c.n, steps = (c.rows + c.step - 1) // c.step, s, i
    cdef bint flat = contiguous(x), out_flat = contiguous(out)
    cdef F* w = <F*> malloc((2 * c.n + threads * 2 * block) * sizeof(F))
    cdef F* b = w + c.n
    cdef F* here
    cdef F* source
    cdef F* target
    if w is NULL:
        return -1
    coefficients(weight, c.n, <F> 1, w)
    coefficients(bias, c.n, <F> 0, b)
    for s in prange(steps, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        here = b + c.n + thread_number() * 2 * block
        source = rows_of(x, flat, s * block, min(block, x.size - s * block), here)
        target = room_for(out, out_flat, s * block, here + block)
        for i in range(min(c.step, c.rows - s * c.step)):
            layer_norm_row(source + i * c.n, w, b, eps, target + i * c.n, c.n)
        if not out_flat:
            scatter(<char*> target, s * block, min(block, x.size - s * block), out)
    free(w)
    return 0


cdef void layer_norm_grad_row(const F* grad, const F* x, const F* weight, double eps, F* dx, F* mean, F* scale,
                              Py_ssize_t n) noexcept nogil:
    """dx = r (g - mean g - x^ mean(g x^)) for g = grad weight, x^ = r (x - mean); mean and scale = those of the row"""
    cdef F x0 = x[0], m, r, mean_g, mean_gx
    cdef double d, g, gd
    cdef Py_ssize_t j
    gradient_sums(grad, weight, x, n, &d, &g, &gd)
    m = <F> (d / n)
    r = rsqrt_of(x, m, n, eps)
    mean_g, mean_gx = <F> (g / n), <F> ((gd - g * (d / n)) * r / n)
    for j in range(n):
        dx[j] = r * ((grad[j] * weight[j] - mean_g) - ((x[j] - x0) - m) * r * mean_gx)
    mean[0], scale[0] = m, r


cdef void add_four(const F* grad, const F* x, const F* m, const F* r, F* dweight, F* dbias, Py_ssize_t n) noexcept nogil:
    """dweight += grad x^, dbias += grad, for four rows at a time: the sums are read and written less often"""
    cdef F m0 = m[0], m1 = m[1], m2 = m[2], m3 = m[3], r0 = r[0], r1 = r[1], r2 = r[2], r3 = r[3]
    cdef F a0 = x[0], a1 = x[n], a2 = x[2 * n], a3 = x[3 * n]
    cdef Py_ssize_t j
    for j in range(n):                  # two loops: with more arrays in one, compilers no longer make vectors
        dbias[j] += (grad[j] + grad[n + j]) + (grad[2 * n + j] + grad[3 * n + j])
    for j in range(n):
        dweight[j] += (grad[j] * (((x[j] - a0) - m0) * r0) + grad[n + j] * (((x[n + j] - a1) - m1) * r1)) \
            + (grad[2 * n + j] * (((x[2 * n + j] - a2) - m2) * r2) + grad[3 * n + j] * (((x[3 * n + j] - a3) - m3) * r3))


cdef void add_rows(const F* grad, const F* x, const F* m, const F* r, Py_ssize_t rows, F* dweight, F* dbias,
                   Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i, j
    if rows == 4:
        add_four(grad, x, m, r, dweight, dbias, n)
        return
    for i in range(rows):
        for j in range(n):
            dweight[j] += grad[i * n + j] * (((x[i * n + j] - x[i * n]) - m[i]) * r[i])
            dbias[j] += grad[i * n + j]


cdef void layer_norm_grad_span(const Cut* c, Py_ssize_t task, const View* grad, const View* x, const F* weight, double eps,
                               View* dx, double* partial, F* staged) noexcept nogil:
    """One task's rows, and its part of dweight and dbias"""
    cdef Py_ssize_t n = c.n, block = c.step * n, row = task * c.span, stop = min(c.rows, row + c.span), count, i, j
    cdef bint grad_flat = contiguous(grad), flat = contiguous(x), dx_flat = contiguous(dx)
    cdef F* sums = staged + 3 * block
    cdef F m[4]
    cdef F r[4]
    cdef const F* g
    cdef const F* source
    cdef F* target
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        g = rows_of(grad, grad_flat, row * n, count * n, staged)
        source = rows_of(x, flat, row * n, count * n, staged + block)
        target = room_for(dx, dx_flat, row * n, staged + 2 * block)
        memset(sums, 0, 2 * n * sizeof(F))
        for i in range(count):
            layer_norm_grad_row(g + i * n, source + i * n, weight, eps, target + i * n, &m[i % 4], &r[i % 4], n)
            if i % 4 == 3 or i == count - 1:            # while these rows are in the cache
                add_rows(g + (i - i % 4) * n, source + (i - i % 4) * n, m, r, i % 4 + 1, sums, sums + n, n)
        for j in range(2 * n):
            partial[j] += sums[j]
        if not dx_flat:
            scatter(<char*> target, row * n, count * n, dx)
        row += count


cdef int layer_norm_grad_of(View* grad, View* x, View* weight, double eps, View* dx, View* dweight, View* dbias, F like,
                            int threads) noexcept nogil:
    cdef Cut c = cut(x)
    cdef Py_ssize_t room = 3 * c.step * c.n + 2 * c.n, t
    cdef double* partial = <double*> malloc(max(c.tasks, 1) * 2 * c.n * sizeof(double) + (c.n + threads * room) * sizeof(F))
    cdef F* w = <F*> (partial + max(c.tasks, 1) * 2 * c.n)
    cdef int status
    if partial is NULL:
        return -1
    coefficients(weight, c.n, <F> 1, w)
    for t in prange(c.tasks, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        layer_norm_grad_span(&c, t, grad, x, w, eps, dx, partial + t * 2 * c.n, w + c.n + thread_number() * room)
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
    cdef double share = <double> other / (count + other), weight = share * count, delta
    cdef Py_ssize_t j
    for j in range(n):
        delta = other_mean[j] - mean[j]
        mean[j] += delta * share
        squares[j] += other_squares[j] + delta * delta * weight


cdef void moments_span(const Cut* c, Py_ssize_t task, const View* x, const F* first, double* partial, F* staged,
                       double* wide) noexcept nogil:
    """Mean of x - first and sum of squares of one task's rows"""
    cdef Py_ssize_t n = c.n, start = task * c.span, row = start, stop = min(c.rows, row + c.span), count, j
    cdef bint flat = contiguous(x)
    cdef F* block
    cdef F* sums = staged + c.step * n
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        block = rows_of(x, flat, row * n, count * n, staged)
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


cdef int batch_norm_of(View* x, View* weight, View* bias, double eps, View* out, View* mean, View* var, F like,
                       int threads) noexcept nogil:
    cdef Cut c = cut(x)
    cdef Py_ssize_t n = c.n, block = c.step * n, steps = (c.rows + c.step - 1) // c.step, room = 2 * block + 2 * n, t, j
    cdef bint flat = contiguous(x), out_flat = contiguous(out)
    cdef double* partial = <double*> malloc(
        (max(c.tasks, 1) + threads) * 2 * n * sizeof(double) + (4 * n + threads * room) * sizeof(F))
    cdef double* wide = partial + max(c.tasks, 1) * 2 * n
    cdef F* first = <F*> (wide + threads * 2 * n)
    cdef F* m = first + n
    cdef F* w = m + n
    cdef F* b = w + n
    cdef F* here
    cdef F* source
    cdef F* target
    cdef int status
    if partial is NULL:
        return -1
    if c.rows == 0:
        for j in range(2 * n):
            partial[j] = NAN
    else:
        gather(x, 0, n, <char*> first)
        coefficients(weight, n, <F> 1, w)
        coefficients(bias, n, <F> 0, b)
        for t in prange(c.tasks, num_threads=threads, schedule="static", use_threads_if=threads > 1):
            moments_span(&c, t, x, first, partial + t * 2 * n, b + n + thread_number() * room, wide + thread_number() * 2 * n)
        for t in range(1, c.tasks):
            merge(partial, partial + n, t * c.span, partial + t * 2 * n, partial + (t * 2 + 1) * n,
                  min(c.span, c.rows - t * c.span), n)
        for j in range(n):
            partial[n + j] /= c.rows
            m[j] = <F> partial[j]
            w[j] = <F> (w[j] / sqrt(partial[n + j] + eps))
            partial[j] += first[j]
        for t in prange(steps, num_threads=threads, schedule="static", use_threads_if=threads > 1):
            here = b + n + thread_number() * room
            source = rows_of(x, flat, t * block, min(block, x.size - t * block), here)
            target = room_for(out, out_flat, t * block, here + block)
            batch_norm_rows(source, first, m, w, b, target, min(c.step, c.rows - t * c.step), n)
            if not out_flat:
                scatter(<char*> target, t * block, min(block, x.size - t * block), out)
    status = store(partial, n, mean) or store(partial + n, n, var)
    free(partial)
    return status


cdef void batch_sums_span(const Cut* c, Py_ssize_t task, const View* grad, const View* x, const F* mean, double* partial,
                          F* staged) noexcept nogil:
    """sums of grad (x - mean) and of grad over one task's rows"""
    cdef Py_ssize_t n = c.n, row = task * c.span, stop = min(c.rows, row + c.span), count, _i, j
    cdef bint grad_flat = contiguous(grad), flat = contiguous(x)
    cdef F* sums = staged + 2 * c.step * n
    cdef const F* g
    cdef const F* a
    memset(partial, 0, 2 * n * sizeof(double))
    while row < stop:
        count = min(c.step, stop - row)
        g = rows_of(grad, grad_flat, row * n, count * n, staged)
        a = rows_of(x, flat, row * n, count * n, staged + c.step * n)
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


cdef int batch_norm_grad_of(View* grad, View* x, View* mean, View* var, View* weight, double eps, View* dx, View* dweight,
                            View* dbias, F like, int threads) noexcept nogil:
    cdef Cut c = cut(x)
    cdef Py_ssize_t n = c.n, block = c.step * n, steps = (c.rows + c.step - 1) // c.step, room = 3 * block + 2 * n, t, j, count
    cdef bint grad_flat = contiguous(grad), flat = contiguous(x), dx_flat = contiguous(dx)
    cdef double* partial = <double*> malloc(max(c.tasks, 1) * 2 * n * sizeof(double) + (4 * n + threads * room) * sizeof(F))
    cdef F* m = <F*> (partial + max(c.tasks, 1) * 2 * n)
    cdef F* mean_g = m + n
    cdef F* slope = mean_g + n
    cdef F* scale = slope + n
    cdef F* here
    cdef F* target
    cdef double r
    cdef int status
    if partial is NULL:
        return -1
    coefficients(mean, n, <F> 0, m)
    coefficients(var, n, <F> 0, slope)
    coefficients(weight, n, <F> 1, scale)
    for t in prange(c.tasks, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        batch_sums_span(&c, t, grad, x, m, partial + t * 2 * n, scale + n + thread_number() * room)
    total(&c, partial, 2 * n)
    for j in range(n):
        r = 1 / sqrt(slope[j] + eps)
        partial[j] *= r
        mean_g[j], slope[j], scale[j] = <F> (partial[n + j] / c.rows), <F> (partial[j] * r / c.rows), <F> (scale[j] * r)
    for t in prange(steps, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        here = scale + n + thread_number() * room
        count = min(c.step, c.rows - t * c.step)
        target = room_for(dx, dx_flat, t * block, here + 2 * block)
        batch_norm_grad_rows(rows_of(grad, grad_flat, t * block, count * n, here),
                             rows_of(x, flat, t * block, count * n, here + block),
                             m, mean_g, slope, scale, target, count, n)
        if not dx_flat:
            scatter(<char*> target, t * block, count * n, dx)
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
