/* log(x), log2(x), log10(x) and log(1 + x) of vectors: k log(2) + log(m) with sqrt(1/2) <= m < sqrt(2), log(m) by a series in s = (m - 1) / (m + 1). */
#ifndef NEEDLE_LOGARITHM_H
#define NEEDLE_LOGARITHM_H
#include "exponential.h"

/* log(1 + f) = f - f^2 / 2 + f^3 (c0 + c1 f + ...), and log(m) = 2 s + s^3 (c0 + c1 s^2 + ...): to 2^-27 and 2^-59 */
static const float needle_log_terms_float[] = {0.3333333134651184f,   -0.250008225440979f,  0.2000122368335724f,
                                               -0.16623324155807495f, 0.14201845228672028f, -0.131606325507164f,
                                               0.1276107281446457f,   -0.07632524520158768f};
static const double needle_log_terms_double[] = {0.666666666666671,  0.3999999999954158, 0.2857142871885676, 0.22222200675696582,
                                                 0.1818346655006803, 0.1531633098270195, 0.14774869005533323};
static const int needle_root_bits_float = 0x3f3504f3; /* sqrt(1/2) */
static const long long needle_root_bits_double = 0x3fe6a09e667f3bcdLL;

/* 1 / log(base) as a number of 12 or 26 bits and the rest, and log(2) / log(base) as one whose multiples are exact and the rest */
typedef struct {
    double head, tail, k_head, k_tail;
} needle_base;
static const needle_base needle_base2_float = {0x1.7140000000000p+0, 0x1.47652b82fe177p-12, 1, 0};
static const needle_base needle_base2_double = {0x1.715476p+0, 0x1.4ae0bf85ddf44p-26, 1, 0};
static const needle_base needle_base10_float = {0x1.bca0000000000p-2, 0x1.7b1526e50e32ap-14, 0x1.3440000000000p-2,
                                                0x1.3509f79fef312p-18};
static const needle_base needle_base10_double = {0x1.bcb7b1p-2, 0x1.49b9438ca9aaep-28, 0x1.34413509f6p-2, 0x1.9fef311f12b36p-42};

#include "as_float.h"
#include "logarithm.h"
#include "as_double.h"
#include "logarithm.h"
#include "as_nothing.h"

static inline double needle_log(double x) { return needle_log_of_double((needle_vec_double) {0} + x)[0]; }

#elif defined(T)

/* the bits of a normal x = 2^k m, moved so that they are those of 2^k times a number from 1 on */
NEEDLE_INLINE mask FN(from_root)(vec x) { return (mask) x + ((mask) ((vec) {0} + 1) - FN(root_bits)); }

NEEDLE_INLINE vec FN(exponent)(mask from_root)
{
    const needle_format f = FN(format);
    vec magic = (vec) {0} + (T) (f.round * 2 / 3); /* 2^mantissa: its last bits are an integer */
    return (vec) ((mask) ((bits) from_root >> f.mantissa) | (mask) magic) - (magic + (T) f.bias);
}

/* k and m - 1 of a normal x = 2^k m */
NEEDLE_INLINE vec FN(split)(vec x, vec *k)
{
    mask from_root = FN(from_root)(x);
    *k = FN(exponent)(from_root);
    return (vec) ((from_root & (((INTEGER) 1 << FN(format).mantissa) - 1)) + FN(root_bits)) - 1;
}

/* log(1 + f) - f + f^2 / 2, given f^2 */
NEEDLE_INLINE vec FN(log_rest)(vec f, vec square)
{
    vec s, z;
    if (sizeof(T) == sizeof(float)) /* as many terms take less time than a division */
        return square * f * FN(polynomial)(f, FN(log_terms), NEEDLE_COUNT(FN(log_terms)));
    s = f / (f + 2), z = s * s;
    return s * FN(fma)(z, FN(polynomial)(z, FN(log_terms), NEEDLE_COUNT(FN(log_terms))), square * (T) 0.5);
}

/* k log(2) + log(1 + f) */
NEEDLE_INLINE vec FN(log_parts)(vec k, vec f)
{
    vec zero = {0}, square = f * f;
    f = FN(fma)(square, zero - (T) 0.5, FN(log_rest)(f, square)) + f;
    return FN(fma)(k, zero + (T) 0.69314718055994530942, f);
}

/* log of a normal number */
NEEDLE_INLINE vec FN(log_normal)(vec x)
{
    vec k, f = FN(split)(x, &k);
    return FN(log_parts)(k, f);
}

