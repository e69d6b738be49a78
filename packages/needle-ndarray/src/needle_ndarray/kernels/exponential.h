/* e^x and e^x - 1 of vectors: 2^k e^r with |r| <= log(2) / 2, e^r by a polynomial.
 *
 * Here and in the other headers of vector mathematics, multiplications and additions are fused by name: the same bits on every system
 * that has FN(fma). Where it rounds twice (v2), the last bits may differ. */
#ifndef NEEDLE_EXPONENTIAL_H
#define NEEDLE_EXPONENTIAL_H
#include <math.h>
#include "lane_block.h"

/* How a number is made. e^x is 0 below lowest, a normal number from normal to highest, infinite above that. round + x has the integer
 * nearest to x in its last bits. log2 has so few bits that whole multiples of it are exact; log(2) = log2 + log2_low. */
typedef struct {
    double lowest, normal, highest, round, log2, log2_low, least;
    int mantissa, bias;
    long long head;
} needle_format;
static const needle_format needle_format_float = {
    -104, -87, 89, 12582912, 0.693359375, -2.12194440e-4, 1.17549435e-38, 23, 127, -4096LL,
};
static const needle_format needle_format_double = {
    -746, -708, 710,          6755399441055744, 6.93145751953125e-1, 1.42860682030941723212e-6, 2.2250738585072014e-308,
    52,   1023, -134217728LL,
};

/* e^r = 1 + r + r^2 (c0 + c1 r + ...): relative errors of e^r - 1 are 2^-26 and 2^-55 */
static const float needle_exp_terms_float[] = {0.4999999701976776f, 0.16666539013385773f, 0.04166775196790695f,
                                               0.008367104455828667f, 0.001383678987622261f};
static const double needle_exp_terms_double[] = {
    0.5000000000000006,     0.16666666666666588,  0.04166666666657661,    0.008333333333389672,   0.0013888888931617297,
    0.00019841269718792203, 2.48015052063852e-05, 2.7557407674970977e-06, 2.7626066189252045e-07, 2.5053756173342916e-08};

#define NEEDLE_COUNT(array) ((int) (sizeof(array) / sizeof(array)[0]))

#include "as_float.h"
#include "exponential.h"
#include "as_double.h"
#include "exponential.h"
#include "as_nothing.h"

#elif defined(T)

/* c0 + c1 x + ... of n <= 32 terms, in pairs and pairs of pairs: no term waits for all the others */
NEEDLE_INLINE vec FN(polynomial)(vec x, const T *c, const int n)
{
    vec p[32];
    NEEDLE_UNROLL(32)
    for (int i = 0; i < n; i++)
        p[i] = (vec) {0} + c[i];
    NEEDLE_UNROLL(5)
    for (int left = n; left > 1; left = (left + 1) / 2, x = x * x) {
        NEEDLE_UNROLL(16)
        for (int i = 0; i < left / 2; i++)
            p[i] = FN(fma)(p[2 * i + 1], x, p[2 * i]);
        if (left % 2)
            p[left / 2] = p[left - 1];
    }
    return p[0];
}

/* e^r - 1 */
NEEDLE_INLINE vec FN(series)(vec r) { return FN(fma)(FN(polynomial)(r, FN(exp_terms), NEEDLE_COUNT(FN(exp_terms))), r * r, r); }

/* a b - p, where p is nearly a b */
NEEDLE_INLINE vec FN(product_rest)(vec a, vec b, vec p)
{
#if defined(NEEDLE_FMA)
    return FN(fma)(a, b, -p);
#else /* products of halves are exact */
    const INTEGER head = FN(format).head;
    vec a1 = (vec) ((mask) a & head), b1 = (vec) ((mask) b & head), a2 = a - a1, b2 = b - b1;
    return ((a1 * b1 - p) + a1 * b2 + a2 * b1) + a2 * b2;
#endif
}

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

