# Vector mathematics on contiguous chunks: exp and the like, the activations and their gradients.

from libc.string cimport memcpy

from needle_ndarray.kernels.views cimport F, NO_LOOP
from needle_ndarray.optable cimport (
    ACOS, ACOSH, ASIN, ASINH, ATAN, ATANH, COS, COSH, ERF, EXP, EXPM1, GELU, GELU_GRAD, LOG, LOG10, LOG1P, LOG2, SIGMOID, SILU,
    SILU_GRAD, SIN, SINH, TAN, TANH
)

cdef extern from "vecmath.h" nogil:
    const char* NEEDLE_VECTOR_MATH
    double c_exp "exp"(double)
    float c_expf "expf"(float)
    double c_expm1 "expm1"(double)
    float c_expm1f "expm1f"(float)
    double c_log "log"(double)
    float c_logf "logf"(float)
    double c_log1p "log1p"(double)
    float c_log1pf "log1pf"(float)
    double c_sin "sin"(double)
    float c_sinf "sinf"(float)
    double c_cos "cos"(double)
    float c_cosf "cosf"(float)
    double c_erf "erf"(double)
    float c_erff "erff"(float)
    double c_log2 "log2"(double)
    float c_log2f "log2f"(float)
    double c_log10 "log10"(double)
    float c_log10f "log10f"(float)
    double c_tan "tan"(double)
    float c_tanf "tanf"(float)
    double c_asin "asin"(double)
    float c_asinf "asinf"(float)
    double c_acos "acos"(double)
    float c_acosf "acosf"(float)
    double c_atan "atan"(double)
    float c_atanf "atanf"(float)
    double c_sinh "sinh"(double)
    float c_sinhf "sinhf"(float)
    double c_cosh "cosh"(double)
    float c_coshf "coshf"(float)
    double c_asinh "asinh"(double)
    float c_asinhf "asinhf"(float)
    double c_acosh "acosh"(double)
    float c_acoshf "acoshf"(float)
    double c_atanh "atanh"(double)
    float c_atanhf "atanhf"(float)

cdef extern from "activations.h" nogil:
    void sigmoid_float "needle_sigmoid_float"(const float* x, float* out, Py_ssize_t n)
    void sigmoid_double "needle_sigmoid_double"(const double* x, double* out, Py_ssize_t n)
    void tanh_float "needle_tanh_float"(const float* x, float* out, Py_ssize_t n)
    void tanh_double "needle_tanh_double"(const double* x, double* out, Py_ssize_t n)
    void gelu_float "needle_gelu_float"(const float* x, float* out, Py_ssize_t n)
    void gelu_double "needle_gelu_double"(const double* x, double* out, Py_ssize_t n)
    void silu_float "needle_silu_float"(const float* x, float* out, Py_ssize_t n)
    void silu_double "needle_silu_double"(const double* x, double* out, Py_ssize_t n)
    void gelu_grad_float "needle_gelu_grad_float"(const float* grad, const float* x, float* out, Py_ssize_t n)
    void gelu_grad_double "needle_gelu_grad_double"(const double* grad, const double* x, double* out, Py_ssize_t n)
    void silu_grad_float "needle_silu_grad_float"(const float* grad, const float* x, float* out, Py_ssize_t n)
    void silu_grad_double "needle_silu_grad_double"(const double* grad, const double* x, double* out, Py_ssize_t n)

cdef enum:
    PIECE = 256             # elements copied at a time where an operand is a single one
    LANES = 16              # vector functions get whole vectors: an element's bits do not depend on its place


def vector_math():
    """Where exp, log and the like come from."""
    return NEEDLE_VECTOR_MATH.decode()


