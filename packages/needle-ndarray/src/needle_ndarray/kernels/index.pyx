# Indexing with integers along the first axis: take, put, scatter-add. The index was checked by NDArray.

from cython.parallel cimport prange
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.strided cimport coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport (
    CHUNK, FLOAT32, FLOAT64, INT32, INT64, T, View, boolean, int64, thread_number
)

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


cdef int take_views(View* a, const int64* index, View* out, int threads) noexcept nogil:
    """out[i, ...] = a[index[i], ...]"""
    cdef View source, target
    cdef View* views[2]
    cdef Py_ssize_t i, n = out.shape[0], item = a.itemsize, step = a.strides[0], out_step = out.strides[0], nbytes
    cdef bint flat
    cdef char* a_base
    cdef char* out_base
    cdef char* staged
    row_of(a, &source)
    row_of(out, &target)
    views[0], views[1] = &source, &target
    coalesce(views, 2)
    flat = contiguous(&source) and contiguous(&target)
    nbytes = source.size * item
    a_base, out_base = source.data, target.data
    if flat and nbytes == 4 and item == 4:
        for i in range(n):
            (<int*> out_base)[i * out_step] = (<const int*> a_base)[index[i] * step]
        return 0
    if flat and nbytes == 8 and item == 8:
        for i in range(n):
            (<int64*> out_base)[i * out_step] = (<const int64*> a_base)[index[i] * step]
        return 0
    staged = <char*> malloc(threads * CHUNK * 8)
    if staged is NULL:
        return -1
    for i in prange(n, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        if flat:
            memcpy(out_base + i * out_step * item, a_base + index[i] * step * item, nbytes)
        else:
            move(&source, a_base + index[i] * step * item, &target, out_base + i * out_step * item,
                 staged + thread_number() * CHUNK * 8)
    free(staged)
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


cdef void add_panel(View* a, const int64* index, View* values, Py_ssize_t first, Py_ssize_t columns, T like) noexcept nogil:
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


cdef void scatter_add_of(View* a, const int64* index, View* values, T like, int threads) noexcept nogil:
    cdef View source, target
    cdef View* views[2]
    cdef Py_ssize_t p, columns
    row_of(values, &source)
    row_of(a, &target)
    views[0], views[1] = &source, &target
    coalesce(views, 2)
    if not (contiguous(&source) and contiguous(&target)):
        add_rows(a, index, values, &target, &source, like)
        return
    a.data, values.data = target.data, source.data
    columns = source.size
    for p in prange((columns + PANEL - 1) // PANEL, num_threads=threads, schedule="static", use_threads_if=threads > 1):
        add_panel(a, index, values, p * PANEL, min(<Py_ssize_t> PANEL, columns - p * PANEL), like)


cdef int scatter_add_views(View* a, const int64* index, View* values, int threads) noexcept nogil:
    """a[index[i], ...] += values[i, ...], in order: threads take columns, so every sum is made by one of them"""
    if a.dtype == FLOAT32:
        scatter_add_of(a, index, values, <float> 0, threads)
    elif a.dtype == FLOAT64:
        scatter_add_of(a, index, values, <double> 0, threads)
    elif a.dtype == INT32:
        scatter_add_of(a, index, values, <int> 0, threads)
    elif a.dtype == INT64:
        scatter_add_of(a, index, values, <int64> 0, threads)
    else:
        scatter_add_of(a, index, values, <boolean> 0, threads)
    return 0
