/* Inverse trigonometric, hyperbolic and inverse hyperbolic functions of double vectors. */
#ifndef NEEDLE_INVERSE_H
#define NEEDLE_INVERSE_H
#include "logarithm.h"
#include "as_double.h"

/* atan(t) = t + t^3 (c0 + c1 t^2 + ...) for |t| <= tan(pi / 8), asin(t) the same for |t| <= 1/2: to 2^-59 and 2^-55 */
static const double needle_atan_terms[] = {-0.3333333333333327,   0.19999999999969428,  -0.142857142814966,   0.11111110838937922,
                                           -0.09090899160425671,  0.07692082608343637,  -0.0666333594466518,  0.05849444046406432,
                                           -0.050458175617251425, 0.038219512163441195, -0.018067056757038985};
static const double needle_asin_terms[] = {0.16666666666665375,  0.07500000000344952,  0.04464285682185919,  0.030381959399868156,
                                           0.022371751842529812, 0.01735979694588225,  0.013884338667815915, 0.012175013872282089,
                                           0.006503231711936684, 0.019595081220974395, -0.01632778519588104, 0.03198239603442692};
#define NEEDLE_HALF_PI 0x1.921fb54442d18p+0
#define NEEDLE_HALF_PI_LOW 0x1.1a62633145c07p-54

NEEDLE_INLINE vec needle_root(vec x)
{
#if defined(NEEDLE_X86)
    return X86(sqrt)(x);
#else
    for (int i = 0; i < LANES; i++)
        x[i] = __builtin_sqrt(x[i]);
    return x;
#endif
}

/* the angle of (x, y), 0 <= y <= x or the other way round, neither NaN: up to pi / 8 by the polynomial, from there as far below pi / 4,
 * above pi / 4 as far below pi / 2. (0, 0) has 0, (inf, inf) pi / 4. */
NEEDLE_INLINE vec needle_angle(vec y, vec x)
{
    vec zero = {0}, one = zero + 1, high = FN(larger)(x, y), low = FN(smaller)(x, y), t, z, start, rest;
    mask steep = y > x, equal = high == low, wide;
    t = FN(where)(equal, zero, low) / FN(where)(equal, one, high);
    t = FN(where)(equal & (high > zero), one, t);
    wide = t > 0.41421356237309503;
    t = FN(where)(wide, (t - 1) / (t + 1), t);
    start = FN(where)(wide, zero + 0.5 * NEEDLE_HALF_PI, zero), rest = FN(where)(wide, zero + 0.5 * NEEDLE_HALF_PI_LOW, zero);
    z = t * t;
    rest = rest + t * z * FN(polynomial)(z, needle_atan_terms, NEEDLE_COUNT(needle_atan_terms));
    start = FN(where)(steep, NEEDLE_HALF_PI - start, start);
    rest = FN(where)(steep, NEEDLE_HALF_PI_LOW - rest, rest);
    return start + (rest + FN(where)(steep, -t, t));
}

NEEDLE_INLINE vec needle_atan_of(vec x)
{
    vec zero = {0}, y = FN(with_sign)(needle_angle(FN(abs)(x), zero + 1), x);
    return FN(where)(x == x, y, x);
}

NEEDLE_INLINE vec needle_atan2_of(vec y, vec x)
{
    vec zero = {0}, angle = needle_angle(FN(abs)(y), FN(abs)(x));
    mask left = -(mask) ((bits) (mask) x >> 63);
    angle = FN(where)(left, 2 * NEEDLE_HALF_PI - (angle - 2 * NEEDLE_HALF_PI_LOW), angle);
    return FN(where)((x == x) & (y == y), FN(with_sign)(angle, y), zero + (double) NAN);
}

/* asin(|x|) of |x| <= 1/2, of more pi / 2 - 2 asin(root), with root = sqrt((1 - |x|) / 2): *rest is what it is made of */
NEEDLE_INLINE mask needle_arc(vec x, vec *rest)
{
    vec zero = {0}, z, t;
    mask far = FN(abs)(x) > 0.5;
    z = FN(where)(far, (1 - FN(abs)(x)) * 0.5, x * x);
    t = FN(where)(far, needle_root(FN(larger)(zero, z)), FN(abs)(x));
    t = t + t * z * FN(polynomial)(z, needle_asin_terms, NEEDLE_COUNT(needle_asin_terms));
    t = FN(where)(FN(abs)(x) <= 1, t, zero + (double) NAN);
    *rest = FN(where)(x == x, t, x);
    return far;
}

