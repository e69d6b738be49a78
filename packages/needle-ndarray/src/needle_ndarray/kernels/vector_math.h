/* Vector mathematics on chunks that are whole vectors long: a loop for each op of the table. */
#ifndef NEEDLE_VECTOR_MATH_H
#define NEEDLE_VECTOR_MATH_H
#include "activations.h"
#include "inverse.h"
#include "power.h"
#include "trigonometric.h"
#include "wide.h"

/* in the order of the op table: UnaryCode from EXP on */
enum {
    NEEDLE_EXP,
    NEEDLE_EXPM1,
    NEEDLE_LOG,
    NEEDLE_LOG1P,
    NEEDLE_SIN,
    NEEDLE_COS,
    NEEDLE_TANH,
    NEEDLE_SIGMOID,
    NEEDLE_ERF,
    NEEDLE_GELU,
    NEEDLE_SILU,
    NEEDLE_LOG2,
    NEEDLE_LOG10,
    NEEDLE_TAN,
    NEEDLE_ASIN,
    NEEDLE_ACOS,
    NEEDLE_ATAN,
    NEEDLE_SINH,
    NEEDLE_COSH,
    NEEDLE_ASINH,
    NEEDLE_ACOSH,
    NEEDLE_ATANH
};

enum { NEEDLE_NO_LOOP = -2 }; /* views.pxd */
enum { NEEDLE_GELU_GRAD, NEEDLE_SILU_GRAD, NEEDLE_POWER, NEEDLE_ATAN2, NEEDLE_HYPOT, NEEDLE_LOGADDEXP };

/* float32 in double, for functions that would need almost as many terms, and which are called less often */
NEEDLE_INLINE void needle_wide_float(needle_vec_double (*f)(needle_vec_double), const float *x, float *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += NEEDLE_VECTOR / sizeof(double))
        needle_store_wide(f(needle_load_wide(x + i)), out + i);
}

NEEDLE_INLINE void needle_wide_double(needle_vec_double (*f)(needle_vec_double), const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += NEEDLE_VECTOR / sizeof(double))
        needle_store_double(f(needle_load_double(x + i)), out + i);
}

typedef needle_vec_double (*needle_of_two)(needle_vec_double, needle_vec_double);

NEEDLE_INLINE void needle_wide2_float(needle_of_two f, const float *x, const float *y, float *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += NEEDLE_VECTOR / sizeof(double))
        needle_store_wide(f(needle_load_wide(x + i), needle_load_wide(y + i)), out + i);
}

NEEDLE_INLINE void needle_wide2_double(needle_of_two f, const double *x, const double *y, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += NEEDLE_VECTOR / sizeof(double))
        needle_store_double(f(needle_load_double(x + i), needle_load_double(y + i)), out + i);
}

NEEDLE_INLINE needle_vec_double needle_power_pair_float(needle_vec_double x, needle_vec_double y)
{
    return needle_power_of(x, y, 1);
}
NEEDLE_INLINE needle_vec_double needle_power_pair_double(needle_vec_double x, needle_vec_double y)
{
    return needle_power_of(x, y, 0);
}

#include "as_float.h"
#include "vector_math.h"
#include "as_double.h"
#include "vector_math.h"
#include "as_nothing.h"

#elif defined(T)

NEEDLE_INLINE void FN(map)(vec (*f)(vec), const T *x, T *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES)
        FN(store)(f(FN(load)(x + i)), out + i);
}

/* out = op(x); NEEDLE_NO_LOOP for no op of these */
static int FN(math)(int op, const T *x, T *out, ptrdiff_t n)
{
    switch (op) {
    case NEEDLE_EXP: FN(map)(FN(exp_of), x, out, n); break;
    case NEEDLE_EXPM1: FN(map)(FN(expm1_of), x, out, n); break;
    case NEEDLE_LOG: FN(map)(FN(log_of), x, out, n); break;
    case NEEDLE_LOG1P: FN(map)(FN(log1p_of), x, out, n); break;
    case NEEDLE_SIN: FN(map)(FN(sin_of), x, out, n); break;
    case NEEDLE_COS: FN(map)(FN(cos_of), x, out, n); break;
    case NEEDLE_TANH: FN(tanh)(x, out, n); break;
    case NEEDLE_SIGMOID: FN(sigmoid)(x, out, n); break;
    case NEEDLE_ERF: FN(map)(FN(erf_of), x, out, n); break;
    case NEEDLE_GELU: FN(gelu)(x, out, n); break;
    case NEEDLE_SILU: FN(silu)(x, out, n); break;
    case NEEDLE_LOG2: FN(map)(FN(log2_of), x, out, n); break;
    case NEEDLE_LOG10: FN(map)(FN(log10_of), x, out, n); break;
    case NEEDLE_TAN: FN(wide)(needle_tan_of_double, x, out, n); break;
    case NEEDLE_ASIN: FN(wide)(needle_asin_of, x, out, n); break;
    case NEEDLE_ACOS: FN(wide)(needle_acos_of, x, out, n); break;
    case NEEDLE_ATAN: FN(wide)(needle_atan_of, x, out, n); break;
    case NEEDLE_SINH: FN(wide)(needle_sinh_of, x, out, n); break;
    case NEEDLE_COSH: FN(wide)(needle_cosh_of, x, out, n); break;
    case NEEDLE_ASINH: FN(wide)(needle_asinh_of, x, out, n); break;
    case NEEDLE_ACOSH: FN(wide)(needle_acosh_of, x, out, n); break;
    case NEEDLE_ATANH: FN(wide)(needle_atanh_of, x, out, n); break;
    default: return NEEDLE_NO_LOOP;
    }
    return 0;
}

/* out = op(x, y); NEEDLE_NO_LOOP for no op of these */
static int FN(pair)(int op, const T *x, const T *y, T *out, ptrdiff_t n)
{
    switch (op) {
    case NEEDLE_GELU_GRAD: FN(gelu_grad)(x, y, out, n); break;
    case NEEDLE_SILU_GRAD: FN(silu_grad)(x, y, out, n); break;
    case NEEDLE_POWER: FN(wide2)(FN(power_pair), x, y, out, n); break;
    case NEEDLE_ATAN2: FN(wide2)(needle_atan2_of, x, y, out, n); break;
    case NEEDLE_HYPOT: FN(wide2)(needle_hypot_of, x, y, out, n); break;
    case NEEDLE_LOGADDEXP: FN(wide2)(needle_logaddexp_of, x, y, out, n); break;
    default: return NEEDLE_NO_LOOP;
    }
    return 0;
}

#endif
