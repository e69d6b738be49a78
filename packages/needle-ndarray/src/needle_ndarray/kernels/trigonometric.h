/* sin, cos and tan of vectors: multiples of pi are taken away by parts of pi, exactly where the vectors cannot. */
#ifndef NEEDLE_TRIGONOMETRIC_H
#define NEEDLE_TRIGONOMETRIC_H
#include "exponential.h"

/* sin(r) = r + r^3 (c0 + c1 r^2 + ...) for |r| <= pi / 2, to 2^-57 and 2^-27 */
static const double needle_sin_terms_double[] = {-0.16666666666666666,   0.008333333333333194,    -0.0001984126984120921,
                                                 2.7557319211135407e-06, -2.5052106872624816e-08, 1.6058939696685766e-10,
                                                 -7.642991242550062e-13, 2.7211722947701827e-15};
static const float needle_sin_terms_float[] = {-0.16666659712791443f, 0.008333069272339344f, -0.00019809773948509246f,
                                               2.606081807243754e-06f};
/* for |r| <= pi / 4: sin as above, and cos(r) = 1 - r^2 / 2 + r^4 (c0 + c1 r^2 + ...) */
static const double needle_sin_near[] = {-0.1666666666666663,   0.00833333333332184,     -0.0001984126982935855,
                                         2.755731353852972e-06, -2.5050734392770817e-08, 1.5895433545321433e-10};
static const double needle_cos_near[] = {0.041666666666666595,    -0.0013888888888873342, 2.480158728900202e-05,
                                         -2.7557314217001125e-07, 2.0875705387969874e-09, -1.1358748677073637e-11};
/* pi = the sum of the parts, which are as long as they may be: products with multiples of 1/2 up to `up_to` / pi are not rounded. What
 * is missing is too little to matter next to any multiple. */
#if defined(NEEDLE_FMA)
static const double needle_pi_float[] = {0x1.921fb6p+1, -0x1.777a5cp-24, -0x1.ee59dap-49};
static const double needle_pi_double[] = {0x1.921fb54442d18p+1, 0x1.1a62633145c07p-53, -0x1.f1976b7ed8fbcp-109};
#else
static const double needle_pi_float[] = {0x1.92p+1, 0x1.fb4p-11, 0x1.444p-23, 0x1.68c234p-38};
static const double needle_pi_double[] = {0x1.921fb544p+1, 0x1.0b4611a6p-33, 0x1.3198a2ep-68, 0x1.b839a252049c1p-103};
#endif
static const float needle_up_to_float = 4096;
static const double needle_up_to_double = 1048576;
/* 64 zeros and the first bits of 2 / pi */
static const unsigned long long needle_two_over_pi[] = {0x0ull,
                                                        0xa2f9836e4e441529ull,
                                                        0xfc2757d1f534ddc0ull,
                                                        0xdb6295993c439041ull,
                                                        0xfe5163abdebbc561ull,
                                                        0xb7246e3a424dd2e0ull,
                                                        0x06492eea09d1921cull,
                                                        0xfe1deb1cb129a73eull,
                                                        0xe88235f52ebb4484ull,
                                                        0xe99c7026b45f7e41ull,
                                                        0x3991d639835339f4ull,
                                                        0x9c845f8bbdf9283bull,
                                                        0x1ff897ffde05980full,
                                                        0xef2f118b5a0a6d1full,
                                                        0x6d367ecf27cb09b7ull,
                                                        0x4f463f669e5fea2dull,
                                                        0x7527bac7ebe5f17bull,
                                                        0x3d0739f78a5292eaull,
                                                        0x6bfb5fb11f8d5d08ull,
                                                        0x56033046fc7b6babull,
                                                        0xf0cfbc209af4361dull,
                                                        0xa9e391615ee61b08ull};

/* q of x = q pi / 2 + r, of its last two bits, and r, |r| <= pi / 4, for a finite x >= 1/2: Payne and Hanek's reduction, of which bits
 * that stand for multiples of 2 pi are not computed */
static int needle_reduce_exactly(double x, double *r)
{
    unsigned long long number, w[3], head;
    unsigned __int128 low, middle, fraction;
    int negative, zeros, first, quadrant;
    memcpy(&number, &x, 8);
    first = (int) (number >> 52) - 1075 - 2 + 64;
    number = (number & 0xfffffffffffffull) | 1ull << 52;
    for (int i = 0; i < 3; i++) {
        const unsigned long long *at = needle_two_over_pi + first / 64 + i;
        w[i] = first % 64 ? at[0] << first % 64 | at[1] >> (64 - first % 64) : at[0];
    }
    low = (unsigned __int128) number * w[2];
    middle = (unsigned __int128) number * w[1] + (low >> 64);
    head = number * w[0] + (unsigned long long) (middle >> 64);
    quadrant = (int) (head >> 62);
    fraction = ((unsigned __int128) head << 64 | (unsigned long long) middle) << 2 | (unsigned long long) low >> 62;
    negative = (int) (fraction >> 127);
    if (negative)
        fraction = -fraction;
    zeros = (unsigned long long) (fraction >> 64) ? __builtin_clzll((unsigned long long) (fraction >> 64))
                                                  : 64 + __builtin_clzll((unsigned long long) fraction | 1);
    head = (unsigned long long) ((fraction << zeros) >> 64);
    head = (unsigned long long) ((unsigned __int128) head * 0xc90fdaa22168c234ull >> 64); /* pi / 2, 63 bits after the point */
    number = (unsigned long long) (1023 - 63 - zeros) << 52;
    memcpy(&x, &number, 8);
    *r = (double) head * x * (negative ? -1 : 1);
    return quadrant + negative;
}