/* 2^k e for any k, in the last bits of round + k: in two steps, of which at most one rounds */
NEEDLE_INLINE vec FN(scaled)(vec e, mask k)
{
#if defined(__AVX512F__)
    return X86(scalef)(e, (vec) k - (T) FN(format).round);
#else
    mask half = (mask) ((bits) k >> 1);
    return e * FN(power_of_2)(half) * FN(power_of_2)(k - half);
#endif
}

/* the same for k <= 0 */
NEEDLE_INLINE vec FN(scaled_down)(vec e, mask k)
{
#if defined(__AVX512F__)
    return FN(scaled)(e, k);
#else
    return e * (vec) ((k << FN(format).mantissa) + (mask) ((vec) {0} + (T) 0x1p100)) * (T) 0x1p-100;
#endif
}

/* e^x for x <= 0 without a branch, for loops that seldom have results below the normal numbers: those take an instruction of their
 * own, or 2^k in two steps, and most processors stop for some hundred cycles at each */
NEEDLE_INLINE vec FN(exp_below)(vec x)
{
    mask k;
    vec r = FN(reduce)(FN(larger)((vec) {0} + (T) FN(format).lowest, x), &k);
    return FN(scaled_down)(FN(series)(r) + 1, k);
}

static __attribute__((noinline)) vec FN(exp_any)(vec x)
{
    mask k;
    vec zero = {0}, r = FN(smaller)(zero + (T) FN(format).highest, x);
    r = FN(reduce)(FN(larger)(zero + (T) FN(format).lowest, r), &k);
    return FN(scaled)(FN(series)(r) + 1, k);
}

/* e^x of any x */
NEEDLE_INLINE vec FN(exp_of)(vec x)
{
    mask k;
    if (FN(any)((mask) FN(abs)(x) > (mask) ((vec) {0} - (T) FN(format).normal))) /* NaN too */
        return FN(exp_any)(x);
    x = FN(series)(FN(reduce)(x, &k)) + 1;
    return (vec) ((mask) x + (k << FN(format).mantissa)); /* 2^k x: both are normal numbers */
}

/* e^(x + low) for x from lowest to highest and a small `low`, which x has no bits for */
NEEDLE_INLINE vec FN(exp_sum)(vec x, vec low)
{
    mask k;
    vec r = FN(reduce)(x, &k) + low;
    return FN(scaled)(FN(series)(r) + 1, k);
}

/* e^x with 0 in place of results that are not normal numbers: for sums. Below them, no arithmetic comes near subnormal ones. */
NEEDLE_INLINE vec FN(exp_normal)(vec x)
{
    mask k;
    vec zero = {0}, r = FN(reduce)(FN(larger)(zero + (T) FN(format).normal, x), &k);
    r = (FN(series)(r) + 1) * FN(power_of_2)(k);
    return (vec) (~(x < (T) FN(format).normal) & (mask) r);
}

/* The same numbers for rows with masked elements, which are far below: 0 without any arithmetic on subnormals, which would take ten
 * times as long. The branch costs a loop of few other instructions a tenth of its speed. */
NEEDLE_INLINE vec FN(exp)(vec x)
{
    const needle_format f = FN(format);
    if (FN(any)((x < (T) f.normal) & (x > (T) f.lowest)))
        return FN(exp_any)(x);
    return FN(exp_normal)(x);
}

/* e^x - 1 for 0 <= x < 80, accurate near 0 */
NEEDLE_INLINE vec FN(expm1)(vec x)
{
    mask k;
    vec r = FN(reduce)(x, &k), power = FN(power_of_2)(k);
    return FN(fma)(power, FN(series)(r), power - 1);
}

/* e^x - 1 of any x: of half the powers of two, so that none overflows too early, and x itself where it is its own result */
NEEDLE_INLINE vec FN(expm1_of)(vec x)
{
    const needle_format f = FN(format);
    vec zero = {0}, r, half;
    mask k;
    r = FN(reduce)(FN(larger)(zero - 64, FN(smaller)(zero + (T) f.highest, x)), &k);
    half = FN(power_of_2)(k - 1);
    r = FN(fma)(half, FN(series)(r), half - (T) 0.5);
    return FN(where)(FN(abs)(x) < (T) 1e-17, x, r + r);
}

#endif
