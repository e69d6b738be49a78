# Indexing with integers along the first axis: take, put, scatter-add. The index was checked by NDArray.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.strided cimport coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport CHUNK, FLOAT32, FLOAT64, INT32, INT64, T, UINT8, View, boolean, int64, uint8
from needle_ndarray.threads cimport share

cdef enum:
    PANEL = 64              # columns of a scatter-add that one thread takes


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
    View source, target             # one row of each
    bint flat
    Py_ssize_t nbytes               # of a row
    Py_ssize_t step, out_step       # bytes from row to row
    char* staged


cdef void one_taken(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Taken* job = <const Taken*> given
    cdef char* row = job.source.data + job.index[i] * job.step
    cdef char* out = job.target.data + i * job.out_step
    if job.flat:
        memcpy(out, row, job.nbytes)
    else:
        move(&job.source, row, &job.target, out, job.staged + thread * CHUNK * 8)


cdef int take_views(View* a, const int64* index, View* out, int threads) noexcept nogil:
    """out[i, ...] = a[index[i], ...]"""
    cdef Taken job
    cdef View* views[2]
    cdef Py_ssize_t i, n = out.shape[0], item = a.itemsize, step = a.strides[0], out_step = out.strides[0], nbytes
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
            (<int*> out_base)[i * out_step] = (<const int*> a_base)[index[i] * step]
        return 0
    if flat and nbytes == 8 and item == 8:
        for i in range(n):
            (<int64*> out_base)[i * out_step] = (<const int64*> a_base)[index[i] * step]
        return 0
    job.index, job.flat, job.nbytes, job.step, job.out_step = index, flat, nbytes, step * item, out_step * item
    job.staged = <char*> malloc(threads * CHUNK * 8)
    if job.staged is NULL:
        return -1
    share(one_taken, &job, n, threads)
    free(job.staged)
    return 0


cdef int put_views(View* a, const int64* index, View* values) noexcept nogil:
    """a[index[i], ...] = values[i, ...], in order"""
    cdef View source, target
    cdef View* views[2]
    cdef Py_ssize_t i, item = a.itemsize
    cdef char staged[CHUNK * 8]
    row_of(values, &source)
    row_of(a, &target)
    views[0], views[1] = &source, &target
    coalesce(views, 2)
    for i in range(values.shape[0]):
        move(&source, source.data + i * values.strides[0] * item, &target,
             target.data + index[i] * a.strides[0] * item, staged)
    return 0


cdef void add_panel(const View* a, const int64* index, const View* values, Py_ssize_t first, Py_ssize_t columns,
                    T like) noexcept nogil:
    """a[index[i], first:first+columns] += values[i, ...], rows contiguous"""
    cdef Py_ssize_t i, j
    cdef T* out
    cdef const T* row
    for i in range(values.shape[0]):
        out = <T*> a.data + index[i] * a.strides[0] + first
        row = <const T*> values.data + i * values.strides[0] + first
        for j in range(columns):
            if T is boolean:
                out[j] |= row[j]
            else:
                out[j] += row[j]


cdef void add_rows(View* a, const int64* index, View* values, View* target, View* source, T like) noexcept nogil:
    """a[index[i], ...] += values[i, ...], rows strided"""
    cdef T total[CHUNK]
    cdef T staged[CHUNK]
    cdef View here = target[0], there = source[0]
    cdef Py_ssize_t i, j, start, n
    for i in range(values.shape[0]):
        here.data = target.data + index[i] * a.strides[0] * <Py_ssize_t> sizeof(T)
        there.data = source.data + i * values.strides[0] * <Py_ssize_t> sizeof(T)
        start = 0
        while start < source.size:
            n = min(<Py_ssize_t> CHUNK, source.size - start)
            gather(&here, start, n, <char*> total)
            gather(&there, start, n, <char*> staged)
            for j in range(n):
                if T is boolean:
                    total[j] |= staged[j]
                else:
                    total[j] += staged[j]
            scatter(<char*> total, start, n, &here)
            start += n


cdef void add_strided(View* a, const int64* index, View* values, View* target, View* source) noexcept nogil:
    if a.dtype == FLOAT32:
        add_rows(a, index, values, target, source, <float> 0)
    elif a.dtype == FLOAT64:
        add_rows(a, index, values, target, source, <double> 0)
    elif a.dtype == INT32:
        add_rows(a, index, values, target, source, <int> 0)
    elif a.dtype == INT64:
        add_rows(a, index, values, target, source, <int64> 0)
    elif a.dtype == UINT8:
        add_rows(a, index, values, target, source, <uint8> 0)
    else:
        add_rows(a, index, values, target, source, <boolean> 0)


cdef struct Added:                  # rows contiguous
    View* a
    const int64* index
    View* values
    Py_ssize_t columns


cdef void one_panel(const void* given, Py_ssize_t p, int thread) noexcept nogil:
    cdef const Added* job = <const Added*> given
    cdef Py_ssize_t first = p * PANEL, columns = min(<Py_ssize_t> PANEL, job.columns - first)
    if job.a.dtype == FLOAT32:
        add_panel(job.a, job.index, job.values, first, columns, <float> 0)
    elif job.a.dtype == FLOAT64:
        add_panel(job.a, job.index, job.values, first, columns, <double> 0)
    elif job.a.dtype == INT32:
        add_panel(job.a, job.index, job.values, first, columns, <int> 0)
    elif job.a.dtype == INT64:
        add_panel(job.a, job.index, job.values, first, columns, <int64> 0)
    elif job.a.dtype == UINT8:
        add_panel(job.a, job.index, job.values, first, columns, <uint8> 0)
    else:
        add_panel(job.a, job.index, job.values, first, columns, <boolean> 0)


cdef int scatter_add_views(View* a, const int64* index, View* values, int threads) noexcept nogil:
    """a[index[i], ...] += values[i, ...], in order: threads take columns, so every sum is made by one of them"""
    cdef View source, target
    cdef View* views[2]
    cdef Added job
    row_of(values, &source)
    row_of(a, &target)
    views[0], views[1] = &source, &target
    coalesce(views, 2)
    if not (contiguous(&source) and contiguous(&target)):
        add_strided(a, index, values, &target, &source)
        return 0
    a.data, values.data = target.data, source.data
    job.a, job.index, job.values, job.columns = a, index, values, source.size
    share(one_panel, &job, (job.columns + PANEL - 1) // PANEL, threads)
    return 0
