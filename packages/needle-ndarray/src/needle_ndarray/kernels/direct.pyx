# Convolution without columns: tiles of output places read the image where it lies, or a padded copy of a band of its rows. Of
# many small images a tile takes the same place: all of them see the same part of the kernel, and padding is left out.
# For kernels small enough to stay in the cache this beats im2col and BLAS, which copies the columns once more to pack them.

from libc.string cimport memcpy, memset

from needle_ndarray.kernels.conv cimport Conv
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.threads cimport share

cdef extern from "conv.h":
    const int ROWS "NEEDLE_ROWS"
    const int THIN "NEEDLE_THIN"
    const int VECTOR "NEEDLE_VECTOR"
    void tile_float "needle_tile_float"(
        bint thin, const float** a, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, Py_ssize_t length,
        const float* weight, Py_ssize_t b_down, Py_ssize_t b_across, float** out, Py_ssize_t rows,
        Py_ssize_t width) noexcept nogil
    void tile_double "needle_tile_double"(
        bint thin, const double** a, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, Py_ssize_t length,
        const double* weight, Py_ssize_t b_down, Py_ssize_t b_across, double** out, Py_ssize_t rows,
        Py_ssize_t width) noexcept nogil
    void outer_float "needle_outer_tile_float"(
        bint thin, const float* a, const Py_ssize_t* at, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across,
        const float* b, Py_ssize_t stride, float** out, Py_ssize_t rows, Py_ssize_t width) noexcept nogil
    void outer_double "needle_outer_tile_double"(
        bint thin, const double* a, const Py_ssize_t* at, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across,
        const double* b, Py_ssize_t stride, double** out, Py_ssize_t rows, Py_ssize_t width) noexcept nogil

cdef enum:
    MOST_ROWS = 10              # at least NEEDLE_ROWS and NEEDLE_THIN
    BAND_BYTES = 131072         # of the image that a thread works on at a time
    PART_BYTES = 32768          # the same for the gradient of the weights, which reads it again for every tile
    KERNEL_BYTES = 24576        # of the weights of one filter: beyond, a tile leaves the cache and BLAS does better
    UNITS = 8                   # a small convolution is still cut into so many bands, for threads
    MANY = 24                   # images from which tiles go across them
    IMAGE_BYTES = 16384         # of such an image, at most


# ---- Sizes --------------------------------------------------------------------------------------------------------

cdef Py_ssize_t seen_rows(const Conv* g, Py_ssize_t rows) noexcept nogil:
    """Rows of the padded image under so many rows of the result"""
    return (rows - 1) * g.sh + (g.kh - 1) * g.dh + 1