/* sin(r), |r| <= pi / 2 */
static double needle_sine(double r)
{
    double z = r * r, sum = 0;
    for (int i = NEEDLE_COUNT(needle_sin_terms_double) - 1; i >= 0; i--)
        sum = sum * z + needle_sin_terms_double[i];
    return r + r * z * sum;
}

static double needle_cosine(double r) { return needle_sine(0x1.921fb54442d18p+0 - (r < 0 ? -r : r)); }

/* sin, cos (turn 1) or tan (turn -1) of a number x >= 0 that is not for vectors */
static double needle_sine_exactly(double x, int turn)
{
    double r, s, c;
    int q;
    if (!(x < INFINITY))
        return x < 0 || x > 0 ? NAN : x;
    if (x < 0.5)
        return turn == 1 ? needle_cosine(x) : turn ? needle_sine(x) / needle_cosine(x) : needle_sine(x);
    q = needle_reduce_exactly(x, &r);
    s = needle_sine(r), c = needle_cosine(r);
    if (turn < 0)
        return q % 2 ? -c / s : s / c;
    q += turn;
    return (q & 2 ? -1 : 1) * (q & 1 ? c : s);
}

#include "as_float.h"
#include "trigonometric.h"
#include "as_double.h"
#include "trigonometric.h"

NEEDLE_INLINE vec FN(tan_of)(vec signed_x)
{
    vec x = FN(abs)(signed_x), zero = {0}, n = FN(fma)(x, zero + 0x1.45f306dc9c883p-1, zero + FN(format).round), r, z, s, c, y;
    mask odd = -((mask) n & 1), hard = FN(is_hard)(x);
    r = FN(without_pi)(x, (n - FN(format).round) * 0.5);
    z = r * r;
    s = FN(fma)(r * z, FN(polynomial)(z, needle_sin_near, NEEDLE_COUNT(needle_sin_near)), r);
    c = 1 - FN(fma)(z * z, -FN(polynomial)(z, needle_cos_near, NEEDLE_COUNT(needle_cos_near)), z * 0.5);
    y = FN(where)(odd, zero - c, s) / FN(where)(odd, s, c);
    return FN(odd)(FN(any)(hard) ? FN(each_exactly)(x, y, hard, -1) : y, signed_x);
}

#include "as_nothing.h"

#elif defined(T)

static __attribute__((noinline)) vec FN(each_exactly)(vec x, vec y, mask hard, int turn)
{
    for (int i = 0; i < LANES; i++)
        if (hard[i])
            y[i] = (T) needle_sine_exactly(x[i], turn);
    return y;
}

/* whether x >= 0 is large, infinite or NaN: as its bits are */
NEEDLE_INLINE mask FN(is_hard)(vec x) { return (mask) x > (mask) ((vec) {0} + FN(up_to)); }

/* x - whole pi */
NEEDLE_INLINE vec FN(without_pi)(vec x, vec whole)
{
    NEEDLE_UNROLL(4)
    for (int i = 0; i < NEEDLE_COUNT(FN(pi)); i++)
        x = FN(fma)(whole, (vec) {0} - (T) FN(pi)[i], x);
    return x;
}

/* sin(x) or, with turn 1, cos(x), of x >= 0 */
NEEDLE_INLINE vec FN(sine_of)(vec x, const int turn)
{
    const T shift = (T) 0.5 * turn, round = (T) FN(format).round;
    vec zero = {0}, inverse = zero + (T) 0x1.45f306dc9c883p-2, n, r, z, y;
    mask hard = FN(is_hard)(x);
    n = turn ? FN(fma)(x, inverse, zero - shift) + round : FN(fma)(x, inverse, zero + round);
    r = FN(without_pi)(x, turn ? n - round + shift : n - round);
    z = r * r;
    y = FN(fma)(r * z, FN(polynomial)(z, FN(sin_terms), NEEDLE_COUNT(FN(sin_terms))), r);
    y = (vec) ((mask) y ^ (mask) ((bits) ((mask) n + turn) << (8 * sizeof(T) - 1)));
    return FN(any)(hard) ? FN(each_exactly)(x, y, hard, turn) : y;
}

/* y = f(|x|) for an odd function f: with the sign of x, or against it */
NEEDLE_INLINE vec FN(odd)(vec y, vec x) { return (vec) ((mask) y ^ ((mask) x & (mask) (-(vec) {0}))); }

NEEDLE_INLINE vec FN(sin_of)(vec x) { return FN(odd)(FN(sine_of)(FN(abs)(x), 0), x); }
NEEDLE_INLINE vec FN(cos_of)(vec x) { return FN(sine_of)(FN(abs)(x), 1); }

#endif
