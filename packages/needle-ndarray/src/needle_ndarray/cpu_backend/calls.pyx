"""The verbs of strided arrays as calls: their arguments checked, and ready to be run once or many times."""

from cpython.object cimport PyObject
from libc.string cimport memcpy, memmove

from needle_ndarray.backend cimport BINARY_OP, REDUCE_OP, UNARY_OP, Backend, Op
from needle_ndarray.calls cimport POINTERS, REWRITTEN, VIEWS, Call, Reads
from needle_ndarray.blas cimport blas
from needle_ndarray.cpu_backend.guard cimport (
    LARGEST, NOGIL_FROM, THREADS_FROM, THREADS_FROM_FLOPS, THREADS_FROM_MATH, host, known, stored
)
from needle_ndarray.kernels cimport ewise, matmul as products, reduce as reductions, strided
from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, empty_compact
from needle_ndarray.optable cimport BFLOAT16, EXP, FLOAT16, FLOAT32, GELU_GRAD, POWER
from needle_ndarray.rules cimport Borrowed, Rule
from needle_ndarray.threads cimport threads_for

import numpy as np

from needle_ndarray.rules import RULES

cdef extern from "half.h" nogil:
    unsigned short narrow_one "needle_narrow_one"(int brain, double value) noexcept

cdef Rule COPY = RULES["copy"], UNARY = RULES["unary"], BINARY = RULES["binary"], WHERE = RULES["where"]
cdef Rule MATMUL = RULES["matmul"], LINEAR = RULES["linear"]


# ---- Operands ---------------------------------------------------------------------------------------------------------------

cdef inline void take(Call* call, int k, NDArray a) noexcept:
    """Operand k as a pointer to compact elements"""
    call.arrays[k], call.data[k] = <PyObject*> a, a._ptr


cdef inline int view(Call* call, int k, object given) except -1:
    """Operand k as a view"""
    take(call, k, host(given, &call.views[k]))
    return 0


cdef inline int views_by(Rule rule, Call* call, int count) except -1:
    """Operands, named in `arrays`, as views, once the rule has checked them"""
    cdef int k
    rule.guard(<Borrowed*> call.arrays, call.views)
    for k in range(count):
        call.data[k] = call.views[k].data
    return 0


ctypedef int (*Run)(Call*) noexcept nogil


cdef inline void ready(Call* call, int count, Reads reads, Py_ssize_t work, Run run) noexcept:
    call.count, call.reads, call.work, call.run = count, reads, work, run


cdef int nothing(Call* call) noexcept nogil:
    """No elements"""
    return 0


# ---- Fill and copy ----------------------------------------------------------------------------------------------------------

cdef int run_fill(Call* call) noexcept nogil:
    strided.fill(&call.views[0], call.bits, threads_for(call.work, THREADS_FROM))
    return 0


cdef int prepare_fill(Backend backend, object out, object value, Call* call) except -1:
    cdef NDArray one
    cdef unsigned short word
    take(call, 0, stored(out, &call.views[0]))
    if call.views[0].dtype >= FLOAT16:
        word = narrow_one(call.views[0].dtype == BFLOAT16, value)
        memcpy(call.bits, &word, 2)
    else:
        one = empty_compact(backend, call.views[0].dtype, 0, NULL)
        np.asarray(one)[...] = value
        memcpy(call.bits, one._ptr, call.views[0].itemsize)
    ready(call, 1, REWRITTEN, call.views[0].size, run_fill if call.views[0].size else nothing)
    return 0


cdef int run_flat_copy(Call* call) noexcept nogil:
    memmove(call.data[1], call.data[0], call.n)
    return 0


cdef int run_copy(Call* call) noexcept nogil:
    return strided.copy(&call.views[0], &call.views[1], threads_for(call.work, THREADS_FROM))


cdef int prepare_copy(object a, object out, Call* call) except -1:
    cdef const View* target = &call.views[1]
    call.arrays[0], call.arrays[1] = <PyObject*> a, <PyObject*> out
    views_by(COPY, call, 2)
    call.n = target.size * target.itemsize
    if (<NDArray> a)._compact and (<NDArray> out)._compact and call.views[0].dtype == target.dtype and target.size < NOGIL_FROM:
        ready(call, 2, POINTERS, target.size, run_flat_copy)
    else:
        ready(call, 2, REWRITTEN, target.size, run_copy if target.size else nothing)
    return 0


# ---- Elementwise ------------------------------------------------------------------------------------------------------------

cdef int run_flat_unary(Call* call) noexcept nogil:
    ewise.unary(call.op, call.dtype, call.data[0], call.data[1], call.n)
    return 0


cdef int run_unary(Call* call) noexcept nogil:
    cdef Py_ssize_t threshold = THREADS_FROM_MATH if call.op >= EXP else THREADS_FROM
    return ewise.unary_views(call.op, &call.views[0], &call.views[1], threads_for(call.work, threshold))


