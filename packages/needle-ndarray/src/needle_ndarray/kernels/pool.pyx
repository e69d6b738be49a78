# Pooling of NHWC arrays: the channels of a place are next to each other, so every loop runs over them.

from libc.string cimport memset

from needle_ndarray.kernels.conv cimport Conv
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.threads cimport share

cdef extern from "pool.h":
    void max_window_float "needle_max_window_float"(
        const float* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, float* out, Py_ssize_t n,
        Py_ssize_t room) noexcept nogil
    void max_window_double "needle_max_window_double"(
        const double* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, double* out, Py_ssize_t n,
        Py_ssize_t room) noexcept nogil
    void max_grad_float "needle_max_grad_float"(
        const float* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, const float* y,
        Py_ssize_t first, Py_ssize_t last, float* out, Py_ssize_t n, Py_ssize_t room) noexcept nogil
    void max_grad_double "needle_max_grad_double"(
        const double* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, const double* y,
        Py_ssize_t first, Py_ssize_t last, double* out, Py_ssize_t n, Py_ssize_t room) noexcept nogil

cdef enum:
    LANES = 32              # channels that the gradient of a mean takes at a time
    UNITS = 8               # images, or bands of an image, that the threads share


cdef struct Window:             # the part of a window that is inside of the image
    Py_ssize_t top, bottom, left, right


cdef inline Window window_at(const Conv* g, Py_ssize_t oy, Py_ssize_t ox) noexcept nogil:
    cdef Window here
    cdef Py_ssize_t y = oy * g.sh - g.top, x = ox * g.sw - g.left
    here.top, here.bottom = max(y, <Py_ssize_t> 0), min(y + g.kh, g.h)
    here.left, here.right = max(x, <Py_ssize_t> 0), min(x + g.kw, g.w)
    return here


# ---- Forward ------------------------------------------------------------------------------------------------------

cdef inline Py_ssize_t room_of(const Conv* g, Window here, Py_ssize_t ox) noexcept nogil:
    """Elements from the channels of a window's last column, and of its result, up to the end of their rows"""
    return min(g.w - here.right + 1, g.ow - ox) * g.c


cdef void max_row(const Conv* g, const F* x, Py_ssize_t oy, F* out) noexcept nogil:
    """out[ox] = the largest of the window, NaN if one is; -inf where all of it is padding"""
    cdef Py_ssize_t ox, down = g.w * g.c
    cdef Window here
    cdef const F* corner
    for ox in range(g.ow):
        here = window_at(g, oy, ox)
        corner = x + (here.top * g.w + here.left) * g.c
        if F is float:
            max_window_float(corner, here.bottom - here.top, down, here.right - here.left, g.c, out, g.c, room_of(g, here, ox))
        else:
            max_window_double(corner, here.bottom - here.top, down, here.right - here.left, g.c, out, g.c, room_of(g, here, ox))
        out += g.c


cdef void avg_row(const Conv* g, const F* x, Py_ssize_t oy, F* out) noexcept nogil:
    """out[ox] = sum of the window / (kh kw)"""
    cdef Py_ssize_t ox, iy, ix, i, c = g.c
    cdef F size = <F> g.kh * <F> g.kw
    cdef Window here
    cdef const F* a
    for ox in range(g.ow):
        here = window_at(g, oy, ox)
        memset(out, 0, c * sizeof(F))
        for iy in range(here.top, here.bottom):
            for ix in range(here.left, here.right):
                a = x + (iy * g.w + ix) * c
                for i in range(c):
                    out[i] += a[i]
        for i in range(c):
            out[i] = out[i] / size
        out += c


# ---- Gradients: every unit of work owns a band of input rows ------------------------------------------------------

cdef void max_grad_window(const Conv* g, const F* x, Window here, const F* y, Py_ssize_t top, Py_ssize_t bottom,
                          F* out, Py_ssize_t room) noexcept nogil:
    """out[first place of the largest, or of the first NaN] += y, for the rows top <= iy < bottom"""
    cdef Py_ssize_t corner = (here.top * g.w + here.left) * g.c, down = g.w * g.c, rows = here.bottom - here.top
    cdef Py_ssize_t first = max(top - here.top, <Py_ssize_t> 0), last = min(bottom - here.top, rows)
    if F is float:
        max_grad_float(x + corner, rows, down, here.right - here.left, g.c, y, first, last, out + corner, g.c, room)
    else:
        max_grad_double(x + corner, rows, down, here.right - here.left, g.c, y, first, last, out + corner, g.c, room)


