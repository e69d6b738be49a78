/* sigmoid, tanh and what is made of them, of vectors and of chunks: each by a few exponentials and a division.
 *
 * Chunks are whole vectors long: the caller pads the last one. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include <math.h>
#include "exponential.h"

/* Elements of the loops below that go through scratch memory: loops of half as many instructions, of which the processor overlaps
 * more turns (gelu takes 0.65 of the time of one loop) */
enum { NEEDLE_SPAN = 256 };
#define NEEDLE_SCRATCH(T, name) T name[NEEDLE_SPAN] __attribute__((aligned(64)))

/* out = the normal distribution's cdf of n <= NEEDLE_SPAN elements: erfc(z) / 2 with z = |x| / sqrt 2, or 1 - that. In float32
 * erfc(z) is t e^(p(t) - z^2) with t = 2 / (2 + z) and a polynomial p, fitted to a relative error of 5e-8. */
static void needle_normal_cdf_float(const float *x, float *out, ptrdiff_t n)
{
    static const float c[10] = {-1.26544139f,  0.998491543f,  0.387907852f, 0.0283193404f, 0.0203041221f,
                                -0.116986073f, -0.651013853f, 1.12222837f,  -0.665991124f, 0.142181259f};
    const ptrdiff_t lanes = NEEDLE_VECTOR / sizeof(float);
    NEEDLE_SCRATCH(float, ts);
    NEEDLE_SCRATCH(float, exponents);
    needle_vec_float zero = {0}, z, t, t2, t4, half, pair[5];
    for (ptrdiff_t i = 0; i < n; i += lanes) {
        z = (needle_vec_float) ((needle_mask_float) needle_load_float(x + i) & ~(needle_mask_float) (-zero)) * 0.707106781f;
        t = 2 / (2 + z);
        t2 = t * t;
        t4 = t2 * t2;
        for (int k = 0; k < 5; k++)
            pair[k] = needle_fma_float(t, zero + c[2 * k + 1], zero + c[2 * k]);
        pair[0] = needle_fma_float(t2, pair[1], pair[0]);
        pair[1] = needle_fma_float(t4, pair[4], needle_fma_float(t2, pair[3], pair[2]));
        needle_store_float(t, ts + i);
        needle_store_float(needle_fma_float(t4, pair[1], pair[0]) - z * z, exponents + i);
    }
    for (ptrdiff_t i = 0; i < n; i += lanes) {
        half = needle_load_float(ts + i) * needle_exp_straight_float(needle_load_float(exponents + i)) * 0.5f;
        needle_store_float(needle_where_float(needle_load_float(x + i) < zero, half, 1 - half), out + i);
    }
}

static void needle_normal_cdf_double(const double *x, double *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i++)
        out[i] = 0.5 * erfc(x[i] * -0.70710678118654752440);
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
    vec e = FN(exp_straight)((vec) ((mask) x | minus));
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
    NEEDLE_SCRATCH(T, cdf);
    for (ptrdiff_t i, left = n; left > 0; left -= i, x += i, out += i) {
        FN(normal_cdf)(x, cdf, left < NEEDLE_SPAN ? left : NEEDLE_SPAN);
        for (i = 0; i < NEEDLE_SPAN && i < left; i += LANES)
            FN(store)(FN(load)(x + i) * FN(load)(cdf + i), out + i);
    }
}

/* grad (cdf(x) + x e^(-x^2 / 2) / sqrt(2 pi)) */
static void FN(gelu_grad)(const T *grad, const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_SCRATCH(T, cdf);
    for (ptrdiff_t i, left = n; left > 0; left -= i, grad += i, x += i, out += i) {
        FN(normal_cdf)(x, cdf, left < NEEDLE_SPAN ? left : NEEDLE_SPAN);
        for (i = 0; i < NEEDLE_SPAN && i < left; i += LANES) {
            vec v = FN(load)(x + i);
            vec derivative = FN(load)(cdf + i) + v * (FN(exp_straight)(v * v * (T) -0.5) * (T) 0.39894228040143267794);
            FN(store)(FN(load)(grad + i) * derivative, out + i);
        }
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