cdef Py_ssize_t seen_columns(const Conv* g) noexcept nogil:
    return (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1


cdef bint unpadded(const Conv* g) noexcept nogil:
    return g.top == 0 and g.left == 0 and seen_rows(g, g.oh) <= g.h and seen_columns(g) <= g.w


cdef bint thin(const Conv* g, int itemsize) noexcept nogil:
    """Whether a tile has one vector of filters, and more rows for it"""
    return g.f // g.groups <= VECTOR // itemsize


cdef Py_ssize_t lanes(const Conv* g, int itemsize) noexcept nogil:
    """Filters of a tile"""
    return (1 if thin(g, itemsize) else 2) * VECTOR // itemsize


cdef Py_ssize_t tile_rows(const Conv* g, int itemsize) noexcept nogil:
    return THIN if thin(g, itemsize) else ROWS


cdef Py_ssize_t packed_size(const Conv* g, int itemsize) noexcept nogil:
    """Elements of one group's weights in tiles"""
    cdef Py_ssize_t n = lanes(g, itemsize), filters = g.f // g.groups
    return g.kh * g.kw * (g.c // g.groups) * ((filters + n - 1) // n) * n


cdef Py_ssize_t band_rows(const Conv* g, int itemsize, Py_ssize_t nbytes) noexcept nogil:
    """Rows of the result to take at a time, for so many bytes of the image"""
    cdef Py_ssize_t row = seen_columns(g) * g.c * itemsize, most = nbytes // row - (g.kh - 1) * g.dh
    cdef Py_ssize_t bands = (UNITS + g.n - 1) // g.n
    return max(min(most // g.sh, (g.oh + bands - 1) // bands), <Py_ssize_t> 1)


cdef bint fits(const Conv* g, int itemsize) noexcept nogil:
    """Whether the weights of a tile and the rows under one row of the result stay in the cache; and no reverse padding"""
    cdef double band = <double> seen_rows(g, 1) * seen_columns(g) * g.c * itemsize
    cdef double kernel = <double> g.kh * g.kw * (g.c // g.groups) * itemsize
    return g.top >= 0 and g.left >= 0 and band <= 4 * BAND_BYTES and kernel <= KERNEL_BYTES


cdef bint across(const Conv* g, int itemsize) noexcept nogil:
    """Whether there are many small images"""
    return g.n >= MANY and g.h * g.w * g.c * itemsize <= IMAGE_BYTES


cdef Conv swapped(const Conv* g) noexcept nogil:
    """The convolution that takes y's gradient, its places g.sh and g.sw apart, to x's; with the kernel turned around"""
    cdef Conv out = g[0]
    out.h, out.w, out.c, out.f, out.oh, out.ow, out.sh, out.sw = g.oh, g.ow, g.f, g.c, g.h, g.w, 1, 1
    out.top, out.left = (g.kh - 1) * g.dh - g.top, (g.kw - 1) * g.dw - g.left
    return out


cdef Py_ssize_t band_size(const Conv* g, int itemsize) noexcept nogil:
    """Elements of a padded band, 0 where images are read where they lie"""
    if across(g, itemsize) or unpadded(g):
        return 0
    return seen_rows(g, band_rows(g, itemsize, BAND_BYTES)) * seen_columns(g) * g.c


cdef Py_ssize_t direct_elements(const Conv* g, int itemsize, int threads) noexcept nogil:
    """Elements of the memory that `direct` asks of its caller"""
    return threads * band_size(g, itemsize) + g.groups * packed_size(g, itemsize)


# ---- Staging ------------------------------------------------------------------------------------------------------

cdef void pack(const Conv* g, bint swap, const F* weight, F* out) noexcept nogil:
    """out[group, tile, (u, v, c), lane] = weight[u, v, c, f], 0 beyond the last filter; swap: turned around, c and f changed"""
    cdef Py_ssize_t n = lanes(g, sizeof(F)), count = g.c // g.groups, filters = g.f // g.groups, i, first, uv, c, f, last
    for i in range(g.groups):
        first = 0
        while first < filters:
            for uv in range(g.kh * g.kw):
                for c in range(count):
                    last = min(n, filters - first)
                    memset(out, 0, n * sizeof(F))
                    if swap:                            # weight is (kh, kw, filters, groups * count)
                        for f in range(last):
                            out[f] = weight[((g.kh * g.kw - 1 - uv) * filters + first + f) * g.c + i * count + c]
                    else:
                        memcpy(out, weight + (uv * count + c) * g.f + i * filters + first, last * sizeof(F))
                    out += n
            first += n


cdef void padded_band(const Conv* g, const F* x, Py_ssize_t top, Py_ssize_t rows, F* out) noexcept nogil:
    """out = rows top .. top + rows of the padded image x, as wide as the windows reach"""
    cdef Py_ssize_t width = seen_columns(g), r, iy, left = min(g.left, width), inside = min(g.w, width - left)
    for r in range(rows):
        iy = top + r - g.top
        if iy < 0 or iy >= g.h:
            memset(out, 0, width * g.c * sizeof(F))
        else:
            memset(out, 0, left * g.c * sizeof(F))
            memcpy(out + left * g.c, x + iy * g.w * g.c, inside * g.c * sizeof(F))
            memset(out + (left + inside) * g.c, 0, (width - left - inside) * g.c * sizeof(F))
        out += width * g.c


# ---- Tiles --------------------------------------------------------------------------------------------------------

cdef void band(const Conv* g, const F* x, Py_ssize_t width, const F* weight, F* y, Py_ssize_t rows) noexcept nogil:
    """y, rows of the result, from the rows of x under them, `width` columns wide"""
    cdef Py_ssize_t n = lanes(g, sizeof(F)), count = g.c // g.groups, filters = g.f // g.groups, k = g.kh * g.kw * count
    cdef Py_ssize_t i, first, place, oy, ox, r, taken, tall = tile_rows(g, sizeof(F))
    cdef bint whole = g.dw == 1 and g.groups == 1       # then a row of the kernel sees one run of elements
    cdef bint narrow = thin(g, sizeof(F))
    cdef Py_ssize_t inner = 1 if whole else g.kw, length = g.kw * count if whole else count
    cdef const F* seen[MOST_ROWS]
    cdef F* out[MOST_ROWS]
    for i in range(g.groups):
        first = 0
        while first < filters:
            place = oy = ox = 0
            while place < rows * g.ow:
                taken = min(tall, rows * g.ow - place)
                for r in range(tall):                   # places beyond the last are seen as the last, and not written
                    seen[r] = x + (oy * g.sh * width + ox * g.sw) * g.c + i * count
                    out[r] = y + (oy * g.ow + ox) * g.f + i * filters + first
                    if r + 1 < taken or (r + 1 == taken and taken == tall):
                        ox += 1
                        if ox == g.ow:
                            ox, oy = 0, oy + 1
                if F is float:
                    tile_float(narrow, seen, g.kh, g.dh * width * g.c, inner, g.dw * g.c, length, weight, g.kw * count * n,
                               count * n, out, taken, min(n, filters - first))
                else:
                    tile_double(narrow, seen, g.kh, g.dh * width * g.c, inner, g.dw * g.c, length, weight, g.kw * count * n,
                                count * n, out, taken, min(n, filters - first))
                place += taken
            weight += k * n
            first += n


cdef struct Work:               # what the bands of a call share
    const Conv* g
    int dtype
    Py_ssize_t spread_h         # places of the image are so far apart, with zeros between
    Py_ssize_t spread_w
    Py_ssize_t rows             # of the result in a band
    Py_ssize_t bands            # of an image
    Py_ssize_t size             # of a padded band, 0 where the image is read where it lies
    char* x
    char* y
    char* staged                # room for the padded band of every thread
    char* packed                # the weights in tiles


cdef struct Taps:               # what a place sees along one axis
    Py_ssize_t count
    Py_ssize_t first            # in the image
    Py_ssize_t step
    Py_ssize_t kernel_first
    Py_ssize_t kernel_step


cdef Taps taps_at(Py_ssize_t at, Py_ssize_t kernel, Py_ssize_t dilation, Py_ssize_t spread, Py_ssize_t size) noexcept nogil:
    """The k < kernel for which at + k dilation is a place of an image of this size, spread - 1 zeros between its places"""
    cdef Taps out
    out.step, out.kernel_step = dilation, spread        # one of them is 1
    if spread > 1:
        out.kernel_first = -at if at < 0 else (spread - at % spread) % spread
        out.first = (at + out.kernel_first) // spread
    else:
        out.kernel_first = (-at + dilation - 1) // dilation if at < 0 else 0
        out.first = at + out.kernel_first * dilation
    out.count = max(min((kernel - out.kernel_first + spread - 1) // spread, (size - out.first + dilation - 1) // dilation),
                    <Py_ssize_t> 0)
    if out.kernel_first >= kernel or out.first >= size:
        out.count = 0
    return out


cdef void places(const Work* job, const F* x, const F* weight, F* y, Py_ssize_t images) noexcept nogil:
    """y of up to a tile's rows of images, place by place"""
    cdef const Conv* g = job.g
    cdef Py_ssize_t n = lanes(g, sizeof(F)), count = g.c // g.groups, filters = g.f // g.groups
    cdef Py_ssize_t i, first, oy, ox, r, image, inner, length
    cdef bint whole, narrow = thin(g, sizeof(F))
    cdef Taps down, right
    cdef const F* at
    cdef const F* seen[MOST_ROWS]
    cdef F* out[MOST_ROWS]
    for i in range(g.groups):
        first = 0
        while first < filters:
            for oy in range(g.oh):
                down = taps_at(oy * g.sh - g.top, g.kh, g.dh, job.spread_h, g.h)
                for ox in range(g.ow):
                    right = taps_at(ox * g.sw - g.left, g.kw, g.dw, job.spread_w, g.w)
                    for r in range(tile_rows(g, sizeof(F))):    # images beyond the last are seen as the last, and not written
                        image = min(r, images - 1)
                        seen[r] = x + ((image * g.h + down.first) * g.w + right.first) * g.c + i * count
                        out[r] = y + ((image * g.oh + oy) * g.ow + ox) * g.f + i * filters + first
                    at = weight + (down.kernel_first * g.kw + right.kernel_first) * count * n
                    whole = right.step == 1 and right.kernel_step == 1 and g.groups == 1
                    inner, length = (min(right.count, <Py_ssize_t> 1), right.count * count) if whole else (right.count, count)
                    if F is float:
                        tile_float(narrow, seen, down.count, down.step * g.w * g.c, inner, right.step * g.c, length, at,
                                   down.kernel_step * g.kw * count * n, right.kernel_step * count * n, out, images,
                                   min(n, filters - first))
                    else:
                        tile_double(narrow, seen, down.count, down.step * g.w * g.c, inner, right.step * g.c, length, at,
                                    down.kernel_step * g.kw * count * n, right.kernel_step * count * n, out, images,
                                    min(n, filters - first))
            weight += g.kh * g.kw * count * n
            first += n


cdef void direct_band(const Work* job, Py_ssize_t b, F* staged) noexcept nogil:
    cdef const Conv* g = job.g
    cdef Py_ssize_t n = b // job.bands, oy = b % job.bands * job.rows, rows = min(job.rows, g.oh - oy)
    cdef const F* x = <const F*> job.x + n * g.h * g.w * g.c
    cdef F* y = <F*> job.y + (n * g.oh + oy) * g.ow * g.f
    if job.size:
        padded_band(g, x, oy * g.sh, seen_rows(g, rows), staged)
        band(g, staged, seen_columns(g), <const F*> job.packed, y, rows)
    else:
        band(g, x + oy * g.sh * g.w * g.c, g.w, <const F*> job.packed, y, rows)


cdef void one_band(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        direct_band(job, b, <float*> job.staged + thread * job.size)
    else:
        direct_band(job, b, <double*> job.staged + thread * job.size)


cdef void group_of(const Work* job, Py_ssize_t b, const F* x, const F* weight, F* y) noexcept nogil:
    cdef const Conv* g = job.g
    cdef Py_ssize_t tall = tile_rows(g, sizeof(F)), first = b * tall
    places(job, x + first * g.h * g.w * g.c, weight, y + first * g.oh * g.ow * g.f, min(tall, g.n - first))


cdef void one_group(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        group_of(job, b, <const float*> job.x, <const float*> job.packed, <float*> job.y)
    else:
        group_of(job, b, <const double*> job.x, <const double*> job.packed, <double*> job.y)


cdef void direct(int dtype, const Conv* g, bint swap, Py_ssize_t spread_h, Py_ssize_t spread_w, char* x, char* weight, char* y,
                 char* scratch, int threads) noexcept nogil:
    """y = conv2d(x, weight); swap: with the kernel turned around and its channels and filters changed, see `swapped`. Zeros between
    the places of x need many small images and no dilation."""
    cdef int item = 4 if dtype == FLOAT32 else 8
    cdef Work job
    job.g, job.dtype, job.spread_h, job.spread_w, job.x, job.y, job.staged = g, dtype, spread_h, spread_w, x, y, scratch
    job.rows = band_rows(g, item, BAND_BYTES)
    job.bands = (g.oh + job.rows - 1) // job.rows
    job.size = band_size(g, item)
    job.packed = scratch + threads * job.size * item
    if dtype == FLOAT32:
        pack(g, swap, <const float*> weight, <float*> job.packed)
    else:
        pack(g, swap, <const double*> weight, <double*> job.packed)
    if across(g, item):
        share(one_group, &job, (g.n + tile_rows(g, item) - 1) // tile_rows(g, item), threads)
    else:
        share(one_band, &job, g.n * job.bands, threads)


# ---- The gradient of the weights ----------------------------------------------------------------------------------

cdef void weight_band(const Conv* g, const F* x, Py_ssize_t width, const F* y, Py_ssize_t room, Py_ssize_t rows, F* staged,
                      F* weight) noexcept nogil:
    """weight += products of y, rows of the result, and what is under them; x is `width` columns wide, y ends after `room`"""
    cdef Py_ssize_t n = lanes(g, sizeof(F)), count = g.c // g.groups, filters = g.f // g.groups, k = g.kh * g.kw * count
    cdef Py_ssize_t i, first, r, taken, stride, kept, j, u, v, c, tall = tile_rows(g, sizeof(F))
    cdef bint narrow = thin(g, sizeof(F))
    cdef Py_ssize_t at[MOST_ROWS]
    cdef const F* grad
    cdef F* out[MOST_ROWS]
    for i in range(g.groups):
        first = 0
        while first < filters:
            grad, stride, kept = y + i * filters + first, g.f, min(n, filters - first)
            if (rows * g.ow - 1) * g.f + i * filters + first + n > room:        # a tile reads whole vectors
                memset(staged, 0, rows * g.ow * n * sizeof(F))
                for r in range(rows * g.ow):
                    memcpy(staged + r * n, grad + r * g.f, kept * sizeof(F))
                grad, stride = staged, n
            j = u = v = c = 0
            while j < k:
                taken = min(tall, k - j)
                for r in range(tall):                   # rows beyond the last are those of the last, and not written
                    at[r] = (u * g.dh * width + v * g.dw) * g.c + i * count + c
                    out[r] = weight + ((u * g.kw + v) * count + c) * g.f + i * filters + first
                    if j + r + 1 < k:
                        c += 1
                        if c == count:
                            c, v = 0, v + 1
                            if v == g.kw:
                                v, u = 0, u + 1
                if F is float:
                    outer_float(narrow, x, at, rows, g.sh * width * g.c, g.ow, g.sw * g.c, grad, stride, out, taken, kept)
                else:
                    outer_double(narrow, x, at, rows, g.sh * width * g.c, g.ow, g.sw * g.c, grad, stride, out, taken, kept)
                j += taken
            first += n


cdef Py_ssize_t part_elements(const Conv* g, int itemsize) noexcept nogil:
    """Elements of the memory that `weight_part` asks of its caller"""
    cdef Py_ssize_t rows = band_rows(g, itemsize, PART_BYTES)
    cdef Py_ssize_t image = 0 if unpadded(g) else seen_rows(g, rows) * seen_columns(g) * g.c
    return image + rows * g.ow * lanes(g, itemsize)


cdef void weight_part_as(const Conv* g, const F* x, const F* y, F* weight, Py_ssize_t part, Py_ssize_t parts,
                         F* scratch) noexcept nogil:
    cdef Py_ssize_t rows = band_rows(g, sizeof(F), PART_BYTES), bands = (g.oh + rows - 1) // rows, b, n, oy, here
    cdef Py_ssize_t total = g.n * g.oh * g.ow * g.f, at
    cdef Py_ssize_t size = 0 if unpadded(g) else seen_rows(g, rows) * seen_columns(g) * g.c
    for b in range(part * (g.n * bands) // parts, (part + 1) * (g.n * bands) // parts):
        n, oy = b // bands, b % bands * rows
        here, at = min(rows, g.oh - oy), (n * g.oh + oy) * g.ow * g.f
        if size:
            padded_band(g, x + n * g.h * g.w * g.c, oy * g.sh, seen_rows(g, here), scratch)
            weight_band(g, scratch, seen_columns(g), y + at, total - at, here, scratch + size, weight)
        else:
            weight_band(g, x + (n * g.h + oy * g.sh) * g.w * g.c, g.w, y + at, total - at, here, scratch, weight)


cdef void weight_part(int dtype, const Conv* g, char* x, char* y, char* weight, Py_ssize_t part, Py_ssize_t parts,
                      char* scratch) noexcept nogil:
    """weight += the share of one part of the bands, out of `parts`"""
    if dtype == FLOAT32:
        weight_part_as(g, <float*> x, <float*> y, <float*> weight, part, parts, <float*> scratch)
    else:
        weight_part_as(g, <double*> x, <double*> y, <double*> weight, part, parts, <double*> scratch)
