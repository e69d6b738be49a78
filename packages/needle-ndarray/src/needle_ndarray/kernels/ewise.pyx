# Elementwise arithmetic: one loop per op, on contiguous chunks; the drivers below stage strided operands.
# Long because every op of the table has its two lines here, side by side.

from libc.math cimport ceil, ceilf, fabs, fabsf, floor, floorf, fmod, fmodf, pow, powf, rint, rintf, sqrt, sqrtf, trunc, truncf
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from needle_ndarray.kernels.strided cimport chunk_length, coalesce, contiguous, gather, scatter
from needle_ndarray.kernels.views cimport (
    BLOCK, BOOL, CHUNK, F, FLOAT32, FLOAT64, I, INT32, INT64, T, UINT8, View, boolean, int64, uint8
)
from needle_ndarray.optable cimport *
from needle_ndarray.threads cimport share

cdef enum:
    LONG_ROW = 256          # elements from which a broadcast row is read where it lies


include "ewise_math.pxi"


# ---- One element --------------------------------------------------------------------------

cdef inline F remainder_of(F a, F b) noexcept nogil:
    """a - floor(a / b) * b, with the sign of b"""
    cdef F r = fmodf(a, b) if F is float else fmod(a, b)
    if b == 0:
        return r                        # NaN
    if r != 0:
        return r + b if (b < 0) != (r < 0) else r
    return -0.0 if b < 0 or (b == 0 and 1 / b < 0) else 0.0


cdef inline F floor_quotient(F a, F b) noexcept nogil:
    """floor(a / b), rounded as if from the exact quotient"""
    cdef F r, quotient, whole
    if b == 0:
        return a / b
    r = fmodf(a, b) if F is float else fmod(a, b)
    quotient = (a - r) / b
    if r != 0 and (b < 0) != (r < 0):
        quotient -= 1
    if quotient == 0:                   # a zero with the sign of a / b
        return -0.0 if (a < 0) != (b < 0) and a != 0 or (a == 0 and a / b == 0 and 1 / (a / b) < 0) else 0.0
    whole = floorf(quotient) if F is float else floor(quotient)
    return whole + 1 if quotient - whole > 0.5 else whole


cdef inline I integer_power(I a, I b) noexcept nogil:
    """a^b by squaring, for b >= 0; wraps"""
    cdef I power = 1
    while b > 0:
        if b & 1:
            power *= a
        b >>= 1
        a *= a
    return power


# ---- One chunk --------------------------------------------------------------------------

cdef void unary_loop(int op, const T* a, T* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), of the same dtype"""
    cdef Py_ssize_t i
    if op == NEGATIVE:
        for i in range(n):
            out[i] = -a[i]
    elif op == ABS:
        for i in range(n):
            if T is float:
                out[i] = fabsf(a[i])
            elif T is double:
                out[i] = fabs(a[i])
            else:
                out[i] = -a[i] if a[i] < 0 else a[i]
    elif op == SIGN:
        for i in range(n):
            if T is float or T is double:
                out[i] = a[i] if a[i] != a[i] else <T> ((a[i] > 0) - (a[i] < 0))
            else:
                out[i] = (a[i] > 0) - (a[i] < 0)
    elif op == RELU:
        for i in range(n):
            out[i] = 0 if a[i] <= 0 else a[i]
    elif op == INVERT:
        for i in range(n):
            if T is boolean:
                out[i] = not a[i]
            elif T is uint8 or T is int or T is int64:
                out[i] = ~a[i]
    elif T is float or T is double:
        if op >= EXP:
            math_chunk(op, a, out, n)
        elif op == SQRT:
            for i in range(n):
                out[i] = sqrtf(a[i]) if T is float else sqrt(a[i])
        elif op == RSQRT:
            for i in range(n):
                out[i] = 1 / (sqrtf(a[i]) if T is float else sqrt(a[i]))
        elif op == FLOOR:
            for i in range(n):
                out[i] = floorf(a[i]) if T is float else floor(a[i])
        elif op == CEIL:
            for i in range(n):
                out[i] = ceilf(a[i]) if T is float else ceil(a[i])
        elif op == TRUNC:
            for i in range(n):
                out[i] = truncf(a[i]) if T is float else trunc(a[i])
        else:
            for i in range(n):
                out[i] = rintf(a[i]) if T is float else rint(a[i])
    else:                                               # rounding an integer
        memcpy(out, a, n * sizeof(T))


cdef void predicate_loop(int op, const T* a, boolean* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), a bool"""
    cdef Py_ssize_t i
    if op == LOGICAL_NOT:
        for i in range(n):
            out[i] = a[i] == 0
    elif op == ISNAN:
        for i in range(n):
            out[i] = a[i] != a[i]
    elif op == ISINF:
        for i in range(n):
            out[i] = (a[i] - a[i] != 0) & (a[i] == a[i])
    else:
        for i in range(n):
            out[i] = a[i] - a[i] == 0


