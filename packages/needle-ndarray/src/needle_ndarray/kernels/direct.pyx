# Convolution without columns: register tiles of output places read the image where it lies, or a padded copy of a band of its
# rows. Of many small images a tile takes the same place: all of them see the same part of the kernel, and padding is left out.
# For kernels small enough to stay in the cache this beats im2col and BLAS, which copies the columns once more to pack them.

from libc.string cimport memcpy, memset

from needle_ndarray.kernels.conv cimport Conv, Plan
from needle_ndarray.kernels.epilogue cimport Epilogue, finish
from needle_ndarray.kernels.memoryviews cimport images, matrices
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.threads cimport share

cdef extern from "conv.h" nogil:
    const int ROWS "NEEDLE_ROWS"
    const int THIN "NEEDLE_THIN"
    const int VECTOR "NEEDLE_VECTOR"
    void tile_float "needle_tile_float"(
        bint thin, const float** a, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, Py_ssize_t length,
        const float* weight, Py_ssize_t b_down, Py_ssize_t b_across, Py_ssize_t b_step, float** out, Py_ssize_t rows,
        Py_ssize_t width) noexcept
    void tile_double "needle_tile_double"(
        bint thin, const double** a, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, Py_ssize_t length,
        const double* weight, Py_ssize_t b_down, Py_ssize_t b_across, Py_ssize_t b_step, double** out, Py_ssize_t rows,
        Py_ssize_t width) noexcept
    const int MOST_FILTERS "NEEDLE_FEW"
    void plane_float "needle_plane_float"(
        const float* x, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, const float* weight,
        Py_ssize_t b_down, Py_ssize_t b_across, Py_ssize_t f, float* out, Py_ssize_t n) noexcept
    void plane_double "needle_plane_double"(
        const double* x, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across, const double* weight,
        Py_ssize_t b_down, Py_ssize_t b_across, Py_ssize_t f, double* out, Py_ssize_t n) noexcept
    void gather_float "needle_gather_float"(
        const float* x, Py_ssize_t across, Py_ssize_t channel, Py_ssize_t n, Py_ssize_t c, float* out) noexcept
    void gather_double "needle_gather_double"(
        const double* x, Py_ssize_t across, Py_ssize_t channel, Py_ssize_t n, Py_ssize_t c, double* out) noexcept
    void outer_float "needle_outer_tile_float"(
        bint thin, const float* a, const Py_ssize_t* at, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across,
        const float* b, Py_ssize_t stride, float** out, Py_ssize_t rows, Py_ssize_t width) noexcept
    void outer_double "needle_outer_tile_double"(
        bint thin, const double* a, const Py_ssize_t* at, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across,
        const double* b, Py_ssize_t stride, double** out, Py_ssize_t rows, Py_ssize_t width) noexcept

cdef enum:
    MOST_ROWS = 10              # at least NEEDLE_ROWS and NEEDLE_THIN
    BAND_BYTES = 131072         # of the image that a thread works on at a time
    PART_BYTES = 32768          # the same for the gradient of the weights, which reads it again for every tile
    KERNEL_BYTES = 24576        # of the weights of one filter: beyond, a tile leaves the cache and BLAS does better
    UNITS = 8                   # a small convolution is still cut into so many bands, for threads
    MANY = 24                   # images from which a tile takes the same place of several
    IMAGE_BYTES = 16384         # of such an image, at most
    FEW = 4                     # tiles of places up to which packing the weights takes longer than reading them where they lie


# ---- Sizes --------------------------------------------------------------------------------------------------------

cdef Py_ssize_t seen_rows(const Conv* g, Py_ssize_t rows) noexcept nogil:
    """Rows of the padded image under so many rows of the result"""
    return (rows - 1) * g.sh + (g.kh - 1) * g.dh + 1


cdef Py_ssize_t seen_columns(const Conv* g) noexcept nogil:
    return (g.ow - 1) * g.sw + (g.kw - 1) * g.dw + 1


