# Elementwise arithmetic: one loop per op, on contiguous chunks; staging.pyx brings operands with other strides into that form.

from libc.math cimport ceil, ceilf, fabs, fabsf, floor, floorf, fmod, fmodf, rint, rintf, sqrt, sqrtf, trunc, truncf
from libc.string cimport memcpy

from needle_ndarray.kernels.vector_math cimport math_chunk, pair_chunk
from needle_ndarray.kernels.views cimport (
    BOOL, F, FLOAT32, FLOAT64, I, INT32, INT64, NO_LOOP, T, UINT8, boolean, int64, uint8
)
from needle_ndarray.optable cimport *

from needle_ndarray.backend import BINARY, UNARY
from needle_ndarray.dtypes import DTYPES


cdef extern from "<math.h>" nogil:
    bint c_signbit "signbit"(double)
    double c_copysign "copysign"(double, double)
    float c_copysignf "copysignf"(float, float)
    double c_nextafter "nextafter"(double, double)
    float c_nextafterf "nextafterf"(float, float)

cdef extern from *:     # Loops are inlined however long they are: a step that is a constant is what makes vectors of them.
    """
    #undef CYTHON_INLINE
    #define CYTHON_INLINE inline __attribute__((always_inline))
    """


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


cdef inline I shifted_left(I a, I b) noexcept nogil:
    """a 2^b by its bits; 0 where b is negative or no bit is left"""
    return <I> (<unsigned long long> a << b) if 0 <= b < <I> (8 * sizeof(I)) else <I> 0


cdef inline I shifted_right(I a, I b) noexcept nogil:
    """floor(a / 2^b); what is left of the sign where b is negative or beyond all bits"""
    return a >> b if 0 <= b < <I> (8 * sizeof(I)) else <I> (-1 if a < 0 else 0)


# ---- One chunk --------------------------------------------------------------------------

cdef int unary_loop(int op, const T* a, T* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), of the same dtype; NO_LOOP for an op that is not here"""
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
    elif T is float or T is double:
        if op == SQRT:
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
        elif op == ROUND:
            for i in range(n):
                out[i] = rintf(a[i]) if T is float else rint(a[i])
        else:
            return math_chunk(op, a, out, n)
    elif op == INVERT:
        for i in range(n):
            out[i] = ~a[i]
    elif op == FLOOR or op == CEIL or op == TRUNC or op == ROUND:       # an integer is whole
        memcpy(out, a, n * sizeof(T))
    else:
        return NO_LOOP
    return 0


cdef int predicate_loop(int op, const T* a, boolean* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), a bool; NO_LOOP for an op that is not here"""
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
    elif op == ISFINITE:
        for i in range(n):
            out[i] = a[i] - a[i] == 0
    elif op == SIGNBIT:
        for i in range(n):
            out[i] = c_signbit(<double> a[i]) != 0
    else:
        return NO_LOOP
    return 0


