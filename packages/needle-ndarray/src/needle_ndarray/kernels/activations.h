/* sigmoid and tanh of whole sides of elements, each by one exponential and one division. */
#ifndef NEEDLE_ACTIVATIONS_H
#define NEEDLE_ACTIVATIONS_H
#include "exponential.h"

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
    static void needle_sigmoid_##T(const T *x, T *out, ptrdiff_t n)                                                         \
    {                                                                                                                       \
        _Pragma("GCC unroll 4") for (ptrdiff_t i = 0; i < n; i += needle_lanes_##T)                                         \
            *(needle_loose_##T *) (out + i) = needle_sigmoid_of_##T(*(const needle_loose_##T *) (x + i));                   \
    }                                                                                                                       \
    static void needle_tanh_##T(const T *x, T *out, ptrdiff_t n)                                                            \
    {                                                                                                                       \
        _Pragma("GCC unroll 4") for (ptrdiff_t i = 0; i < n; i += needle_lanes_##T)                                         \
            *(needle_loose_##T *) (out + i) = needle_tanh_of_##T(*(const needle_loose_##T *) (x + i));                      \
    }

NEEDLE_ACTIVATIONS(float)
NEEDLE_ACTIVATIONS(double)

#endif