cdef int math_loop(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil:
    """out = op(a); NO_LOOP for any other op"""
    cdef Py_ssize_t i
    if op == EXP:
        for i in range(n):
            out[i] = c_expf(a[i]) if F is float else c_exp(a[i])
    elif op == EXPM1:
        for i in range(n):
            out[i] = c_expm1f(a[i]) if F is float else c_expm1(a[i])
    elif op == LOG:
        for i in range(n):
            out[i] = c_logf(a[i]) if F is float else c_log(a[i])
    elif op == LOG1P:
        for i in range(n):
            out[i] = c_log1pf(a[i]) if F is float else c_log1p(a[i])
    elif op == SIN:
        for i in range(n):
            out[i] = c_sinf(a[i]) if F is float else c_sin(a[i])
    elif op == COS:
        for i in range(n):
            out[i] = c_cosf(a[i]) if F is float else c_cos(a[i])
    elif op == TANH:
        if F is float:
            tanh_float(a, out, n)
        else:
            tanh_double(a, out, n)
    elif op == SIGMOID:
        if F is float:
            sigmoid_float(a, out, n)
        else:
            sigmoid_double(a, out, n)
    elif op == ERF:
        for i in range(n):
            out[i] = c_erff(a[i]) if F is float else c_erf(a[i])
    elif op == GELU:
        if F is float:
            gelu_float(a, out, n)
        else:
            gelu_double(a, out, n)
    elif op == SILU:
        if F is float:
            silu_float(a, out, n)
        else:
            silu_double(a, out, n)
    else:
        return scalar_loop(op, a, out, n)
    return 0


cdef int scalar_loop(int op, const F* a, F* out, Py_ssize_t n) noexcept nogil:
    """out = op(a), for functions called an element at a time; NO_LOOP for any other op"""
    cdef Py_ssize_t i
    if op == LOG2:
        for i in range(n):
            out[i] = c_log2f(a[i]) if F is float else c_log2(a[i])
    elif op == LOG10:
        for i in range(n):
            out[i] = c_log10f(a[i]) if F is float else c_log10(a[i])
    elif op == TAN:
        for i in range(n):
            out[i] = c_tanf(a[i]) if F is float else c_tan(a[i])
    elif op == ASIN:
        for i in range(n):
            out[i] = c_asinf(a[i]) if F is float else c_asin(a[i])
    elif op == ACOS:
        for i in range(n):
            out[i] = c_acosf(a[i]) if F is float else c_acos(a[i])
    elif op == ATAN:
        for i in range(n):
            out[i] = c_atanf(a[i]) if F is float else c_atan(a[i])
    elif op == SINH:
        for i in range(n):
            out[i] = c_sinhf(a[i]) if F is float else c_sinh(a[i])
    elif op == COSH:
        for i in range(n):
            out[i] = c_coshf(a[i]) if F is float else c_cosh(a[i])
    elif op == ASINH:
        for i in range(n):
            out[i] = c_asinhf(a[i]) if F is float else c_asinh(a[i])
    elif op == ACOSH:
        for i in range(n):
            out[i] = c_acoshf(a[i]) if F is float else c_acosh(a[i])
    elif op == ATANH:
        for i in range(n):
            out[i] = c_atanhf(a[i]) if F is float else c_atanh(a[i])
    else:
        return NO_LOOP
    return 0


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


cdef int grad_loop(int op, const F* grad, const F* x, F* out, Py_ssize_t n) noexcept nogil:
    """out = the gradient of an activation; NO_LOOP for any other op"""
    if op == GELU_GRAD:
        if F is float:
            gelu_grad_float(grad, x, out, n)
        else:
            gelu_grad_double(grad, x, out, n)
    elif op == SILU_GRAD:
        if F is float:
            silu_grad_float(grad, x, out, n)
        else:
            silu_grad_double(grad, x, out, n)
    else:
        return NO_LOOP
    return 0


cdef int grad_chunk(int op, const F* grad, const F* x, F* out, Py_ssize_t n, Py_ssize_t p, Py_ssize_t q) noexcept nogil:
    """grad_loop on whole vectors, as math_chunk; steps p and q are 1, or 0: a single element, which is repeated"""
    cdef F padded[3][PIECE]
    cdef Py_ssize_t done = n - n % LANES if p == 1 and q == 1 else 0, length, whole, i
    cdef int status = grad_loop(op, grad, x, out, done)
    while done < n:
        length = min(<Py_ssize_t> PIECE, n - done)
        whole = (length + LANES - 1) // LANES * LANES
        for i in range(whole):
            padded[0][i] = grad[p * (done + i)] if i < length else 1
            padded[1][i] = x[q * (done + i)] if i < length else 1
        grad_loop(op, padded[0], padded[1], padded[2], whole)
        memcpy(out + done, padded[2], length * sizeof(F))
        done += length
    return status
