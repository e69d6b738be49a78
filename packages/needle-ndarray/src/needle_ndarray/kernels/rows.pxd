# What kernels over rows share: how rows are cut into tasks, rows in and out of any view, and sums of a row in LANES partial sums
# side by side, which compilers keep in vector registers.

from libc.string cimport memset

from needle_ndarray.kernels.memoryviews cimport matrix
from needle_ndarray.kernels.strided cimport copy, gather, scatter
from needle_ndarray.kernels.views cimport FLOAT64, F, View

cdef enum:
    LANES = 32              # too many to be unrolled, which is what makes a vector loop of them
    RUN = 2048              # elements of a row added up before they go to a double: 64 to a lane
    ROWS = 32               # rows added up before they go to a double
    STAGED = 8192           # elements staged at a time, where rows are short enough
    TASKS = 64              # partial column sums, fewer where rows are long
    PARTIAL = 1048576       # their elements


cdef struct Cut:            # rows in steps that fit the cache, steps in spans with a partial sum each
    Py_ssize_t n
    Py_ssize_t rows
    Py_ssize_t step
    Py_ssize_t span
    Py_ssize_t tasks


cdef inline Cut cut(const View* x) noexcept nogil:
    cdef Cut c
    cdef Py_ssize_t most
    c.n = x.shape[x.ndim - 1]
    c.rows = x.size // c.n
    c.step = max(<Py_ssize_t> 1, min(<Py_ssize_t> ROWS, STAGED // c.n))
    most = max(<Py_ssize_t> 8, min(<Py_ssize_t> TASKS, PARTIAL // c.n))
    c.span = ((c.rows + c.step - 1) // c.step + most - 1) // most * c.step
    c.tasks = (c.rows + c.span - 1) // c.span if c.rows else 0
    return c


cdef inline F* rows_of(const View* a, bint flat, Py_ssize_t start, Py_ssize_t count, F* staged) noexcept nogil:
    """Elements start .. start+count where they lie, or brought into the buffer"""
    if flat:
        return <F*> a.data + start
    gather(a, start, count, <char*> staged)
    return staged


cdef inline F* target_for(const View* out, bint flat, Py_ssize_t start, F* staged) noexcept nogil:
    """Where elements from start on are written: in place, or into the buffer"""
    return <F*> out.data + start if flat else staged


cdef inline F[:, ::1] source_rows(const View* a, bint flat, Py_ssize_t first, Py_ssize_t count, Py_ssize_t n,
                                  F* staged) noexcept nogil:
    """Rows first .. first+count of n elements, where they lie or brought into the buffer"""
    return matrix(rows_of(a, flat, first * n, count * n, staged), count, n)


cdef inline F[:, ::1] target_rows(const View* out, bint flat, Py_ssize_t first, Py_ssize_t count, Py_ssize_t n,
                                  F* staged) noexcept nogil:
    """Rows to be written, in place or in the buffer: finish_rows then brings them to their place"""
    return matrix(target_for(out, flat, first * n, staged), count, n)


cdef inline void finish_rows(F[:, ::1] rows, const View* out, bint flat, Py_ssize_t first) noexcept nogil:
    if not flat:
        scatter(<char*> &rows[0, 0], first * rows.shape[1], rows.shape[0] * rows.shape[1], out)


cdef inline int store(double* values, Py_ssize_t n, const View* out) noexcept nogil:
    """out = n doubles, rounded to its dtype"""
    cdef View source, target = out[0]
    source.data, source.dtype, source.itemsize, source.size = <char*> values, FLOAT64, sizeof(double), n
    source.ndim, source.shape[0], source.strides[0] = 1, n, 1
    return copy(&source, &target, 1)


cdef inline void total(const Cut* c, double* partial, Py_ssize_t width) noexcept nogil:
    """partial[0] = the sum of every task's `width` columns, in order"""
    cdef Py_ssize_t t, j
    if c.tasks == 0:
        memset(partial, 0, width * sizeof(double))
    for t in range(1, c.tasks):
        for j in range(width):
            partial[j] += partial[t * width + j]


cdef extern from *:
    """
    static const volatile double needle_zero = 0;
    """
    const double needle_zero


cdef inline void clear(F* lane) noexcept nogil:
    """lane = 0, a zero that compilers do not know: of a known one they make `rep stos`, which costs as much as a row of 300"""
    cdef F zero = <F> needle_zero
    cdef Py_ssize_t k
    for k in range(LANES):
        lane[k] = zero


cdef inline double folded(F* lane) noexcept nogil:
    """The sum of the lanes, by halves of fixed size: a loop over sizes costs as much as a row of 300"""
    cdef Py_ssize_t k
    for k in range(16):
        lane[k] += lane[16 + k]
    for k in range(8):
        lane[k] += lane[8 + k]
    for k in range(4):
        lane[k] += lane[4 + k]
    return (lane[0] + lane[2]) + (lane[1] + lane[3])
