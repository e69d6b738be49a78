# Vector mathematics on contiguous chunks: exp and the like, powers, the activations and their gradients.

from libc.string cimport memcpy

from needle_ndarray.kernels.views cimport F, NO_LOOP
from needle_ndarray.optable cimport ATAN2, EXP, GELU_GRAD, HYPOT, LOGADDEXP, POWER, SILU_GRAD

cdef extern from "vector_math.h" nogil:
    int math_float "needle_math_float"(int op, const float* x, float* out, Py_ssize_t n)
    int math_double "needle_math_double"(int op, const double* x, double* out, Py_ssize_t n)
    int pair_float "needle_pair_float"(int op, const float* x, const float* y, float* out, Py_ssize_t n)
    int pair_double "needle_pair_double"(int op, const double* x, const double* y, double* out, Py_ssize_t n)
    enum:
        OF_GELU_GRAD "NEEDLE_GELU_GRAD"
        OF_SILU_GRAD "NEEDLE_SILU_GRAD"
        OF_POWER "NEEDLE_POWER"
        OF_ATAN2 "NEEDLE_ATAN2"
        OF_HYPOT "NEEDLE_HYPOT"
        OF_LOGADDEXP "NEEDLE_LOGADDEXP"

cdef enum:
    PIECE = 256             # elements copied at a time where an operand is a single one
    LANES = 16              # elements of the widest vectors: loops get whole ones


cdef int math_loop(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil:
    """out = op(a); NO_LOOP for any other op"""
    if F is float:
        return math_float(op - EXP, a, out, n)
    else:
        return math_double(op - EXP, a, out, n)


cdef int math_chunk(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil:
    """math_loop on whole vectors: the last few elements are padded with ones"""
    cdef F padded[LANES]
    cdef F result[LANES]
    cdef Py_ssize_t whole = n - n % LANES, i
    cdef int status = math_loop(op, a, out, whole)
    if whole < n:
        for i in range(LANES):
            padded[i] = a[whole + i] if whole + i < n else 1
        math_loop(op, padded, result, LANES)
        for i in range(n - whole):
            out[whole + i] = result[i]
    return status


cdef int pair_loop(int op, const F* a, const F* b, F* out, Py_ssize_t n) noexcept nogil:
    """out = op(a, b), functions of two numbers and gradients of activations; NO_LOOP for any other op"""
    cdef int which
    if op == GELU_GRAD:
        which = OF_GELU_GRAD
    elif op == SILU_GRAD:
        which = OF_SILU_GRAD
    elif op == POWER:
        which = OF_POWER
    elif op == ATAN2:
        which = OF_ATAN2
    elif op == HYPOT:
        which = OF_HYPOT
    elif op == LOGADDEXP:
        which = OF_LOGADDEXP
    else:
        return NO_LOOP
    if F is float:
        return pair_float(which, a, b, out, n)
    else:
        return pair_double(which, a, b, out, n)


cdef int pair_chunk(int op, const F* a, const F* b, F* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil:
    """pair_loop on whole vectors, as math_chunk; steps p and q are 1, or 0: a single element, which is repeated"""
    cdef F padded[3][PIECE]
    cdef Py_ssize_t done = n - n % LANES if p == 1 and q == 1 else 0, length, whole, i
    cdef int status = pair_loop(op, a, b, out, done)
    while done < n:
        length = min(<Py_ssize_t> PIECE, n - done)
        whole = (length + LANES - 1) // LANES * LANES
        for i in range(whole):
            padded[0][i] = a[p * (done + i)] if i < length else 1
            padded[1][i] = b[q * (done + i)] if i < length else 1
        pair_loop(op, padded[0], padded[1], padded[2], whole)
        memcpy(out + done, padded[2], length * sizeof(F))
        done += length
    return status
