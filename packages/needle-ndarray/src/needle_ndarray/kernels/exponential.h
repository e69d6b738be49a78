/* e^x and e^x - 1 of vectors: 2^k e^r with |r| <= log(2) / 2, e^r by its series. */
#ifndef NEEDLE_EXPONENTIAL_H
#define NEEDLE_EXPONENTIAL_H
#include "sides.h"

/* Below the lowest e^x is 0, from NORMAL on a normal number. LOG2 has so few bits that whole multiples of it are exact. */
#define NEEDLE_LOWEST_float -104.0f
#define NEEDLE_NORMAL_float -87.0f
#define NEEDLE_ROUND_float 12582912.0f
#define NEEDLE_LOG2_float 0.693359375f
#define NEEDLE_LOG2_REST_float -2.12194440e-4f
#define NEEDLE_BIAS_float 127
#define NEEDLE_MANTISSA_float 23

#define NEEDLE_LOWEST_double -746.0
#define NEEDLE_NORMAL_double -708.0
#define NEEDLE_ROUND_double 6755399441055744.0
#define NEEDLE_LOG2_double 6.93145751953125e-1
#define NEEDLE_LOG2_REST_double 1.42860682030941723212e-6
#define NEEDLE_BIAS_double 1023
#define NEEDLE_MANTISSA_double 52

/* e^r - 1 = r + r^2 (1/2 + r/6 + ...), in pairs and pairs of pairs: no term waits for all the others */
NEEDLE_INLINE needle_vector_float needle_small_float(needle_vector_float r)
{
    needle_vector_float zero = {0}, r2 = r * r;
    needle_vector_float low = needle_fma_float(r, zero + 1.6666665459e-1f, zero + 5.0000001201e-1f);
    needle_vector_float middle = needle_fma_float(r, zero + 8.3334519073e-3f, zero + 4.1665795894e-2f);
    needle_vector_float high = needle_fma_float(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f);
    return needle_fma_float(r2, needle_fma_float(r2 * r2, high, needle_fma_float(r2, middle, low)), r);
}

NEEDLE_INLINE needle_vector_double needle_small_double(needle_vector_double r)
{
    static const double c[12] = {1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040, 1.0 / 40320, 1.0 / 362880,
                                 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    needle_vector_double zero = {0}, r2 = r * r, r4 = r2 * r2, pair[6];
    for (int i = 0; i < 6; i++)
        pair[i] = needle_fma_double(r, zero + c[2 * i + 1], zero + c[2 * i]);
    for (int i = 0; i < 3; i++)
        pair[i] = needle_fma_double(r2, pair[2 * i + 1], pair[2 * i]);
    return needle_fma_double(r2, needle_fma_double(r4, needle_fma_double(r4, pair[2], pair[1]), pair[0]), r);
}

#define NEEDLE_EXPONENTIAL(T)                                                                                               \
    /* k and r of x = k log(2) + r */                                                                                       \
    NEEDLE_INLINE needle_vector_##T needle_rest_##T(needle_vector_##T x, needle_mask_##T *k)                                \
    {                                                                                                                       \
        needle_vector_##T zero = {0};                                                                                       \
        needle_vector_##T whole = needle_fma_##T(x, zero + (T) 1.4426950408889634, zero + NEEDLE_ROUND_##T);                \
        *k = (needle_mask_##T) whole - (needle_mask_##T) (zero + NEEDLE_ROUND_##T);                                         \
        whole -= NEEDLE_ROUND_##T;                                                                                          \
        x = needle_fma_##T(whole, zero - NEEDLE_LOG2_##T, x);                                                               \
        return needle_fma_##T(whole, zero - NEEDLE_LOG2_REST_##T, x);                                                       \
    }                                                                                                                       \
                                                                                                                            \
    /* 2^k, k no less than the smallest exponent */                                                                         \
    NEEDLE_INLINE needle_vector_##T needle_power_##T(needle_mask_##T k)                                                     \
    {                                                                                                                       \
        return (needle_vector_##T) ((k + NEEDLE_BIAS_##T) << NEEDLE_MANTISSA_##T);                                          \
    }                                                                                                                       \
                                                                                                                            \
    /* e^x for x <= 0; 2^k in two halves, for results that are tiny */                                                      \
    NEEDLE_INLINE needle_vector_##T needle_exp_##T(needle_vector_##T x)                                                     \
    {                                                                                                                       \
        needle_vector_##T zero = {0}, r;                                                                                    \
        needle_mask_##T k, half;                                                                                            \
        r = needle_rest_##T(needle_larger_##T(zero + NEEDLE_LOWEST_##T, x), &k);                                            \
        half = k >> 1;                                                                                                      \
        return (needle_small_##T(r) + 1) * needle_power_##T(half) * needle_power_##T(k - half);                             \
    }                                                                                                                       \
                                                                                                                            \
    /* the same with 0 in place of results that are not normal numbers: for sums, in two thirds of the time */              \
    NEEDLE_INLINE needle_vector_##T needle_exp_normal_##T(needle_vector_##T x)                                              \
    {                                                                                                                       \
        needle_vector_##T zero = {0}, whole = needle_fma_##T(x, zero + (T) 1.4426950408889634, zero + NEEDLE_ROUND_##T), r; \
        needle_mask_##T power = ((needle_mask_##T) whole << NEEDLE_MANTISSA_##T) + (needle_mask_##T) (zero + 1);            \
        whole -= NEEDLE_ROUND_##T;                                                                                          \
        r = needle_fma_##T(whole, zero - NEEDLE_LOG2_REST_##T, needle_fma_##T(whole, zero - NEEDLE_LOG2_##T, x));           \
        r = (needle_small_##T(r) + 1) * (needle_vector_##T) power;                                                          \
        return (needle_vector_##T) (~(x < NEEDLE_NORMAL_##T) & (needle_mask_##T) r);                                        \
    }                                                                                                                       \
                                                                                                                            \
    /* e^x - 1 for 0 <= x < 80, accurate near 0 */                                                                          \
    NEEDLE_INLINE needle_vector_##T needle_expm1_##T(needle_vector_##T x)                                                   \
    {                                                                                                                       \
        needle_mask_##T k;                                                                                                  \
        needle_vector_##T r = needle_rest_##T(x, &k), power = needle_power_##T(k);                                          \
        return needle_fma_##T(power, needle_small_##T(r), power - 1);                                                       \
    }

NEEDLE_EXPONENTIAL(float)
NEEDLE_EXPONENTIAL(double)

#endif
