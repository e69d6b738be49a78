# Convolution of NHWC arrays: the choice of an algorithm, matrix products, and one filter per channel. For products a block of
# output places is laid out as rows of what each of them sees (im2col), some 128 KB at a time, and goes straight to BLAS; the
# whole matrix never exists. The work is cut by shape alone, so results are the same bits for every number of threads.

from libc.string cimport memcpy, memset

from needle_ndarray.kernels.direct cimport (
    adjoint_of, band_rows, band_tasks, direct, fits, is_plane, many_small, packed_elements, padded_elements, part_elements,
    weight_part)
from needle_ndarray.kernels.epilogue cimport Epilogue, finish
from needle_ndarray.kernels.gemm cimport Blas, add_transposed_product, multiply, multiply_transposed
from needle_ndarray.kernels.memoryviews cimport images, matrices, matrix, strided_rows, vector
from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.threads cimport share

cdef extern from "conv.h" nogil:
    void weigh_float "needle_weigh_float"(
        const float* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const float* b,
        Py_ssize_t b_down, Py_ssize_t b_across, float* out, Py_ssize_t n, int add) noexcept
    void weigh_double "needle_weigh_double"(
        const double* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const double* b,
        Py_ssize_t b_down, Py_ssize_t b_across, double* out, Py_ssize_t n, int add) noexcept

cdef enum:
    BLOCK_BYTES = 131072    # of columns that a thread makes at a time: they stay in the second-level cache
    BLOCKS = 8              # a small convolution is still cut into so many blocks, for threads
    PARTS = 16              # partial sums of the weights' gradient
    PARTS_SIZE = 1048576    # elements that they may take together; never fewer than two parts
    MOST = 48               # channels of a group up to which tiles beat BLAS in the gradient of the weights
    PLACES = 40             # and of an image from which they do
    FEWEST = 6              # channels of a group from which a tile of them is not mostly empty
    UNITS = 8               # images, or bands of an image, that the threads share


# ---- The plan: which algorithm, and how the work is cut -----------------------------------------------------------

