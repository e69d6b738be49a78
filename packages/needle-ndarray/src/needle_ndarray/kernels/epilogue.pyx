# The epilogue of a convolution: elementwise steps (bias, batch norm in evaluation, relu, a residual sum) on a part of its result
# that has just been written and is still in the cache. The arithmetic is that of ewise.pyx, so the bits are those of one call after
# another.

from libc.string cimport memcpy

from needle_ndarray.kernels.views cimport FLOAT32, F
from needle_ndarray.optable cimport ADD, MULTIPLY, RELU, SUBTRACT

cdef enum:
    PERIOD = 256            # elements of the channels, repeated until loops over them are long enough
    LONG_ENOUGH = 128
    BLOCK = 2048            # elements that go through all steps before the next


cdef bint has_step(bint unary, int op) noexcept nogil:
    return op == RELU if unary else op == ADD or op == SUBTRACT or op == MULTIPLY


cdef inline void one_step(const Step* step, const F* a, F* y, Py_ssize_t n) noexcept nogil:
    """y = y op a"""
    cdef Py_ssize_t i
    if step.unary:
        for i in range(n):
            y[i] = 0 if y[i] <= 0 else y[i]
    elif step.op == ADD:
        for i in range(n):
            y[i] = y[i] + a[i]
    elif step.op == MULTIPLY:
        for i in range(n):
            y[i] = y[i] * a[i]
    elif step.swapped:
        for i in range(n):
            y[i] = a[i] - y[i]
    else:
        for i in range(n):
            y[i] = y[i] - a[i]


cdef void channel_step(const Step* step, const F* a, Py_ssize_t period, F* y, Py_ssize_t n) noexcept nogil:
    """y = y op a, where a begins again after each period"""
    cdef Py_ssize_t i = 0
    while i + period <= n:
        one_step(step, a, y + i, period)
        i += period
    one_step(step, a, y + i, n - i)


cdef Py_ssize_t repeated(const F* a, Py_ssize_t f, Py_ssize_t n, F* out) noexcept nogil:
    """a again and again, not much longer than n; its length"""
    cdef Py_ssize_t period = f
    memcpy(out, a, f * sizeof(F))
    while period < LONG_ENOUGH and 2 * period <= PERIOD and period < n:
        memcpy(out + period, out, period * sizeof(F))
        period *= 2
    return period


cdef void finish_block(const Epilogue* epilogue, F* y, Py_ssize_t start, Py_ssize_t n, Py_ssize_t f) noexcept nogil:
    cdef F staged[MOST_STEPS][PERIOD]
    cdef const F* operands[MOST_STEPS]
    cdef const Step* step
    cdef Py_ssize_t i, k, period = f, block, size
    for k in range(epilogue.count):
        if epilogue.steps[k].unary:
            continue
        operands[k] = <const F*> epilogue.steps[k].operand[0]
        if not epilogue.steps[k].whole and f < LONG_ENOUGH:
            period = repeated(operands[k], f, n, &staged[k][0])
            operands[k] = &staged[k][0]
    block, i = max(BLOCK // period, <Py_ssize_t> 1) * period, 0
    while i < n:
        size = min(block, n - i)
        for k in range(epilogue.count):
            step = &epilogue.steps[k]
            if step.unary:
                one_step(step, y + start + i, y + start + i, size)
            elif step.whole:
                one_step(step, operands[k] + start + i, y + start + i, size)
            else:
                channel_step(step, operands[k], period, y + start + i, size)
        i += size


cdef void finish(const Epilogue* epilogue, int dtype, char* y, Py_ssize_t start, Py_ssize_t n, Py_ssize_t f) noexcept nogil:
    """All steps for the n elements of y from `start` on: whole places of f channels"""
    if dtype == FLOAT32:
        finish_block(epilogue, <float*> y, start, n, f)
    else:
        finish_block(epilogue, <double*> y, start, n, f)