cdef void binary_loop(int op, const T* a, const T* b, T* out, Py_ssize_t n) noexcept nogil:
    """out = op(a, b), of the same dtype"""
    cdef Py_ssize_t i
    if op == ADD:
        for i in range(n):
            if T is boolean:
                out[i] = a[i] | b[i]
            else:
                out[i] = a[i] + b[i]
    elif op == SUBTRACT:
        for i in range(n):
            out[i] = a[i] - b[i]
    elif op == MULTIPLY:
        for i in range(n):
            out[i] = a[i] * b[i]
    elif op == MAXIMUM:
        for i in range(n):
            out[i] = a[i] if (a[i] >= b[i]) | (a[i] != a[i]) else b[i]
    elif op == MINIMUM:
        for i in range(n):
            out[i] = a[i] if (a[i] <= b[i]) | (a[i] != a[i]) else b[i]
    elif op == RELU_GRAD:
        for i in range(n):
            out[i] = a[i] if b[i] > 0 else 0
    elif T is float or T is double:
        if op == DIVIDE:
            for i in range(n):
                out[i] = a[i] / b[i]
        elif op == TANH_GRAD:
            for i in range(n):
                out[i] = a[i] * ((1 - b[i]) * (1 + b[i]))       # 1 - b^2 would lose digits near 1
        elif op == SIGMOID_GRAD:
            for i in range(n):
                out[i] = a[i] * (b[i] * (1 - b[i]))
        elif op >= GELU_GRAD:
            grad_chunk(op, a, b, out, n)
        elif op == FLOOR_DIVIDE:
            for i in range(n):
                out[i] = floor_quotient(a[i], b[i])
        elif op == REMAINDER:
            for i in range(n):
                out[i] = remainder_of(a[i], b[i])
        else:
            for i in range(n):
                out[i] = powf(a[i], b[i]) if T is float else pow(a[i], b[i])
    else:
        if op == FLOOR_DIVIDE:
            for i in range(n):
                if b[i] == 0:
                    out[i] = 0
                elif b[i] == -1:                        # the smallest integer over -1 would trap
                    out[i] = -a[i]
                else:
                    out[i] = a[i] // b[i] - ((a[i] % b[i] != 0) & ((a[i] < 0) != (b[i] < 0)))
        elif op == REMAINDER:
            for i in range(n):
                if b[i] == 0 or b[i] == -1:
                    out[i] = 0
                else:
                    out[i] = a[i] % b[i]
                    if out[i] != 0 and (out[i] < 0) != (b[i] < 0):
                        out[i] += b[i]
        elif op == POWER:
            for i in range(n):
                out[i] = integer_power(a[i], b[i])
        elif op == BITWISE_AND:
            for i in range(n):
                out[i] = a[i] & b[i]
        elif op == BITWISE_OR:
            for i in range(n):
                out[i] = a[i] | b[i]
        else:
            for i in range(n):
                out[i] = a[i] ^ b[i]


cdef void compare_loop(int op, const T* a, const T* b, boolean* out, Py_ssize_t n) noexcept nogil:
    """out = op(a, b), a bool"""
    cdef Py_ssize_t i
    if op == EQUAL:
        for i in range(n):
            out[i] = a[i] == b[i]
    elif op == NOT_EQUAL or op == LOGICAL_XOR:
        for i in range(n):
            out[i] = a[i] != b[i]
    elif op == LESS:
        for i in range(n):
            out[i] = a[i] < b[i]
    elif op == LESS_EQUAL:
        for i in range(n):
            out[i] = a[i] <= b[i]
    elif op == GREATER:
        for i in range(n):
            out[i] = a[i] > b[i]
    elif op == GREATER_EQUAL:
        for i in range(n):
            out[i] = a[i] >= b[i]
    elif op == LOGICAL_AND:
        for i in range(n):
            out[i] = (a[i] != 0) & (b[i] != 0)
    else:
        for i in range(n):
            out[i] = (a[i] != 0) | (b[i] != 0)


