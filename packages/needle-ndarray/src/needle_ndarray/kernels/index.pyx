# Indexing with integers along the first axis: take, put, scatter-add.
#
# Another thread may write to the index meanwhile. So each entry is read once, and checked when it is read: memory outside of the
# array is never touched, and OUTSIDE is returned.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.memoryviews cimport positions, strided_rows
from needle_ndarray.kernels.strided cimport coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport CHUNK, FLOAT32, FLOAT64, INT32, INT64, T, UINT8, View, boolean, int64, uint8
from needle_ndarray.threads cimport share

cdef enum:
    PANEL = 64              # columns of a scatter-add that one thread takes


cdef inline Py_ssize_t place(const int64* index, Py_ssize_t i, Py_ssize_t bound) noexcept nogil:
    """index[i], read once; -1 where it is not in [0, bound)"""
    cdef int64 at = (<const volatile int64*> index)[i]
    return at if 0 <= at < bound else -1


cdef void row_of(const View* a, View* row) noexcept nogil:
    """row = a[0]: the axes after the first"""
    cdef int i
    row[0] = a[0]
    row.ndim, row.size = a.ndim - 1, 1
    for i in range(row.ndim):
        row.shape[i], row.strides[i] = a.shape[i + 1], a.strides[i + 1]
        row.size *= row.shape[i]


cdef void move(const View* a, char* a_data, const View* out, char* out_data, char* staged) noexcept nogil:
    """out row = a row; either may be strided"""
    cdef View source = a[0], target = out[0]
    cdef Py_ssize_t start = 0, n
    source.data, target.data = a_data, out_data
    while start < a.size:
        n = min(<Py_ssize_t> CHUNK, a.size - start)
        gather(&source, start, n, staged)
        scatter(staged, start, n, &target)
        start += n


cdef struct Taken:
    const int64* index
    Py_ssize_t bound                # of the index
    int outside                     # a benign race: every writer stores 1
    View source, target             # one row of each
    bint flat
    Py_ssize_t nbytes               # of a row
    Py_ssize_t step, out_step       # bytes from row to row
    char* staged


cdef void one_taken(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef Taken* job = <Taken*> given
    cdef Py_ssize_t at = place(job.index, i, job.bound)
    cdef char* row = job.source.data + at * job.step
    cdef char* out = job.target.data + i * job.out_step
    if at < 0:
        job.outside = 1
        return
    if job.flat:
        memcpy(out, row, job.nbytes)
    else:
        move(&job.source, row, &job.target, out, job.staged + thread * CHUNK * 8)


cdef int take_views(View* a, const int64* index, View* out, int threads) noexcept nogil:
    """out[i, ...] = a[index[i], ...]; NO_MEMORY, OUTSIDE or 0"""
    cdef Taken job
    cdef View* views[2]
    cdef Py_ssize_t i, at, n = out.shape[0], item = a.itemsize, step = a.strides[0], out_step = out.strides[0], nbytes
    cdef bint flat
    cdef char* a_base
    cdef char* out_base
    row_of(a, &job.source)
    row_of(out, &job.target)
    views[0], views[1] = &job.source, &job.target
    coalesce(views, 2)
    flat = contiguous(&job.source) and contiguous(&job.target)
    nbytes = job.source.size * item
    a_base, out_base = job.source.data, job.target.data
    if flat and nbytes == 4 and item == 4:
        for i in range(n):
            at = place(index, i, a.shape[0])
            if at < 0:
                return OUTSIDE
            (<int*> out_base)[i * out_step] = (<const int*> a_base)[at * step]
        return 0
    if flat and nbytes == 8 and item == 8:
        for i in range(n):
            at = place(index, i, a.shape[0])
            if at < 0:
                return OUTSIDE
            (<int64*> out_base)[i * out_step] = (<const int64*> a_base)[at * step]
        return 0
    job.index, job.flat, job.nbytes, job.step, job.out_step = index, flat, nbytes, step * item, out_step * item
    job.bound, job.outside = a.shape[0], 0
    job.staged = <char*> malloc(threads * CHUNK * 8)
    if job.staged is NULL:
        return NO_MEMORY
    share(one_taken, &job, n, threads)
    free(job.staged)
    return OUTSIDE if job.outside else 0


cdef int put_views(View* a, const int64* index, View* values) noexcept nogil:
    """a[index[i], ...] = values[i, ...], in order; OUTSIDE or 0"""
    cdef View source, target
    cdef View* views[2]
    cdef Py_ssize_t i, at, item = a.itemsize
    cdef char staged[CHUNK * 8]
    row_of(values, &source)
    row_of(a, &target)
    views[0], views[1] = &source, &target
    coalesce(views, 2)
    for i in range(values.shape[0]):
        at = place(index, i, a.shape[0])
        if at < 0:
            return OUTSIDE
        move(&source, source.data + i * values.strides[0] * item, &target, target.data + at * a.strides[0] * item, staged)
    return 0


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
        at = place(&index[0], i, a.shape[0])
        if at < 0:
            return OUTSIDE
        for j in range(first, last):
            if T is boolean:
                a[at, j] |= values[i, j]
            else:
                a[at, j] += values[i, j]
    return 0


cdef int add_rows(const Added* job, T like) noexcept nogil:
    """a[index[i], ...] += values[i, ...], rows strided: a chunk of a row at a time"""
    cdef T total[CHUNK]
    cdef T staged[CHUNK]
    cdef View here = job.target, there = job.source
    cdef Py_ssize_t i, j, at, start, n
    for i in range(job.values.shape[0]):
        at = place(job.index, i, job.a.shape[0])
        if at < 0:
            return OUTSIDE
        here.data = job.target.data + at * job.a.strides[0] * <Py_ssize_t> sizeof(T)
        there.data = job.source.data + i * job.values.strides[0] * <Py_ssize_t> sizeof(T)
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
    if not job.flat:
        return add_rows(job, like)
    return add_columns(strided_rows(<T*> job.target.data, job.a.shape[0], columns, job.a.strides[0]), positions(job.index, n),
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
    cdef View* views[2]
    cdef Added job
    job.a, job.index, job.values, job.outside = a, index, values, 0
    row_of(values, &job.source)
    row_of(a, &job.target)
    views[0], views[1] = &job.source, &job.target
    coalesce(views, 2)
    job.flat = contiguous(&job.source) and contiguous(&job.target)
    share(one_panel, &job, (job.source.size + PANEL - 1) // PANEL if job.flat else 1, threads)
    return OUTSIDE if job.outside else 0
