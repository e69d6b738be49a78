# Positions of extremes and running sums, along the last axis: a task for every line.

from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.strided cimport contiguous, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT32, FLOAT64, INT32, INT64, T, UINT8, View, boolean, int64, uint8
from needle_ndarray.optable cimport ARGMAX, ARGMIN, CUMSUM
from needle_ndarray.threads cimport share

from needle_ndarray.backend import ARG_REDUCE, SCAN
from needle_ndarray.kernels import check_ops

check_ops(ARG_REDUCE, {ARGMAX, ARGMIN}, "kernels/scan.pyx")
check_ops(SCAN, {CUMSUM}, "kernels/scan.pyx")


cdef Py_ssize_t position(int op, const T* a, Py_ssize_t n) noexcept nogil:
    """Index of the first largest (smallest) element, or of the first NaN"""
    cdef T best = a[0]
    cdef Py_ssize_t i, at = 0
    if best != best:
        return 0
    for i in range(1, n):
        if a[i] != a[i]:
            return i
        if (a[i] > best) if op == ARGMAX else (a[i] < best):
            best, at = a[i], i
    return at


cdef void running_sum(const T* a, T* out, Py_ssize_t n) noexcept nogil:
    """out[i] = a[0] + ... + a[i], from the left as NumPy adds"""
    cdef Py_ssize_t i
    cdef T total = 0
    for i in range(n):
        total += a[i]
        out[i] = total


cdef void line(int op, const char* a, int dtype, char* out, Py_ssize_t n) noexcept nogil:
    """One line of an arg_reduce (op >= 0) or of a scan"""
    if op >= 0:
        if dtype == FLOAT32:
            (<int64*> out)[0] = position(op, <const float*> a, n)
        elif dtype == FLOAT64:
            (<int64*> out)[0] = position(op, <const double*> a, n)
        elif dtype == INT32:
            (<int64*> out)[0] = position(op, <const int*> a, n)
        elif dtype == INT64:
            (<int64*> out)[0] = position(op, <const int64*> a, n)
        elif dtype == UINT8:
            (<int64*> out)[0] = position(op, <const uint8*> a, n)
        else:
            (<int64*> out)[0] = position(op, <const boolean*> a, n)
    elif dtype == FLOAT32:
        running_sum(<const float*> a, <float*> out, n)
    elif dtype == FLOAT64:
        running_sum(<const double*> a, <double*> out, n)
    else:
        running_sum(<const int64*> a, <int64*> out, n)


cdef struct Lines:
    int op
    const View* a
    const View* out
    bint flat, out_flat             # lines are read and written where they lie
    Py_ssize_t n, out_n             # elements of a line and of its result
    Py_ssize_t nbytes               # of either, staged
    char* staged


cdef void one_line(const void* given, Py_ssize_t i, int thread) noexcept nogil:
    cdef const Lines* job = <const Lines*> given
    cdef char* source = job.staged + 2 * thread * job.nbytes
    cdef char* target = source + job.nbytes
    if job.flat:
        source = job.a.data + i * job.n * job.a.itemsize
    else:
        gather(job.a, i * job.n, job.n, source)
    if job.out_flat:
        target = job.out.data + i * job.out_n * job.out.itemsize
    line(job.op, source, job.a.dtype, target, job.n)
    if not job.out_flat:
        scatter(target, i * job.out_n, job.out_n, job.out)


cdef int lines(int op, View* a, View* out, Py_ssize_t out_n, int threads) noexcept nogil:
    """Every line along the last axis of `a`, into out_n elements of out each"""
    cdef Lines job
    job.op, job.a, job.out, job.n, job.out_n = op, a, out, a.shape[a.ndim - 1], out_n
    job.flat, job.out_flat = contiguous(a), contiguous(out)
    job.nbytes = (job.n + 8) * 8
    job.staged = <char*> malloc(2 * threads * job.nbytes)
    if job.staged is NULL:
        return -1
    share(one_line, &job, a.size // job.n if job.n else 0, threads)
    free(job.staged)
    return 0


cdef int arg_reduce_views(int op, View* a, View* out, int threads) noexcept nogil:
    """out = position of the largest (smallest) along the last axis of a"""
    return lines(op, a, out, 1, threads)


cdef int scan_views(View* a, View* out, int threads) noexcept nogil:
    """out = running sums along the last axis of a"""
    return lines(-1, a, out, a.shape[a.ndim - 1], threads)
