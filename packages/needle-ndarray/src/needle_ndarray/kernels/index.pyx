# Indexing with integers along the first axis: take, put, scatter-add.
#
# Another thread may write to the index meanwhile. So each entry is read once, and checked when it is read: memory outside of the
# array is never touched, and OUTSIDE is returned.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.memoryviews cimport positions, strided_rows
from needle_ndarray.kernels.strided cimport coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport BLOCK, CHUNK, FLOAT32, FLOAT64, INT32, INT64, T, UINT8, View, boolean, int64, uint8
from needle_ndarray.threads cimport share

ctypedef fused Item:        # elements that are only moved: what has their width
    int
    int64

cdef enum:
    PANEL = 64              # columns of a scatter-add that one thread takes
    WIDEST = 8              # bytes of an element


cdef inline Py_ssize_t place(const int64[::1] index, Py_ssize_t i, Py_ssize_t bound) noexcept nogil:
    """index[i], read once; -1 where it is not in [0, bound)"""
    cdef int64 at = (<const volatile int64*> &index[i])[0]
    return at if 0 <= at < bound else -1


# ---- Rows --------------------------------------------------------------------------

cdef void row_of(const View* a, View* row) noexcept nogil:
    """row = a[0]: the axes after the first"""
    cdef int i
    row[0] = a[0]
    row.ndim, row.size = a.ndim - 1, 1
    for i in range(row.ndim):
        row.shape[i], row.strides[i] = a.shape[i + 1], a.strides[i + 1]
        row.size *= row.shape[i]


cdef bint contiguous_rows(const View* a, View* row, const View* b, View* other) noexcept nogil:
    """Make row = a[0] and other = b[0], which have one shape, of as few axes as possible; whether both are contiguous"""
    cdef View* views[2]
    row_of(a, row)
    row_of(b, other)
    views[0], views[1] = row, other
    coalesce(views, 2)
    return contiguous(row) and contiguous(other)


cdef inline char* row_at(const View* a, const View* row, Py_ssize_t i) noexcept nogil:
    return row.data + i * a.strides[0] * a.itemsize


cdef inline uint8[:, ::1] bytes_of_rows(const View* a, const View* row) noexcept nogil:
    """The rows of `a`, contiguous ones, as bytes"""
    return strided_rows(<uint8*> row.data, a.shape[0], row.size * a.itemsize, a.strides[0] * a.itemsize)


cdef inline Item[:, ::1] elements(const View* a, const View* row, Item like) noexcept nogil:
    """The rows of `a`, of one element each"""
    return strided_rows(<Item*> row.data, a.shape[0], 1, a.strides[0])


cdef void move(const View* source_row, char* a, const View* target_row, char* out, char* staged) noexcept nogil:
    """The row at `out` = the row at `a`; either may be strided"""
    cdef View source = source_row[0], target = target_row[0]
    cdef Py_ssize_t start = 0, n
    source.data, target.data = a, out
    while start < source.size:
        n = min(<Py_ssize_t> CHUNK, source.size - start)
        gather(&source, start, n, staged)
        scatter(staged, start, n, &target)
        start += n


# ---- Take --------------------------------------------------------------------------

cdef struct Taken:
    const View* a
    const View* out
    const int64* index
    View source, target             # one row of each
    bint flat                       # rows are contiguous in both
    Py_ssize_t block                # rows of a task
    char* staged                    # memory for a chunk, for every thread
    int outside                     # a benign race: every writer stores 1


