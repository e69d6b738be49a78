# Pooling of NHWC arrays. An image is a matrix whose rows hold w c elements: the channels of a place are next to each other, so
# every loop runs over them, a block at a time.

from libc.math cimport INFINITY

from needle_ndarray.kernels.conv cimport Conv
from needle_ndarray.kernels.memoryviews cimport matrices
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.threads cimport share

cdef extern from "pool.h" nogil:
    ctypedef struct Window "needle_window":     # the part of a window that is inside of the image
        Py_ssize_t top, bottom, left, right
    Py_ssize_t max_window_float "needle_max_window_float"(
        const float* x, Py_ssize_t row, Py_ssize_t c, const Window* here, Py_ssize_t to_row_end, float* out) noexcept
    Py_ssize_t max_window_double "needle_max_window_double"(
        const double* x, Py_ssize_t row, Py_ssize_t c, const Window* here, Py_ssize_t to_row_end, double* out) noexcept
    Py_ssize_t max_pairs_float "needle_max_pairs_float"(
        const float* x, Py_ssize_t row, Py_ssize_t c, Py_ssize_t step, Py_ssize_t width, float* out, Py_ssize_t out_width) noexcept
    Py_ssize_t max_pairs_double "needle_max_pairs_double"(
        const double* x, Py_ssize_t row, Py_ssize_t c, Py_ssize_t step, Py_ssize_t width, double* out,
        Py_ssize_t out_width) noexcept
    Py_ssize_t max_grad_float "needle_max_grad_float"(
        const float* x, Py_ssize_t row, Py_ssize_t c, const Window* here, Py_ssize_t to_row_end, const float* y, Py_ssize_t top,
        Py_ssize_t bottom, float* out) noexcept
    Py_ssize_t max_grad_double "needle_max_grad_double"(
        const double* x, Py_ssize_t row, Py_ssize_t c, const Window* here, Py_ssize_t to_row_end, const double* y, Py_ssize_t top,
        Py_ssize_t bottom, double* out) noexcept

cdef enum:
    SUMS = 16               # channels whose sums stay in registers
    SHARES = 32             # channels that the gradient of a mean takes at a time
    UNITS = 8               # images, or bands of an image, that the threads share


cdef inline Window window_at(Conv g, Py_ssize_t oy, Py_ssize_t ox) noexcept nogil:
    cdef Window here
    cdef Py_ssize_t y = oy * g.sh - g.top, x = ox * g.sw - g.left
    here.top, here.bottom = max(y, <Py_ssize_t> 0), min(y + g.kh, g.h)
    here.left, here.right = max(x, <Py_ssize_t> 0), min(x + g.kw, g.w)
    return here


cdef inline Py_ssize_t to_row_end(Conv g, Window here, Py_ssize_t ox) noexcept nogil:
    """Elements from the channels of a window's last column, and of its result, up to the end of their rows: so far may a block of
    channels reach, beyond the last of them into the next places. What it writes there is 0 more, or is written again later."""
    return min(g.w - here.right + 1, g.ow - ox) * g.c


# ---- Forward ------------------------------------------------------------------------------------------------------

cdef inline F largest(const F[:, ::1] x, Window here, Py_ssize_t c, Py_ssize_t i) noexcept nogil:
    """max x[iy, ix, i] over the window, NaN if one is; -inf where all of it is padding"""
    cdef Py_ssize_t iy, ix
    cdef F a, best = <F> -INFINITY
    for iy in range(here.top, here.bottom):
        for ix in range(here.left, here.right):
            a = x[iy, ix * c + i]
            if a > best or a != a:
                best = a
    return best


cdef void max_row(Conv g, const F[:, ::1] x, Py_ssize_t oy, F[::1] out) noexcept nogil:
    """out[ox, i] = the largest of the window"""
    cdef Py_ssize_t ox, i, end, c = g.c, row = g.w * c, first = 0
    cdef Window here
    if g.kh == 2 and g.kw == 2 and g.top == 0 and g.left == 0 and oy * g.sh + 2 <= g.h:
        if F is float:
            first = max_pairs_float(&x[oy * g.sh, 0], row, c, g.sw * c, row, &out[0], g.ow * c)
        else:
            first = max_pairs_double(&x[oy * g.sh, 0], row, c, g.sw * c, row, &out[0], g.ow * c)
    for ox in range(first, g.ow):
        here = window_at(g, oy, ox)
        end = to_row_end(g, here, ox)
        if F is float:
            i = max_window_float(&x[0, 0], row, c, &here, end, &out[ox * c])
        else:
            i = max_window_double(&x[0, 0], row, c, &here, end, &out[ox * c])
        for i in range(i, c):
            out[ox * c + i] = largest(x, here, c, i)