cdef void avg_grad_window(const Conv* g, Window here, const F* y, Py_ssize_t top, Py_ssize_t bottom, F* out,
                          Py_ssize_t n) noexcept nogil:
    """out += y / (kh kw) for n <= LANES channels, for the rows top <= iy < bottom"""
    cdef Py_ssize_t iy, ix, i
    cdef F size = <F> g.kh * <F> g.kw
    cdef F part[LANES]
    for i in range(n):
        part[i] = y[i] / size
    for iy in range(max(here.top, top), min(here.bottom, bottom)):
        for ix in range(here.left, here.right):
            for i in range(n):
                out[(iy * g.w + ix) * g.c + i] += part[i]


cdef void grad_band(int op, const Conv* g, const F* x, const F* y, Py_ssize_t top, Py_ssize_t bottom, F* out) noexcept nogil:
    """out[top:bottom] of one image, from every window that sees these rows"""
    cdef Py_ssize_t first = top + g.top - (g.kh - 1), oy, ox, i
    cdef const F* place
    cdef Window here
    first = (first + g.sh - 1) // g.sh if first > 0 else 0
    memset(out + top * g.w * g.c, 0, (bottom - top) * g.w * g.c * sizeof(F))
    for oy in range(first, min(g.oh, (bottom + g.top + g.sh - 1) // g.sh)):
        for ox in range(g.ow):
            here = window_at(g, oy, ox)
            place = y + (oy * g.ow + ox) * g.c
            if here.top >= here.bottom or here.left >= here.right:
                continue
            if op == MAX_POOL_GRAD:
                max_grad_window(g, x, here, place, top, bottom, out, room_of(g, here, ox))
                continue
            i = 0
            while i < g.c:
                avg_grad_window(g, here, place + i, top, bottom, out + i, min(<Py_ssize_t> LANES, g.c - i))
                i += LANES


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef struct Work:               # what the tasks of a call share
    int op
    int dtype
    const Conv* g
    Py_ssize_t bands            # of an image, for gradients
    char* x
    char* y
    char* out


cdef void pool_row(const Work* job, Py_ssize_t unit, const F* x, F* out) noexcept nogil:
    """One row of the result"""
    cdef const Conv* g = job.g
    x += unit // g.oh * g.h * g.w * g.c
    if job.op == MAX_POOL:
        max_row(g, x, unit % g.oh, out + unit * g.ow * g.c)
    else:
        avg_row(g, x, unit % g.oh, out + unit * g.ow * g.c)


cdef void one_row(const void* given, Py_ssize_t unit, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        pool_row(job, unit, <const float*> job.x, <float*> job.out)
    else:
        pool_row(job, unit, <const double*> job.x, <double*> job.out)


cdef void pool_grad_band(const Work* job, Py_ssize_t unit, const F* x, const F* y, F* out) noexcept nogil:
    """One band of one image"""
    cdef const Conv* g = job.g
    cdef Py_ssize_t size = g.h * g.w * g.c, n = unit // job.bands, at = unit % job.bands
    grad_band(job.op, g, x + n * size, y + n * g.oh * g.ow * g.c, at * g.h // job.bands, (at + 1) * g.h // job.bands,
              out + n * size)


cdef void one_band(const void* given, Py_ssize_t unit, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        pool_grad_band(job, unit, <const float*> job.x, <const float*> job.y, <float*> job.out)
    else:
        pool_grad_band(job, unit, <const double*> job.x, <const double*> job.y, <double*> job.out)


cdef void pool(int op, int dtype, const Conv* g, char* x, char* y, char* out, int threads) noexcept nogil:
    """Maxima or means of windows of x, or the gradient of x when y's is given. The places of kh rows of an image fit an int."""
    cdef Work job
    job.op, job.dtype, job.g, job.x, job.y, job.out = op, dtype, g, x, y, out
    job.bands = max(min((UNITS + g.n - 1) // g.n, g.h // (4 * min(g.kh, g.h))), <Py_ssize_t> 1)
    if op == MAX_POOL or op == AVG_POOL:
        share(one_row, &job, g.n * g.oh, threads)
    else:
        share(one_band, &job, g.n * job.bands, threads)
