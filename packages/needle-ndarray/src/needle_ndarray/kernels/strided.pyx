# Strided data, one idea: an array's elements are numbered in row-major order, and kernels see contiguous runs of them.
# `gather` brings elements start .. start+n of any view into a small buffer that stays in the cache, `scatter` takes such a
# buffer back. So every arithmetic loop is written once, for contiguous data, and no view is ever copied whole.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from needle_ndarray.kernels.views cimport (
    BFLOAT16, BLOCK, BOOL, CHUNK, FLOAT16, FLOAT32, FLOAT64, INT32, INT64, MAX_NDIM, T, UINT8, View, boolean, int64, magnitude,
    uint8, word2
)
from needle_ndarray.optable cimport itemsize
from needle_ndarray.threads cimport share

cdef extern from "transpose.h" nogil:
    void transpose_floats "needle_transpose_tile_float"(
        const float* a, Py_ssize_t stride, float* out, Py_ssize_t out_stride, Py_ssize_t n) noexcept
    void transpose_doubles "needle_transpose_tile_double"(
        const double* a, Py_ssize_t stride, double* out, Py_ssize_t out_stride, Py_ssize_t n) noexcept

cdef extern from "half.h" nogil:
    void widen "needle_widen"(int brain, const word2* a, float* out, Py_ssize_t n) noexcept
    void narrow "needle_narrow"(int brain, const float* a, word2* out, Py_ssize_t n) noexcept
    float odd_float "needle_odd_float"(double value) noexcept
    float odd_float_of_int "needle_odd_float_of_int"(long long value) noexcept

ctypedef unsigned char word1
ctypedef unsigned int word4
ctypedef unsigned long long word8

ctypedef fused W:           # what is moved: by size, whatever it means
    word1
    word2
    word4
    word8

ctypedef fused S:           # source of a cast
    boolean
    uint8
    int
    int64
    float
    double

cdef enum:
    TILE = 16               # 16 rows of float32 fill a cache line
    WIDE = 16384            # elements of a chunk when an operand is transposed


# ---- Layout --------------------------------------------------------------------------

cdef void swap_axes(View* a, int i, int j) noexcept nogil:
    a.shape[i], a.shape[j] = a.shape[j], a.shape[i]
    a.strides[i], a.strides[j] = a.strides[j], a.strides[i]


cdef void coalesce(View** views, int count) noexcept nogil:
    """Rewrite views of one shape to as few axes as they allow, in the memory order of the last one (the output)."""
    cdef View* out = views[count - 1]
    cdef int i, j, k, ndim = out.ndim, kept
    cdef bint joins
    for i in range(ndim):                               # the output runs forwards
        if out.strides[i] < 0:
            for k in range(count):
                views[k].data += (views[k].shape[i] - 1) * views[k].strides[i] * views[k].itemsize
                views[k].strides[i] = -views[k].strides[i]
    for i in range(1, ndim):                            # its largest stride first
        j = i
        while j > 0 and out.shape[j] > 1 and (out.strides[j - 1] < out.strides[j] or out.shape[j - 1] == 1):
            for k in range(count):
                swap_axes(views[k], j - 1, j)
            j -= 1
    kept = 0
    for i in range(ndim):
        if out.shape[i] == 1:
            continue
        joins = kept > 0
        for k in range(count):
            if joins and views[k].strides[kept - 1] != views[k].strides[i] * out.shape[i]:
                joins = False
        if joins:
            for k in range(count):
                if views[k] is not out:
                    views[k].shape[kept - 1] *= out.shape[i]
                    views[k].strides[kept - 1] = views[k].strides[i]
            out.shape[kept - 1] *= out.shape[i]
            out.strides[kept - 1] = out.strides[i]
        else:
            for k in range(count):
                if views[k] is not out:
                    views[k].shape[kept] = out.shape[i]
                    views[k].strides[kept] = views[k].strides[i]
            out.shape[kept] = out.shape[i]
            out.strides[kept] = out.strides[i]
            kept += 1
    for k in range(count):
        views[k].ndim = kept


cdef bint contiguous(const View* a) noexcept nogil:
    """Whether elements follow each other in memory in row-major order."""
    cdef Py_ssize_t expected = 1
    cdef int i
    for i in range(a.ndim - 1, -1, -1):
        if a.shape[i] != 1:
            if a.strides[i] != expected:
                return False
            expected *= a.shape[i]
    return True


cdef bint transposed(const View* a) noexcept nogil:
    """Whether the axis before the last is the denser one."""
    return a.ndim > 1 and magnitude(a.strides[a.ndim - 1]) > magnitude(a.strides[a.ndim - 2]) > 0