/* log(x) where a lane is 0, subnormal, negative, infinite or NaN, given the function for normal numbers and log(2^mantissa) */
NEEDLE_INLINE vec FN(log_edges)(vec (*log_normal)(vec), vec x, T log_shift)
{
    const needle_format f = FN(format);
    vec zero = {0}, infinite = zero + (T) INFINITY, y;
    mask small = x < (T) f.least;
    y = log_normal(FN(where)(small, x * (T) (f.round * 2 / 3), x));
    y = FN(where)(small, y - log_shift, y);
    y = FN(where)(x == zero, -infinite, y);
    y = FN(where)(x < zero, zero + (T) NAN, y);
    return FN(where)(x < infinite, y, x + x); /* NaN too */
}

/* not positive, or not normal: as unsigned integers, bits of positive normal numbers have no gap */
NEEDLE_INLINE mask FN(is_special)(vec x)
{
    const UNSIGNED one = (UNSIGNED) 1 << FN(format).mantissa, flip = (UNSIGNED) 1 << (8 * sizeof(T) - 1);
    return (mask) x + (INTEGER) (flip - one) > (mask) {0} + (INTEGER) (flip + one * 2 * FN(format).bias - 1);
}

static __attribute__((noinline)) vec FN(log_any)(vec x)
{
    return FN(log_edges)(FN(log_normal), x, (T) (FN(format).mantissa * 0.69314718055994530942));
}

NEEDLE_INLINE vec FN(log_of)(vec x) { return FN(any)(FN(is_special)(x)) ? FN(log_any)(x) : FN(log_normal)(x); }

/* log(x) / log(base) of a normal x: powers of the base have whole logarithms */
NEEDLE_INLINE vec FN(log_base)(vec x, const needle_base base)
{
    vec k, f = FN(split)(x, &k), square = f * f, half = square * (T) 0.5, high, low, whole, product;
    high = (vec) ((mask) (f - half) & (INTEGER) FN(format).head);
    low = (f - high) - half + FN(log_rest)(f, square);
    whole = k * (T) base.k_head, product = high * (T) base.head;
    x = whole + product;
    return x + (((whole - x) + product) + (low * (T) (base.head + base.tail) + high * (T) base.tail + k * (T) base.k_tail));
}

NEEDLE_INLINE vec FN(log2_normal)(vec x) { return FN(log_base)(x, FN(base2)); }
NEEDLE_INLINE vec FN(log10_normal)(vec x) { return FN(log_base)(x, FN(base10)); }

static __attribute__((noinline)) vec FN(log2_any)(vec x) { return FN(log_edges)(FN(log2_normal), x, FN(format).mantissa); }
static __attribute__((noinline)) vec FN(log10_any)(vec x)
{
    return FN(log_edges)(FN(log10_normal), x, (T) (FN(format).mantissa * 0.30102999566398119521));
}

NEEDLE_INLINE vec FN(log2_of)(vec x) { return FN(any)(FN(is_special)(x)) ? FN(log2_any)(x) : FN(log2_normal)(x); }
NEEDLE_INLINE vec FN(log10_of)(vec x) { return FN(any)(FN(is_special)(x)) ? FN(log10_any)(x) : FN(log10_normal)(x); }

/* log(1 + x) where 1 + x is a normal number: 2^k (1 + f) with f = x / 2^k + (1 / 2^k - 1), of which only the sum is rounded where it
 * matters. 4 / 2^k is a normal number for every k. */
NEEDLE_INLINE vec FN(log1p_normal)(vec x)
{
    vec zero = {0}, one = zero + 1, f;
    mask from_root = FN(from_root)(x + 1), scale = (mask) one - (from_root & -((INTEGER) 1 << FN(format).mantissa));
    f = (vec) ((mask) x + scale) + FN(fma)((vec) ((mask) (zero + 4) + scale), zero + (T) 0.25, -one);
    return FN(with_sign)(FN(log_parts)(FN(exponent)(from_root), f), x); /* of -0 */
}

static __attribute__((noinline)) vec FN(log1p_any)(vec x)
{
    vec zero = {0}, u = x + 1, y = FN(log1p_normal)(x);
    y = FN(where)(u == zero, zero - (T) INFINITY, y);
    y = FN(where)(u < zero, zero + (T) NAN, y);
    return FN(where)(u < (T) INFINITY, y, x); /* NaN too */
}

NEEDLE_INLINE vec FN(log1p_of)(vec x) { return FN(any)(FN(is_special)(x + 1)) ? FN(log1p_any)(x) : FN(log1p_normal)(x); }

#endif
