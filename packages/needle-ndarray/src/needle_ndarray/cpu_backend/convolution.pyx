"""Convolution and pooling of the CPU backend: what guards the memory (rules), compact NHWC operands, threads."""

from cpython.object cimport PyObject
from libc.math cimport INFINITY
from libc.stdint cimport uintptr_t
from libc.stdlib cimport calloc, free, malloc

from needle_ndarray.backend cimport BINARY_OP, CONV2D_OP, POOL2D_OP, UNARY_OP, Backend, Op
from needle_ndarray.blas cimport blas, reserve_buffers
from needle_ndarray.buffer cimport Buffer, allocate as allocate_buffer, recycle
from needle_ndarray.calls cimport POINTERS, Call
from needle_ndarray.cpu_backend.guard cimport LARGEST, THREADS_FROM, THREADS_FROM_FLOPS, known
from needle_ndarray.geometry cimport Geometry, read_pair
from needle_ndarray.kernels cimport conv, epilogue as epilogues, matmul as products, pool as pools
from needle_ndarray.kernels.gemm cimport Blas
from needle_ndarray.kernels.views cimport View
from needle_ndarray.ndarray cimport NDArray, empty_compact
from needle_ndarray.optable cimport AVG_POOL_GRAD, CONV2D, INPUT_GRAD, MAX_POOL, MAX_POOL_GRAD, WEIGHT_GRAD
from needle_ndarray.rules cimport Borrowed, Rule
from needle_ndarray.threads cimport threads_for

from needle_ndarray.rules import RULES

cdef enum:
    NARROW = 4                          # channels of an image that is put in order as it is read: colours that lie apart

cdef Rule CONV_RULE = RULES["conv2d"], MAX_POOL_RULE = RULES["max_pool2d"], AVG_POOL_RULE = RULES["avg_pool2d"]
cdef Rule MAX_POOL_GRAD_RULE = RULES["max_pool2d_grad"], AVG_POOL_GRAD_RULE = RULES["avg_pool2d_grad"]


cdef int describe(Geometry at, const View* x, const View* y, Py_ssize_t kh, Py_ssize_t kw, conv.Conv* out,
                  Py_ssize_t* after) except -1:
    """The sizes of a convolution or pooling from x to y; after: the padding below and to the right"""
    cdef Py_ssize_t oh, ow
    at.fit(x.shape[1], x.shape[2], kh, kw, &oh, &ow)
    if oh != y.shape[1] or ow != y.shape[2]:
        raise ValueError(f"{at.name}: the result has {y.shape[1]} x {y.shape[2]} places, expected {oh} x {ow}")
    out.top, out.left, after[0], after[1] = at.top, at.left, at.bottom, at.right
    out.sh, out.sw, out.dh, out.dw = at.sh, at.sw, at.dh, at.dw
    out.n, out.h, out.w, out.c = x.shape[0], x.shape[1], x.shape[2], x.shape[3]
    out.kh, out.kw, out.oh, out.ow, out.f, out.groups = kh, kw, y.shape[1], y.shape[2], y.shape[3], at.groups
    out.pitch, out.strided, out.plane = kw, False, False
    return 0


cdef NDArray packed(Backend backend, object given, bint output):
    """The array itself where it is compact, else a compact one: a copy, or for an output just memory"""
    cdef NDArray a = <NDArray> given, made
    if a._compact:
        return a
    made = empty_compact(backend, a._dtype, a._ndim, a._shape)
    if not output:
        backend.copy(a, made)
    return made


