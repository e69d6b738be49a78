# Elementwise ops on views with any strides: a chunk at a time. Operands are used where they lie if they can be, else copied first.

from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.ewise cimport binary, unary, where
from needle_ndarray.kernels.strided cimport chunk_length, coalesce, contiguous, gather, offset_of, scatter
from needle_ndarray.kernels.views cimport BLOCK, CHUNK, View
from needle_ndarray.threads cimport share

cdef enum:
    LONG_ROW = 256          # elements from which a broadcast row or column is read where it lies


cdef enum Verb:
    UNARY, BINARY, WHERE

cdef enum Reading:
    FLAT                    # contiguous: used where it lies
    CONSTANT                # a broadcast scalar that the loop reads as one element
    ROW                     # a long row, the same for every chunk: used where it lies, and chunks end with it
    COLUMN                  # one element for a whole long row, as CONSTANT
    REPEATED                # a scalar or a short row: a chunk of copies is made once
    GATHERED                # anything else: copied, a chunk at a time

cdef struct Job:                    # an elementwise call: inputs first, the output last
    Verb verb
    int op
    int count
    View* views[4]
    Reading how[4]                  # of the output FLAT, or GATHERED (scattered)
    Py_ssize_t row                  # what a chunk does not reach beyond where there is a ROW or COLUMN; else 0
    bint staged_out                 # the output is strided, or lies where an input does
    Py_ssize_t chunk
    Py_ssize_t block                # elements of a task: whole chunks
    char* staged                    # scratch: a chunk of every operand, for every thread; NULL where none is copied


cdef inline bint single(Reading how) noexcept nogil:
    return how == CONSTANT or how == COLUMN


cdef void apply(const Job* job, char** at, Py_ssize_t n) noexcept nogil:
    if job.verb == UNARY:
        unary(job.op, job.views[0].dtype, at[0], at[1], n)
    elif job.verb == BINARY:
        binary(job.op, job.views[0].dtype, at[0], at[1], at[2], n, not single(job.how[0]), not single(job.how[1]))
    else:
        where(at[0], job.views[1].dtype, at[1], at[2], at[3], n)


cdef Reading reading(const View* a, bint singles, bint by_rows) noexcept nogil:
    """How to read an operand, where the loop takes single elements or not, and chunks may end with rows or not"""
    cdef int i, last = a.ndim - 1
    cdef bint same_rows = True
    if contiguous(a):
        return FLAT
    for i in range(last):
        same_rows = same_rows and a.strides[i] == 0
    if a.strides[last] == 0:
        if same_rows:
            return CONSTANT if singles else REPEATED
        return COLUMN if singles and by_rows and a.shape[last] >= LONG_ROW else GATHERED
    if not same_rows or a.strides[last] != 1:
        return GATHERED
    if a.shape[last] < LONG_ROW:
        return REPEATED
    return ROW if by_rows else GATHERED


cdef void repeat(const View* a, Py_ssize_t n, char* out) noexcept nogil:
    """A scalar or the last axis of a, over and over: n elements in all"""
    cdef Py_ssize_t period = 1 if a.strides[a.ndim - 1] == 0 else a.shape[a.ndim - 1]
    cdef Py_ssize_t have = min(period, n) * a.itemsize, total = n * a.itemsize, more
    memcpy(out, a.data, have)
    while have < total:
        more = min(have, total - have)
        memcpy(out + have, out, more)
        have += more


cdef char* operand(const View* a, Reading how, Py_ssize_t row, Py_ssize_t start, Py_ssize_t n, char* staged) noexcept nogil:
    """Where elements start .. start+n of an operand are to be read; copied to `staged` if need be"""
    if how == FLAT:
        return a.data + start * a.itemsize
    if how == CONSTANT:
        return a.data
    if how == ROW:
        return a.data + start % row * a.itemsize
    if how == COLUMN:
        return a.data + offset_of(a, start) * a.itemsize
    if how == GATHERED:
        gather(a, start, n, staged)
    return staged


cdef void work(const Job* job, Py_ssize_t start, Py_ssize_t n, char* staged) noexcept nogil:
    """Elements start .. start+n of a job, a chunk at a time."""
    cdef Py_ssize_t stop = start + n, length, chunk = job.chunk
    cdef int k, last = job.count - 1
    cdef char* at[4]
    cdef const View* out = job.views[last]
    for k in range(last if n > 0 else 0):
        if job.how[k] == REPEATED:
            repeat(job.views[k], min(chunk, n), staged + k * chunk * 8)
    while start < stop:
        length = min(chunk, stop - start)
        if job.row > 0:
            length = min(length, job.row - start % job.row)
        for k in range(last):
            at[k] = operand(job.views[k], job.how[k], job.row, start, length, staged + k * chunk * 8)
        at[last] = staged + last * chunk * 8 if job.staged_out else out.data + start * out.itemsize
        apply(job, at, length)
        if job.staged_out:
            if job.how[last] == FLAT:
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
    cdef View* out = job.views[last]
    cdef Py_ssize_t size = out.size
    cdef bint stages
    coalesce(job.views, job.count)
    job.chunk, job.row, job.staged = chunk_length(job.views, job.count), 0, NULL
    job.staged_out = not contiguous(out)
    for k in range(last):               # compilers vectorise only what cannot overlap
        job.staged_out = job.staged_out or job.views[k].data == out.data
    stages = job.staged_out
    for k in range(job.count):          # a transposed operand is read in chunks of many rows
        job.how[k] = reading(job.views[k], job.verb == BINARY and k < last, job.chunk == CHUNK)
        if k == 1 and single(job.how[0]) and single(job.how[1]):
            job.how[1] = GATHERED
        if job.how[k] == ROW or job.how[k] == COLUMN:
            job.row = out.shape[out.ndim - 1]
        if job.how[k] == REPEATED and job.views[k].strides[out.ndim - 1] != 0:
            job.chunk -= job.chunk % out.shape[out.ndim - 1]    # whole rows: what is staged begins with one
        stages = stages or job.how[k] >= REPEATED
    if not stages:
        job.chunk = BLOCK
    job.block = job.chunk * max(1, BLOCK // job.chunk)
    if stages:
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
