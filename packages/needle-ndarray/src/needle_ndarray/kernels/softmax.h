/* The largest of a row, and the exponentials of a row with their sum. */
#ifndef NEEDLE_SOFTMAX_H
#define NEEDLE_SOFTMAX_H
#include <math.h>
#include "sides.h"

enum { NEEDLE_EXPS = 256 };         /* elements added up before they go to a double: 16 to a lane */

/* Below the lowest e^x is 0, above the highest infinite. LOG2 has so few bits that whole multiples of it are exact. */
#define NEEDLE_LOWEST_float -104.0f
#define NEEDLE_HIGHEST_float 89.0f
#define NEEDLE_ROUND_float 12582912.0f
#define NEEDLE_LOG2_float 0.693359375f
#define NEEDLE_LOG2_REST_float -2.12194440e-4f
#define NEEDLE_BIAS_float 127
#define NEEDLE_MANTISSA_float 23
#define NEEDLE_SERIES_float(STEP)                                                                                           \
    STEP(1.9875691500e-4f) STEP(1.3981999507e-3f) STEP(8.3334519073e-3f) STEP(4.1665795894e-2f) STEP(1.6666665459e-1f)      \
    STEP(5.0000001201e-1f) STEP(1.0f) STEP(1.0f)

#define NEEDLE_LOWEST_double -746.0
#define NEEDLE_HIGHEST_double 710.0
#define NEEDLE_ROUND_double 6755399441055744.0
#define NEEDLE_LOG2_double 6.93145751953125e-1
#define NEEDLE_LOG2_REST_double 1.42860682030941723212e-6
#define NEEDLE_BIAS_double 1023
#define NEEDLE_MANTISSA_double 52
#define NEEDLE_SERIES_double(STEP)                                                                                          \
    STEP(1.0 / 6227020800) STEP(1.0 / 479001600) STEP(1.0 / 39916800) STEP(1.0 / 3628800) STEP(1.0 / 362880)                \
    STEP(1.0 / 40320) STEP(1.0 / 5040) STEP(1.0 / 720) STEP(1.0 / 120) STEP(1.0 / 24) STEP(1.0 / 6) STEP(0.5) STEP(1.0)     \
    STEP(1.0)
#define NEEDLE_STEP_float(c) e = needle_fma_float(e, r, zero + c);
#define NEEDLE_STEP_double(c) e = needle_fma_double(e, r, zero + c);

#define NEEDLE_SOFTMAX(T)                                                                                                   \
    NEEDLE_INLINE needle_vector_##T needle_where_##T(needle_mask_##T which, needle_vector_##T a, needle_vector_##T b)       \
    {                                                                                                                       \
        return (needle_vector_##T) ((which & (needle_mask_##T) a) | (~which & (needle_mask_##T) b));                        \
    }                                                                                                                       \
                                                                                                                            \
    /* e^x = 2^k e^r with |r| <= log(2) / 2; 2^k in two halves, for results that are tiny or infinite */                    \
    NEEDLE_INLINE needle_vector_##T needle_exp_##T(needle_vector_##T x)                                                     \
    {                                                                                                                       \
        needle_vector_##T zero = {0}, e = zero, whole, r;                                                                   \
        x = needle_where_##T(x < NEEDLE_LOWEST_##T, zero + NEEDLE_LOWEST_##T, x);                                           \
        x = needle_where_##T(x > NEEDLE_HIGHEST_##T, zero + NEEDLE_HIGHEST_##T, x);                                         \
        whole = needle_fma_##T(x, zero + (T) 1.4426950408889634, zero + NEEDLE_ROUND_##T);                                  \
        needle_mask_##T k = (needle_mask_##T) whole - (needle_mask_##T) (zero + NEEDLE_ROUND_##T), half = k >> 1;           \
        whole -= NEEDLE_ROUND_##T;                                                                                          \
        r = needle_fma_##T(whole, zero - NEEDLE_LOG2_REST_##T, needle_fma_##T(whole, zero - NEEDLE_LOG2_##T, x));           \
        NEEDLE_SERIES_##T(NEEDLE_STEP_##T)                                                                                  \
        return e * (needle_vector_##T) ((half + NEEDLE_BIAS_##T) << NEEDLE_MANTISSA_##T)                                    \
             * (needle_vector_##T) ((k - half + NEEDLE_BIAS_##T) << NEEDLE_MANTISSA_##T);                                   \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_keep_largest_##T(const T *x, ptrdiff_t left, needle_side_##T *best)                           \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, -INFINITY);                                                            \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
            best->part[p] = needle_where_##T(v.part[p] > best->part[p], v.part[p], best->part[p]);                          \
    }                                                                                                                       \
                                                                                                                            \
    /* the largest of n elements; NaNs do not count */                                                                      \
    static T needle_largest_##T(const T *x, ptrdiff_t n)                                                                    \
    {                                                                                                                       \
        needle_side_##T best = needle_load_##T(x, 0, -INFINITY);                                                            \
        T line[NEEDLE_SIDE];                                                                                                \
        ptrdiff_t j = 0;                                                                                                    \
        for (; j + NEEDLE_SIDE <= n; j += NEEDLE_SIDE)                                                                      \
            needle_keep_largest_##T(x + j, NEEDLE_SIDE, &best);                                                             \
        if (j < n)                                                                                                          \
            needle_keep_largest_##T(x + j, n - j, &best);                                                                   \
        memcpy(line, &best, sizeof line);                                                                                   \
        for (int k = 1; k < NEEDLE_SIDE; k++)                                                                               \
            line[0] = line[k] > line[0] ? line[k] : line[0];                                                                \
        return line[0];                                                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_add_exps_##T(const T *x, ptrdiff_t left, T shift, T *out, needle_side_##T *sum)               \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, -INFINITY);                                                            \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
            sum->part[p] += v.part[p] = needle_exp_##T(v.part[p] - shift);                                                  \
        if (out)                                                                                                            \
            needle_store_##T(v, out, left);                                                                                 \
    }                                                                                                                       \
                                                                                                                            \
    /* the sum of e^(x - shift); out = every one of them, where it is not NULL */                                           \
    static double needle_exps_##T(const T *x, ptrdiff_t n, T shift, T *out)                                                 \
    {                                                                                                                       \
        double total = 0;                                                                                                   \
        for (ptrdiff_t start = 0; start < n; start += NEEDLE_EXPS) {                                                        \
            ptrdiff_t j = start, stop = n - start < NEEDLE_EXPS ? n : start + NEEDLE_EXPS;                                  \
            needle_side_##T sum = {{{0}}};                                                                                  \
            for (; j + NEEDLE_SIDE <= stop; j += NEEDLE_SIDE)                                                               \
                needle_add_exps_##T(x + j, NEEDLE_SIDE, shift, out ? out + j : out, &sum);                                  \
            if (j < stop)                                                                                                   \
                needle_add_exps_##T(x + j, stop - j, shift, out ? out + j : out, &sum);                                     \
            total += needle_fold_##T(&sum);                                                                                 \
        }                                                                                                                   \
        return total;                                                                                                       \
    }

NEEDLE_SOFTMAX(float)
NEEDLE_SOFTMAX(double)

#endif
