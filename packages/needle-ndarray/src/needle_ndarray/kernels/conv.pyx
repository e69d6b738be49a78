# Convolution of NHWC arrays by matrix products. A block of output places is laid out as rows of what each of them sees
# (im2col), some 128 KB at a time, and goes straight to BLAS; the whole matrix never exists. The work is cut by shape alone, so
# results are the same bits for every number of threads.

from libc.string cimport memcpy, memset

from needle_ndarray.kernels.direct cimport across, direct, direct_elements, fits, part_elements, swapped, weight_part
from needle_ndarray.kernels.gemm cimport Blas, Matrix, product, row_major, transposed
from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, F
from needle_ndarray.threads cimport share

cdef extern from "conv.h":
    void weigh_float "needle_weigh_float"(
        const float* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const float* b,
        Py_ssize_t b_down, Py_ssize_t b_across, float* out, Py_ssize_t n, int add) noexcept nogil
    void weigh_double "needle_weigh_double"(
        const double* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const double* b,
        Py_ssize_t b_down, Py_ssize_t b_across, double* out, Py_ssize_t n, int add) noexcept nogil

cdef enum:
    BLOCK_BYTES = 131072    # of columns that a thread makes at a time: they stay in the second-level cache
    BLOCKS = 8              # a small convolution is still cut into so many blocks, for threads
    PARTS = 16              # partial sums of the weights' gradient
    PARTS_SIZE = 1048576    # elements that they may take together; never fewer than two parts
    MOST = 48               # channels of a group up to which tiles beat BLAS in the gradient of the weights
    PLACES = 40             # and of an image from which they do
    FEWEST = 6              # channels of a group from which a tile of them is not mostly empty
    UNITS = 8               # images, or bands of an image, that the threads share


# ---- Cutting the work ---------------------------------------------------------------------------------------------

cdef bint depthwise(const Conv* g) noexcept nogil:
    """Whether every channel has one filter of its own"""
    return g.groups == g.c and g.groups == g.f and g.c > 1


cdef bint pointwise(const Conv* g) noexcept nogil:
    """Whether the columns are x itself"""
    return g.kh * g.kw * g.sh * g.sw == 1 and g.oh == g.h and g.ow == g.w and g.top == 0 and g.left == 0