cdef inline int binary_loop(int op, const T* a, const T* b, T* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil:
    """out = op(a, b), of the same dtype; NO_LOOP for an op that is not here. Steps p and q are 1, or 0: a single element"""
    cdef Py_ssize_t i
    if op == ADD:
        for i in range(n):
            out[i] = a[p * i] + b[q * i]
    elif op == SUBTRACT:
        for i in range(n):
            out[i] = a[p * i] - b[q * i]
    elif op == MULTIPLY:
        for i in range(n):
            out[i] = a[p * i] * b[q * i]
    elif op == MAXIMUM:
        for i in range(n):
            out[i] = a[p * i] if (a[p * i] >= b[q * i]) | (a[p * i] != a[p * i]) else b[q * i]
    elif op == MINIMUM:
        for i in range(n):
            out[i] = a[p * i] if (a[p * i] <= b[q * i]) | (a[p * i] != a[p * i]) else b[q * i]
    elif op == RELU_GRAD:
        for i in range(n):
            out[i] = a[p * i] if b[q * i] > 0 else 0
    elif T is float or T is double:
        if op == DIVIDE:
            for i in range(n):
                out[i] = a[p * i] / b[q * i]
        elif op == TANH_GRAD:
            for i in range(n):
                out[i] = a[p * i] * ((1 - b[q * i]) * (1 + b[q * i]))       # 1 - b^2 would lose digits near 1
        elif op == SIGMOID_GRAD:
            for i in range(n):
                out[i] = a[p * i] * (b[q * i] * (1 - b[q * i]))
        else:
            return float_loop(op, a, b, out, n, p, q)
    else:
        if op == BITWISE_AND:
            for i in range(n):
                out[i] = a[p * i] & b[q * i]
        elif op == BITWISE_OR:
            for i in range(n):
                out[i] = a[p * i] | b[q * i]
        elif op == BITWISE_XOR:
            for i in range(n):
                out[i] = a[p * i] ^ b[q * i]
        elif op == LEFT_SHIFT:
            for i in range(n):
                out[i] = shifted_left(a[p * i], b[q * i])
        elif op == RIGHT_SHIFT:
            for i in range(n):
                out[i] = shifted_right(a[p * i], b[q * i])
        else:
            return quotient_loop(op, a, b, out, n, p, q)
    return 0


cdef int quotient_loop(int op, const T* a, const T* b, T* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil:
    """out = op(a, b): what is computed an element at a time, so that no step has to be a constant. Steps as above"""
    cdef Py_ssize_t i
    if T is float or T is double:
        for i in range(n):
            out[i] = floor_quotient(a[p * i], b[q * i]) if op == FLOOR_DIVIDE else remainder_of(a[p * i], b[q * i])
    elif op == FLOOR_DIVIDE:
        for i in range(n):
            if b[q * i] == 0:
                out[i] = 0
            elif b[q * i] == -1:                            # the smallest integer over -1 would trap
                out[i] = -a[p * i]
            else:
                out[i] = a[p * i] // b[q * i] - ((a[p * i] % b[q * i] != 0) & ((a[p * i] < 0) != (b[q * i] < 0)))
    elif op == REMAINDER:
        for i in range(n):
            if b[q * i] == 0 or b[q * i] == -1:
                out[i] = 0
            else:
                out[i] = a[p * i] % b[q * i]
                if out[i] != 0 and (out[i] < 0) != (b[q * i] < 0):
                    out[i] += b[q * i]
    elif op == POWER:
        for i in range(n):
            out[i] = integer_power(a[p * i], b[q * i])
    else:
        return NO_LOOP
    return 0


cdef int float_loop(int op, const F* a, const F* b, F* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil:
    """out = op(a, b): what C has exact functions for, an element at a time, and vector mathematics. Steps as above"""
    cdef Py_ssize_t i
    if op == COPYSIGN:
        for i in range(n):
            out[i] = c_copysignf(a[p * i], b[q * i]) if F is float else c_copysign(a[p * i], b[q * i])
    elif op == NEXTAFTER:
        for i in range(n):
            out[i] = c_nextafterf(a[p * i], b[q * i]) if F is float else c_nextafter(a[p * i], b[q * i])
    elif op == FLOOR_DIVIDE or op == REMAINDER:
        return quotient_loop(op, a, b, out, n, p, q)
    else:
        return pair_chunk(op, a, b, out, n, p, q)
    return 0


cdef inline int compare_loop(int op, const T* a, const T* b, boolean* out, Py_ssize_t n, Py_ssize_t q) noexcept nogil:
    """out = op(a, b), a bool; NO_LOOP for an op that is not here. Step q is 1, or 0: a single element"""
    cdef Py_ssize_t i
    if op == EQUAL:
        for i in range(n):
            out[i] = a[i] == b[q * i]
    elif op == NOT_EQUAL or op == LOGICAL_XOR:
        for i in range(n):
            out[i] = a[i] != b[q * i]
    elif op == LESS:
        for i in range(n):
            out[i] = a[i] < b[q * i]
    elif op == LESS_EQUAL:
        for i in range(n):
            out[i] = a[i] <= b[q * i]
    elif op == GREATER:
        for i in range(n):
            out[i] = a[i] > b[q * i]
    elif op == GREATER_EQUAL:
        for i in range(n):
            out[i] = a[i] >= b[q * i]
    elif op == LOGICAL_AND:
        for i in range(n):
            out[i] = (a[i] != 0) & (b[q * i] != 0)
    elif op == LOGICAL_OR:
        for i in range(n):
            out[i] = (a[i] != 0) | (b[q * i] != 0)
    else:
        return NO_LOOP
    return 0


cdef void where_loop(const boolean* condition, const T* a, const T* b, T* out, Py_ssize_t n) noexcept nogil:
    """out = a where condition else b"""
    cdef Py_ssize_t i
    cdef T x, y
    for i in range(n):
        x, y = a[i], b[i]               # both are read, so that compilers make vectors
        out[i] = x if condition[i] else y


# ---- From dtype code to loop --------------------------------------------------------------------------

cdef inline bint is_predicate(int op) noexcept nogil:
    return ISNAN <= op <= LOGICAL_NOT


cdef inline bint is_comparison(int op) noexcept nogil:
    return EQUAL <= op <= LOGICAL_XOR


cdef int unary_of(int op, const T* a, char* out, Py_ssize_t n) noexcept nogil:
    return predicate_loop(op, a, <boolean*> out, n) if is_predicate(op) else unary_loop(op, a, <T*> out, n)


cdef inline int mirrored(int op) noexcept nogil:
    """The comparison that gives of b and a what this one gives of a and b"""
    if op == LESS:
        return GREATER
    if op == LESS_EQUAL:
        return GREATER_EQUAL
    if op == GREATER:
        return LESS
    return LESS_EQUAL if op == GREATER_EQUAL else op


cdef int binary_of(int op, const T* a, const T* b, char* out, Py_ssize_t n, bint p, bint q) noexcept nogil:
    """The steps as constants: compilers make vectors of loops whose steps they know."""
    cdef T one
    if is_comparison(op):
        if p and q:
            return compare_loop(op, a, b, <boolean*> out, n, 1)
        one = b[0] if p else a[0]
        return compare_loop(op if p else mirrored(op), a if p else b, &one, <boolean*> out, n, 0)
    if not p:
        one = a[0]
        return binary_loop(op, &one, b, <T*> out, n, 0, 1)
    if not q:
        one = b[0]
        return binary_loop(op, a, &one, <T*> out, n, 1, 0)
    return binary_loop(op, a, b, <T*> out, n, 1, 1)


cdef int unary(int op, int dtype, const char* a, char* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), contiguous; a is of the given dtype. 0, or NO_LOOP: for no op of the table, see check_table."""
    if dtype == FLOAT32:
        return unary_of(op, <const float*> a, out, n)
    if dtype == FLOAT64:
        return unary_of(op, <const double*> a, out, n)
    if dtype == INT32:
        return unary_of(op, <const int*> a, out, n)
    if dtype == INT64:
        return unary_of(op, <const int64*> a, out, n)
    if dtype == BOOL and op == INVERT:                  # bools are bytes that hold 0 or 1, and the rest is alike
        op = LOGICAL_NOT
    return unary_of(op, <const uint8*> a, out, n)


cdef int binary(int op, int dtype, const char* a, const char* b, char* out, Py_ssize_t n, bint p, bint q) noexcept nogil:
    """out = op(a, b), both of the given dtype; contiguous (p, q), or one of them a single element. 0, or NO_LOOP as above."""
    if dtype == FLOAT32:
        return binary_of(op, <const float*> a, <const float*> b, out, n, p, q)
    if dtype == FLOAT64:
        return binary_of(op, <const double*> a, <const double*> b, out, n, p, q)
    if dtype == INT32:
        return binary_of(op, <const int*> a, <const int*> b, out, n, p, q)
    if dtype == INT64:
        return binary_of(op, <const int64*> a, <const int64*> b, out, n, p, q)
    if dtype == BOOL and op == ADD:                     # bools are bytes that hold 0 or 1, and the rest is alike
        op = BITWISE_OR
    return binary_of(op, <const uint8*> a, <const uint8*> b, out, n, p, q)


def check_table(ops, bint binary_ops):
    """Raise NotImplementedError unless each op has a loop for every dtype that it computes in."""
    cdef double nothing[1]              # an address for loops over no elements
    cdef char* at = <char*> nothing
    for op in ops.values():
        for dtype in {code for code in op.compute_dtype if code >= 0}:
            status = binary(op.code, dtype, at, at, at, 0, True, True) if binary_ops else unary(op.code, dtype, at, at, 0)
            to_bool = is_comparison(op.code) if binary_ops else is_predicate(op.code)
            if status != 0 or to_bool != (op.result == "bool"):
                raise NotImplementedError(f"cpu backend: {op.name} of {DTYPES[dtype]}: no loop in kernels/ewise.pyx")


check_table(UNARY, False)
check_table(BINARY, True)


cdef void where(const char* condition, int dtype, const char* a, const char* b, char* out, Py_ssize_t n) noexcept nogil:
    if dtype == FLOAT32 or dtype == INT32:              # moved by size, whatever it means
        where_loop(<const boolean*> condition, <const int*> a, <const int*> b, <int*> out, n)
    elif dtype == BOOL or dtype == UINT8:
        where_loop(<const boolean*> condition, <const boolean*> a, <const boolean*> b, <boolean*> out, n)
    else:
        where_loop(<const boolean*> condition, <const int64*> a, <const int64*> b, <int64*> out, n)