cdef int take_elements(const Item[:, ::1] a, const int64[::1] index, Item[:, ::1] out) noexcept nogil:
    """out[i, 0] = a[index[i], 0]"""
    cdef Py_ssize_t i, at
    for i in range(index.shape[0]):
        at = place(index, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        out[i, 0] = a[at, 0]
    return 0


cdef int take_rows(const uint8[:, ::1] a, const int64[::1] index, uint8[:, ::1] out, Py_ssize_t first,
                   Py_ssize_t last) noexcept nogil:
    """out[i] = a[index[i]] for first <= i < last: rows of bytes"""
    cdef Py_ssize_t i, at
    for i in range(first, last):
        at = place(index, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        memcpy(&out[i, 0], &a[at, 0], a.shape[1])
    return 0


cdef int take_strided_rows(const Taken* job, const int64[::1] index, Py_ssize_t first, Py_ssize_t last,
                           char* staged) noexcept nogil:
    """out[i, ...] = a[index[i], ...] for first <= i < last"""
    cdef Py_ssize_t i, at
    for i in range(first, last):
        at = place(index, i, job.a.shape[0])
        if at < 0:
            return OUTSIDE
        move(&job.source, row_at(job.a, &job.source, at), &job.target, row_at(job.out, &job.target, i), staged)
    return 0


cdef void one_block(const void* given, Py_ssize_t p, int thread) noexcept nogil:
    cdef Taken* job = <Taken*> given
    cdef Py_ssize_t n = job.out.shape[0], first = p * job.block, last = min(first + job.block, n)
    cdef const int64[::1] index = positions(job.index, n)
    cdef int status
    if job.flat:
        status = take_rows(bytes_of_rows(job.a, &job.source), index, bytes_of_rows(job.out, &job.target), first, last)
    else:
        status = take_strided_rows(job, index, first, last, job.staged + thread * CHUNK * WIDEST)
    if status:
        job.outside = 1


cdef int take_views(View* a, const int64* index, View* out, int threads) noexcept nogil:
    """out[i, ...] = a[index[i], ...]; NO_MEMORY, OUTSIDE or 0"""
    cdef Taken job
    cdef Py_ssize_t n = out.shape[0]
    job.a, job.out, job.index, job.outside = a, out, index, 0
    job.flat = contiguous_rows(a, &job.source, out, &job.target)
    if job.flat and job.source.size == 1 and a.itemsize == sizeof(int):
        return take_elements(elements(a, &job.source, <int> 0), positions(index, n), elements(out, &job.target, <int> 0))
    if job.flat and job.source.size == 1 and a.itemsize == sizeof(int64):
        return take_elements(elements(a, &job.source, <int64> 0), positions(index, n), elements(out, &job.target, <int64> 0))
    job.block = max(BLOCK // (job.source.size * a.itemsize), <Py_ssize_t> 1)
    job.staged = <char*> malloc(threads * CHUNK * WIDEST)
    if job.staged is NULL:
        return NO_MEMORY
    share(one_block, &job, (n + job.block - 1) // job.block, threads)
    free(job.staged)
    return OUTSIDE if job.outside else 0


# ---- Put --------------------------------------------------------------------------

cdef int put_elements(Item[:, ::1] a, const int64[::1] index, const Item[:, ::1] values) noexcept nogil:
    """a[index[i], 0] = values[i, 0], in order"""
    cdef Py_ssize_t i, at
    for i in range(index.shape[0]):
        at = place(index, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        a[at, 0] = values[i, 0]
    return 0


cdef int put_views(View* a, const int64* index, View* values) noexcept nogil:
    """a[index[i], ...] = values[i, ...], in order; OUTSIDE or 0"""
    cdef View source, target
    cdef Py_ssize_t i, at, n = values.shape[0]
    cdef const int64[::1] places = positions(index, n)
    cdef bint flat = contiguous_rows(values, &source, a, &target)
    cdef char staged[CHUNK * WIDEST]
    if flat and source.size == 1 and a.itemsize == sizeof(int):
        return put_elements(elements(a, &target, <int> 0), places, elements(values, &source, <int> 0))
    if flat and source.size == 1 and a.itemsize == sizeof(int64):
        return put_elements(elements(a, &target, <int64> 0), places, elements(values, &source, <int64> 0))
    for i in range(n):
        at = place(places, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        move(&source, row_at(values, &source, i), &target, row_at(a, &target, at), staged)
    return 0


# ---- Scatter-add --------------------------------------------------------------------------

cdef struct Added:
    View* a
    const int64* index
    View* values
    View target, source             # one row of each
    bint flat                       # rows are contiguous in both
    int outside                     # a benign race: every writer stores 1


cdef int add_columns(T[:, ::1] a, const int64[::1] index, const T[:, ::1] values, Py_ssize_t first, Py_ssize_t last) noexcept nogil:
    """a[index[i], first:last] += values[i, first:last], for one i after the other"""
    cdef Py_ssize_t i, j, at
    for i in range(index.shape[0]):
        at = place(index, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        for j in range(first, last):
            if T is boolean:
                a[at, j] |= values[i, j]
            else:
                a[at, j] += values[i, j]
    return 0


cdef int add_rows(const Added* job, const int64[::1] index, T like) noexcept nogil:
    """a[index[i], ...] += values[i, ...], rows strided: a chunk of a row at a time"""
    cdef T total[CHUNK]
    cdef T staged[CHUNK]
    cdef View here = job.target, there = job.source
    cdef Py_ssize_t i, j, at, start, n
    for i in range(index.shape[0]):
        at = place(index, i, job.a.shape[0])
        if at < 0:
            return OUTSIDE
        here.data, there.data = row_at(job.a, &job.target, at), row_at(job.values, &job.source, i)
        start = 0
        while start < there.size:
            n = min(<Py_ssize_t> CHUNK, there.size - start)
            gather(&here, start, n, <char*> total)
            gather(&there, start, n, <char*> staged)
            for j in range(n):
                if T is boolean:
                    total[j] |= staged[j]
                else:
                    total[j] += staged[j]
            scatter(<char*> total, start, n, &here)
            start += n
    return 0


cdef int add_panel(const Added* job, Py_ssize_t first, Py_ssize_t last, T like) noexcept nogil:
    cdef Py_ssize_t n = job.values.shape[0], columns = job.source.size
    cdef const int64[::1] index = positions(job.index, n)
    if not job.flat:
        return add_rows(job, index, like)
    return add_columns(strided_rows(<T*> job.target.data, job.a.shape[0], columns, job.a.strides[0]), index,
                       strided_rows(<T*> job.source.data, n, columns, job.values.strides[0]), first, last)


cdef void one_panel(const void* given, Py_ssize_t p, int thread) noexcept nogil:
    cdef Added* job = <Added*> given
    cdef Py_ssize_t first = p * PANEL, last = min(first + PANEL, job.source.size)
    cdef int dtype = job.a.dtype, status
    if dtype == FLOAT32:
        status = add_panel(job, first, last, <float> 0)
    elif dtype == FLOAT64:
        status = add_panel(job, first, last, <double> 0)
    elif dtype == INT32:
        status = add_panel(job, first, last, <int> 0)
    elif dtype == INT64:
        status = add_panel(job, first, last, <int64> 0)
    elif dtype == UINT8:
        status = add_panel(job, first, last, <uint8> 0)
    else:
        status = add_panel(job, first, last, <boolean> 0)
    if status:
        job.outside = 1


cdef int scatter_add_views(View* a, const int64* index, View* values, int threads) noexcept nogil:
    """a[index[i], ...] += values[i, ...], in order: threads take columns, so every sum is made by one of them; OUTSIDE or 0"""
    cdef Added job
    job.a, job.index, job.values, job.outside = a, index, values, 0
    job.flat = contiguous_rows(values, &job.source, a, &job.target)
    share(one_panel, &job, (job.source.size + PANEL - 1) // PANEL if job.flat else 1, threads)
    return OUTSIDE if job.outside else 0