NEEDLE_INLINE vec needle_asin_of(vec x)
{
    vec t;
    mask far = needle_arc(x, &t);
    return FN(with_sign)(FN(where)(far, NEEDLE_HALF_PI - (t + t - NEEDLE_HALF_PI_LOW), t), x);
}

NEEDLE_INLINE vec needle_acos_of(vec x)
{
    vec zero = {0}, t, near;
    mask far = needle_arc(x, &t);
    near = NEEDLE_HALF_PI - (FN(with_sign)(zero, x) + FN(where)(x < zero, -t, t) - NEEDLE_HALF_PI_LOW);
    t = t + t;
    return FN(where)(far, FN(where)(x < zero, 2 * NEEDLE_HALF_PI - (t - 2 * NEEDLE_HALF_PI_LOW), t), near);
}

/* (e - 1 / (1 + e)) / 2 with e = e^|x| - 1; large ones as e^(|x| / 2)^2 / 2 */
NEEDLE_INLINE vec needle_sinh_of(vec x)
{
    vec zero = {0}, size = FN(abs)(x), e = FN(expm1_of)(FN(smaller)(zero + 700, size)), h = FN(exp_of)(size * 0.5);
    e = (e + e / (e + 1)) * 0.5;
    return FN(with_sign)(FN(where)(size > 30, h * 0.5 * h, e), x);
}

NEEDLE_INLINE vec needle_cosh_of(vec x)
{
    vec h = FN(exp_of)(FN(abs)(x) * 0.5), e = h * h;
    e = FN(exp_of)(FN(smaller)((vec) {0} + 700, FN(abs)(x)));
    return FN(where)(FN(abs)(x) > 30, h * 0.5 * h, (e + 1 / e) * 0.5);
}

/* log(1 + |x| + x^2 / (1 + sqrt(1 + x^2))), beyond 2^28 log(|x|) + log(2) */
NEEDLE_INLINE vec needle_asinh_of(vec x)
{
    vec zero = {0}, size = FN(abs)(x), small = FN(smaller)(zero + 0x1p28, size), square = small * small, y;
    y = FN(log1p_of)(small + square / (1 + needle_root(1 + square)));
    if (FN(any)(~(size < 0x1p28)))
        y = FN(where)(size < 0x1p28, y, FN(log_of)(size) + 0.69314718055994530942);
    return FN(with_sign)(y, x);
}

NEEDLE_INLINE vec needle_acosh_of(vec x)
{
    vec zero = {0}, t = FN(smaller)(zero + 0x1p28, x) - 1, y = FN(log1p_of)(t + needle_root(FN(larger)(zero, t + t + t * t)));
    if (FN(any)(~(x < 0x1p28)))
        y = FN(where)(x < 0x1p28, y, FN(log_of)(x) + 0.69314718055994530942);
    return FN(where)(x < zero + 1, zero + (double) NAN, y);
}

/* log(1 + 2 |x| / (1 - |x|)) / 2 */
NEEDLE_INLINE vec needle_atanh_of(vec x)
{
    vec size = FN(abs)(x), twice = size + size, t;
    t = FN(where)(size < 0.5, twice + twice * size / (1 - size), twice / (1 - size));
    return FN(with_sign)(FN(log1p_of)(t) * 0.5, x);
}

/* sqrt(x^2 + y^2), scaled by a power of two where squares are too large or too small */
NEEDLE_INLINE vec needle_hypot_of(vec x, vec y)
{
    vec zero = {0}, one = zero + 1, infinite = zero + (double) INFINITY, high, low, scale;
    x = FN(abs)(x), y = FN(abs)(y);
    high = FN(larger)(x, y), low = FN(smaller)(x, y);
    scale = FN(where)(high > 0x1p500, one * 0x1p-600, FN(where)(high < 0x1p-400, one * 0x1p600, one));
    high = high * scale, low = low * scale;
    high = needle_root(high * high + low * low) / scale;
    high = FN(where)((x == x) & (y == y), high, zero + (double) NAN);
    return FN(where)((x == infinite) | (y == infinite), infinite, high);
}

/* log(e^x + e^y) by the larger of the two; equal infinities have no difference */
NEEDLE_INLINE vec needle_logaddexp_of(vec x, vec y)
{
    vec zero = {0}, high = FN(where)(x >= y, x, y), low = FN(where)(x >= y, y, x), sum = low - high;
    sum = high + FN(log1p_of)(FN(exp_of)(FN(where)(sum == sum, sum, zero - 800)));
    return FN(where)((x == x) & (y == y), sum, zero + (double) NAN);
}

#include "as_nothing.h"
#endif