cdef int prepare_unary(Op op, object a, object out, Call* call) except -1:
    known(op, UNARY_OP)
    cdef NDArray x = <NDArray?> a, result = <NDArray?> out
    call.op, call.dtype = op.code, x._dtype
    if is_flat_unary(op, x, result):
        take(call, 0, x)
        take(call, 1, result)
        call.n = x._size
        ready(call, 2, POINTERS, x._size, run_flat_unary)
        return 0
    return prepare_strided_unary(op, x, result, call)


cdef int prepare_strided_unary(Op op, NDArray x, NDArray result, Call* call) except -1:
    call.op = op.code
    call.arrays[0], call.arrays[1] = <PyObject*> x, <PyObject*> result
    views_by(UNARY, call, 2)
    if op.out_code[x._dtype] != result._dtype or op.compute_code[x._dtype] != x._dtype:
        raise TypeError(f"{op.name}: {x.dtype} to {result.dtype}")
    ready(call, 2, REWRITTEN, result._size, run_unary if result._size else nothing)
    return 0


cdef int run_flat_binary(Call* call) noexcept nogil:
    ewise.binary(call.op, call.dtype, call.data[0], call.data[1], call.data[2], call.n, call.p, call.q)
    return 0


cdef int run_binary(Call* call) noexcept nogil:
    cdef Py_ssize_t threshold = THREADS_FROM_MATH if call.op == POWER or call.op >= GELU_GRAD else THREADS_FROM
    return ewise.binary_views(call.op, &call.views[0], &call.views[1], &call.views[2], threads_for(call.work, threshold))


cdef int prepare_binary(Op op, object a, object b, object out, Call* call) except -1:
    known(op, BINARY_OP)
    cdef NDArray x = <NDArray?> a, y = <NDArray?> b, result = <NDArray?> out
    call.op, call.dtype = op.code, x._dtype
    if is_flat_binary(op, x, y, result):
        take(call, 0, x)
        take(call, 1, y)
        take(call, 2, result)
        call.n, call.p, call.q = x._size, x._compact, y._compact
        ready(call, 3, POINTERS, x._size, run_flat_binary)
        return 0
    return prepare_strided_binary(op, x, y, result, call)


cdef int prepare_strided_binary(Op op, NDArray x, NDArray y, NDArray result, Call* call) except -1:
    call.op = op.code
    call.arrays[0], call.arrays[1], call.arrays[2] = <PyObject*> x, <PyObject*> y, <PyObject*> result
    views_by(BINARY, call, 3)
    if op.out_code[x._dtype] != result._dtype or op.compute_code[x._dtype] != x._dtype:
        raise TypeError(f"{op.name}: {x.dtype} to {result.dtype}")
    ready(call, 3, REWRITTEN, result._size, run_binary if result._size else nothing)
    return 0


cdef int run_where(Call* call) noexcept nogil:
    return ewise.where_views(&call.views[0], &call.views[1], &call.views[2], &call.views[3], threads_for(call.work, THREADS_FROM))


cdef int prepare_where(object condition, object a, object b, object out, Call* call) except -1:
    cdef const View* target = &call.views[3]
    call.arrays[0], call.arrays[1], call.arrays[2], call.arrays[3] = \
        <PyObject*> condition, <PyObject*> a, <PyObject*> b, <PyObject*> out
    views_by(WHERE, call, 4)
    ready(call, 4, REWRITTEN, target.size, run_where if target.size else nothing)
    return 0


# ---- Reductions -------------------------------------------------------------------------------------------------------------

cdef int kept_first(const View* a, tuple axes, View* out, bint* last) except -1:
    """out = a with the given axes last; how many come before them. last[i]: whether axis i is one of the given, an array of 32"""
    cdef int i, n = 0, ndim = a.ndim, kept = ndim - <int> len(axes)
    cdef Py_ssize_t axis
    if kept < 0:
        raise ValueError(f"axes {axes} of {ndim}")
    out[0] = a[0]
    for i in range(ndim):
        last[i] = False
    for i in range(len(axes)):
        axis = axes[i]
        if not 0 <= axis < ndim or last[axis]:
            raise ValueError(f"axes {axes} of {ndim}")
        last[axis] = True
        out.shape[kept + i], out.strides[kept + i] = a.shape[axis], a.strides[axis]
    for i in range(ndim):
        if not last[i]:
            out.shape[n], out.strides[n] = a.shape[i], a.strides[i]
            n += 1
    return kept


cdef bint first_axes(tuple axes, NDArray a, NDArray out) except -1:
    """Whether the axes are a's first ones, and out has the shape of the others, or 1 for each and then that."""
    cdef int n = len(axes), i
    cdef int skipped = out._ndim - (a._ndim - n)
    if n > a._ndim or (skipped != 0 and skipped != n):
        return False
    for i in range(n):
        if <int> axes[i] != i or (skipped and out._shape[i] != 1):
            return False
    for i in range(a._ndim - n):
        if out._shape[skipped + i] != a._shape[n + i]:
            return False
    return True


cdef int run_rows(Call* call) noexcept nogil:
    reductions.reduce_rows(call.op, call.dtype, call.data[0], call.m, call.n, call.out_dtype, call.data[1])
    return 0


