# Reductions. Floats are folded in double and ints in 64 bits, LANES partial results side by side (which compilers turn into
# vectors), over fixed blocks whose results are combined in order: accurate, and the same bits for every number of threads.

from libc.math cimport INFINITY
from libc.stdlib cimport free, malloc

from needle_ndarray.kernels.strided cimport cast, coalesce, copy, gather, offset_of
from needle_ndarray.kernels.views cimport (
    BLOCK, CHUNK, FLOAT32, FLOAT64, INT32, INT64, T, UINT8, View, boolean, int64, magnitude, uint8
)
from needle_ndarray.optable cimport ALL, ANY, MAX, MIN, PROD, SUM
from needle_ndarray.threads cimport share

cdef extern from "short_rows.h" nogil:
    enum:
        FOLD_SUM "NEEDLE_FOLD_SUM"
        FOLD_PROD "NEEDLE_FOLD_PROD"
        FOLD_MAX "NEEDLE_FOLD_MAX"
        FOLD_MIN "NEEDLE_FOLD_MIN"
        FOLD_ANY "NEEDLE_FOLD_ANY"
        FOLD_ALL "NEEDLE_FOLD_ALL"
    void fold_short_rows_float "needle_fold_short_rows_float"(
        int op, const float* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t n, double* out) noexcept
    void fold_short_rows_double "needle_fold_short_rows_double"(
        int op, const double* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t n, double* out) noexcept
    void fold_short_rows_int "needle_fold_short_rows_int"(
        int op, const int* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t n, int64* out) noexcept
    void fold_short_rows_int64 "needle_fold_short_rows_int64"(
        int op, const int64* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t n, int64* out) noexcept

from needle_ndarray.backend import REDUCE
from needle_ndarray.kernels import check_ops

ctypedef fused A:           # what is accumulated in: ints in int64, floats in double
    int64
    double

cdef enum:
    LANES = 16              # partial sums: few enough to stay in registers
    WIDE = 32               # partial maxima: too many to be unrolled, which is what makes a vector loop of them
    STREAMS = 16384         # floats from which a run is read at four places: each is pages long, as prefetching needs it
    SPAN = 65536            # elements of one partial result
    NARROW = 16             # elements of a row up to which many rows are folded side by side, at a third of the time
    PAIRWISE = 512          # doubles added up without halving: 32 to a lane

cdef int64 LARGEST = 0x7fffffffffffffff

check_ops(REDUCE, {SUM, PROD, MAX, MIN, ANY, ALL}, "kernels/reduce.pyx")
check_ops(REDUCE, {FOLD_SUM, FOLD_PROD, FOLD_MAX, FOLD_MIN, FOLD_ANY, FOLD_ALL}, "kernels/short_rows.h")


# ---- Runs --------------------------------------------------------------------------

cdef inline A combine(int op, A x, A y) noexcept nogil:
    if op == SUM:
        return x + y
    if op == PROD:
        return x * y
    if op == MAX:
        return y if (y >= x) | (y != y) else x
    if op == MIN:
        return y if (y <= x) | (y != y) else x
    if op == ANY:
        return (x != 0) | (y != 0)
    return (x != 0) & (y != 0)


cdef inline A identity(int op, A like) noexcept nogil:
    if op == MAX:
        return -INFINITY if A is double else -LARGEST - 1
    if op == MIN:
        return INFINITY if A is double else LARGEST
    return op == PROD or op == ALL


