/* sigmoid, tanh and what is made of them, of vectors and of chunks: each by a few exponentials and a division.
 *
 * Chunks are whole vectors long: the caller pads the last one. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include <math.h>
#include "exponential.h"

/* The normal distribution's cdf: erfc(z) / 2 with z = |x| / sqrt 2, or 1 - that. In float32 erfc(z) is t e^(p(t) - z^2)
 * with t = 2 / (2 + z) and a polynomial p, fitted to a relative error of 5e-8. */
NEEDLE_INLINE needle_vec_float needle_normal_cdf_float(needle_vec_float x)
{
    static const float c[10] = {-1.26544139f,  0.998491543f,  0.387907852f, 0.0283193404f, 0.0203041221f,
                                -0.116986073f, -0.651013853f, 1.12222837f,  -0.665991124f, 0.142181259f};
    needle_vec_float zero = {0}, z, t, t2, t4, half, pair[5];
    z = (needle_vec_float) ((needle_mask_float) x & ~(needle_mask_float) (-zero)) * 0.707106781f;
    t = 2 / (2 + z);
    t2 = t * t;
    t4 = t2 * t2;
    for (int i = 0; i < 5; i++)
        pair[i] = needle_fma_float(t, zero + c[2 * i + 1], zero + c[2 * i]);
    pair[0] = needle_fma_float(t2, pair[1], pair[0]);
    pair[1] = needle_fma_float(t4, pair[4], needle_fma_float(t2, pair[3], pair[2]));
    half = t * needle_exp_float(needle_fma_float(t4, pair[1], pair[0]) - z * z) * 0.5f;
    return needle_where_float(x < zero, half, 1 - half);
}

NEEDLE_INLINE needle_vec_double needle_normal_cdf_double(needle_vec_double x)
{
    for (size_t i = 0; i < sizeof x / sizeof x[0]; i++)
        x[i] = 0.5 * erfc(x[i] * -0.70710678118654752440);
    return x;
}

#include "as_float.h"
#include "activations.h"
#include "as_double.h"
#include "activations.h"
#include "as_nothing.h"

#elif defined(T)

/* 1 / (1 + e^-x), as e^x / (1 + e^x) below 0: it never overflows */
NEEDLE_INLINE vec FN(sigmoid_of)(vec x)
{
    vec zero = {0}, one = zero + 1;
    mask minus = (mask) (-zero);
    vec e = FN(exp)((vec) ((mask) x | minus));
    return FN(where)(x < zero, e, one) / (one + e);
}

/* e / (e + 2) with e = e^2|x| - 1; it is 1 long before 2|x| = 40 */
NEEDLE_INLINE vec FN(tanh_of)(vec x)
{
    vec zero = {0}, size, e;
    mask minus = (mask) (-zero);
    size = (vec) ((mask) x & ~minus);
    e = FN(expm1)(FN(smaller)(zero + 40, size + size));
    return (vec) ((mask) (e / (e + 2)) | ((mask) x & minus));
}

static void FN(sigmoid)(const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(4)
    for (ptrdiff_t i = 0; i < n; i += LANES)
        FN(store)(FN(sigmoid_of)(FN(load)(x + i)), out + i);
}

static void FN(tanh)(const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(4)
    for (ptrdiff_t i = 0; i < n; i += LANES)
        FN(store)(FN(tanh_of)(FN(load)(x + i)), out + i);
}

/* x cdf(x) */
static void FN(gelu)(const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(4)
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec v = FN(load)(x + i);
        FN(store)(v * FN(normal_cdf)(v), out + i);
    }
}

/* grad (cdf(x) + x e^(-x^2 / 2) / sqrt(2 pi)) */
static void FN(gelu_grad)(const T *grad, const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(2)
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec v = FN(load)(x + i);
        vec derivative = FN(normal_cdf)(v) + v * (FN(exp)(v * v * (T) -0.5) * (T) 0.39894228040143267794);
        FN(store)(FN(load)(grad + i) * derivative, out + i);
    }
}

/* x sigmoid(x) */
static void FN(silu)(const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(4)
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec v = FN(load)(x + i);
        FN(store)(v * FN(sigmoid_of)(v), out + i);
    }
}

/* grad s (1 + x (1 - s)) with s = sigmoid(x) */
static void FN(silu_grad)(const T *grad, const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_UNROLL(2)
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec v = FN(load)(x + i), s = FN(sigmoid_of)(v);
        FN(store)(FN(load)(grad + i) * (s * (1 + v * (1 - s))), out + i);
    }
}

#endif