cdef inline void avg_block(const F[:, ::1] x, Window here, Py_ssize_t c, Py_ssize_t i, Py_ssize_t n, F size, F[::1] out,
                           Py_ssize_t at) noexcept nogil:
    """out[at + j] = sum of x[iy, ix, i + j] over the window / size, for n <= SUMS channels"""
    cdef Py_ssize_t iy, ix, j
    cdef F total[SUMS]
    for j in range(n):
        total[j] = 0
    for iy in range(here.top, here.bottom):
        for ix in range(here.left, here.right):
            for j in range(n):
                total[j] += x[iy, ix * c + i + j]
    for j in range(n):
        out[at + j] = total[j] / size


cdef void avg_row(Conv g, const F[:, ::1] x, Py_ssize_t oy, F[::1] out) noexcept nogil:
    """out[ox, i] = sum of the window / (kh kw)"""
    cdef Py_ssize_t ox, i, end, c = g.c
    cdef F size = <F> g.kh * <F> g.kw
    cdef Window here
    for ox in range(g.ow):
        here, i = window_at(g, oy, ox), 0
        end = to_row_end(g, here, ox)
        while i < c and i + SUMS <= end:
            avg_block(x, here, c, i, SUMS, size, out, ox * c + i)       # inlined for this constant: sums in registers
            i += SUMS
        while i < c:
            avg_block(x, here, c, i, min(SUMS, c - i), size, out, ox * c + i)
            i += SUMS


# ---- Gradients: every unit of work owns a band of input rows ------------------------------------------------------

cdef inline void max_grad_channel(const F[:, ::1] x, Window here, Py_ssize_t c, Py_ssize_t i, F y, Py_ssize_t top,
                                  Py_ssize_t bottom, F[:, ::1] out) noexcept nogil:
    """out[first place of the largest, or of the first NaN, i] += y, for the rows top <= iy < bottom"""
    cdef Py_ssize_t iy, ix
    cdef F best = largest(x, here, c, i)
    for iy in range(here.top, min(here.bottom, bottom)):
        for ix in range(here.left, here.right):
            if x[iy, ix * c + i] == best or x[iy, ix * c + i] != x[iy, ix * c + i]:
                if iy >= top:
                    out[iy, ix * c + i] += y
                return


cdef inline void max_grad_window(Conv g, const F[:, ::1] x, Window here, Py_ssize_t ox, const F[::1] y, Py_ssize_t top,
                                 Py_ssize_t bottom, F[:, ::1] out) noexcept nogil:
    cdef Py_ssize_t i, c = g.c, row = g.w * c, end = to_row_end(g, here, ox)
    if F is float:
        i = max_grad_float(&x[0, 0], row, c, &here, end, &y[ox * c], top, bottom, &out[0, 0])
    else:
        i = max_grad_double(&x[0, 0], row, c, &here, end, &y[ox * c], top, bottom, &out[0, 0])
    for i in range(i, c):
        max_grad_channel(x, here, c, i, y[ox * c + i], top, bottom, out)


cdef inline void avg_grad_block(Window here, Py_ssize_t c, Py_ssize_t i, Py_ssize_t n, F size, const F[::1] y, Py_ssize_t at,
                                Py_ssize_t top, Py_ssize_t bottom, F[:, ::1] out) noexcept nogil:
    """out[iy, ix, i + j] += y[at + j] / size for n <= SHARES channels, for the rows top <= iy < bottom"""
    cdef Py_ssize_t iy, ix, j
    cdef F part[SHARES]
    for j in range(n):
        part[j] = y[at + j] / size
    for iy in range(max(here.top, top), min(here.bottom, bottom)):
        for ix in range(here.left, here.right):
            for j in range(n):
                out[iy, ix * c + i + j] += part[j]