cdef Py_ssize_t block_rows(const Conv* g, int itemsize) noexcept nogil:
    """Output places to take at a time"""
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), places = g.n * g.oh * g.ow
    cdef Py_ssize_t rows = min(BLOCK_BYTES // (k * itemsize), (places + BLOCKS - 1) // BLOCKS)
    return max((rows + 15) // 16 * 16, <Py_ssize_t> 16)


cdef Py_ssize_t parts_of(const Conv* g, int itemsize) noexcept nogil:
    """Partial sums of the weights' gradient"""
    cdef Py_ssize_t size = g.kh * g.kw * (g.c // g.groups) * g.f, rows = block_rows(g, itemsize)
    cdef Py_ssize_t blocks = (g.n * g.oh * g.ow + rows - 1) // rows
    return min(blocks, max(min(<Py_ssize_t> PARTS, PARTS_SIZE // size), <Py_ssize_t> 2))


cdef Py_ssize_t bands_of(const Conv* g) noexcept nogil:
    """Bands of input rows per image: 1 where there are images enough; neighbours compute what both of them see twice"""
    cdef Py_ssize_t extent = (g.kh - 1) * g.dh + 1
    return max(min((UNITS + g.n - 1) // g.n, g.h // (4 * extent)), <Py_ssize_t> 1)


cdef bint by_tiles(int op, const Conv* g, int itemsize) noexcept nogil:
    """Whether direct.pyx does it: not what BLAS does better"""
    cdef Conv other
    if depthwise(g) or pointwise(g):
        return False
    if op == WEIGHT_GRAD:
        return (g.c // g.groups <= MOST and g.oh * g.ow >= PLACES or g.groups > 1) and fits(g, itemsize)
    if op == CONV2D:
        return fits(g, itemsize)
    other = swapped(g)
    if (g.sh > 1 or g.sw > 1) and (g.dh > 1 or g.dw > 1 or not across(&other, itemsize)):
        return False
    return g.c // g.groups >= FEWEST and fits(&other, itemsize)


cdef bint needs_blas(int op, const Conv* g, int itemsize) noexcept nogil:
    return not (depthwise(g) or by_tiles(op, g, itemsize))


cdef Py_ssize_t scratch_elements(int op, const Conv* g, int itemsize, int threads) noexcept nogil:
    """Elements of the memory that `convolve` asks of its caller"""
    cdef Conv other
    if op != WEIGHT_GRAD and by_tiles(op, g, itemsize):
        other = g[0] if op == CONV2D else swapped(g)
        return direct_elements(&other, itemsize, threads)
    return columns_elements(op, g, itemsize, threads)


cdef Py_ssize_t columns_elements(int op, const Conv* g, int itemsize, int threads) noexcept nogil:
    cdef Py_ssize_t k = g.kh * g.kw * (g.c // g.groups), columns = block_rows(g, itemsize) * k
    if depthwise(g) or pointwise(g):
        columns = 0
    elif by_tiles(op, g, itemsize):
        columns = part_elements(g, itemsize)
    return threads * columns + (parts_of(g, itemsize) * k * g.f if op == WEIGHT_GRAD else 0)


# ---- Columns ------------------------------------------------------------------------------------------------------

cdef inline void span(Py_ssize_t at, Py_ssize_t step, Py_ssize_t count, Py_ssize_t size, Py_ssize_t* first,
                      Py_ssize_t* last) noexcept nogil:
    """first <= i < last, the i < count with 0 <= at + i * step < size"""
    first[0] = min((-at + step - 1) // step, count) if at < 0 else 0
    last[0] = max(min((size - at + step - 1) // step, count), first[0]) if size > at else first[0]


cdef void columns(const Conv* g, const F* x, Py_ssize_t place, Py_ssize_t rows, Py_ssize_t channel, F* out) noexcept nogil:
    """out[r, ky, kx, :] = x[n, oy * sh - top + ky * dh, ox * sw - left + kx * dw, channels], 0 outside of the image"""
    cdef Py_ssize_t count = g.c // g.groups, ox = place % g.ow, rest = place // g.ow, _, ky, kx, first, last, ix, iy
    cdef Py_ssize_t oy = rest % g.oh, n = rest // g.oh
    cdef const F* row
    for _ in range(rows):
        ix = ox * g.sw - g.left
        span(ix, g.dw, g.kw, g.w, &first, &last)
        for ky in range(g.kh):
            iy = oy * g.sh - g.top + ky * g.dh
            if iy < 0 or iy >= g.h or first == last:
                memset(out, 0, g.kw * count * sizeof(F))
            else:
                row = x + ((n * g.h + iy) * g.w + ix) * g.c + channel
                if first > 0:
                    memset(out, 0, first * count * sizeof(F))
                if g.dw == 1 and count == g.c:
                    memcpy(out + first * count, row + first * count, (last - first) * count * sizeof(F))
                else:
                    for kx in range(first, last):
                        memcpy(out + kx * count, row + kx * g.dw * g.c, count * sizeof(F))
                if last < g.kw:
                    memset(out + last * count, 0, (g.kw - last) * count * sizeof(F))
            out += g.kw * count
        ox += 1
        if ox == g.ow:
            ox, oy = 0, oy + 1
            if oy == g.oh:
                oy, n = 0, n + 1


cdef void add_columns(const Conv* g, const F* a, Py_ssize_t n, Py_ssize_t place, Py_ssize_t rows, Py_ssize_t channel,
                      Py_ssize_t top, Py_ssize_t bottom, F* x) noexcept nogil:
    """x[n, iy, ix, channels] += a[r, ky, kx, :], the reverse of `columns`, for the input rows top <= iy < bottom"""
    cdef Py_ssize_t count = g.c // g.groups, ox = place % g.ow, oy = place // g.ow, _, ky, kx, i, first, last, ix, iy
    cdef F* row
    for _ in range(rows):
        ix = ox * g.sw - g.left
        span(ix, g.dw, g.kw, g.w, &first, &last)
        for ky in range(g.kh):
            iy = oy * g.sh - g.top + ky * g.dh
            if top <= iy < bottom:
                row = x + ((n * g.h + iy) * g.w + ix) * g.c + channel
                if g.dw == 1 and count == g.c:
                    for i in range(first * count, last * count):
                        row[i] += a[i]
                else:
                    for kx in range(first, last):
                        for i in range(count):
                            row[kx * g.dw * g.c + i] += a[kx * count + i]
            a += g.kw * count
        ox += 1
        if ox == g.ow:
            ox, oy = 0, oy + 1


# ---- Blocks -------------------------------------------------------------------------------------------------------

cdef void forward(const Blas* blas, const Conv* g, const F* x, const F* weight, F* y, Py_ssize_t place, Py_ssize_t rows,
                  F* staged) noexcept nogil:
    """y[place:place+rows] = columns @ weight, group by group"""
    cdef Py_ssize_t count = g.c // g.groups, filters = g.f // g.groups, k = g.kh * g.kw * count, i
    cdef Matrix seen                # an output place a row: what it sees of the input
    for i in range(g.groups):
        seen = row_major(x + place * g.c + i * count, g.c)
        if not pointwise(g):
            columns(g, x, place, rows, i * count, staged)
            seen = row_major(staged, k)
        product(blas, FLOAT32 if F is float else FLOAT64, rows, k, filters, 1, seen, row_major(weight + i * filters, g.f), False,
                row_major(y + place * g.f + i * filters, g.f))


cdef void weight_grad(const Blas* blas, const Conv* g, const F* x, const F* y, F* weight, Py_ssize_t place, Py_ssize_t rows,
                      F* staged) noexcept nogil:
    """weight += columns^T @ y[place:place+rows]"""
    cdef Py_ssize_t count = g.c // g.groups, filters = g.f // g.groups, k = g.kh * g.kw * count, i
    cdef Matrix seen                # an output place a row: what it sees of the input
    for i in range(g.groups):
        seen = row_major(x + place * g.c + i * count, g.c)
        if not pointwise(g):
            columns(g, x, place, rows, i * count, staged)
            seen = row_major(staged, k)
        product(blas, FLOAT32 if F is float else FLOAT64, k, rows, filters, 1, transposed(seen),
                row_major(y + place * g.f + i * filters, g.f), True, row_major(weight + i * filters, g.f))


cdef void input_grad(const Blas* blas, const Conv* g, F* x, const F* weight, const F* y, Py_ssize_t n, Py_ssize_t top,
                     Py_ssize_t bottom, F* staged) noexcept nogil:
    """x[n, top:bottom] = sum of y @ weight^T over every output place that sees these rows"""
    cdef Py_ssize_t count = g.c // g.groups, filters = g.f // g.groups, k = g.kh * g.kw * count, i
    cdef Py_ssize_t first = top + g.top - (g.kh - 1) * g.dh, place, stop, rows, block = block_rows(g, sizeof(F))
    first = (first + g.sh - 1) // g.sh if first > 0 else 0
    place, stop = first * g.ow, min(g.oh, (bottom + g.top + g.sh - 1) // g.sh) * g.ow
    memset(x + (n * g.h + top) * g.w * g.c, 0, (bottom - top) * g.w * g.c * sizeof(F))
    while place < stop:
        rows = min(block, stop - place)
        for i in range(g.groups):
            product(blas, FLOAT32 if F is float else FLOAT64, rows, filters, k, 1,
                    row_major(y + (n * g.oh * g.ow + place) * g.f + i * filters, g.f),
                    transposed(row_major(weight + i * filters, g.f)), False, row_major(staged, k))
            add_columns(g, staged, n, place, rows, i * count, top, bottom, x)
        place += rows


# ---- One filter per channel ---------------------------------------------------------------------------------------

cdef inline void weigh(const F* a, Py_ssize_t outer, Py_ssize_t a_down, Py_ssize_t inner, Py_ssize_t a_across, const F* b,
                       Py_ssize_t b_down, Py_ssize_t b_across, F* out, Py_ssize_t n, bint add) noexcept nogil:
    """out = sum of a * b over outer times inner places, or that added to it, for n channels"""
    if F is float:
        weigh_float(a, outer, a_down, inner, a_across, b, b_down, b_across, out, n, add)
    else:
        weigh_double(a, outer, a_down, inner, a_across, b, b_down, b_across, out, n, add)


cdef void depthwise_forward(const Conv* g, const F* x, const F* weight, bint turned, F* y, Py_ssize_t place,
                            Py_ssize_t rows) noexcept nogil:
    """y[place:place+rows] = sum of x * weight over the kernel, channel by channel; turned: the kernel from its end"""
    cdef Py_ssize_t p, rest, iy, ix, top, bottom, left, right, step = -g.c if turned else g.c
    cdef const F* kernel = weight + (g.kh * g.kw - 1) * g.c if turned else weight
    for p in range(place, place + rows):
        rest = p // g.ow
        iy, ix = rest % g.oh * g.sh - g.top, p % g.ow * g.sw - g.left
        span(iy, g.dh, g.kh, g.h, &top, &bottom)
        span(ix, g.dw, g.kw, g.w, &left, &right)
        weigh(x + ((rest // g.oh * g.h + iy + top * g.dh) * g.w + ix + left * g.dw) * g.c, bottom - top, g.dh * g.w * g.c,
              right - left, g.dw * g.c, kernel + (top * g.kw + left) * step, g.kw * step, step, y + p * g.c, g.c, False)


cdef void depthwise_weight_grad(const Conv* g, const F* x, const F* y, F* weight, Py_ssize_t row, Py_ssize_t stop) noexcept nogil:
    """weight += x * y over rows of the result"""
    cdef Py_ssize_t ky, kx, iy, ix, first, last
    while row < stop:
        for ky in range(g.kh):
            iy = row % g.oh * g.sh - g.top + ky * g.dh
            if 0 <= iy < g.h:
                for kx in range(g.kw):
                    ix = kx * g.dw - g.left
                    span(ix, g.sw, g.ow, g.w, &first, &last)
                    weigh(x + ((row // g.oh * g.h + iy) * g.w + ix + first * g.sw) * g.c, 1, 0, last - first, g.sw * g.c,
                          y + (row * g.ow + first) * g.c, 0, g.c, weight + (ky * g.kw + kx) * g.c, g.c, True)
        row += 1


cdef void depthwise_input_grad(const Conv* g, F* x, const F* weight, const F* y, Py_ssize_t n, Py_ssize_t top,
                               Py_ssize_t bottom) noexcept nogil:
    """x[n, top:bottom] = sum of y * weight over every output place that sees these rows"""
    cdef Py_ssize_t first_row = top + g.top - (g.kh - 1) * g.dh, oy, ox, ky, kx, i, iy, ix, first, last, c = g.c
    cdef const F* a
    cdef const F* b
    cdef F* out
    first_row = (first_row + g.sh - 1) // g.sh if first_row > 0 else 0
    memset(x + (n * g.h + top) * g.w * c, 0, (bottom - top) * g.w * c * sizeof(F))
    for oy in range(first_row, min(g.oh, (bottom + g.top + g.sh - 1) // g.sh)):
        for ox in range(g.ow):
            ix = ox * g.sw - g.left
            span(ix, g.dw, g.kw, g.w, &first, &last)
            a = y + ((n * g.oh + oy) * g.ow + ox) * c
            for ky in range(g.kh):
                iy = oy * g.sh - g.top + ky * g.dh
                if top <= iy < bottom:
                    for kx in range(first, last):
                        b = weight + (ky * g.kw + kx) * c
                        out = x + ((n * g.h + iy) * g.w + ix + kx * g.dw) * c
                        for i in range(c):
                            out[i] += a[i] * b[i]


# ---- Threads ------------------------------------------------------------------------------------------------------

cdef struct Work:               # what the tasks of a call share
    const Blas* blas
    const Conv* g
    int dtype
    bint turned                 # the kernel from its end
    char* x
    char* weight
    char* y
    char* staged                # room for every thread
    Py_ssize_t size             # of it, in elements
    char* sums                  # of the weights' gradient: one for every part
    Py_ssize_t parts


cdef void forward_block(const Work* job, Py_ssize_t b, F* staged) noexcept nogil:
    cdef const Conv* g = job.g
    cdef Py_ssize_t rows = block_rows(g, sizeof(F)), taken = min(rows, g.n * g.oh * g.ow - b * rows)
    if depthwise(g):
        depthwise_forward(g, <const F*> job.x, <const F*> job.weight, job.turned, <F*> job.y, b * rows, taken)
    else:
        forward(job.blas, g, <const F*> job.x, <const F*> job.weight, <F*> job.y, b * rows, taken, staged)


cdef void one_forward(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        forward_block(job, b, <float*> job.staged + thread * job.size)
    else:
        forward_block(job, b, <double*> job.staged + thread * job.size)


cdef void input_grad_band(const Work* job, Py_ssize_t b, F* staged) noexcept nogil:
    cdef Py_ssize_t bands = bands_of(job.g), top = b % bands * job.g.h // bands, bottom = (b % bands + 1) * job.g.h // bands
    if depthwise(job.g):
        depthwise_input_grad(job.g, <F*> job.x, <const F*> job.weight, <const F*> job.y, b // bands, top, bottom)
    else:
        input_grad(job.blas, job.g, <F*> job.x, <const F*> job.weight, <const F*> job.y, b // bands, top, bottom, staged)


cdef void one_input_grad(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        input_grad_band(job, b, <float*> job.staged + thread * job.size)
    else:
        input_grad_band(job, b, <double*> job.staged + thread * job.size)


cdef void pointwise_block(const Work* job, Py_ssize_t b, F* x) noexcept nogil:
    """x = y @ weight^T"""
    cdef const Conv* g = job.g
    cdef Py_ssize_t rows = block_rows(g, sizeof(F)), count = g.c // g.groups, filters = g.f // g.groups, i
    for i in range(g.groups):
        product(job.blas, job.dtype, min(rows, g.n * g.oh * g.ow - b * rows), filters, count, 1,
                row_major(<const F*> job.y + b * rows * g.f + i * filters, g.f),
                transposed(row_major(<const F*> job.weight + i * filters, g.f)), False,
                row_major(x + b * rows * g.c + i * count, g.c))


cdef void one_pointwise(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        pointwise_block(job, b, <float*> job.x)
    else:
        pointwise_block(job, b, <double*> job.x)


cdef void weight_grad_part(const Work* job, Py_ssize_t part, F* staged) noexcept nogil:
    """The blocks of one part, one after the other"""
    cdef const Conv* g = job.g
    cdef Py_ssize_t places = g.n * g.oh * g.ow, rows = block_rows(g, sizeof(F)), blocks = (places + rows - 1) // rows, b
    cdef Py_ssize_t parts = job.parts, size = g.kh * g.kw * (g.c // g.groups) * g.f
    cdef F* sums = <F*> job.sums + part * size
    memset(sums, 0, size * sizeof(F))
    if depthwise(g):
        depthwise_weight_grad(g, <const F*> job.x, <const F*> job.y, sums, part * (g.n * g.oh) // parts,
                              (part + 1) * (g.n * g.oh) // parts)
        return
    if by_tiles(WEIGHT_GRAD, g, sizeof(F)):
        weight_part(job.dtype, g, job.x, job.y, <char*> sums, part, parts, <char*> staged)
        return
    for b in range(part * blocks // parts, (part + 1) * blocks // parts):
        weight_grad(job.blas, g, <const F*> job.x, <const F*> job.y, sums, b * rows, min(rows, places - b * rows), staged)


cdef void one_part(const void* given, Py_ssize_t part, int thread) noexcept nogil:
    cdef const Work* job = <const Work*> given
    if job.dtype == FLOAT32:
        weight_grad_part(job, part, <float*> job.staged + thread * job.size)
    else:
        weight_grad_part(job, part, <double*> job.staged + thread * job.size)


cdef void add_parts(const Work* job, F* weight) noexcept nogil:
    """weight = the sum of the parts, in their order"""
    cdef Py_ssize_t size = job.g.kh * job.g.kw * (job.g.c // job.g.groups) * job.g.f, p, i
    cdef const F* sums = <const F*> job.sums
    memcpy(weight, sums, size * sizeof(F))
    for p in range(1, job.parts):
        for i in range(size):
            weight[i] += sums[p * size + i]


cdef void by_columns(int op, const Blas* blas, int dtype, const Conv* g, char* x, char* weight, char* y, char* scratch,
                     int threads) noexcept nogil:
    """A convolution that is not done by tiles, or the gradient of the weights"""
    cdef Py_ssize_t item = 4 if dtype == FLOAT32 else 8, rows = block_rows(g, <int> item)
    cdef Py_ssize_t blocks = (g.n * g.oh * g.ow + rows - 1) // rows
    cdef Conv other
    cdef Work job
    job.blas, job.g, job.dtype, job.turned, job.x, job.weight, job.y, job.staged = blas, g, dtype, False, x, weight, y, scratch
    job.size = columns_elements(op, g, <int> item, 1)
    if op == CONV2D:
        share(one_forward, &job, blocks, threads)
    elif op == WEIGHT_GRAD:
        job.parts = parts_of(g, <int> item)
        job.size -= job.parts * g.kh * g.kw * (g.c // g.groups) * g.f
        job.sums = scratch + threads * job.size * item
        share(one_part, &job, job.parts, threads)
        if dtype == FLOAT32:
            add_parts(&job, <float*> weight)
        else:
            add_parts(&job, <double*> weight)
    elif depthwise(g) and g.sh == 1 and g.sw == 1:
        other = swapped(g)
        rows = block_rows(&other, <int> item)
        job.g, job.turned, job.x, job.y = &other, True, y, x
        share(one_forward, &job, (g.n * g.h * g.w + rows - 1) // rows, threads)
    elif pointwise(g) and not depthwise(g):
        share(one_pointwise, &job, blocks, threads)
    else:
        share(one_input_grad, &job, g.n * bands_of(g), threads)


cdef void convolve(int op, const Blas* blas, int dtype, const Conv* g, char* x, char* weight, char* y, char* scratch,
                   int threads) noexcept nogil:
    """y = conv2d(x, weight), or the gradient of x or of weight when y's is given"""
    cdef Conv other
    if op != WEIGHT_GRAD and by_tiles(op, g, 4 if dtype == FLOAT32 else 8):
        if op == CONV2D:
            direct(dtype, g, False, 1, 1, x, weight, y, scratch, threads)
        else:
            other = swapped(g)
            direct(dtype, &other, True, g.sh, g.sw, y, weight, x, scratch, threads)
    else:
        by_columns(op, blas, dtype, g, x, weight, y, scratch, threads)
