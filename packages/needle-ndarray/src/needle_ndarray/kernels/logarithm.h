/* log(x), log2(x), log10(x) and log(1 + x) of vectors: k log(2) + log(m) with sqrt(1/2) <= m < sqrt(2), log(m) by a series in s = (m - 1) / (m + 1). */
#ifndef NEEDLE_LOGARITHM_H
#define NEEDLE_LOGARITHM_H
#include "exponential.h"

/* log(m) = 2 s + s^3 (c0 + c1 s^2 + ...): relative errors are 2^-30 and 2^-59 */
static const float needle_log_terms_float[] = {0.6666677594184875f, 0.39977577328681946f, 0.2987106740474701f};
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

/* k and m - 1 of a normal x = 2^k m */
NEEDLE_INLINE vec FN(split)(vec x, vec *k)
{
    const needle_format f = FN(format);
    vec zero = {0}, magic = zero + (T) (f.round * 2 / 3); /* 2^mantissa: its last bits are an integer */
    const mask one = (mask) (zero + 1);
    mask from_root = (mask) x - FN(root_bits) + one;
    *k = (vec) ((mask) ((bits) from_root >> f.mantissa) | (mask) magic) - (magic + (T) f.bias);
    return (vec) ((from_root & (((INTEGER) 1 << f.mantissa) - 1)) + FN(root_bits)) - 1;
}

/* log(1 + f) = f - (half - rest), of which only f and half are large */
NEEDLE_INLINE vec FN(log_rest)(vec f, vec half)
{
    vec s = f / (f + 2), z = s * s;
    return s * (half + z * FN(polynomial)(z, FN(log_terms), NEEDLE_COUNT(FN(log_terms))));
}

/* log of a normal number */
NEEDLE_INLINE vec FN(log_normal)(vec x)
{
    vec k, f = FN(split)(x, &k), half = f * f * (T) 0.5;
    return k * (T) FN(format).log2 - ((half - (FN(log_rest)(f, half) + k * (T) FN(format).log2_low)) - f);
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

NEEDLE_INLINE mask FN(is_normal)(vec x) { return (x >= (T) FN(format).least) & (x < (T) INFINITY); }

static __attribute__((noinline)) vec FN(log_any)(vec x)
{
    return FN(log_edges)(FN(log_normal), x, (T) (FN(format).mantissa * 0.69314718055994530942));
}

NEEDLE_INLINE vec FN(log_of)(vec x) { return FN(any)(~FN(is_normal)(x)) ? FN(log_any)(x) : FN(log_normal)(x); }

/* log(x) / log(base) of a normal x: powers of the base have whole logarithms */
NEEDLE_INLINE vec FN(log_base)(vec x, const needle_base base)
{
    vec k, f = FN(split)(x, &k), half = f * f * (T) 0.5, high, low, whole, product;
    high = (vec) ((mask) (f - half) & (INTEGER) FN(format).head);
    low = (f - high) - half + FN(log_rest)(f, half);
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

NEEDLE_INLINE vec FN(log2_of)(vec x) { return FN(any)(~FN(is_normal)(x)) ? FN(log2_any)(x) : FN(log2_normal)(x); }
NEEDLE_INLINE vec FN(log10_of)(vec x) { return FN(any)(~FN(is_normal)(x)) ? FN(log10_any)(x) : FN(log10_normal)(x); }

/* log(u + c) for a normal u and a c that u has no bits for */
NEEDLE_INLINE vec FN(log_sum)(vec u, vec c)
{
    vec k, f = FN(split)(u, &k), half = f * f * (T) 0.5;
    return k * (T) FN(format).log2 - ((half - (FN(log_rest)(f, half) + (k * (T) FN(format).log2_low + c / u))) - f);
}

/* log(1 + x) where 1 + x = u + c is a normal number */
NEEDLE_INLINE vec FN(log1p_normal)(vec x)
{
    vec zero = {0}, u = x + 1, part = u - 1;
    return FN(log_sum)(u, ((zero + 1) - (u - part)) + (x - part));
}

static __attribute__((noinline)) vec FN(log1p_any)(vec x)
{
    vec zero = {0}, u = x + 1, y = FN(log1p_normal)(x);
    y = FN(where)(u == zero, zero - (T) INFINITY, y);
    y = FN(where)(u < zero, zero + (T) NAN, y);
    return FN(where)((u < (T) INFINITY) & (x != zero), y, x); /* NaN and -0 too */
}

NEEDLE_INLINE vec FN(log1p_of)(vec x)
{
    vec zero = {0};
    return FN(any)(~FN(is_normal)(x + 1) | (x == zero)) ? FN(log1p_any)(x) : FN(log1p_normal)(x);
}

#endif