cdef int algorithm_of(int op, const Conv* g, int itemsize) noexcept nogil:
    cdef Conv other
    cdef bint tiles
    if g.groups == g.c and g.groups == g.f and g.c > 1:
        return DEPTHWISE
    if g.kh * g.kw * g.sh * g.sw == 1 and g.oh == g.h and g.ow == g.w and g.top == 0 and g.left == 0:
        return POINTWISE
    if op == CONV2D:
        tiles = fits(g, itemsize)
    elif op == WEIGHT_GRAD:
        tiles = (g.c // g.groups <= MOST and g.oh * g.ow >= PLACES or g.groups > 1) and fits(g, itemsize)
    else:
        other = adjoint_of(g)
        tiles = g.c // g.groups >= FEWEST and fits(&other, itemsize)
        if (g.sh > 1 or g.sw > 1) and (g.dh > 1 or g.dw > 1 or not many_small(&other, itemsize)):
            tiles = False
    return TILES if tiles else COLUMNS


cdef Py_ssize_t block_rows(const Conv* g, int itemsize) noexcept nogil:
    """Output places to take at a time"""
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), places = g.n * g.oh * g.ow
    cdef Py_ssize_t rows = min(BLOCK_BYTES // (k * itemsize), (places + BLOCKS - 1) // BLOCKS)
    return max((rows + 15) // 16 * 16, <Py_ssize_t> 16)


cdef Py_ssize_t bands_of(const Conv* g) noexcept nogil:
    """Bands of input rows per image: 1 where there are images enough; neighbours compute what both of them see twice"""
    cdef Py_ssize_t extent = (g.kh - 1) * g.dh + 1
    return max(min((UNITS + g.n - 1) // g.n, g.h // (4 * extent)), <Py_ssize_t> 1)


cdef Plan planned(int op, int dtype, const Conv* g) noexcept nogil:
    """The one place where an algorithm is chosen and the work is cut"""
    cdef int itemsize = 4 if dtype == FLOAT32 else 8
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), blocks
    cdef Plan plan
    plan.op, plan.dtype, plan.algorithm, plan.g = op, dtype, algorithm_of(op, g, itemsize), g[0]
    plan.adjoint = op == INPUT_GRAD and (plan.algorithm == TILES or plan.algorithm == DEPTHWISE and g.sh == 1 and g.sw == 1)
    plan.input_dh = plan.input_dw = 1
    if plan.adjoint:
        plan.g, plan.input_dh, plan.input_dw = adjoint_of(g), g.sh, g.sw
    plan.rows = block_rows(&plan.g, itemsize)
    blocks = (plan.g.n * plan.g.oh * plan.g.ow + plan.rows - 1) // plan.rows
    plan.thread_elements = plan.rows * k if plan.algorithm == COLUMNS else 0
    plan.shared_elements, plan.tasks = 0, blocks
    if op == WEIGHT_GRAD:
        plan.tasks = min(blocks, max(min(<Py_ssize_t> PARTS, PARTS_SIZE // (k * g.f)), <Py_ssize_t> 2))
        plan.shared_elements = plan.tasks * k * g.f
        if plan.algorithm == TILES:
            plan.thread_elements = part_elements(g, itemsize)
    elif plan.algorithm == TILES:
        plan.g.plane = op == CONV2D and is_plane(g, itemsize)
        plan.rows, plan.tasks = band_rows(&plan.g, itemsize), band_tasks(&plan.g, itemsize)
        plan.thread_elements = padded_elements(&plan.g, itemsize)
        plan.shared_elements = packed_elements(&plan.g, plan.adjoint, itemsize)
    elif op == INPUT_GRAD and not plan.adjoint and plan.algorithm != POINTWISE:
        plan.tasks = g.n * bands_of(g)
    return plan


cdef bint needs_blas(const Plan* plan) noexcept nogil:
    return plan.algorithm == POINTWISE or plan.algorithm == COLUMNS


cdef Py_ssize_t scratch_elements(const Plan* plan, int threads) noexcept nogil:
    """Elements of the memory that `convolve` asks of its caller"""
    return threads * plan.thread_elements + plan.shared_elements


# ---- Columns ------------------------------------------------------------------------------------------------------

cdef inline void span(Py_ssize_t at, Py_ssize_t step, Py_ssize_t count, Py_ssize_t size, Py_ssize_t* first,
                      Py_ssize_t* last) noexcept nogil:
    """first <= i < last, the i < count with 0 <= at + i * step < size"""
    first[0] = min((-at + step - 1) // step, count) if at < 0 else 0
    last[0] = max(min((size - at + step - 1) // step, count), first[0]) if size > at else first[0]


cdef inline void rows_that_see(const Conv* g, Py_ssize_t top, Py_ssize_t bottom, Py_ssize_t* first,
                               Py_ssize_t* last) noexcept nogil:
    """first <= oy < last: the rows of the result whose windows touch the input rows top to bottom"""
    cdef Py_ssize_t y = top + g.top - (g.kh - 1) * g.dh
    first[0] = (y + g.sh - 1) // g.sh if y > 0 else 0
    last[0] = min(g.oh, (bottom + g.top + g.sh - 1) // g.sh)


cdef void columns(const Conv* g, const F[:, :, :, ::1] x, Py_ssize_t place, Py_ssize_t channel,
                  F[:, :, :, ::1] out) noexcept nogil:
    """out[r, ky, kx, :] = x[n, oy sh - top + ky dh, ox sw - left + kx dw, channels], 0 outside of the image"""
    cdef Py_ssize_t count = out.shape[3], ox = place % g.ow, oy = place // g.ow % g.oh, n = place // g.ow // g.oh
    cdef Py_ssize_t size = count * sizeof(F), r, ky, kx, first, last, ix, iy
    for r in range(out.shape[0]):
        ix = ox * g.sw - g.left
        span(ix, g.dw, g.kw, g.w, &first, &last)
        for ky in range(g.kh):
            iy = oy * g.sh - g.top + ky * g.dh
            if iy < 0 or iy >= g.h or first == last:
                memset(&out[r, ky, 0, 0], 0, g.kw * size)
                continue
            if first > 0:
                memset(&out[r, ky, 0, 0], 0, first * size)
            if g.dw == 1 and count == g.c:
                memcpy(&out[r, ky, first, 0], &x[n, iy, ix + first, 0], (last - first) * size)
            else:
                for kx in range(first, last):
                    memcpy(&out[r, ky, kx, 0], &x[n, iy, ix + kx * g.dw, channel], size)
            if last < g.kw:
                memset(&out[r, ky, last, 0], 0, (g.kw - last) * size)
        ox += 1
        if ox == g.ow:
            ox, oy = 0, oy + 1
            if oy == g.oh:
                oy, n = 0, n + 1


cdef inline void add(const F[::1] a, F[::1] out) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(a.shape[0]):
        out[i] += a[i]


cdef void add_columns(const Conv* g, F[:, :, :, ::1] a, Py_ssize_t place, Py_ssize_t channel, Py_ssize_t top, Py_ssize_t bottom,
                      F[:, :, ::1] x) noexcept nogil:
    """x[iy, ix, channels] += a[r, ky, kx, :], the reverse of `columns`, for the input rows top <= iy < bottom of one image"""
    cdef Py_ssize_t count = a.shape[3], ox = place % g.ow, oy = place // g.ow, r, ky, kx, first, last, ix, iy, n
    for r in range(a.shape[0]):
        ix = ox * g.sw - g.left
        span(ix, g.dw, g.kw, g.w, &first, &last)
        for ky in range(g.kh):
            iy = oy * g.sh - g.top + ky * g.dh
            if top <= iy < bottom and first < last:
                if g.dw == 1 and count == g.c:
                    n = (last - first) * count
                    add(vector(&a[r, ky, first, 0], n), vector(&x[iy, ix + first, 0], n))
                else:
                    for kx in range(first, last):
                        add(a[r, ky, kx], x[iy, ix + kx * g.dw, channel:channel + count])
        ox += 1
        if ox == g.ow:
            ox, oy = 0, oy + 1


# ---- Matrix products ----------------------------------------------------------------------------------------------

cdef F[:, ::1] seen(const Plan* plan, F[:, :, :, ::1] x, Py_ssize_t place, Py_ssize_t rows, Py_ssize_t group,
                    F* scratch) noexcept nogil:
    """A row for each of these output places: what it sees of the input, of the channels of one group"""
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t count = g.c // g.groups
    if plan.algorithm == POINTWISE:
        return strided_rows(&x[0, 0, 0, 0] + place * g.c + group * count, rows, count, g.c)
    columns(g, x, place, group * count, images(scratch, rows, g.kh, g.kw, count))
    return matrix(scratch, rows, g.kh * g.kw * count)


cdef void forward(const Plan* plan, const Blas* blas, F[:, :, :, ::1] x, const F[:, ::1] weight, Py_ssize_t place,
                  F[:, ::1] y, F* scratch) noexcept nogil:
    """y, the output places from `place` on, = columns @ weight, group by group"""
    cdef Py_ssize_t filters = plan.g.f // plan.g.groups, i
    for i in range(plan.g.groups):
        multiply(blas, 1, seen(plan, x, place, y.shape[0], i, scratch), weight[:, i * filters:(i + 1) * filters],
                 y[:, i * filters:(i + 1) * filters])


cdef void weight_grad(const Plan* plan, const Blas* blas, F[:, :, :, ::1] x, Py_ssize_t place, const F[:, ::1] y,
                      F[:, ::1] weight, F* scratch) noexcept nogil:
    """weight += columns^T @ y, the gradient of the output places from `place` on"""
    cdef Py_ssize_t filters = plan.g.f // plan.g.groups, i
    for i in range(plan.g.groups):
        add_transposed_product(blas, 1, seen(plan, x, place, y.shape[0], i, scratch), y[:, i * filters:(i + 1) * filters],
                               weight[:, i * filters:(i + 1) * filters])


cdef void pointwise_input_grad(const Plan* plan, const Blas* blas, const F[:, ::1] weight, const F[:, ::1] y,
                               F[:, ::1] x) noexcept nogil:
    """x = y @ weight^T, group by group, for some places"""
    cdef Py_ssize_t count = plan.g.c // plan.g.groups, filters = plan.g.f // plan.g.groups, i
    for i in range(plan.g.groups):
        multiply_transposed(blas, 1, y[:, i * filters:(i + 1) * filters], weight[:, i * filters:(i + 1) * filters],
                            x[:, i * count:(i + 1) * count])


cdef void input_grad(const Plan* plan, const Blas* blas, const F[:, ::1] weight, const F[:, ::1] y, Py_ssize_t top,
                     Py_ssize_t bottom, F[:, :, ::1] x, F* scratch) noexcept nogil:
    """x[top:bottom] of one image = sum of y @ weight^T over every output place that sees these rows"""
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t count = g.c // g.groups, filters = g.f // g.groups, i, first, last, place, rows
    rows_that_see(g, top, bottom, &first, &last)
    memset(&x[top, 0, 0], 0, (bottom - top) * g.w * g.c * sizeof(F))
    place = first * g.ow
    while place < last * g.ow:
        rows = min(plan.rows, last * g.ow - place)
        for i in range(g.groups):
            multiply_transposed(blas, 1, y[place:place + rows, i * filters:(i + 1) * filters],
                                weight[:, i * filters:(i + 1) * filters], matrix(scratch, rows, g.kh * g.kw * count))
            add_columns(g, images(scratch, rows, g.kh, g.kw, count), place, i * count, top, bottom, x)
        place += rows


# ---- One filter per channel: by a copy of the sizes, which no store can change ----------------------------------------

cdef inline void weigh(const F* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const F* b,
                       Py_ssize_t b_down, Py_ssize_t b_across, F* out, Py_ssize_t n, bint add_to) noexcept nogil:
    """out = sum of a * b over outer times inner places, or that added to it, for n channels"""
    if F is float:
        weigh_float(a, outer, a_down, inner, a_across, b, b_down, b_across, out, n, add_to)
    else:
        weigh_double(a, outer, a_down, inner, a_across, b, b_down, b_across, out, n, add_to)


cdef void depthwise_forward(Conv g, const F[:, :, :, ::1] x, const F[:, :, ::1] weight, bint flipped, Py_ssize_t place,
                            F[:, ::1] y) noexcept nogil:
    """y, the output places from `place` on, = sum of x * weight over the kernel; flipped: the kernel from its end"""
    cdef Py_ssize_t r, n, iy, ix, top, bottom, left, right, step = -g.c if flipped else g.c
    cdef const F* kernel
    for r in range(y.shape[0]):
        n = (place + r) // g.ow // g.oh
        iy, ix = (place + r) // g.ow % g.oh * g.sh - g.top, (place + r) % g.ow * g.sw - g.left
        span(iy, g.dh, g.kh, g.h, &top, &bottom)
        span(ix, g.dw, g.kw, g.w, &left, &right)
        if top == bottom or left == right:
            memset(&y[r, 0], 0, g.c * sizeof(F))
            continue
        kernel = &weight[g.kh - 1 - top, g.kw - 1 - left, 0] if flipped else &weight[top, left, 0]
        weigh(&x[n, iy + top * g.dh, ix + left * g.dw, 0], bottom - top, g.dh * g.w * g.c, right - left, g.dw * g.c, kernel,
              g.kw * step, step, &y[r, 0], g.c, False)


cdef void depthwise_weight_grad(Conv g, const F[:, :, :, ::1] x, const F[:, :, :, ::1] y, Py_ssize_t row, Py_ssize_t stop,
                                F[:, :, ::1] weight) noexcept nogil:
    """weight[ky, kx] += sum of x * y over the rows of the result from row to stop, counted through all images"""
    cdef Py_ssize_t ky, kx, n, oy, iy, ix, first, last
    for row in range(row, stop):
        n, oy = row // g.oh, row % g.oh
        for ky in range(g.kh):
            iy = oy * g.sh - g.top + ky * g.dh
            if 0 <= iy < g.h:
                for kx in range(g.kw):
                    ix = kx * g.dw - g.left
                    span(ix, g.sw, g.ow, g.w, &first, &last)
                    if first < last:
                        weigh(&x[n, iy, ix + first * g.sw, 0], 1, 0, last - first, g.sw * g.c, &y[n, oy, first, 0], 0, g.c,
                              &weight[ky, kx, 0], g.c, True)


cdef void depthwise_input_grad(const Conv* g, const F[:, :, ::1] weight, const F[:, :, ::1] y, Py_ssize_t top, Py_ssize_t bottom,
                               F[:, :, ::1] x) noexcept nogil:
    """x[top:bottom] of one image = sum of y * weight over every output place that sees these rows"""
    cdef Py_ssize_t oy, ox, ky, kx, i, iy, ix, first, last, first_row, last_row
    rows_that_see(g, top, bottom, &first_row, &last_row)
    memset(&x[top, 0, 0], 0, (bottom - top) * g.w * g.c * sizeof(F))
    for oy in range(first_row, last_row):
        for ox in range(g.ow):
            ix = ox * g.sw - g.left
            span(ix, g.dw, g.kw, g.w, &first, &last)
            for ky in range(g.kh):
                iy = oy * g.sh - g.top + ky * g.dh
                if top <= iy < bottom:
                    for kx in range(first, last):
                        for i in range(g.c):
                            x[iy, ix + kx * g.dw, i] += y[oy, ox, i] * weight[ky, kx, i]


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef struct Work:               # what the tasks of a call share
    const Plan* plan
    const Blas* blas
    char* x
    char* weight
    char* y
    const Epilogue* epilogue    # of the forward convolution; or NULL
    char* scratch               # of every thread
    char* sums                  # of the weights' gradient: one for every task


cdef void forward_task(const Work* job, Py_ssize_t b, F* scratch) noexcept nogil:
    """A block of output places"""
    cdef const Plan* plan = job.plan
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t place = b * plan.rows, rows = min(plan.rows, g.n * g.oh * g.ow - place)
    cdef F[:, :, :, ::1] x = images(<F*> job.x, g.n, g.h, g.w, g.c)
    cdef F* weight = <F*> job.weight
    cdef F[:, ::1] y = matrix(<F*> job.y + place * g.f, rows, g.f)
    if plan.algorithm == DEPTHWISE:
        depthwise_forward(g[0], x, matrices(weight, g.kh, g.kw, g.c), plan.adjoint, place, y)
    else:
        forward(plan, job.blas, x, matrix(weight, g.kh * g.kw * (g.c // g.groups), g.f), place, y, scratch)
    if job.epilogue is not NULL:
        finish(job.epilogue, plan.dtype, job.y, place * g.f, rows * g.f, g.f)


cdef void input_grad_task(const Work* job, Py_ssize_t b, F* scratch) noexcept nogil:
    """A block of places, or a band of rows of an image"""
    cdef const Plan* plan = job.plan
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), place = b * plan.rows, rows = min(plan.rows, g.n * g.h * g.w - place)
    cdef Py_ssize_t bands = max(plan.tasks // g.n, <Py_ssize_t> 1), n = b // bands
    cdef Py_ssize_t top = b % bands * g.h // bands, bottom = (b % bands + 1) * g.h // bands
    cdef F* weight = <F*> job.weight
    cdef F* x = <F*> job.x
    cdef F* y = <F*> job.y
    if plan.algorithm == POINTWISE:
        pointwise_input_grad(plan, job.blas, matrix(weight, k, g.f), matrix(y + place * g.f, rows, g.f),
                             matrix(x + place * g.c, rows, g.c))
    elif plan.algorithm == DEPTHWISE:
        depthwise_input_grad(g, matrices(weight, g.kh, g.kw, g.c), images(y, g.n, g.oh, g.ow, g.f)[n], top, bottom,
                             images(x, g.n, g.h, g.w, g.c)[n])
    else:
        input_grad(plan, job.blas, matrix(weight, k, g.f), matrices(y, g.n, g.oh * g.ow, g.f)[n], top, bottom,
                   images(x, g.n, g.h, g.w, g.c)[n], scratch)


cdef void weight_grad_task(const Work* job, Py_ssize_t part, F* scratch) noexcept nogil:
    """A partial sum: of its blocks of output places, one after the other"""
    cdef const Plan* plan = job.plan
    cdef const Conv* g = &plan.g
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), places = g.n * g.oh * g.ow, parts = plan.tasks, b
    cdef Py_ssize_t blocks = (places + plan.rows - 1) // plan.rows, place
    cdef F[:, :, :, ::1] x = images(<F*> job.x, g.n, g.h, g.w, g.c), y = images(<F*> job.y, g.n, g.oh, g.ow, g.f)
    cdef F* sums = <F*> job.sums + part * k * g.f
    memset(sums, 0, k * g.f * sizeof(F))
    if plan.algorithm == DEPTHWISE:
        depthwise_weight_grad(g[0], x, y, part * (g.n * g.oh) // parts, (part + 1) * (g.n * g.oh) // parts,
                              matrices(sums, g.kh, g.kw, g.f))
    elif plan.algorithm == TILES:
        weight_part(g, x, y, part, parts, images(sums, g.kh, g.kw, g.c // g.groups, g.f), scratch)
    else:
        for b in range(part * blocks // parts, (part + 1) * blocks // parts):
            place = b * plan.rows
            weight_grad(plan, job.blas, x, place, matrix(<F*> job.y + place * g.f, min(plan.rows, places - place), g.f),
                        matrix(sums, k, g.f), scratch)


cdef void task(const Work* job, Py_ssize_t i, F* scratch) noexcept nogil:
    if job.plan.op == WEIGHT_GRAD:
        weight_grad_task(job, i, scratch)
    elif job.plan.op == CONV2D or job.plan.adjoint:
        forward_task(job, i, scratch)
    else:
        input_grad_task(job, i, scratch)


cdef void one_task(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.plan.dtype == FLOAT32:
        task(job, i, <float*> job.scratch + thread * job.plan.thread_elements)
    else:
        task(job, i, <double*> job.scratch + thread * job.plan.thread_elements)


cdef void add_parts(F[:, ::1] parts, F* weight) noexcept nogil:
    """weight = the sum of the parts, in their order"""
    cdef Py_ssize_t p, n = parts.shape[1]
    memcpy(weight, &parts[0, 0], n * sizeof(F))
    for p in range(1, parts.shape[0]):
        add(parts[p], vector(weight, n))


cdef void convolve(const Plan* plan, const Blas* blas, char* x, char* weight, char* y, const void* epilogue, char* scratch,
                   int threads) noexcept nogil:
    """y = conv2d(x, weight), and an epilogue where there is one; or the gradient of x or of weight when y's is given"""
    cdef Py_ssize_t itemsize = 4 if plan.dtype == FLOAT32 else 8
    cdef Work job
    if plan.adjoint:
        x, y = y, x
    if plan.algorithm == TILES and plan.op != WEIGHT_GRAD:
        direct(plan, x, weight, y, <const Epilogue*> epilogue, scratch, threads)
        return
    job.plan, job.blas, job.x, job.weight, job.y, job.scratch = plan, blas, x, weight, y, scratch
    job.epilogue = <const Epilogue*> epilogue
    job.sums = scratch + threads * plan.thread_elements * itemsize
    share(one_task, &job, plan.tasks, threads)
    if plan.op == WEIGHT_GRAD and plan.dtype == FLOAT32:
        add_parts(matrix(<float*> job.sums, plan.tasks, plan.shared_elements // plan.tasks), <float*> weight)
    elif plan.op == WEIGHT_GRAD:
        add_parts(matrix(<double*> job.sums, plan.tasks, plan.shared_elements // plan.tasks), <double*> weight)