cdef Py_ssize_t chunk_length(View** views, int count) noexcept nogil:
    """Elements to stage at a time: whole groups of TILE rows where a view is transposed, so that cache lines are used up."""
    cdef int k
    cdef Py_ssize_t row
    for k in range(count):
        if transposed(views[k]):
            row = views[k].shape[views[k].ndim - 1]
            if row <= WIDE // TILE:
                return WIDE // (TILE * row) * TILE * row
            return WIDE
    return CHUNK


cdef Py_ssize_t offset_of(const View* a, Py_ssize_t flat) noexcept nogil:
    """Elements from the view's first to its flat-th, in row-major order."""
    cdef Py_ssize_t offset = 0
    cdef int i
    for i in range(a.ndim - 1, 0, -1):
        offset += flat % a.shape[i] * a.strides[i]
        flat //= a.shape[i]
    return offset + flat * a.strides[0] if a.ndim > 0 else offset       # no division along one axis: it is called for each row


# ---- Runs --------------------------------------------------------------------------

cdef void run(const W* a, Py_ssize_t stride, W* out, Py_ssize_t out_stride, Py_ssize_t n) noexcept nogil:
    """out[i * out_stride] = a[i * stride]"""
    cdef Py_ssize_t i
    cdef W value
    if out_stride == 1 and stride == 1:
        memcpy(out, a, n * sizeof(W))
    elif out_stride == 1 and stride == 0:
        value = a[0]                    # once: for all the compiler knows, out may lie there
        for i in range(n):
            out[i] = value
    elif out_stride == 1 and stride == 2:       # a number that the compiler knows: vectors and shuffles
        for i in range(n):
            out[i] = a[2 * i]
    elif out_stride == 1:
        for i in range(n):
            out[i] = a[i * stride]
    else:
        for i in range(n):
            out[i * out_stride] = a[i * stride]


cdef void tile_in(const W* a, Py_ssize_t row_stride, Py_ssize_t stride, W* out, Py_ssize_t rows, Py_ssize_t columns) noexcept nogil:
    """out[r, j] = a[r * row_stride + j * stride], TILE columns at a time so that a cache line is read once"""
    cdef Py_ssize_t first = 0, r, j
    cdef bint square = rows == TILE and row_stride == 1
    while first + TILE <= columns:
        if W is word4 and square:
            transpose_floats(<const float*> a + first * stride, stride, <float*> out + first, columns, TILE)
        elif W is word8 and square:
            transpose_doubles(<const double*> a + first * stride, stride, <double*> out + first, columns, TILE)
        else:
            for r in range(rows):
                for j in range(TILE):
                    out[r * columns + first + j] = a[r * row_stride + (first + j) * stride]
        first += TILE
    for r in range(rows):
        for j in range(first, columns):
            out[r * columns + j] = a[r * row_stride + j * stride]


cdef void tile_out(const W* a, W* out, Py_ssize_t row_stride, Py_ssize_t stride, Py_ssize_t rows,
                   Py_ssize_t columns) noexcept nogil:
    """out[r * row_stride + j * stride] = a[r, j], the reverse of tile_in"""
    cdef Py_ssize_t first = 0, r, j
    cdef bint square = rows == TILE and row_stride == 1
    while first + TILE <= columns:
        if W is word4 and square:
            transpose_floats(<const float*> a + first, columns, <float*> out + first * stride, stride, TILE)
        elif W is word8 and square:
            transpose_doubles(<const double*> a + first, columns, <double*> out + first * stride, stride, TILE)
        else:
            for j in range(first, first + TILE):
                for r in range(rows):
                    out[r * row_stride + j * stride] = a[r * columns + j]
        first += TILE
    for j in range(first, columns):
        for r in range(rows):
            out[r * row_stride + j * stride] = a[r * columns + j]


