# Pooling of NHWC arrays: the channels of a place are next to each other, so every loop runs over them.

from cython.parallel cimport prange
from libc.math cimport INFINITY
from libc.string cimport memset

from needle_ndarray.kernels.conv cimport Conv
from needle_ndarray.kernels.views cimport FLOAT32, F

cdef extern from "pool.h":
    void max_grad_float "needle_max_grad_float"(
        const float* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, const float* y,
        Py_ssize_t first, Py_ssize_t last, float* out, Py_ssize_t n) noexcept nogil
    void max_grad_double "needle_max_grad_double"(
        const double* x, Py_ssize_t rows, Py_ssize_t down, Py_ssize_t columns, Py_ssize_t across, const double* y,
        Py_ssize_t first, Py_ssize_t last, double* out, Py_ssize_t n) noexcept nogil

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

cdef void max_row(const Conv* g, const F* x, Py_ssize_t oy, F* out) noexcept nogil:
    """out[ox] = the largest of the window, NaN if one is; -inf where all of it is padding"""
    cdef Py_ssize_t ox, iy, ix, i, c = g.c
    cdef Window here
    cdef const F* a
    for ox in range(g.ow):
        here = window_at(g, oy, ox)
        for i in range(c):
            out[i] = -INFINITY
        for iy in range(here.top, here.bottom):
            for ix in range(here.left, here.right):
                a = x + (iy * g.w + ix) * c
                for i in range(c):
                    out[i] = a[i] if (a[i] > out[i]) | (a[i] != a[i]) else out[i]
        out += c


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
                          F* out) noexcept nogil:
    """out[first place of the largest, or of the first NaN] += y, for the rows top <= iy < bottom"""
    cdef Py_ssize_t corner = (here.top * g.w + here.left) * g.c, down = g.w * g.c, rows = here.bottom - here.top
    cdef Py_ssize_t first = max(top - here.top, <Py_ssize_t> 0), last = min(bottom - here.top, rows)
    if F is float:
        max_grad_float(x + corner, rows, down, here.right - here.left, g.c, y, first, last, out + corner, g.c)
    else:
        max_grad_double(x + corner, rows, down, here.right - here.left, g.c, y, first, last, out + corner, g.c)


cdef void avg_grad_window(const Conv* g, Window here, const F* y, Py_ssize_t top, Py_ssize_t bottom, F* out,
                          Py_ssize_t n) noexcept nogil:
    """out += y / (kh kw) for n <= LANES channels, for the rows top <= iy < bottom"""
    cdef Py_ssize_t iy, ix, i
    cdef F size = <F> g.kh * <F> g.kw
    cdef F share[LANES]
    for i in range(n):
        share[i] = y[i] / size
    for iy in range(max(here.top, top), min(here.bottom, bottom)):
        for ix in range(here.left, here.right):
            for i in range(n):
                out[(iy * g.w + ix) * g.c + i] += share[i]


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
                max_grad_window(g, x, here, place, top, bottom, out)
                continue
            i = 0
            while i < g.c:
                avg_grad_window(g, here, place + i, top, bottom, out + i, min(<Py_ssize_t> LANES, g.c - i))
                i += LANES


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef void pool_as(int op, const Conv* g, const F* x, const F* y, F* out, int threads) noexcept nogil:
    cdef Py_ssize_t size = g.h * g.w * g.c, out_size = g.oh * g.ow * g.c, unit, n
    cdef Py_ssize_t bands = max(min((UNITS + g.n - 1) // g.n, g.h // (4 * min(g.kh, g.h))), <Py_ssize_t> 1)
    if op == MAX_POOL or op == AVG_POOL:
        for unit in prange(g.n * g.oh, num_threads=threads, schedule="static", use_threads_if=threads > 1):
            n = unit // g.oh
            if op == MAX_POOL:
                max_row(g, x + n * size, unit % g.oh, out + unit * g.ow * g.c)
            else:
                avg_row(g, x + n * size, unit % g.oh, out + unit * g.ow * g.c)
    else:
        for unit in prange(g.n * bands, num_threads=threads, schedule="static", use_threads_if=threads > 1):
            n = unit // bands
            grad_band(op, g, x + n * size, y + n * out_size, unit % bands * g.h // bands, (unit % bands + 1) * g.h // bands,
                      out + n * size)


cdef void pool(int op, int dtype, const Conv* g, char* x, char* y, char* out, int threads) noexcept nogil:
    """Maxima or means of windows of x, or the gradient of x when y's is given. The places of kh rows of an image fit an int."""
    if dtype == FLOAT32:
        pool_as(op, g, <float*> x, <float*> y, <float*> out, threads)
    else:
        pool_as(op, g, <double*> x, <double*> y, <double*> out, threads)
