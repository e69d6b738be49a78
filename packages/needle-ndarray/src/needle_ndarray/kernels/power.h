/* x^y of double vectors: e^(y log x), with the logarithm as a sum of two numbers. */
#ifndef NEEDLE_POWER_H
#define NEEDLE_POWER_H
#include "logarithm.h"
#include "as_double.h"

/* log(m) = 2 s (1 + s^2 / 3 + s^4 (c0 + c1 s^2 + ...)), to 2^-66 */
static const double needle_power_terms[] = {0.1999999999999999,  0.14285714285722576, 0.11111111108763437, 0.09090909435746808,
                                            0.07692278395214189, 0.06668160262096172, 0.05837377680224621, 0.05994770019556501};

/* what is enough for float32: a logarithm to 2^-37, and e^r - 1 = r + r^2 (c0 + c1 r + ...) to 2^-32 */
static const double needle_log_few[] = {0.666666656436601, 0.4000033563568788, 0.2853727814116001, 0.23582765378881587};
static const double needle_exp_few[] = {0.5000000044219398,   0.1666666637015243,    0.04166636065941826,
                                        0.008333389403886756, 0.0013940648794821939, 0.00019845885469081732};

/* a number of 106 bits as the sum of two, |low| at most half a unit in the last place of high */
typedef struct {
    vec high, low;
} needle_pair;

NEEDLE_INLINE needle_pair needle_sum(vec large, vec small)
{
    vec high = large + small;
    return (needle_pair) {high, small - (high - large)};
}

NEEDLE_INLINE needle_pair needle_product(vec a, vec b)
{
    vec p = a * b;
    return (needle_pair) {p, FN(product_rest)(a, b, p)};
}

/* log(x) of a normal x, times 2^-shift */
NEEDLE_INLINE needle_pair needle_log_pair(vec x, vec shift)
{
    vec k, f = FN(split)(x, &k), d = f + 2, s = f / d, rest;
    needle_pair product = needle_product(s, d), z, t;
    rest = ((f - product.high) - product.low - s * (f - (d - 2))) / d; /* s + rest is f / (2 + f) */
    z = needle_product(s, s);
    z.low += 2 * s * rest;
    t = needle_product(z.high, (vec) {0} + 0x1.5555555555555p-2);
    t.low += z.low * 0x1.5555555555555p-2 + z.high * 0x1.5555555555555p-56;
    t.low += z.high * z.high * FN(polynomial)(z.high, needle_power_terms, NEEDLE_COUNT(needle_power_terms));
    t = needle_sum(t.high, t.low);
    product = needle_product(s, t.high);
    rest += product.low + s * t.low + rest * t.high;
    t = needle_sum(s, product.high);
    t = needle_sum(t.high, t.low + rest);
    k -= shift;
    s = k * 0x1.62e42fefa2p-1;
    z = needle_sum(s, 2 * t.high); /* exact: s is 0 or the larger one */
    return needle_sum(z.high, z.low + (2 * t.low + k * 0x1.9ef35793c7673p-41));
}

/* whether |y| is whole; halves of numbers above 2^52 are */
NEEDLE_INLINE mask needle_is_whole(vec y) { return (y >= 0x1p52) | ((y + 0x1p52) - 0x1p52 == y); }

/* x^y for float32 x > 0 and y, which are normal numbers here. The result is infinite or 0 in float32 long before it is here. */
NEEDLE_INLINE vec needle_power_single(vec x, vec y)
{
    const needle_format format = FN(format);
    vec zero = {0}, k, f = FN(split)(x, &k), half = f * f * 0.5, s = f / (f + 2), z = s * s, r;
    mask power;
    f = f - (half - s * (half + z * FN(polynomial)(z, needle_log_few, NEEDLE_COUNT(needle_log_few))));
    f = (k * 0.69314718055994530942 + f) * y;
    f = FN(larger)(zero + format.normal, FN(smaller)(zero + 700, f));
    r = FN(reduce)(f, &power);
    f = FN(polynomial)(r, needle_exp_few, NEEDLE_COUNT(needle_exp_few)) * (r * r) + r;
    return (f + 1) * FN(power_of_2)(power);
}

/* x^y for a normal x > 0 divided by 2^shift, and a finite y. Beyond 2^65, y makes 0 or infinity of everything but 1. */
NEEDLE_INLINE vec needle_power_normal(vec x, vec shift, vec y, const int single)
{
    const needle_format f = FN(format);
    vec zero = {0}, low, inside;
    needle_pair log, product;
    if (single)
        return needle_power_single(x, y);
    y = FN(larger)(zero - 0x1p65, FN(smaller)(zero + 0x1p65, y));
    log = needle_log_pair(x, shift);
    product = needle_product(y, log.high);
    low = product.low + y * log.low;
    inside = FN(smaller)(zero + f.highest, FN(larger)(zero + f.lowest, product.high));
    low = FN(where)(inside == product.high, low, zero);
    return FN(exp_sum)(inside, low);
}

/* x^y by the rules of C's Annex F */
static __attribute__((noinline)) vec needle_power_any(vec x, vec y, int single)
{
    vec zero = {0}, one = zero + 1, infinite = zero + (double) INFINITY, size = FN(abs)(x), power = FN(abs)(y), r, end;
    mask small = size < FN(format).least, whole = needle_is_whole(power), odd = whole & ~needle_is_whole(power * 0.5), finite;
    finite = (size > zero) & (size < infinite);
    end = FN(where)(finite, FN(where)(small, size * 0x1p52, size), one);
    r = needle_power_normal(end, FN(where)(small, one * 52, zero), FN(where)(power < infinite, y, one), single);
    end = FN(where)((size < one) == (y < zero), infinite, zero);
    r = FN(where)(finite & (power < infinite), r, FN(where)(size == one, one, end));
    r = FN(where)((mask) ((bits) odd & -((bits) x >> 63)), -r, r);
    r = FN(where)((x < zero) & (x > -infinite) & ~whole, zero + (double) NAN, r);
    r = FN(where)((x == x) & (y == y), r, zero + (double) NAN);
    return FN(where)((y == zero) | (x == one), one, r);
}

/* `single`: as exact as float32 needs it, for x and y that are float32 */
NEEDLE_INLINE vec needle_power_of(vec x, vec y, const int single)
{
    mask special = FN(is_special)(x) | ~(FN(abs)(y) < (double) INFINITY);
    return FN(any)(special) ? needle_power_any(x, y, single) : needle_power_normal(x, (vec) {0}, y, single);
}

#include "as_nothing.h"
#endif