cdef T extreme(int op, const T* a, Py_ssize_t n) noexcept nogil:
    """Largest (smallest) of n >= WIDE elements, n a multiple of WIDE; NaN if one is"""
    cdef T best[WIDE]
    cdef int nan[WIDE]
    cdef int found = 0
    cdef Py_ssize_t i, k, half
    for k in range(WIDE):
        best[k], nan[k] = a[k], 0
    for i in range(n // WIDE):          # NaNs are noted on the side: the comparison alone is one instruction
        if op == MAX:
            for k in range(WIDE):
                best[k] = a[WIDE * i + k] if a[WIDE * i + k] > best[k] else best[k]
                nan[k] |= a[WIDE * i + k] != a[WIDE * i + k]
        else:
            for k in range(WIDE):
                best[k] = a[WIDE * i + k] if a[WIDE * i + k] < best[k] else best[k]
                nan[k] |= a[WIDE * i + k] != a[WIDE * i + k]
    for k in range(WIDE):
        found |= nan[k]
    half = WIDE // 2
    while half > 0:
        for k in range(half):
            if op == MAX:
                best[k] = best[half + k] if best[half + k] > best[k] else best[k]
            else:
                best[k] = best[half + k] if best[half + k] < best[k] else best[k]
        half //= 2
    for i in range(n if found else 0):
        if a[i] != a[i]:
            return a[i]
    return best[0]


cdef T extreme_of_few(int op, const T* a, Py_ssize_t n) noexcept nogil:
    """Largest (smallest) of 1 to WIDE elements; NaN if one is"""
    cdef T best = a[0]
    cdef int found = a[0] != a[0]
    cdef Py_ssize_t i
    for i in range(1, n):
        found |= a[i] != a[i]
        if op == MAX:
            best = a[i] if a[i] > best else best
        else:
            best = a[i] if a[i] < best else best
    for i in range(n if found else 0):
        if a[i] != a[i]:
            return a[i]
    return best


cdef inline A four(const T* a, Py_ssize_t step, A like) noexcept nogil:
    """a[0] + a[step] + a[2 step] + a[3 step], floats as floats: a quarter of the conversions"""
    if T is float:
        return <A> ((a[0] + a[step]) + (a[2 * step] + a[3 * step]))
    else:
        return (<A> a[0] + <A> a[step]) + (<A> a[2 * step] + <A> a[3 * step])


cdef A fold_extreme(int op, const T* a, Py_ssize_t n, A acc) noexcept nogil:
    """The largest (smallest) of acc, a[0], a[1], ...; NaN if one is"""
    cdef Py_ssize_t whole = n - n % WIDE
    if n < WIDE:
        return combine(op, acc, <A> extreme_of_few(op, a, n)) if n > 0 else acc
    acc = combine(op, acc, <A> extreme(op, a, whole))
    return acc if whole == n else combine(op, acc, <A> extreme(op, a + n - WIDE, WIDE))      # some of them twice


cdef A fold_sum(const T* a, Py_ssize_t n, A acc) noexcept nogil:
    """acc + a[0] + a[1] + ...; sizes of the loops over lanes are constants: what a short row takes is mostly these"""
    cdef A lane[LANES]
    cdef Py_ssize_t i, k, part, distance, step
    for k in range(LANES):
        lane[k] = 0
    if T is float:                      # of a long run from four places at once: memory answers sooner
        part = n // (4 * LANES) * LANES
        distance = part if n >= STREAMS else <Py_ssize_t> LANES
        step = LANES if n >= STREAMS else 4 * LANES
        for i in range(part // LANES):
            for k in range(LANES):
                lane[k] += four(a + i * step + k, distance, acc)
        a += 4 * part
        n -= 4 * part
    for i in range(n // LANES):
        for k in range(LANES):
            lane[k] += <A> a[LANES * i + k]
    a += n // LANES * LANES
    for k in range(n % LANES):
        lane[k] += <A> a[k]
    for k in range(8):
        lane[k] += lane[8 + k]
    for k in range(4):
        lane[k] += lane[4 + k]
    return acc + ((lane[0] + lane[2]) + (lane[1] + lane[3]))


cdef A fold(int op, const T* a, Py_ssize_t n, A acc) noexcept nogil:
    """op(acc, a[0], a[1], ...)"""
    cdef A lane[LANES]
    cdef Py_ssize_t i, k, whole = n - n % LANES
    if op == SUM:
        return fold_sum(a, n, acc)
    if op == MAX or op == MIN:
        return fold_extreme(op, a, n, acc)
    for k in range(LANES):
        lane[k] = identity(op, acc)
    if op == PROD:
        for i in range(whole // LANES):
            for k in range(LANES):
                lane[k] *= <A> a[LANES * i + k]
    elif op == ANY:
        for i in range(whole // LANES):
            for k in range(LANES):
                lane[k] = 1 if a[LANES * i + k] != 0 else lane[k]
    else:
        for i in range(whole // LANES):
            for k in range(LANES):
                lane[k] = 0 if a[LANES * i + k] == 0 else lane[k]
    for i in range(whole, n):
        lane[i % LANES] = combine(op, lane[i % LANES], <A> a[i])
    k = LANES // 2
    while k > 0:
        for i in range(k):
            lane[i] = combine(op, lane[i], lane[i + k])
        k //= 2
    return combine(op, acc, lane[0])


cdef A pairwise(int op, const T* a, Py_ssize_t n, A acc) noexcept nogil:
    """fold, but long sums of doubles by halves: an error that grows with log n (float32 in double needs no such care)"""
    cdef Py_ssize_t half
    if T is double:
        if op == SUM and n > PAIRWISE:
            half = n // 2 - n // 2 % LANES
            return acc + (pairwise(op, a, half, <A> 0) + pairwise(op, a + half, n - half, <A> 0))
    return fold(op, a, n, acc)


cdef void fold_rows(int op, const T* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t columns, A* acc) noexcept nogil:
    """acc[j] = op(acc[j], a[r * stride + j]) for every row r"""
    cdef Py_ssize_t _r, j
    if op == SUM:                       # many rows at a time: the accumulators are read and written less often
        while rows >= 8:
            for j in range(columns):
                acc[j] = (acc[j] + four(a + j, stride, acc[0])) + four(a + 4 * stride + j, stride, acc[0])
            a += 8 * stride
            rows -= 8
        if rows >= 4:
            for j in range(columns):
                acc[j] += four(a + j, stride, acc[0])
            a += 4 * stride
            rows -= 4
    for _r in range(rows):
        if op == SUM:
            for j in range(columns):
                acc[j] += <A> a[j]
        elif op == PROD:
            for j in range(columns):
                acc[j] *= <A> a[j]
        elif op == MAX:
            for j in range(columns):
                acc[j] = <A> a[j] if (a[j] >= acc[j]) | (a[j] != a[j]) else acc[j]
        elif op == MIN:
            for j in range(columns):
                acc[j] = <A> a[j] if (a[j] <= acc[j]) | (a[j] != a[j]) else acc[j]
        elif op == ANY:
            for j in range(columns):
                acc[j] = 1 if a[j] != 0 else acc[j]
        else:
            for j in range(columns):
                acc[j] = 0 if a[j] == 0 else acc[j]
        a += stride


cdef void pairwise_rows(int op, const T* a, Py_ssize_t stride, Py_ssize_t rows, Py_ssize_t columns, A* acc) noexcept nogil:
    """fold_rows, but long sums of doubles by halves"""
    cdef A rest[CHUNK]
    cdef Py_ssize_t half, j
    if T is double:
        if op == SUM and rows > PAIRWISE // LANES:
            half = rows // 2
            for j in range(columns):
                rest[j] = 0
            pairwise_rows(op, a, stride, half, columns, acc)
            pairwise_rows(op, a + half * stride, stride, rows - half, columns, rest)
            for j in range(columns):
                acc[j] += rest[j]
            return
    fold_rows(op, a, stride, rows, columns, acc)


# ---- Reductions over any axes --------------------------------------------------------------------------

cdef struct Job:
    int op
    View outer                      # the kept axes
    View inner                      # the reduced axes
    bint vertical                   # the last kept axis is the densest, or rows are short: fold rows, not runs
    bint direct                     # runs along the last axis are contiguous and long: no staging
    bint short                      # runs are contiguous, short, and all there is to reduce: four of them at a time, in registers
    Py_ssize_t span                 # reduced elements of one partial result
    Py_ssize_t spans
    Py_ssize_t group                # horizontal: outputs of one task; vertical: columns of one task
    Py_ssize_t groups               # tasks of one span
    char* partial                   # results of every span
    char* staged                    # memory for a chunk, for every thread


cdef A fold_span(const Job* job, const T* base, Py_ssize_t start, Py_ssize_t n, char* staged, A acc) noexcept nogil:
    """op over elements start .. start+n of the reduced axes, at one output"""
    cdef const View* inner = &job.inner
    cdef View here
    cdef Py_ssize_t length, row
    if inner.ndim == 0 or (inner.ndim == 1 and inner.strides[0] == 1):
        return pairwise(job.op, base + start, n, acc)
    if not job.direct:
        here = job.inner
        here.data = <char*> base
    while n > 0:
        if job.direct:
            row = inner.shape[inner.ndim - 1]
            length = min(row - start % row, n)
            acc = pairwise(job.op, base + offset_of(inner, start), length, acc)
        else:
            length = min(<Py_ssize_t> CHUNK, n)
            gather(&here, start, length, staged)
            acc = pairwise(job.op, <const T*> staged, length, acc)
        start += length
        n -= length
    return acc


cdef void horizontal(const Job* job, Py_ssize_t task, const T* data, A* partial, char* staged) noexcept nogil:
    """Outputs of one group, each over one span."""
    cdef Py_ssize_t span = task // job.groups, first = task % job.groups * job.group, o
    cdef Py_ssize_t start = span * job.span
    cdef Py_ssize_t n = min(job.span, job.inner.size - start)
    for o in range(first, min(first + job.group, job.outer.size)):
        partial[span * job.outer.size + o] = fold_span(
            job, data + offset_of(&job.outer, o), start, n, staged, identity(job.op, partial[0]))


cdef inline void fold_short(const Job* job, const T* a, Py_ssize_t stride, Py_ssize_t rows, A* out) noexcept nogil:
    """out[i] = op over run i, for 4 of them or more"""
    cdef Py_ssize_t n = job.inner.size
    if T is float and A is double:
        fold_short_rows_float(job.op, a, stride, rows, n, out)
    elif T is double and A is double:
        fold_short_rows_double(job.op, a, stride, rows, n, out)
    elif T is int and A is int64:
        fold_short_rows_int(job.op, a, stride, rows, n, out)
    elif T is int64 and A is int64:
        fold_short_rows_int64(job.op, a, stride, rows, n, out)


cdef void vertical(const Job* job, Py_ssize_t task, const T* data, A* partial, char* staged) noexcept nogil:
    """One row of outputs, or up to CHUNK columns of it, over one span."""
    cdef const View* inner = &job.inner
    cdef Py_ssize_t width = job.outer.shape[job.outer.ndim - 1], stride = job.outer.strides[job.outer.ndim - 1]
    cdef Py_ssize_t panels = (width + job.group - 1) // job.group
    cdef Py_ssize_t span = task // job.groups, rest = task % job.groups, j, r, rows
    cdef Py_ssize_t first = rest % panels * job.group
    cdef Py_ssize_t columns = min(job.group, width - first)
    cdef Py_ssize_t o = rest // panels * width + first
    cdef Py_ssize_t stop = min((span + 1) * job.span, inner.size), last
    cdef A* acc = partial + span * job.outer.size + o
    cdef View line
    if job.short and columns >= 4:
        fold_short(job, data + offset_of(&job.outer, o), stride, columns, acc)
        return
    if job.short and inner.size > NARROW:
        for j in range(columns):
            acc[j] = pairwise(job.op, data + offset_of(&job.outer, o + j), inner.size, identity(job.op, acc[0]))
        return
    line.itemsize, line.ndim = sizeof(T), 1
    line.shape[0], line.strides[0] = columns, stride
    for j in range(columns):
        acc[j] = identity(job.op, acc[0])
    data += offset_of(&job.outer, o)
    r = span * job.span
    while r < stop:
        if stride == 1:
            last = inner.shape[inner.ndim - 1]
            rows = min(last - r % last, stop - r)
            pairwise_rows(job.op, data + offset_of(inner, r), inner.strides[inner.ndim - 1], rows, columns, acc)
        else:
            rows = 1
            line.data = <char*> (data + offset_of(inner, r))
            gather(&line, 0, columns, staged)
            fold_rows(job.op, <const T*> staged, 0, 1, columns, acc)
        r += rows


cdef void work(const Job* job, Py_ssize_t task, const T* data, A* partial, char* staged) noexcept nogil:
    if job.vertical:
        vertical(job, task, data, partial, staged)
    else:
        horizontal(job, task, data, partial, staged)


cdef void one_task(const void* given, Py_ssize_t task, int thread) noexcept nogil:
    cdef const Job* job = <const Job*> given
    cdef const char* data = job.outer.data
    cdef char* staged = job.staged + thread * CHUNK * 8
    if job.outer.dtype == FLOAT32:
        work(job, task, <const float*> data, <double*> job.partial, staged)
    elif job.outer.dtype == FLOAT64:
        work(job, task, <const double*> data, <double*> job.partial, staged)
    elif job.outer.dtype == INT32:
        work(job, task, <const int*> data, <int64*> job.partial, staged)
    elif job.outer.dtype == INT64:
        work(job, task, <const int64*> data, <int64*> job.partial, staged)
    elif job.outer.dtype == UINT8:
        work(job, task, <const uint8*> data, <int64*> job.partial, staged)
    else:
        work(job, task, <const boolean*> data, <int64*> job.partial, staged)


cdef int reduce_of(Job* job, A like, View* out, int threads) noexcept nogil:
    """Partial results of every task, combined in order, cast into out."""
    cdef Py_ssize_t outputs = job.outer.size, t, o
    cdef A* partial = <A*> malloc(max(job.spans, 1) * outputs * sizeof(A) + threads * CHUNK * 8)
    cdef View result
    cdef int status
    if partial is NULL:
        return -1
    job.partial, job.staged = <char*> partial, <char*> (partial + max(job.spans, 1) * outputs)
    for o in range(outputs if job.spans == 0 else 0):
        partial[o] = identity(job.op, like)
    share(one_task, job, job.spans * job.groups, threads)
    for t in range(1, job.spans):
        fold_rows(job.op, partial + t * outputs, 0, 1, outputs, partial)
    result.data, result.itemsize, result.size = <char*> partial, sizeof(A), outputs
    result.dtype = FLOAT64 if A is double else INT64
    result.ndim = job.outer.ndim
    t = 1
    for o in range(job.outer.ndim - 1, -1, -1):
        result.shape[o], result.strides[o] = job.outer.shape[o], t
        t *= job.outer.shape[o]
    status = copy(&result, out, 1)
    free(partial)
    return status


cdef void rows_of(int op, const T* a, Py_ssize_t rows, Py_ssize_t columns, A acc, int out_dtype, char* out) noexcept nogil:
    cdef A folded[CHUNK]
    cdef Py_ssize_t j
    for j in range(columns):
        folded[j] = identity(op, acc)
    if columns == 1:
        folded[0] = pairwise(op, a, rows, folded[0])
    else:
        pairwise_rows(op, a, columns, rows, columns, folded)
    cast(FLOAT64 if A is double else INT64, out_dtype, <char*> folded, out, columns)


cdef void reduce_rows(int op, int dtype, const char* a, Py_ssize_t rows, Py_ssize_t columns, int out_dtype,
                      char* out) noexcept nogil:
    """out[j] = op over a[:, j], contiguous: at most CHUNK columns (a whole array is one), and few enough elements for one span"""
    if dtype == FLOAT32:
        rows_of(op, <const float*> a, rows, columns, <double> 0, out_dtype, out)
    elif dtype == FLOAT64:
        rows_of(op, <const double*> a, rows, columns, <double> 0, out_dtype, out)
    elif dtype == INT32:
        rows_of(op, <const int*> a, rows, columns, <int64> 0, out_dtype, out)
    elif dtype == INT64:
        rows_of(op, <const int64*> a, rows, columns, <int64> 0, out_dtype, out)
    elif dtype == UINT8:
        rows_of(op, <const uint8*> a, rows, columns, <int64> 0, out_dtype, out)
    else:
        rows_of(op, <const boolean*> a, rows, columns, <int64> 0, out_dtype, out)


cdef int reduce_views(int op, View* a, int kept, View* out, int threads) noexcept nogil:
    """out = op over the axes of `a` from number `kept` on; -1 when there is no memory"""
    cdef Job job
    cdef View* views[2]
    cdef View* inner = &job.inner
    cdef bint in_any_order
    cdef int i
    job.op, job.outer, job.inner = op, a[0], a[0]
    job.outer.ndim, job.outer.size = kept, out.size
    inner.ndim, inner.size = a.ndim - kept, 1
    for i in range(inner.ndim):
        inner.shape[i], inner.strides[i] = a.shape[kept + i], a.strides[kept + i]
        inner.size *= inner.shape[i]
    if inner.size > 0:
        views[0] = inner
        coalesce(views, 1)
    views[0], views[1] = &job.outer, out
    job.outer.data = inner.data
    coalesce(views, 2)
    job.vertical = (
        job.outer.ndim > 0 and inner.ndim > 0
        and (magnitude(job.outer.strides[job.outer.ndim - 1]) < inner.strides[inner.ndim - 1] or inner.strides[inner.ndim - 1] == 0)
        and job.outer.shape[job.outer.ndim - 1] >= 4)
    job.short = False
    if inner.ndim > 0 and inner.size < WIDE and job.outer.ndim > 0 and job.outer.shape[job.outer.ndim - 1] >= LANES:
        in_any_order = a.dtype < FLOAT32 or op == ANY or op == ALL
        job.short = (inner.ndim == 1 and inner.strides[0] == 1 and inner.size >= 4 and not job.vertical
                     and a.dtype >= INT32 and (in_any_order or inner.size <= NARROW))
        job.vertical = job.vertical or job.short or inner.size <= NARROW
    job.direct = inner.ndim > 0 and inner.strides[inner.ndim - 1] == 1 and inner.shape[inner.ndim - 1] >= 64
    if job.vertical:
        job.group = min(job.outer.shape[job.outer.ndim - 1], <Py_ssize_t> CHUNK)
        job.span = max(SPAN // job.group, 1)
        job.groups = (job.outer.shape[job.outer.ndim - 1] + job.group - 1) // job.group
        job.groups *= job.outer.size // job.outer.shape[job.outer.ndim - 1]
    else:
        job.span = SPAN
        job.group = max(BLOCK // max(inner.size, 1), 1)
        job.groups = (job.outer.size + job.group - 1) // job.group
    job.spans = (inner.size + job.span - 1) // job.span
    if a.dtype == FLOAT32 or a.dtype == FLOAT64:
        return reduce_of(&job, <double> 0, out, threads)
    return reduce_of(&job, <int64> 0, out, threads)