cdef bint unpadded(const Conv* g) noexcept nogil:
    return g.top == 0 and g.left == 0 and seen_rows(g, g.oh) <= g.h and seen_columns(g) <= g.w


cdef struct Tile:               # the register tile of a convolution
    bint thin                   # one vector of filters, and more places for it
    Py_ssize_t places
    Py_ssize_t lanes            # filters
    Py_ssize_t count            # channels of a group
    Py_ssize_t filters          # of a group
    Py_ssize_t tiles            # of filters that these take


cdef Tile tile_of(const Conv* g, int itemsize) noexcept nogil:
    cdef Tile t
    t.count, t.filters = g.c // g.groups, g.f // g.groups
    t.thin = t.filters <= VECTOR // itemsize
    t.places = THIN if t.thin else ROWS
    t.lanes = (1 if t.thin else 2) * VECTOR // itemsize
    t.tiles = (t.filters + t.lanes - 1) // t.lanes
    return t


cdef Py_ssize_t rows_within(const Conv* g, int itemsize, Py_ssize_t nbytes) noexcept nogil:
    """Rows of the result to take at a time, for so many bytes of the image"""
    cdef Py_ssize_t row = seen_columns(g) * g.c * itemsize, most = nbytes // row - (g.kh - 1) * g.dh
    cdef Py_ssize_t bands = (UNITS + g.n - 1) // g.n
    return max(min(most // g.sh, (g.oh + bands - 1) // bands), <Py_ssize_t> 1)


cdef Py_ssize_t band_rows(const Conv* g, int itemsize) noexcept nogil:
    return rows_within(g, itemsize, BAND_BYTES)


cdef bint fits(const Conv* g, int itemsize) noexcept nogil:
    """Whether the weights of a tile and the rows under one row of the result stay in the cache; and no reverse padding"""
    cdef double band = <double> seen_rows(g, 1) * seen_columns(g) * g.c * itemsize
    cdef double kernel = <double> g.kh * g.kw * (g.c // g.groups) * itemsize
    return g.top >= 0 and g.left >= 0 and band <= 4 * BAND_BYTES and kernel <= KERNEL_BYTES


cdef bint many_small(const Conv* g, int itemsize) noexcept nogil:
    """Whether there are many small images: then a tile takes the same place of several"""
    return g.n >= MANY and g.h * g.w * g.c * itemsize <= IMAGE_BYTES and not g.plane


cdef bint is_plane(const Conv* g, int itemsize) noexcept nogil:
    """Whether vectors hold places of an image with one channel, since the filters would fill a part of one only"""
    cdef Tile t = tile_of(g, itemsize)
    return g.c == 1 and g.sw == 1 and g.f <= MOST_FILTERS <= t.lanes and g.f < t.lanes


cdef Conv adjoint_of(const Conv* g) noexcept nogil:
    """The convolution that takes y's gradient, its places g.sh and g.sw from one another, to x's; with the flipped kernel"""
    cdef Conv out = g[0]
    out.h, out.w, out.c, out.f, out.oh, out.ow, out.sh, out.sw = g.oh, g.ow, g.f, g.c, g.h, g.w, 1, 1
    out.top, out.left = (g.kh - 1) * g.dh - g.top, (g.kw - 1) * g.dw - g.left
    out.strided = out.plane = False
    return out


cdef Py_ssize_t band_tasks(const Conv* g, int itemsize) noexcept nogil:
    """Groups of images, or bands of every image"""
    cdef Py_ssize_t rows = band_rows(g, itemsize), at_once = tile_of(g, itemsize).places
    if many_small(g, itemsize):
        return (g.n + at_once - 1) // at_once
    return g.n * ((g.oh + rows - 1) // rows)


cdef Py_ssize_t padded_elements(const Conv* g, int itemsize) noexcept nogil:
    """Elements of a padded band, or of the images of a tile; 0 where images are read where they lie"""
    if many_small(g, itemsize):
        return tile_of(g, itemsize).places * g.h * g.w * g.c if g.strided else 0
    if unpadded(g) and not g.strided and not g.plane:
        return 0
    return seen_rows(g, band_rows(g, itemsize)) * seen_columns(g) * g.c + (2 * VECTOR // itemsize if g.plane else 0)


cdef bint lies_in_tiles(const Conv* g, bint adjoint, int itemsize) noexcept nogil:
    """Whether weights are read where they lie: whole tiles of filters that are one tile, or too few places to pay for packing"""
    cdef Tile t = tile_of(g, itemsize)
    return not adjoint and t.filters == t.tiles * t.lanes and (t.tiles == 1 or g.n * g.oh * g.ow <= FEW * t.places)


cdef Py_ssize_t packed_elements(const Conv* g, bint adjoint, int itemsize) noexcept nogil:
    """Elements of the weights in tiles, 0 where they are read where they lie"""
    cdef Tile t = tile_of(g, itemsize)
    return 0 if lies_in_tiles(g, adjoint, itemsize) else g.groups * t.tiles * g.kh * g.kw * t.count * t.lanes


cdef struct Weights:            # of a convolution, in tiles or where they lie
    const char* first
    Py_ssize_t step             # elements from channel to channel
    Py_ssize_t row              # from row to row of the kernel
    Py_ssize_t tile             # from tile to tile of a group
    Py_ssize_t group            # and from group to group


# ---- Packing ------------------------------------------------------------------------------------------------------

cdef void pack(const Conv* g, bint adjoint, const F[:, :, :, ::1] weight, F[:, :, :, ::1] out) noexcept nogil:
    """out[tile, (u, v), c, lane] = weight[u, v, c, f], 0 beyond the last filter; tiles of filters, group after group.
    adjoint: weight is that of the convolution whose adjoint this is: (u, v) from the end, c and f exchanged"""
    cdef Tile t = tile_of(g, sizeof(F))
    cdef Py_ssize_t i, group, first, uv, u, v, c, f, last
    for i in range(out.shape[0]):
        group, first = i // t.tiles, i % t.tiles * t.lanes
        last = min(t.lanes, t.filters - first)
        for uv in range(out.shape[1]):
            u, v = uv // g.kw, uv % g.kw
            for c in range(t.count):
                if adjoint:
                    for f in range(last):
                        out[i, uv, c, f] = weight[g.kh - 1 - u, g.kw - 1 - v, first + f, group * t.count + c]
                else:
                    memcpy(&out[i, uv, c, 0], &weight[u, v, c, group * t.filters + first], last * sizeof(F))
                for f in range(last, t.lanes):
                    out[i, uv, c, f] = 0


cdef inline void gather(const Conv* g, const F* image, Py_ssize_t iy, Py_ssize_t count, F* out) noexcept nogil:
    """out = the first places of row iy of an image, channels side by side"""
    if not g.strided:
        memcpy(out, image + iy * g.w * g.c, count * g.c * sizeof(F))
    elif F is float:
        gather_float(image + iy * g.steps[1], g.steps[2], g.steps[3], count, g.c, out)
    else:
        gather_double(image + iy * g.steps[1], g.steps[2], g.steps[3], count, g.c, out)


cdef inline Py_ssize_t image_step(const Conv* g) noexcept nogil:
    """Elements from image to image of x"""
    return g.steps[0] if g.strided else g.h * g.w * g.c


cdef void pad(const Conv* g, const F* image, Py_ssize_t top, F[:, :, ::1] out) noexcept nogil:
    """out[r, left + ix] = x[top + r, ix], 0 outside of the image; top counts from the padding, out ends with the last window"""
    cdef Py_ssize_t width = out.shape[1], left = min(g.left, width), inside = min(g.w, width - left)
    cdef Py_ssize_t place = g.c * sizeof(F), r, iy
    for r in range(out.shape[0]):
        iy = top + r - g.top
        if iy < 0 or iy >= g.h:
            memset(&out[r, 0, 0], 0, width * place)
            continue
        memset(&out[r, 0, 0], 0, left * place)
        if inside > 0:
            gather(g, image, iy, inside, &out[r, left, 0])
        if left + inside < width:
            memset(&out[r, left + inside, 0], 0, (width - left - inside) * place)


# ---- Tiles --------------------------------------------------------------------------------------------------------

cdef inline void tile(const Tile* t, const F** seen, Py_ssize_t outer, Py_ssize_t down, Py_ssize_t inner, Py_ssize_t across,
                      Py_ssize_t length, const F* weight, Py_ssize_t b_down, Py_ssize_t b_across, Py_ssize_t b_step, F** out,
                      Py_ssize_t rows, Py_ssize_t width) noexcept nogil:
    """out[r] = what place r sees times the weights of a tile of filters; see conv.h"""
    if F is float:
        tile_float(t.thin, seen, outer, down, inner, across, length, weight, b_down, b_across, b_step, out, rows, width)
    else:
        tile_double(t.thin, seen, outer, down, inner, across, length, weight, b_down, b_across, b_step, out, rows, width)


cdef void band(const Conv* g, const F[:, :, ::1] x, const Weights* weights, F[:, :, ::1] y) noexcept nogil:
    """y[oy, ox] = sum of x[oy sh + u dh, ox sw + v dw] @ weight[u, v]: rows of the result from the rows of x under them"""
    cdef Tile t = tile_of(g, sizeof(F))
    cdef Py_ssize_t i, group, first, place, oy, ox, r, taken, row = x.shape[1] * g.c, kernel = t.count * weights.step
    cdef const F* weight
    cdef bint whole = g.dw == 1 and g.groups == 1       # then a row of the kernel sees one run of elements
    cdef Py_ssize_t inner = 1 if whole else g.kw, length = g.kw * t.count if whole else t.count
    cdef const F* seen[MOST_ROWS]
    cdef F* out[MOST_ROWS]
    for i in range(g.groups * t.tiles):
        group, first = i // t.tiles, i % t.tiles * t.lanes
        weight = <const F*> weights.first + group * weights.group + i % t.tiles * weights.tile
        place = oy = ox = 0
        while place < y.shape[0] * g.ow:
            taken = min(t.places, y.shape[0] * g.ow - place)
            for r in range(t.places):                   # places beyond the last are seen as the last, and not written
                seen[r] = &x[oy * g.sh, ox * g.sw, group * t.count]
                out[r] = &y[oy, ox, group * t.filters + first]
                if r + 1 < taken or (r + 1 == taken and taken == t.places and place + taken < y.shape[0] * g.ow):
                    ox += 1
                    if ox == g.ow:
                        ox, oy = 0, oy + 1
            tile(&t, seen, g.kh, g.dh * row, inner, g.dw * g.c, length, weight, weights.row, kernel, weights.step, out, taken,
                 min(t.lanes, t.filters - first))
            place += taken


cdef void plane_band(const Conv* g, const F[:, :, ::1] x, const Weights* weights, F[:, :, ::1] y) noexcept nogil:
    """What `band` does, for an image of one channel"""
    cdef Py_ssize_t oy
    cdef const F* weight = <const F*> weights.first
    for oy in range(y.shape[0]):
        if F is float:
            plane_float(&x[oy * g.sh, 0, 0], g.kh, g.dh * x.shape[1], g.kw, g.dw, weight, weights.row, weights.step, g.f,
                        &y[oy, 0, 0], g.ow)
        else:
            plane_double(&x[oy * g.sh, 0, 0], g.kh, g.dh * x.shape[1], g.kw, g.dw, weight, weights.row, weights.step, g.f,
                         &y[oy, 0, 0], g.ow)


cdef struct Taps:               # what a place sees along one axis
    Py_ssize_t count
    Py_ssize_t first            # in the image
    Py_ssize_t step
    Py_ssize_t kernel_first
    Py_ssize_t kernel_step


cdef Taps taps_at(Py_ssize_t at, Py_ssize_t kernel, Py_ssize_t dilation, Py_ssize_t input_dilation,
                  Py_ssize_t size) noexcept nogil:
    """The k < kernel for which at + k dilation is a place of an image of this size, with zeros between its places"""
    cdef Taps out
    out.step, out.kernel_step = dilation, input_dilation        # one of them is 1
    if input_dilation > 1:
        out.kernel_first = -at if at < 0 else (input_dilation - at % input_dilation) % input_dilation
        out.first = (at + out.kernel_first) // input_dilation
    else:
        out.kernel_first = (-at + dilation - 1) // dilation if at < 0 else 0
        out.first = at + out.kernel_first * dilation
    if out.kernel_first >= kernel or out.first >= size:
        out.count = out.first = out.kernel_first = 0
    else:
        out.count = min((kernel - out.kernel_first + input_dilation - 1) // input_dilation,
                        (size - out.first + dilation - 1) // dilation)
    return out


cdef void across_images(const Plan* plan, const F[:, :, :, ::1] x, const Weights* weights,
                        F[:, :, :, ::1] y) noexcept nogil:
    """y[n, oy, ox] = sum of what the place sees @ weight, for as many images as a tile has places, or fewer"""
    cdef const Conv* g = &plan.g
    cdef Tile t = tile_of(g, sizeof(F))
    cdef Py_ssize_t i, group, first, oy, ox, r, image, inner, length, kernel = t.count * weights.step
    cdef Taps down, right
    cdef const F* weight
    cdef const F* seen[MOST_ROWS]
    cdef F* out[MOST_ROWS]
    for i in range(g.groups * t.tiles):
        group, first = i // t.tiles, i % t.tiles * t.lanes
        weight = <const F*> weights.first + group * weights.group + i % t.tiles * weights.tile
        for oy in range(g.oh):
            down = taps_at(oy * g.sh - g.top, g.kh, g.dh, plan.input_dh, g.h)
            for ox in range(g.ow):
                right = taps_at(ox * g.sw - g.left, g.kw, g.dw, plan.input_dw, g.w)
                for r in range(t.places):               # images beyond the last are seen as the last, and not written
                    image = min(r, x.shape[0] - 1)
                    seen[r] = &x[image, down.first, right.first, group * t.count]
                    out[r] = &y[image, oy, ox, group * t.filters + first]
                inner, length = right.count, t.count
                if right.step == 1 and right.kernel_step == 1 and g.groups == 1:
                    inner, length = min(right.count, <Py_ssize_t> 1), right.count * t.count     # one run of elements
                tile(&t, seen, down.count, down.step * g.w * g.c, inner, right.step * g.c, length,
                     weight + down.kernel_first * weights.row + right.kernel_first * kernel, down.kernel_step * weights.row,
                     right.kernel_step * kernel, weights.step, out, x.shape[0], min(t.lanes, t.filters - first))


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef struct Work:               # what the tasks of a call share
    const Plan* plan
    char* x
    char* y
    const Epilogue* epilogue    # or NULL
    char* scratch               # for the padded band of every thread
    Weights weights


cdef inline F[:, :, :, ::1] in_tiles(const Conv* g, F* packed) noexcept nogil:
    cdef Tile t = tile_of(g, sizeof(F))
    return images(packed, g.groups * t.tiles, g.kh * g.kw, t.count, t.lanes)


cdef void band_task(const Work* job, Py_ssize_t b, F* scratch) noexcept nogil:
    """A band of rows of the result, or the whole result of some images"""
    cdef const Plan* plan = job.plan
    cdef const Conv* g = &plan.g
    cdef F[:, :, :, ::1] y = images(<F*> job.y, g.n, g.oh, g.ow, g.f)
    cdef F[:, :, ::1] padded
    cdef F* x = <F*> job.x
    cdef Py_ssize_t bands = (g.oh + plan.rows - 1) // plan.rows, n = b // bands, oy = b % bands * plan.rows, first, i, iy
    cdef Py_ssize_t rows = min(plan.rows, g.oh - oy), size = g.h * g.w * g.c
    if many_small(g, sizeof(F)):
        first = b * tile_of(g, sizeof(F)).places
        rows = min(tile_of(g, sizeof(F)).places, g.n - first)
        if g.strided:
            for i in range(rows):
                for iy in range(g.h):
                    gather(g, x + (first + i) * g.steps[0], iy, g.w, scratch + i * size + iy * g.w * g.c)
            x = scratch
        else:
            x += first * size
        across_images(plan, images(x, rows, g.h, g.w, g.c), &job.weights, y[first:first + rows])
        n, oy, rows = first, 0, rows * g.oh
    elif plan.thread_elements:
        padded = matrices(scratch, seen_rows(g, rows), seen_columns(g), g.c)
        pad(g, x + n * image_step(g), oy * g.sh, padded)
        if g.plane:
            plane_band(g, padded, &job.weights, y[n, oy:oy + rows])
        else:
            band(g, padded, &job.weights, y[n, oy:oy + rows])
    else:
        band(g, images(x, g.n, g.h, g.w, g.c)[n, oy * g.sh:], &job.weights, y[n, oy:oy + rows])
    if job.epilogue is not NULL:
        finish(job.epilogue, plan.dtype, job.y, (n * g.oh + oy) * g.ow * g.f, rows * g.ow * g.f, g.f)


cdef void one_band(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.plan.dtype == FLOAT32:
        band_task(job, b, <float*> job.scratch + thread * job.plan.thread_elements)
    else:
        band_task(job, b, <double*> job.scratch + thread * job.plan.thread_elements)


cdef void pack_weights(const Plan* plan, F* weight, F* packed) noexcept nogil:
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t inputs = g.c // g.groups, outputs = g.f
    if plan.adjoint:
        inputs, outputs = g.f // g.groups, g.c
    pack(g, plan.adjoint, images(weight, g.kh, g.pitch, inputs, outputs), in_tiles(g, packed))


cdef void direct(const Plan* plan, char* x, char* weight, char* y, const Epilogue* epilogue, char* scratch,
                 int threads) noexcept nogil:
    """y = conv2d(x, weight), or its adjoint. Zeros between the places of x need many small images and no dilation."""
    cdef int itemsize = 4 if plan.dtype == FLOAT32 else 8
    cdef char* packed = scratch + threads * plan.thread_elements * itemsize
    cdef const Conv* g = &plan.g
    cdef Tile t = tile_of(g, itemsize)
    cdef Work job
    job.plan, job.x, job.y, job.epilogue, job.scratch = plan, x, y, epilogue, scratch
    if plan.shared_elements == 0:
        job.weights.first, job.weights.step, job.weights.tile, job.weights.group = weight, g.f, t.lanes, t.filters
        job.weights.row = g.pitch * t.count * g.f
    else:
        job.weights.first, job.weights.step, job.weights.tile = packed, t.lanes, g.kh * g.kw * t.count * t.lanes
        job.weights.group, job.weights.row = t.tiles * job.weights.tile, g.kw * t.count * t.lanes
        if plan.dtype == FLOAT32:
            pack_weights(plan, <float*> weight, <float*> packed)
        else:
            pack_weights(plan, <double*> weight, <double*> packed)
    share(one_band, &job, plan.tasks, threads)


# ---- The gradient of the weights ----------------------------------------------------------------------------------

cdef void weight_band(const Conv* g, const F[:, :, ::1] x, const F[:, :, ::1] y, Py_ssize_t to_end, F* scratch,
                      F[:, :, :, ::1] weight) noexcept nogil:
    """weight[u, v, c, f] += sum of x[oy sh + u dh, ox sw + v dw, c] y[oy, ox, f] over rows of the result; to_end: elements from
    the first of y to the end of the whole array"""
    cdef Tile t = tile_of(g, sizeof(F))
    cdef Py_ssize_t total = y.shape[0] * g.ow, k = g.kh * g.kw * t.count, row = x.shape[1] * g.c
    cdef Py_ssize_t i, group, first, r, taken, stride, kept, j, u, v, c
    cdef Py_ssize_t at[MOST_ROWS]
    cdef const F* grad
    cdef F* out[MOST_ROWS]
    for i in range(g.groups * t.tiles):
        group, first = i // t.tiles, i % t.tiles * t.lanes
        grad, stride, kept = &y[0, 0, group * t.filters + first], g.f, min(t.lanes, t.filters - first)
        if (total - 1) * g.f + group * t.filters + first + t.lanes > to_end:      # a tile reads whole vectors
            memset(scratch, 0, total * t.lanes * sizeof(F))
            for r in range(total):
                memcpy(scratch + r * t.lanes, grad + r * g.f, kept * sizeof(F))
            grad, stride = scratch, t.lanes
        j = u = v = c = 0
        while j < k:
            taken = min(t.places, k - j)
            for r in range(t.places):                   # rows beyond the last are those of the last, and not written
                at[r] = &x[u * g.dh, v * g.dw, group * t.count + c] - &x[0, 0, 0]
                out[r] = &weight[u, v, c, group * t.filters + first]
                if j + r + 1 < k:
                    c += 1
                    if c == t.count:
                        c, v = 0, v + 1
                        if v == g.kw:
                            v, u = 0, u + 1
            if F is float:
                outer_float(t.thin, &x[0, 0, 0], at, y.shape[0], g.sh * row, g.ow, g.sw * g.c, grad, stride, out, taken, kept)
            else:
                outer_double(t.thin, &x[0, 0, 0], at, y.shape[0], g.sh * row, g.ow, g.sw * g.c, grad, stride, out, taken, kept)
            j += taken


cdef Py_ssize_t part_padded(const Conv* g, int itemsize) noexcept nogil:
    """Elements of a padded band of `weight_part`, 0 where images are read where they lie"""
    return 0 if unpadded(g) else seen_rows(g, rows_within(g, itemsize, PART_BYTES)) * seen_columns(g) * g.c


cdef Py_ssize_t part_elements(const Conv* g, int itemsize) noexcept nogil:
    """Elements of the memory that `weight_part` asks of its caller"""
    return part_padded(g, itemsize) + rows_within(g, itemsize, PART_BYTES) * g.ow * tile_of(g, itemsize).lanes


cdef void weight_part(const Conv* g, const F[:, :, :, ::1] x, const F[:, :, :, ::1] y, Py_ssize_t part, Py_ssize_t parts,
                      F[:, :, :, ::1] weight, F* scratch) noexcept nogil:
    """weight += the share of one part of the bands, out of `parts`"""
    cdef Py_ssize_t rows = rows_within(g, sizeof(F), PART_BYTES), bands = (g.oh + rows - 1) // rows, b, n, oy, last, to_end
    cdef Py_ssize_t size = part_padded(g, sizeof(F))
    cdef F[:, :, ::1] padded
    for b in range(part * (g.n * bands) // parts, (part + 1) * (g.n * bands) // parts):
        n, oy = b // bands, b % bands * rows
        last = min(oy + rows, g.oh)
        to_end = ((g.n - n) * g.oh - oy) * g.ow * g.f
        if size:
            padded = matrices(scratch, seen_rows(g, last - oy), seen_columns(g), g.c)
            pad(g, &x[n, 0, 0, 0], oy * g.sh, padded)
            weight_band(g, padded, y[n, oy:last], to_end, scratch + size, weight)
        else:
            weight_band(g, x[n, oy * g.sh:], y[n, oy:last], to_end, scratch, weight)
