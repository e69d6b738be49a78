/* sigmoid, tanh and what is made of them, of vectors and of chunks: each by a few exponentials and a division.
 *
 * Chunks are whole vectors long: the caller pads the last one. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include "error_function.h"

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
    vec e = FN(exp_below)((vec) ((mask) x | minus));
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

/* x cdf(x), as max(x, 0) - |x| cdf(-|x|) */
static void FN(gelu)(const T *x, T *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec zero = {0}, v = FN(load)(x + i), w = FN(smaller)(zero + FN(last), v), bell; /* as infinity times 0 is NaN */
        FN(store)(FN(fma)(-FN(abs)(w), FN(normal)(w, &bell), FN(larger)(-zero, v)), out + i);
    }
}

/* grad (cdf(x) + x e^(-x^2 / 2) / sqrt(2 pi)) */
static void FN(gelu_grad)(const T *grad, const T *x, T *out, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n; i += LANES) {
        vec v = FN(load)(x + i), bell, tail = FN(normal)(v, &bell);
        tail = FN(where)(v < (vec) {0}, tail, 1 - tail);
        FN(store)(FN(load)(grad + i) * FN(fma)(v, bell * (T) 0.39894228040143267794, tail), out + i);
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
