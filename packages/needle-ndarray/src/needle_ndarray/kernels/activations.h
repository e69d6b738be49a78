/* sigmoid, tanh and what is made of them, of vectors and of chunks: each by a few exponentials and a division.
 *
 * Chunks are whole vectors long: the caller pads the last one. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include "error_function.h"

/* Elements of the loops below that go through scratch memory: loops of half as many instructions, of which the processor overlaps
 * more turns */
enum { NEEDLE_SPAN = 256 };
#define NEEDLE_SCRATCH(T, name) T name[NEEDLE_SPAN] __attribute__((aligned(64)))

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

/* out = e^(-x^2 / 2) of n <= NEEDLE_SPAN elements */
static void FN(bell)(const T *x, T *out, ptrdiff_t n)
{
    vec zero = {0};
    for (ptrdiff_t i = 0; i < n; i += LANES) /* it is 0 long before 64 */
        FN(store)(FN(exp_square)(FN(smaller)(zero + 64, FN(abs)(FN(load)(x + i))), (T) 0.5), out + i);
}

/* x cdf(x) */
static void FN(gelu)(const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_SCRATCH(T, bell);
    for (ptrdiff_t i, left = n; left > 0; left -= i, x += i, out += i) {
        FN(bell)(x, bell, left < NEEDLE_SPAN ? left : NEEDLE_SPAN);
        for (i = 0; i < NEEDLE_SPAN && i < left; i += LANES) {
            vec v = FN(load)(x + i);
            FN(store)(v * FN(normal_cdf)(v, FN(load)(bell + i)), out + i);
        }
    }
}

/* grad (cdf(x) + x e^(-x^2 / 2) / sqrt(2 pi)) */
static void FN(gelu_grad)(const T *grad, const T *x, T *out, ptrdiff_t n)
{
    NEEDLE_SCRATCH(T, bell);
    for (ptrdiff_t i, left = n; left > 0; left -= i, grad += i, x += i, out += i) {
        FN(bell)(x, bell, left < NEEDLE_SPAN ? left : NEEDLE_SPAN);
        for (i = 0; i < NEEDLE_SPAN && i < left; i += LANES) {
            vec v = FN(load)(x + i), e = FN(load)(bell + i);
            FN(store)(FN(load)(grad + i) * (FN(normal_cdf)(v, e) + v * (e * (T) 0.39894228040143267794)), out + i);
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