cdef inline void avg_grad_window(Conv g, Window here, Py_ssize_t ox, const F[::1] y, Py_ssize_t top, Py_ssize_t bottom,
                                 F[:, ::1] out) noexcept nogil:
    cdef Py_ssize_t i = 0, c = g.c
    cdef F size = <F> g.kh * <F> g.kw
    while i + SHARES <= c:
        avg_grad_block(here, c, i, SHARES, size, y, ox * c + i, top, bottom, out)
        i += SHARES
    if i < c:
        avg_grad_block(here, c, i, c - i, size, y, ox * c + i, top, bottom, out)


cdef void grad_band(int op, Conv g, const F[:, ::1] x, const F[:, ::1] y, Py_ssize_t top, Py_ssize_t bottom,
                    F[:, ::1] out) noexcept nogil:
    """out[top:bottom] of one image, from every window that sees these rows"""
    cdef Py_ssize_t first = top + g.top - (g.kh - 1), oy, ox
    cdef const F[::1] row
    cdef Window here
    first = (first + g.sh - 1) // g.sh if first > 0 else 0
    out[top:bottom] = 0
    for oy in range(first, min(g.oh, (bottom + g.top + g.sh - 1) // g.sh)):
        row = y[oy]
        for ox in range(g.ow):
            here = window_at(g, oy, ox)
            if here.top >= here.bottom or here.left >= here.right:
                continue
            if op == MAX_POOL_GRAD:
                max_grad_window(g, x, here, ox, row, top, bottom, out)
            else:
                avg_grad_window(g, here, ox, row, top, bottom, out)


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef struct Work:               # what the tasks of a call share
    int op
    int dtype
    const Conv* g
    Py_ssize_t bands            # of an image, for gradients
    char* x
    char* y
    char* out


cdef void pool_row(const Work* job, Py_ssize_t unit, F* x, F* out) noexcept nogil:
    """One row of the result"""
    cdef Conv g = job.g[0]          # a copy: no kernel can write to it, so what depends on it leaves the loops
    cdef Py_ssize_t n = unit // g.oh, oy = unit % g.oh
    if job.op == MAX_POOL:
        max_row(g, matrices(x, g.n, g.h, g.w * g.c)[n], oy, matrices(out, g.n, g.oh, g.ow * g.c)[n, oy])
    else:
        avg_row(g, matrices(x, g.n, g.h, g.w * g.c)[n], oy, matrices(out, g.n, g.oh, g.ow * g.c)[n, oy])


cdef void one_row(const void* given, Py_ssize_t unit, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        pool_row(job, unit, <float*> job.x, <float*> job.out)
    else:
        pool_row(job, unit, <double*> job.x, <double*> job.out)


cdef void pool_grad_band(const Work* job, Py_ssize_t unit, F* x, F* y, F* out) noexcept nogil:
    """One band of one image"""
    cdef Conv g = job.g[0]          # a copy: no kernel can write to it, so what depends on it leaves the loops
    cdef Py_ssize_t n = unit // job.bands, band = unit % job.bands
    grad_band(job.op, g, matrices(x, g.n, g.h, g.w * g.c)[n], matrices(y, g.n, g.oh, g.ow * g.c)[n],
              band * g.h // job.bands, (band + 1) * g.h // job.bands, matrices(out, g.n, g.h, g.w * g.c)[n])


cdef void one_band(const void* given, Py_ssize_t unit, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        pool_grad_band(job, unit, <float*> job.x, <float*> job.y, <float*> job.out)
    else:
        pool_grad_band(job, unit, <double*> job.x, <double*> job.y, <double*> job.out)


cdef void pool(int op, int dtype, const Conv* g, char* x, char* y, char* out, int threads) noexcept nogil:
    """Maxima or means of windows of x, or the gradient of x when y's is given"""
    cdef Work job
    job.op, job.dtype, job.g, job.x, job.y, job.out = op, dtype, g, x, y, out
    job.bands = max(min((UNITS + g.n - 1) // g.n, g.h // (4 * min(g.kh, g.h))), <Py_ssize_t> 1)
    if op == MAX_POOL or op == AVG_POOL:
        share(one_row, &job, g.n * g.oh, threads)
    else:
        share(one_band, &job, g.n * job.bands, threads)