cdef int run_reduce(Call* call) noexcept nogil:
    return reductions.reduce_views(call.op, &call.views[0], call.m, &call.views[1], threads_for(call.work, THREADS_FROM))


cdef int prepare_reduce(Op op, object a, object out, tuple axes, Call* call) except -1:
    known(op, REDUCE_OP)
    cdef View given
    cdef View* source = &call.views[0]
    cdef View* target = &call.views[1]
    cdef int kept, i, n = 0
    cdef bint fits
    cdef bint reduced[32]
    cdef NDArray x = <NDArray?> a, result = <NDArray?> out
    call.op, call.dtype, call.out_dtype = op.code, x._dtype, result._dtype
    if x._compact and x._size < NOGIL_FROM and x._ptr is not NULL and result._ptr is not NULL \
            and op.out_code[x._dtype] == result._dtype:
        if result._size == 1 and len(axes) == x._ndim or result._compact and 4 <= result._size <= 1024 \
                and first_axes(axes, x, result):
            take(call, 0, x)
            take(call, 1, result)
            call.m, call.n = x._size // result._size, result._size
            ready(call, 2, POINTERS, x._size, run_rows)
            return 0
    take(call, 0, host(a, &given))
    view(call, 1, out)
    kept = kept_first(&given, axes, source, reduced)
    fits = op.out_code[source.dtype] == target.dtype and (target.ndim == kept or target.ndim == given.ndim)
    if fits and target.ndim != kept:            # out has the reduced axes too, with size 1: leave them out
        for i in range(target.ndim):
            if reduced[i]:
                fits = fits and target.shape[i] == 1
            else:
                target.shape[n], target.strides[n] = target.shape[i], target.strides[i]
                n += 1
        target.ndim = kept
    for i in range(kept if fits else 0):
        fits = fits and source.shape[i] == target.shape[i]
    if not fits:
        raise ValueError(f"{op.name}: out does not fit")
    call.m = kept
    ready(call, 2, REWRITTEN, source.size, run_reduce if target.size else nothing)
    return 0


# ---- Products ---------------------------------------------------------------------------------------------------------------

cdef int run_product(Call* call) noexcept nogil:
    cdef int last = call.count - 1
    return products.matmul_views(<const Blas*> call.blas, &call.views[0], &call.views[1], call.views[2].data if last == 3 else NULL,
                                 &call.views[last], threads_for(call.work, THREADS_FROM_FLOPS))


cdef inline bint are_matrices(Call* call, int count) noexcept:
    """Whether the operands are two matrices, maybe a row, and their product, all on the host, which then are views.

    Nearly all are, and this takes a quarter of the time that the rule takes, which is asked about all others.
    """
    cdef NDArray each, a = <NDArray> call.arrays[0], b = <NDArray> call.arrays[1], out = <NDArray> call.arrays[count - 1]
    cdef int k
    for k in range(count):
        each = <NDArray> call.arrays[k]
        if type(each) is not NDArray or each._ndim != 2 or each._dtype != a._dtype or each._ptr is NULL:
            return False
    if a._dtype >= FLOAT16 or a._shape[1] != b._shape[0] or out._shape[0] != a._shape[0] or out._shape[1] != b._shape[1]:
        return False
    if count == 4 and ((<NDArray> call.arrays[2])._shape[0] != 1 or (<NDArray> call.arrays[2])._shape[1] != out._shape[1]):
        return False
    for k in range(count):
        (<NDArray> call.arrays[k]).view_into(&call.views[k])
        call.data[k] = call.views[k].data
    return True


cdef bint prepare_product(object a, object b, PyObject* bias, object out, Call* call) except -1:
    """out = a @ b, or of matrices a @ b plus a compact row; False where the kernel cannot write the result, or there is no BLAS"""
    cdef int count = 3 if bias is NULL else 4, n
    cdef const View* target = &call.views[count - 1]
    cdef Py_ssize_t depth, rows, columns
    call.arrays[0], call.arrays[1], call.arrays[2] = <PyObject*> a, <PyObject*> b, bias
    call.arrays[count - 1], call.blas = <PyObject*> out, NULL
    if not are_matrices(call, count):
        views_by(MATMUL if bias is NULL else LINEAR, call, count)
    n = target.ndim
    depth, rows, columns = call.views[0].shape[n - 1], target.shape[n - 2], target.shape[n - 1]
    if bias is not NULL and (n != 2 or target.dtype < FLOAT32 or not (<NDArray> out)._compact or not (<NDArray> bias)._compact
                             or max(target.size, max(call.views[0].size, call.views[1].size)) > LARGEST):
        return False
    ready(call, count, VIEWS, target.size * depth, run_product if target.size else nothing)
    if target.size == 0:
        return True
    if target.strides[n - 1] != 1 and columns > 1 or target.strides[n - 2] < columns and rows > 1:
        return False
    if target.dtype < FLOAT32:
        return True
    if products.needs_blas(rows, depth, columns):
        call.blas = blas()
        if (<const Blas*> call.blas).sgemm is NULL:
            return False
    return max(max(depth, target.strides[n - 2]), max(columns, rows)) <= LARGEST