cdef Py_ssize_t idle(Py_ssize_t reach, Py_ssize_t padding, Py_ssize_t kernel, Py_ssize_t dilation) noexcept:
    """Rows of a kernel, counted from an edge, that see nothing but padding: the window nearest to the image gets to `reach`"""
    return min(padding // dilation, min((reach + dilation - 1) // dilation, kernel - 1)) if reach > 0 else 0


cdef tuple trimmed(const conv.Conv* g, const Py_ssize_t* after):
    """(rows and columns of the kernel that see the image, the padding that is left), None where all of them do"""
    cdef Py_ssize_t top = idle(g.top - (g.oh - 1) * g.sh, g.top, g.kh, g.dh)
    cdef Py_ssize_t left = idle(g.left - (g.ow - 1) * g.sw, g.left, g.kw, g.dw)
    cdef Py_ssize_t bottom = idle((g.kh - 1) * g.dh - g.top - g.h + 1, after[0], g.kh - top, g.dh)
    cdef Py_ssize_t right = idle((g.kw - 1) * g.dw - g.left - g.w + 1, after[1], g.kw - left, g.dw)
    if top + left + bottom + right == 0:
        return None
    return ((slice(top, g.kh - bottom), slice(left, g.kw - right)),
            ((g.top - top * g.dh, after[0] - bottom * g.dh), (g.left - left * g.dw, after[1] - right * g.dw)))


cdef void take_whole(conv.Conv* g) noexcept:
    """Where the kernel sees the image whole: a product of matrices"""
    cdef bint whole = g.kh == g.h and g.kw == g.w and g.oh == 1 and g.ow == 1 and g.top + g.left == 0
    if whole and g.groups == 1 and g.dh == 1 and g.dw == 1:
        g.c *= g.h * g.w
        g.h = g.w = g.kh = g.kw = g.pitch = g.sh = g.sw = 1


cdef tuple decide(int code, int dtype, conv.Conv* g, const Py_ssize_t* after, NDArray x, conv.Plan* plan, Py_ssize_t* first):
    """Plan a convolution or a gradient of it; first: the element of the weights that it begins with.

    Not planned, and what `trimmed` gives, where only a part of the weights is needed and has to be copied.
    """
    cdef Py_ssize_t top, left
    cdef int i
    first[0] = 0
    rest = trimmed(g, after)
    if rest is not None:                # small images under wide padding: most of the products would be with zeros
        if code != CONV2D:
            return rest
        rows, columns = rest[0]
        top, left = rows.start, columns.start
        first[0] = (top * g.kw + left) * (g.c // g.groups) * g.f
        g.kh, g.kw, g.top, g.left = rows.stop - top, columns.stop - left, g.top - top * g.dh, g.left - left * g.dw
        if g.kh == 1:
            g.pitch = g.kw
    if g.pitch == g.kw:
        take_whole(g)
    plan[0] = conv.planned(code, dtype, g)
    if plan.algorithm != conv.TILES:
        return rest if g.pitch > g.kw else None
    if code == CONV2D and g.c <= NARROW and not x._compact:
        g.strided = True
        for i in range(4):
            g.steps[i] = x._strides[i]
        plan[0] = conv.planned(code, dtype, g)
    return None


cdef int threads_for_work(double work, Py_ssize_t threshold) noexcept nogil:
    return threads_for(<Py_ssize_t> min(work, 1e18), threshold)


cdef int conv2d(Backend backend, Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation,
                Py_ssize_t groups) except -1:
    """One of the three ops: the operand that it computes is written. What needs BLAS is left to the default without it."""
    known(op, CONV2D_OP)
    cdef View[3] v
    cdef Borrowed[3] given = [<Borrowed> x, <Borrowed> weight, <Borrowed> y]
    cdef View image, filters, result
    cdef conv.Conv g
    cdef conv.Plan plan
    cdef const Blas* blas_found = blas()
    cdef Py_ssize_t count, first
    cdef Py_ssize_t after[2]
    cdef int threads, code = op.code
    cdef NDArray a, b, c
    cdef Buffer scratch
    cdef char* scratch_at
    cdef Geometry at = Geometry(op.name, stride, padding, dilation, groups)
    CONV_RULE.guard(given, v)
    image, filters, result = v[0], v[1], v[2]
    at.check_channels(image.shape[3], filters.shape)
    describe(at, &image, &result, filters.shape[0], filters.shape[1], &g, after)
    out = y if code == CONV2D else x if code == INPUT_GRAD else weight
    if image.size == 0 or filters.size == 0 or result.size == 0:
        backend.fill(out, 0)
        return 0
    rest = decide(code, image.dtype, &g, after, <NDArray> x, &plan, &first)
    if rest is not None:
        if code == WEIGHT_GRAD:
            backend.fill(weight, 0)
        return conv2d(backend, op, x, weight[rest[0]], y, stride, rest[1], dilation, groups)
    count = g.kh * g.kw * (g.c // groups)
    if conv.needs_blas(&plan) and (blas_found.sgemm is NULL or max(count, max(g.c, g.f)) > LARGEST):
        Backend.conv2d(backend, op, x, weight, y, stride, padding, dilation, groups)
        return 0
    a = <NDArray> x if g.strided else packed(backend, x, code == INPUT_GRAD)
    b, c = packed(backend, weight, code == WEIGHT_GRAD), packed(backend, y, code == CONV2D)
    threads = threads_for_work(<double> result.size * count, THREADS_FROM_FLOPS)
    if products.needs_blas(g.n * g.oh * g.ow, count, g.f):
        reserve_buffers(threads)
    scratch = allocate_buffer(conv.scratch_elements(&plan, threads) * image.itemsize + 64)
    scratch_at = <char*> &scratch.data[0]
    with nogil:
        conv.convolve(&plan, blas_found, a._ptr, b._ptr + first * filters.itemsize, c._ptr, NULL, scratch_at, threads)
    made = c if code == CONV2D else a if code == INPUT_GRAD else b
    if made is not out:
        backend.copy(made, out)
    recycle(scratch)                    # else its memory would go back to the system: a page fault per 4 KB in every call
    return 0


cdef int run_conv2d(Call* call) noexcept nogil:
    cdef int threads = threads_for_work(call.work, THREADS_FROM_FLOPS)
    cdef Py_ssize_t nbytes = conv.scratch_elements(&call.plan, threads) * call.n + 128
    cdef char* scratch = <char*> malloc(nbytes)
    if scratch is NULL:
        return -1
    conv.convolve(&call.plan, <const Blas*> call.blas, call.data[0], call.data[1] + call.m, call.data[2], call.epilogue,
                  scratch + (64 - <uintptr_t> scratch % 64), threads)
    free(scratch)
    return 0


cdef bint prepare_conv2d(Op op, object x, object weight, object y, tuple stride, tuple padding, tuple dilation, Py_ssize_t groups,
                         Call* call) except -1:
    """Of arrays that need no copy; False where they do, or where BLAS is asked, which may need memory first"""
    known(op, CONV2D_OP)
    cdef View[3] v
    cdef Borrowed[3] given = [<Borrowed> x, <Borrowed> weight, <Borrowed> y]
    cdef conv.Conv g
    cdef Py_ssize_t after[2]
    cdef Py_ssize_t count, first, i
    cdef Geometry at = Geometry(op.name, stride, padding, dilation, groups)
    CONV_RULE.guard(given, v)
    at.check_channels(v[0].shape[3], v[1].shape)
    describe(at, &v[0], &v[2], v[1].shape[0], v[1].shape[1], &g, after)
    if not ((<NDArray> weight)._compact and (<NDArray> y)._compact):
        return False
    if v[0].size == 0 or v[1].size == 0 or v[2].size == 0:
        return False
    if decide(op.code, v[0].dtype, &g, after, <NDArray> x, &call.plan, &first) is not None:
        return False
    if not ((<NDArray> x)._compact or g.strided):
        return False
    count = g.kh * g.kw * (g.c // groups)
    call.m, call.blas, call.n = first * v[1].itemsize, blas(), v[0].itemsize
    if conv.needs_blas(&call.plan) and (
            blas().sgemm is NULL or max(count, max(g.c, g.f)) > LARGEST or products.needs_blas(g.n * g.oh * g.ow, count, g.f)):
        return False
    for i in range(3):
        call.arrays[i], call.data[i] = <PyObject*> given[i], v[i].data
    call.count, call.reads, call.run = 3, POINTERS, run_conv2d
    call.work = <Py_ssize_t> min(<double> v[2].size * count, 1e18)
    return True


# ---- The epilogue of a convolution ------------------------------------------------------------------------------------------

cdef bint lies_as(NDArray y, NDArray result) noexcept:
    """Whether y has all elements of a compact result, in whatever order of the axes"""
    cdef Py_ssize_t step = 1
    cdef int axis = 0
    if y._buffer is not result._buffer or y._offset != result._offset or y._dtype != result._dtype or y._size != result._size:
        return False
    while axis < y._ndim:               # the axis that goes on where the last one ended
        if y._shape[axis] > 1 and y._strides[axis] == step:
            step *= y._shape[axis]
            axis = 0
        else:
            axis += 1
    return step == y._size


cdef bint steps_as(NDArray a, NDArray y, Py_ssize_t channels) noexcept:
    """Whether a has an element for each one of y; or, for a number of channels other than 0, for each of those"""
    cdef Py_ssize_t wanted
    cdef int k
    if a._ndim != y._ndim or a._dtype != y._dtype:
        return False
    for k in range(y._ndim):
        if y._strides[k] < channels < y._strides[k] * y._shape[k]:     # an axis that goes on beyond the channels
            return False
        wanted = y._strides[k] if channels == 0 or y._strides[k] < channels else 0
        if a._shape[k] != y._shape[k] or (y._shape[k] > 1 and a._strides[k] != wanted):
            return False
    return True


cdef bint is_apart(NDArray a, NDArray y) noexcept:
    """Whether a, whose strides are not negative, has no element in the memory of y"""
    cdef Py_ssize_t last = a._offset
    cdef int k
    for k in range(a._ndim):
        last += (a._shape[k] - 1) * a._strides[k] if a._shape[k] > 1 else 0
    return a._buffer is not y._buffer or last < y._offset or a._offset >= y._offset + y._size


cdef bint describe_step(Op op, tuple args, NDArray result, epilogues.Step* step) except -1:
    """Whether a call of a unary or binary verb is a step that writes over the result; then the step"""
    cdef NDArray y = <NDArray?> args[len(args) - 1], a
    cdef Py_ssize_t f = result._shape[3]
    step.unary, step.op = op.verb == UNARY_OP, op.code
    if op.verb != UNARY_OP and op.verb != BINARY_OP or not epilogues.has_step(step.unary, op.code) or not lies_as(y, result):
        return False
    for i in range(1, len(args) - 1):
        a = <NDArray?> args[i]
        if lies_as(a, result) and steps_as(a, y, 0):
            step.swapped = i == 2
            if step.unary:
                return True
            a = <NDArray?> args[3 - i]
            step.whole = steps_as(a, y, 0)
            step.operand = &a._ptr
            return (step.whole or steps_as(a, y, f)) and is_apart(a, y)
    return False


cdef int fuse(Call* call, list steps) except -1:
    """Let a prepared convolution do the first of these calls too; how many"""
    cdef epilogues.Epilogue* made
    if call.run != run_conv2d or call.plan.op != CONV2D or call.epilogue is not NULL:
        return 0
    made = <epilogues.Epilogue*> calloc(1, sizeof(epilogues.Epilogue))
    if made is NULL:
        raise MemoryError("no memory for a plan")
    call.epilogue = made
    for verb, args in steps[:epilogues.MOST_STEPS]:
        if not (verb == "unary" or verb == "binary") \
                or not describe_step(<Op?> args[0], args, <NDArray> call.arrays[2], &made.steps[made.count]):
            break
        made.count += 1
    return made.count


# ---- Pooling ----------------------------------------------------------------------------------------------------------------

cdef double pooled_work(const View* image, const View* result, const conv.Conv* g) noexcept:
    """Elements that a pooling looks at"""
    return max(<double> result.size * min(g.kh, g.h) * min(g.kw, g.w), <double> image.size)


cdef int run_pool2d(Call* call) noexcept nogil:
    pools.pool(call.op, call.dtype, &call.plan.g, call.data[0], NULL, call.data[1], threads_for(call.work, THREADS_FROM))
    return 0


cdef bint prepare_pool2d(Op op, object x, object out, tuple size, tuple stride, tuple padding, Call* call) except -1:
    """Of compact arrays; False where these are not"""
    known(op, POOL2D_OP)
    cdef View[3] v
    cdef Borrowed[3] given = [<Borrowed> x, <Borrowed> out, NULL]
    cdef Py_ssize_t after[2]
    cdef Py_ssize_t kh, kw
    cdef int i
    cdef Geometry at = Geometry(op.name, stride, padding)
    read_pair(op.name, "size", size, 1, &kh, &kw)
    (MAX_POOL_RULE if op.code == MAX_POOL else AVG_POOL_RULE).guard(given, v)
    describe(at, &v[0], &v[1], kh, kw, &call.plan.g, after)
    if not ((<NDArray> x)._compact and (<NDArray> out)._compact) or v[0].size == 0 or v[1].size == 0:
        return False
    for i in range(2):
        call.arrays[i], call.data[i] = <PyObject*> given[i], v[i].data
    call.op, call.dtype, call.count, call.reads, call.run = op.code, v[0].dtype, 2, POINTERS, run_pool2d
    call.work = <Py_ssize_t> min(pooled_work(&v[0], &v[1], &call.plan.g), 1e18)
    return True


cdef int pool2d(Backend backend, Op op, bint backward, object grad, object x, object out, tuple size, tuple stride,
                tuple padding) except -1:
    """Of x, or backward: of its gradient from that of the result; what an op does not need is None."""
    known(op, POOL2D_OP)
    cdef View[3] v
    cdef Borrowed[3] given = [<Borrowed> x, <Borrowed> out, NULL]
    cdef View image, result
    cdef conv.Conv g
    cdef Py_ssize_t kh, kw
    cdef Py_ssize_t after[2]
    cdef bint largest = op.code == MAX_POOL
    cdef NDArray a, b, made
    cdef char* x_at = NULL
    cdef char* y_at = NULL
    cdef int threads, dtype, code = op.code
    cdef Geometry at = Geometry(op.name, stride, padding)
    read_pair(op.name, "size", size, 1, &kh, &kw)
    if not backward:
        (MAX_POOL_RULE if largest else AVG_POOL_RULE).guard(given, v)
        image, result = v[0], v[1]
    else:
        code = MAX_POOL_GRAD if largest else AVG_POOL_GRAD
        if largest:
            given[:] = [<Borrowed> grad, <Borrowed> x, <Borrowed> out]
        else:
            given[0] = <Borrowed> grad
        (MAX_POOL_GRAD_RULE if largest else AVG_POOL_GRAD_RULE).guard(given, v)
        image, result = v[2 if largest else 1], v[0]
    describe(at, &image, &result, kh, kw, &g, after)
    if image.size == 0 or result.size == 0:
        backend.fill(out, -INFINITY if largest and not backward else 0)
        return 0
    made = packed(backend, out, True)
    if largest or not backward:
        a = packed(backend, x, False)
        x_at = a._ptr
    if backward:
        b = packed(backend, grad, False)
        y_at = b._ptr
    dtype = image.dtype
    threads = threads_for_work(pooled_work(&image, &result, &g), THREADS_FROM)
    with nogil:
        pools.pool(code, dtype, &g, x_at, y_at, made._ptr, threads)
    if made is not out:
        backend.copy(made, out)
    return 0
