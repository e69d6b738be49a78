# Elementwise ops on views with any strides: a chunk at a time, operands that are not contiguous are copied to one that is.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.ewise cimport binary, unary, where
from needle_ndarray.kernels.strided cimport chunk_length, coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport BLOCK, View
from needle_ndarray.threads cimport share

cdef enum:
    LONG_ROW = 256          # elements from which a broadcast row is read where it lies


cdef enum Verb:
    UNARY, BINARY, WHERE

cdef struct Job:                    # an elementwise call: inputs first, the output last
    Verb verb
    int op
    int count
    View* views[4]
    bint flat[4]                    # contiguous: used where it lies
    Py_ssize_t period[4]            # of a broadcast scalar (1) or row; else 0. Staged once, or used where it lies if long
    Py_ssize_t row                  # where a long row is used so, chunks end with it; else 0
    bint staged_out                 # the output is strided, or lies where an input does
    Py_ssize_t chunk
    Py_ssize_t block                # elements of a task: whole chunks
    char* staged                    # scratch: a chunk of every operand, for every thread


cdef void apply(const Job* job, char** at, Py_ssize_t n) noexcept nogil:
    if job.verb == UNARY:
        unary(job.op, job.views[0].dtype, at[0], at[1], n)
    elif job.verb == BINARY:
        binary(job.op, job.views[0].dtype, at[0], at[1], at[2], n)
    else:
        where(at[0], job.views[1].dtype, at[1], at[2], at[3], n)


cdef Py_ssize_t period_of(const View* a) noexcept nogil:
    """1 for a broadcast scalar, its length for a broadcast row, else 0"""
    cdef int i, last = a.ndim - 1
    for i in range(last):
        if a.strides[i] != 0:
            return 0
    if a.ndim == 0 or a.strides[last] == 0:
        return 1
    return a.shape[last] if a.strides[last] == 1 else 0


cdef void repeat(const View* a, Py_ssize_t period, Py_ssize_t n, char* out) noexcept nogil:
    """The first `period` elements of a, over and over: n in all"""
    cdef Py_ssize_t have = min(period, n) * a.itemsize, total = n * a.itemsize, more
    memcpy(out, a.data, have)
    while have < total:
        more = min(have, total - have)
        memcpy(out + have, out, more)
        have += more


cdef void work(const Job* job, Py_ssize_t start, Py_ssize_t n, char* staged) noexcept nogil:
    """Elements start .. start+n of a job, a chunk at a time."""
    cdef Py_ssize_t stop = start + n, length, chunk = job.chunk
    cdef int k, last = job.count - 1
    cdef char* at[4]
    cdef const View* out = job.views[last]
    if n <= 0:
        return
    for k in range(last):
        if job.period[k] > 0 and job.period[k] != job.row:
            repeat(job.views[k], job.period[k], min(chunk, n), staged + k * chunk * 8)
    while start < stop:
        length = min(chunk, stop - start)
        if job.row > 0:
            length = min(length, job.row - start % job.row)
        for k in range(last + 1):
            if job.flat[k]:
                at[k] = job.views[k].data + start * job.views[k].itemsize
            elif job.row > 0 and job.period[k] == job.row:
                at[k] = job.views[k].data + start % job.row * job.views[k].itemsize
            else:
                at[k] = staged + k * chunk * 8
                if k < last and job.period[k] == 0:
                    gather(job.views[k], start, length, at[k])
        if job.staged_out:
            at[last] = staged + last * chunk * 8
        apply(job, at, length)
        if job.staged_out:
            if job.flat[last]:
                memcpy(out.data + start * out.itemsize, at[last], length * out.itemsize)
            else:
                scatter(at[last], start, length, out)
        start += length


cdef void one_block(const void* given, Py_ssize_t b, int thread) noexcept nogil:
    cdef const Job* job = <const Job*> given
    cdef Py_ssize_t start = b * job.block, size = job.views[job.count - 1].size
    work(job, start, min(job.block, size - start), job.staged + thread * job.count * job.chunk * 8)


cdef int run(Job* job, int threads) noexcept nogil:
    """Cut a job in fixed blocks and work them off; -1 when there is no memory for the staging buffers."""
    cdef int k, last = job.count - 1
    cdef bint all_flat = True
    cdef Py_ssize_t period, row = 0
    cdef Py_ssize_t size = job.views[last].size
    coalesce(job.views, job.count)
    for k in range(job.count):
        job.flat[k] = contiguous(job.views[k])
        all_flat = all_flat and job.flat[k]
        period = 0 if job.flat[k] or k == last else period_of(job.views[k])
        if period > 1:
            row = period if row == 0 else row
            period = period if period == row else 0     # of two lengths, one is staged
        job.period[k] = period
    job.row = row if row >= LONG_ROW else 0
    job.staged_out = not job.flat[last]
    for k in range(last):               # compilers vectorise only what cannot overlap
        if job.views[k].data == job.views[last].data:
            job.staged_out = True
    job.chunk = BLOCK if all_flat and not job.staged_out else chunk_length(job.views, job.count)
    if row > 0 and job.row == 0:
        job.chunk -= job.chunk % row    # whole rows: what is staged begins with one
    job.block = job.chunk * max(1, BLOCK // job.chunk)
    job.staged = <char*> malloc(threads * job.count * job.chunk * 8 + 64)
    if job.staged is NULL:
        return -1
    if threads == 1:
        work(job, 0, size, job.staged)
    else:
        share(one_block, job, (size + job.block - 1) // job.block, threads)
    free(job.staged)
    return 0


cdef int unary_views(int op, View* a, View* out, int threads) noexcept nogil:
    """out = op(a), any strides"""
    cdef Job job
    job.verb, job.op, job.count = UNARY, op, 2
    job.views[0], job.views[1] = a, out
    return run(&job, threads)


cdef int binary_views(int op, View* a, View* b, View* out, int threads) noexcept nogil:
    """out = op(a, b), any strides"""
    cdef Job job
    job.verb, job.op, job.count = BINARY, op, 3
    job.views[0], job.views[1], job.views[2] = a, b, out
    return run(&job, threads)


cdef int where_views(View* condition, View* a, View* b, View* out, int threads) noexcept nogil:
    """out = a where condition else b, any strides"""
    cdef Job job
    job.verb, job.op, job.count = WHERE, 0, 4
    job.views[0], job.views[1], job.views[2], job.views[3] = condition, a, b, out
    return run(&job, threads)