cdef void walk(const View* a, Py_ssize_t start, Py_ssize_t n, W* buffer, bint inwards) noexcept nogil:
    """Elements start .. start+n of the view, in row-major order, to (inwards) or from the buffer."""
    cdef Py_ssize_t index[MAX_NDIM]
    cdef Py_ssize_t rest = start, length, rows, inner, stride
    cdef int last = a.ndim - 1, i
    cdef W* base = <W*> a.data
    if n == 0:
        return
    if last < 0:
        if inwards:
            buffer[0] = base[0]
        else:
            base[0] = buffer[0]
        return
    for i in range(last, -1, -1):
        index[i] = rest % a.shape[i]
        rest //= a.shape[i]
        base += index[i] * a.strides[i]
    inner, stride = a.shape[last], a.strides[last]
    while n > 0:
        if index[last] == 0 and n >= 2 * inner and transposed(a):
            rows = min(min(n // inner, a.shape[last - 1] - index[last - 1]), TILE)
            if inwards:
                tile_in(base, a.strides[last - 1], stride, buffer, rows, inner)
            else:
                tile_out(buffer, base, a.strides[last - 1], stride, rows, inner)
            length = rows * inner
            base += (rows - 1) * a.strides[last - 1]
            index[last - 1] += rows - 1
            index[last] = inner
            base += inner * stride
        else:
            length = min(inner - index[last], n)
            if inwards:
                run(base, stride, buffer, 1, length)
            else:
                run(buffer, 1, base, stride, length)
            index[last] += length
            base += length * stride
        buffer += length
        n -= length
        i = last
        while i > 0 and index[i] == a.shape[i]:         # carry into the next outer axis
            base += a.strides[i - 1] - a.shape[i] * a.strides[i]
            index[i] = 0
            index[i - 1] += 1
            i -= 1


cdef void gather(const View* a, Py_ssize_t start, Py_ssize_t n, char* out) noexcept nogil:
    """out[i] = a.flat[start + i] for i < n"""
    if a.itemsize == 4:
        walk[word4](a, start, n, <word4*> out, True)
    elif a.itemsize == 8:
        walk[word8](a, start, n, <word8*> out, True)
    elif a.itemsize == 2:
        walk[word2](a, start, n, <word2*> out, True)
    else:
        walk[word1](a, start, n, <word1*> out, True)


cdef void scatter(const char* a, Py_ssize_t start, Py_ssize_t n, const View* out) noexcept nogil:
    """out.flat[start + i] = a[i] for i < n"""
    if out.itemsize == 4:
        walk[word4](out, start, n, <word4*> a, False)
    elif out.itemsize == 8:
        walk[word8](out, start, n, <word8*> a, False)
    elif out.itemsize == 2:
        walk[word2](out, start, n, <word2*> a, False)
    else:
        walk[word1](out, start, n, <word1*> a, False)


# ---- Casts --------------------------------------------------------------------------

cdef void cast_loop(const S* a, T* out, Py_ssize_t n) noexcept nogil:
    """out[i] = a[i], as C and NumPy convert; anything but 0 is True; floats to uint8 by way of int, so that they wrap;
    what is beyond an int becomes 0"""
    cdef Py_ssize_t i
    for i in range(n):
        if T is boolean:
            out[i] = a[i] != 0
        elif T is uint8 and (S is float or S is double):
            out[i] = <T> <int> (a[i] if -2147483648.0 <= a[i] < 2147483648.0 else 0)
        else:
            out[i] = <T> a[i]


cdef void cast_from(const S* a, int to, char* out, Py_ssize_t n) noexcept nogil:
    if to == BOOL:
        cast_loop(a, <boolean*> out, n)
    elif to == UINT8:
        cast_loop(a, <uint8*> out, n)
    elif to == INT32:
        cast_loop(a, <int*> out, n)
    elif to == INT64:
        cast_loop(a, <int64*> out, n)
    elif to == FLOAT32:
        cast_loop(a, <float*> out, n)
    else:
        cast_loop(a, <double*> out, n)


cdef void cast_halves(int from_, int to, const char* a, char* out, Py_ssize_t n) noexcept nogil:
    """cast where one of the dtypes is float16 or bfloat16: by way of float32, and rounded once"""
    cdef float staged[256]
    cdef Py_ssize_t start = 0, length, i, item = itemsize(from_), out_item = itemsize(to)
    while start < n:
        length = min(<Py_ssize_t> 256, n - start)
        if from_ >= FLOAT16:
            widen(from_ == BFLOAT16, <const word2*> a + start, staged, length)
        elif from_ == FLOAT64:
            for i in range(length):
                staged[i] = odd_float((<const double*> a)[start + i])
        elif from_ == INT64:
            for i in range(length):
                staged[i] = odd_float_of_int((<const int64*> a)[start + i])
        elif from_ == INT32:
            for i in range(length):
                staged[i] = odd_float((<const int*> a)[start + i])
        else:
            cast(from_, FLOAT32, a + start * item, <char*> staged, length)
        if to >= FLOAT16:
            narrow(to == BFLOAT16, staged, <word2*> out + start, length)
        else:
            cast(FLOAT32, to, <const char*> staged, out + start * out_item, length)
        start += length


cdef void cast(int from_, int to, const char* a, char* out, Py_ssize_t n) noexcept nogil:
    """out[i] = a[i] between any two dtypes, contiguous"""
    if from_ == FLOAT32 and to >= FLOAT16:
        narrow(to == BFLOAT16, <const float*> a, <word2*> out, n)
    elif to == FLOAT32 and from_ >= FLOAT16:
        widen(from_ == BFLOAT16, <const word2*> a, <float*> out, n)
    elif from_ >= FLOAT16 or to >= FLOAT16:
        cast_halves(from_, to, a, out, n)
    elif from_ == BOOL:
        cast_from(<const boolean*> a, to, out, n)
    elif from_ == UINT8:
        cast_from(<const uint8*> a, to, out, n)
    elif from_ == INT32:
        cast_from(<const int*> a, to, out, n)
    elif from_ == INT64:
        cast_from(<const int64*> a, to, out, n)
    elif from_ == FLOAT32:
        cast_from(<const float*> a, to, out, n)
    else:
        cast_from(<const double*> a, to, out, n)


# ---- Copy and fill --------------------------------------------------------------------------

cdef struct Copy:
    const View* a
    const View* out
    bint a_flat, out_flat
    Py_ssize_t chunk, block         # elements staged at a time, and of a task
    char* staged                    # memory for two chunks, for every thread


cdef void copy_range(const Copy* job, Py_ssize_t start, Py_ssize_t n, char* staged) noexcept nogil:
    """out.flat[start:start+n] = a.flat[start:start+n], with cast, a chunk at a time"""
    cdef Py_ssize_t stop = start + n, length
    cdef const View* a = job.a
    cdef const View* out = job.out
    cdef char* second = staged + job.chunk * 8
    cdef char* source
    cdef char* target
    while start < stop:
        length = min(job.chunk, stop - start)
        target = out.data + start * out.itemsize if job.out_flat else second
        if a.dtype == out.dtype:
            if not job.out_flat and job.a_flat:
                scatter(a.data + start * a.itemsize, start, length, out)
            else:
                gather(a, start, length, target)
                if not job.out_flat:
                    scatter(target, start, length, out)
        else:
            source = a.data + start * a.itemsize
            if not job.a_flat:
                source = staged
                gather(a, start, length, source)
            cast(a.dtype, out.dtype, source, target, length)
            if not job.out_flat:
                scatter(target, start, length, out)
        start += length


cdef void one_block(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Copy* job = <const Copy*> given
    copy_range(job, b * job.block, min(job.block, job.out.size - b * job.block), job.staged + thread * job.chunk * 16)


cdef int copy(View* a, View* out, int threads) noexcept nogil:
    """out[...] = a, cast to out's dtype; -1 when there is no memory for the staging buffers"""
    cdef View* views[2]
    cdef Copy job
    views[0], views[1] = a, out
    coalesce(views, 2)
    job.a, job.out, job.a_flat, job.out_flat = a, out, contiguous(a), contiguous(out)
    job.chunk = chunk_length(views, 2)
    job.block = job.chunk * max(1, BLOCK // job.chunk)
    job.staged = <char*> malloc(threads * job.chunk * 16)
    if job.staged is NULL:
        return -1
    if threads == 1:
        copy_range(&job, 0, out.size, job.staged)
    else:
        share(one_block, &job, (out.size + job.block - 1) // job.block, threads)
    free(job.staged)
    return 0


cdef struct Filling:
    const View* out
    const char* values              # CHUNK times the same; NULL: zeros, one after another


cdef void one_filled(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Filling* job = <const Filling*> given
    cdef Py_ssize_t start = b * BLOCK, stop = min(start + BLOCK, job.out.size), item = job.out.itemsize, n
    if job.values is NULL:
        memset(job.out.data + start * item, 0, (stop - start) * item)
        return
    while start < stop:
        n = min(<Py_ssize_t> CHUNK, stop - start)
        scatter(job.values, start, n, job.out)
        start += n


cdef void fill(View* out, const char* value, int threads) noexcept nogil:
    """out[...] = value, an element of out's dtype"""
    cdef View* views[1]
    cdef char values[CHUNK * 8]
    cdef Filling job
    cdef Py_ssize_t item = out.itemsize, filled = item, wanted = min(<Py_ssize_t> CHUNK, out.size) * item
    cdef int64 bits = 0
    views[0] = out
    coalesce(views, 1)
    memcpy(&bits, value, item)
    job.out, job.values = out, values
    if bits == 0 and contiguous(out):
        job.values = NULL
    else:
        memcpy(values, value, item)
        while filled < wanted:
            memcpy(values + filled, values, min(filled, wanted - filled))
            filled *= 2
    share(one_filled, &job, (out.size + BLOCK - 1) // BLOCK, threads)