cdef void where_loop(const boolean* condition, const T* a, const T* b, T* out, Py_ssize_t n) noexcept nogil:
    """out = a where condition else b"""
    cdef Py_ssize_t i
    cdef T x, y
    for i in range(n):
        x, y = a[i], b[i]               # both are read, so that compilers make vectors
        out[i] = x if condition[i] else y


# ---- From dtype code to loop --------------------------------------------------------------------------

cdef void unary_of(int op, const T* a, char* out, Py_ssize_t n) noexcept nogil:
    if ISNAN <= op <= LOGICAL_NOT:
        predicate_loop(op, a, <boolean*> out, n)
    else:
        unary_loop(op, a, <T*> out, n)


cdef void binary_of(int op, const T* a, const T* b, char* out, Py_ssize_t n) noexcept nogil:
    if EQUAL <= op <= LOGICAL_XOR:
        compare_loop(op, a, b, <boolean*> out, n)
    else:
        binary_loop(op, a, b, <T*> out, n)


cdef void unary(int op, int dtype, const char* a, char* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), contiguous; a is of the given dtype"""
    if dtype == FLOAT32:
        unary_of(op, <const float*> a, out, n)
    elif dtype == FLOAT64:
        unary_of(op, <const double*> a, out, n)
    elif dtype == INT32:
        unary_of(op, <const int*> a, out, n)
    elif dtype == INT64:
        unary_of(op, <const int64*> a, out, n)
    elif dtype == UINT8:
        unary_of(op, <const uint8*> a, out, n)
    else:
        unary_of(op, <const boolean*> a, out, n)


cdef void binary(int op, int dtype, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    """out = op(a, b), contiguous; a and b are of the given dtype"""
    if dtype == FLOAT32:
        binary_of(op, <const float*> a, <const float*> b, out, n)
    elif dtype == FLOAT64:
        binary_of(op, <const double*> a, <const double*> b, out, n)
    elif dtype == INT32:
        binary_of(op, <const int*> a, <const int*> b, out, n)
    elif dtype == INT64:
        binary_of(op, <const int64*> a, <const int64*> b, out, n)
    elif dtype == UINT8:
        binary_of(op, <const uint8*> a, <const uint8*> b, out, n)
    else:
        binary_of(op, <const boolean*> a, <const boolean*> b, out, n)


cdef void binary_constant(int op, int dtype, const char* a, const char* b, bint left, char* out, Py_ssize_t n) noexcept nogil:
    """out = op(a, b), contiguous but for one operand (`left`: the first) that is a single element"""
    cdef char staged[CHUNK * 8]
    cdef Py_ssize_t item = 1 if dtype == BOOL or dtype == UINT8 else 4 if dtype == INT32 or dtype == FLOAT32 else 8
    cdef Py_ssize_t out_item = 1 if EQUAL <= op <= LOGICAL_XOR else item, start = 0, length
    cdef View one
    one.data, one.itemsize, one.ndim = <char*> (a if left else b), item, 1
    one.shape[0], one.strides[0] = CHUNK, 0
    gather(&one, 0, min(<Py_ssize_t> CHUNK, n), staged)
    while start < n:
        length = min(<Py_ssize_t> CHUNK, n - start)
        if left:
            binary(op, dtype, staged, b + start * item, out + start * out_item, length)
        else:
            binary(op, dtype, a + start * item, staged, out + start * out_item, length)
        start += length


cdef void where(const char* condition, int dtype, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    if dtype == FLOAT32 or dtype == INT32:              # moved by size, whatever it means
        where_loop(<const boolean*> condition, <const int*> a, <const int*> b, <int*> out, n)
    elif dtype == BOOL or dtype == UINT8:
        where_loop(<const boolean*> condition, <const boolean*> a, <const boolean*> b, <boolean*> out, n)
    else:
        where_loop(<const boolean*> condition, <const int64*> a, <const int64*> b, <int64*> out, n)


# ---- Any strides --------------------------------------------------------------------------

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
    char* staged                    # room for a chunk of every operand, for every thread


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
