/* sigmoid, tanh and what is made of them, for whole sides of elements: each by a few exponentials and a division. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include <math.h>
#include "exponential.h"

/* The part of the normal distribution below x: erfc(z) / 2 with z = |x| / sqrt 2, or 1 - that. In float32 erfc(z) is
 * t e^(p(t) - z^2) with t = 2 / (2 + z) and a polynomial p, fitted to a relative error of 5e-8. */
NEEDLE_INLINE needle_vector_float needle_below_float(needle_vector_float x)
{
    static const float c[10] = {-1.26544139f, 0.998491543f, 0.387907852f, 0.0283193404f, 0.0203041221f,
                                -0.116986073f, -0.651013853f, 1.12222837f, -0.665991124f, 0.142181259f};
    needle_vector_float zero = {0}, z, t, t2, t4, half, pair[5];
    z = (needle_vector_float) ((needle_mask_float) x & ~(needle_mask_float) (-zero)) * 0.707106781f;
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

NEEDLE_INLINE needle_vector_double needle_below_double(needle_vector_double x)
{
    for (int i = 0; i < needle_lanes_double; i++)
        x[i] = 0.5 * erfc(x[i] * -0.70710678118654752440);
    return x;
}

#define NEEDLE_ACTIVATION(T, name)                                                                                          \
    static void needle_##name##_##T(const T *x, T *out, ptrdiff_t n)                                                        \
    {                                                                                                                       \
        _Pragma("GCC unroll 4") for (ptrdiff_t i = 0; i < n; i += needle_lanes_##T)                                         \
            *(needle_loose_##T *) (out + i) = needle_##name##_of_##T(*(const needle_loose_##T *) (x + i));                  \
    }

#define NEEDLE_ACTIVATION_GRAD(T, name)                                                                                     \
    static void needle_##name##_##T(const T *grad, const T *x, T *out, ptrdiff_t n)                                         \
    {                                                                                                                       \
        _Pragma("GCC unroll 2") for (ptrdiff_t i = 0; i < n; i += needle_lanes_##T)                                         \
            *(needle_loose_##T *) (out + i) =                                                                               \
                needle_##name##_of_##T(*(const needle_loose_##T *) (grad + i), *(const needle_loose_##T *) (x + i));        \
    }

#define NEEDLE_ACTIVATIONS(T)                                                                                               \
    /* 1 / (1 + e^-x), as e^x / (1 + e^x) below 0: it never overflows */                                                    \
    NEEDLE_INLINE needle_vector_##T needle_sigmoid_of_##T(needle_vector_##T x)                                              \
    {                                                                                                                       \
        needle_vector_##T zero = {0}, one = zero + 1;                                                                       \
        needle_mask_##T minus = (needle_mask_##T) (-zero);                                                                  \
        needle_vector_##T e = needle_exp_##T((needle_vector_##T) ((needle_mask_##T) x | minus));                            \
        return needle_where_##T(x < zero, e, one) / (one + e);                                                              \
    }                                                                                                                       \
                                                                                                                            \
    /* e / (e + 2) with e = e^2|x| - 1; it is 1 long before 2|x| = 40 */                                                    \
    NEEDLE_INLINE needle_vector_##T needle_tanh_of_##T(needle_vector_##T x)                                                 \
    {                                                                                                                       \
        needle_vector_##T zero = {0}, size, e;                                                                              \
        needle_mask_##T minus = (needle_mask_##T) (-zero);                                                                  \
        size = (needle_vector_##T) ((needle_mask_##T) x & ~minus);                                                          \
        e = needle_expm1_##T(needle_smaller_##T(zero + 40, size + size));                                                   \
        return (needle_vector_##T) ((needle_mask_##T) (e / (e + 2)) | ((needle_mask_##T) x & minus));                       \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE needle_vector_##T needle_gelu_of_##T(needle_vector_##T x)                                                 \
    {                                                                                                                       \
        return x * needle_below_##T(x);                                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE needle_vector_##T needle_gelu_grad_of_##T(needle_vector_##T grad, needle_vector_##T x)                    \
    {                                                                                                                       \
        return grad * (needle_below_##T(x) + x * (needle_exp_##T(x * x * (T) -0.5) * (T) 0.39894228040143267794));          \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE needle_vector_##T needle_silu_of_##T(needle_vector_##T x)                                                 \
    {                                                                                                                       \
        return x * needle_sigmoid_of_##T(x);                                                                                \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE needle_vector_##T needle_silu_grad_of_##T(needle_vector_##T grad, needle_vector_##T x)                    \
    {                                                                                                                       \
        needle_vector_##T s = needle_sigmoid_of_##T(x);                                                                     \
        return grad * (s * (1 + x * (1 - s)));                                                                              \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_ACTIVATION(T, sigmoid)                                                                                           \
    NEEDLE_ACTIVATION(T, tanh)                                                                                              \
    NEEDLE_ACTIVATION(T, gelu)                                                                                              \
    NEEDLE_ACTIVATION(T, silu)                                                                                              \
    NEEDLE_ACTIVATION_GRAD(T, gelu_grad)                                                                                    \
    NEEDLE_ACTIVATION_GRAD(T, silu_grad)

NEEDLE_ACTIVATIONS(float)
NEEDLE_ACTIVATIONS(double)

#endif
