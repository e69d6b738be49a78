/* e^x and e^x - 1 of vectors: 2^k e^r with |r| <= log(2) / 2, e^r by its series. */
#ifndef NEEDLE_EXPONENTIAL_H
#define NEEDLE_EXPONENTIAL_H
#include "lane_block.h"

/* e^r - 1 = r + r^2 (1/2 + r/6 + ...), in pairs and pairs of pairs: no term waits for all the others */
NEEDLE_INLINE needle_vec_float needle_series_float(needle_vec_float r)
{
    needle_vec_float zero = {0}, r2 = r * r;
    needle_vec_float low = needle_fma_float(r, zero + 1.6666665459e-1f, zero + 5.0000001201e-1f);
    needle_vec_float middle = needle_fma_float(r, zero + 8.3334519073e-3f, zero + 4.1665795894e-2f);
    needle_vec_float high = needle_fma_float(r, zero + 1.9875691500e-4f, zero + 1.3981999507e-3f);
    return needle_fma_float(r2, needle_fma_float(r2 * r2, high, needle_fma_float(r2, middle, low)), r);
}

NEEDLE_INLINE needle_vec_double needle_series_double(needle_vec_double r)
{
    static const double c[12] = {1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
                                 1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800};
    needle_vec_double zero = {0}, r2 = r * r, r4 = r2 * r2, pair[6];
    for (int i = 0; i < 6; i++)
        pair[i] = needle_fma_double(r, zero + c[2 * i + 1], zero + c[2 * i]);
    for (int i = 0; i < 3; i++)
        pair[i] = needle_fma_double(r2, pair[2 * i + 1], pair[2 * i]);
    return needle_fma_double(r2, needle_fma_double(r4, needle_fma_double(r4, pair[2], pair[1]), pair[0]), r);
}

/* e^x is 0 below lowest, a normal number from normal on. round + x has the integer nearest to x in its last bits. log2 has so few
 * bits that whole multiples of it are exact; log(2) = log2 + log2_low. */
typedef struct {
    double lowest, normal, round, log2, log2_low;
    int mantissa;
} needle_format;
static const needle_format needle_format_float = {-104, -87, 12582912, 0.693359375, -2.12194440e-4, 23};
static const needle_format needle_format_double = {-746, -708, 6755399441055744, 6.93145751953125e-1, 1.42860682030941723212e-6,
                                                   52};

#include "as_float.h"
#include "exponential.h"
#include "as_double.h"
#include "exponential.h"
#include "as_nothing.h"

#elif defined(T)

/* k, in the last bits of round + k, and r of x = k log(2) + r */
NEEDLE_INLINE vec FN(reduce)(vec x, mask *k)
{
    const needle_format f = FN(format);
    vec zero = {0}, rounded = FN(fma)(x, zero + (T) 1.4426950408889634, zero + (T) f.round), whole = rounded - (T) f.round;
    *k = (mask) rounded;
    return FN(fma)(whole, zero - (T) f.log2_low, FN(fma)(whole, zero - (T) f.log2, x));
}

/* 2^k for k from the smallest exponent on, in the last bits of round + k: the others are shifted out */
NEEDLE_INLINE vec FN(power_of_2)(mask k)
{
    vec zero = {0};
    return (vec) ((k << FN(format).mantissa) + (mask) (zero + 1));
}

/* e^x for x <= 0 without a branch, for loops that seldom have results below the normal numbers: those take an instruction of their
 * own, or 2^k in two halves, and most processors stop for some hundred cycles at each */
NEEDLE_INLINE vec FN(exp_straight)(vec x)
{
    vec zero = {0}, e;
    mask k;
    e = FN(series)(FN(reduce)(FN(larger)(zero + (T) FN(format).lowest, x), &k)) + 1;
#if defined(__AVX512F__)
    return X86(scalef)(e, (vec) k - (T) FN(format).round);
#else
    return e * FN(power_of_2)(k >> 1) * FN(power_of_2)(k - (k >> 1));
#endif
}

/* the same with 0 in place of results that are not normal numbers: for sums. Below them, no arithmetic comes near subnormal ones. */
NEEDLE_INLINE vec FN(exp_normal)(vec x)
{
    mask k;
    vec zero = {0}, r = FN(reduce)(FN(larger)(zero + (T) FN(format).normal, x), &k);
    r = (FN(series)(r) + 1) * FN(power_of_2)(k);
    return (vec) (~(x < (T) FN(format).normal) & (mask) r);
}

static __attribute__((noinline)) vec FN(exp_subnormal)(vec x) { return FN(exp_straight)(x); }

/* The same numbers for rows with masked elements, which are far below: 0 without any arithmetic on subnormals, which would take ten
 * times as long. The branch costs a loop of few other instructions a tenth of its speed. */
NEEDLE_INLINE vec FN(exp)(vec x)
{
    const needle_format f = FN(format);
    if (FN(any)((x < (T) f.normal) & (x > (T) f.lowest)))
        return FN(exp_subnormal)(x);
    return FN(exp_normal)(x);
}

/* e^x - 1 for 0 <= x < 80, accurate near 0 */
NEEDLE_INLINE vec FN(expm1)(vec x)
{
    mask k;
    vec r = FN(reduce)(x, &k), power = FN(power_of_2)(k);
    return FN(fma)(power, FN(series)(r), power - 1);
}

#endif
