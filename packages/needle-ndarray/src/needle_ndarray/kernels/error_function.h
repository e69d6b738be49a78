/* erf, and the normal distribution's cdf, of vectors. */
#ifndef NEEDLE_ERROR_FUNCTION_H
#define NEEDLE_ERROR_FUNCTION_H
#include "error_table.h"
#include "exponential.h"

/* of floats: erf(x) = x + x (c0 + c1 x^2 + ...) up to 1.25, to 2^-27; from there on 1 - (c0 + c1 x + ...)^-16, to 2^-27, and 1 beyond
 * `end` */
static const float needle_erf_terms_float[] = {0.12837916612625122f,    -0.3761262893676758f,   0.11283674091100693f,
                                               -0.026860248297452927f,  0.0052090175449848175f, -0.0008339573978446424f,
                                               0.00010393896081950516f, -7.572994491056306e-06f};
static const float needle_far_terms_float[] = {1.0011543035507202f,    0.06597494333982468f,   0.04977183789014816f,
                                               0.00266452063806355f,   0.0034428194630891085f, -0.0005996333784423769f,
                                               0.00014011950406711549f};
static const float needle_erf_near = 1.25f, needle_erf_end = 3.92f;
/* the cdf of -x is e^(-x^2 / 2) t (c0 + c1 (t - 5/16) + ...) with t = s / (s + x), s = 3.4 and 6: to 2^-28 and 2^-54 up to `last`,
 * which is beyond what does not round to 0 */
static const float needle_cdf_terms_float[] = {
    0.1677706241607666f,    0.2183275669813156f,    0.23149259388446808f,  0.1848907768726349f, 0.08771585673093796f,
    -0.010479090735316277f, -0.048814281821250916f, -0.03421919047832489f, 0.0596415214240551f, -0.020177846774458885f};
static const double needle_cdf_terms_double[] = {
    0.0961675152667222,    0.13488359487753163,   0.17806090391315804,   0.22017464121419433,   0.25343117903703616,
    0.26931075569440477,   0.26117850850828833,   0.2272286248124342,    0.17244617168785234,   0.10821274646786608,
    0.04898275686622945,   0.006985356345213569,  -0.012630760880225874, -0.013518576972416164, -0.005142285919817306,
    0.0027479185587363317, 0.0031707001123340464, 0.00363694545620841,   -0.002071000606209381, -0.004329164592007558,
    0.004005979220876444,  -0.0009981196447027597};
static const float needle_scale_float = 3.4f, needle_last_float = 14.5f;
static const double needle_scale_double = 6, needle_last_double = 39;

#include "as_float.h"
NEEDLE_INLINE vec needle_erf_of_float(vec x)
{
    vec zero = {0}, z = FN(abs)(x), p = FN(smaller)(zero + needle_erf_end, z);
    mask far = z > needle_erf_near; /* NaN is not */
    p = FN(polynomial)(p, needle_far_terms_float, NEEDLE_COUNT(needle_far_terms_float));
    NEEDLE_UNROLL(4)
    for (int i = 0; i < 4; i++)
        p = p * p;
    z = FN(fma)(z, FN(polynomial)(z * z, needle_erf_terms_float, NEEDLE_COUNT(needle_erf_terms_float)), z);
    return FN(with_sign)(FN(where)(far, 1 - 1 / p, z), x);
}

#include "as_double.h"
#if NEEDLE_VECTOR >= 32
NEEDLE_INLINE __m256d needle_erf_two(long long low, long long high)
{
    return _mm256_insertf128_pd(_mm256_castpd128_pd256(_mm_loadu_pd(needle_erf_table[low])), _mm_loadu_pd(needle_erf_table[high]),
                                1);
}
#endif

/* a row of the table per lane; each is loaded as a whole, which takes two thirds of the time of gathers */
NEEDLE_INLINE void needle_erf_rows(mask row, vec *value, vec *slope)
{
    long long at[LANES];
    memcpy(at, &row, sizeof at);
#if defined(__AVX512F__)
    vec even = _mm512_insertf64x4(_mm512_castpd256_pd512(needle_erf_two(at[0], at[2])), needle_erf_two(at[4], at[6]), 1);
    vec odd = _mm512_insertf64x4(_mm512_castpd256_pd512(needle_erf_two(at[1], at[3])), needle_erf_two(at[5], at[7]), 1);
    *value = X86(unpacklo)(even, odd), *slope = X86(unpackhi)(even, odd);
#elif NEEDLE_VECTOR == 32
    vec even = needle_erf_two(at[0], at[2]), odd = needle_erf_two(at[1], at[3]);
    *value = X86(unpacklo)(even, odd), *slope = X86(unpackhi)(even, odd);
#else
    for (int i = 0; i < LANES; i++)
        (*value)[i] = needle_erf_table[at[i]][0], (*slope)[i] = needle_erf_table[at[i]][1];
#endif
}

/* of doubles: Taylor's series around the nearest r = 0, 1/128, ... 6, of d = |x| - r, to d^6. Numbers of magnitude 2^45 have no bits
 * below 1/128. */
NEEDLE_INLINE vec needle_erf_of_double(vec x)
{
    vec zero = {0}, end = zero + 6, shift = zero + 0x1p45, size = FN(abs)(x), shifted = FN(smaller)(size, end) + shift;
    mask row = (mask) shifted - (mask) shift; /* of NaN it is the last */
    vec r = shifted - shift, d = FN(smaller)(end, size) - r, r2 = r * r, p, q, value, slope;
    needle_erf_rows(row, &value, &slope);
    p = FN(fma)(FN(fma)(r2, zero + 2. / 45, zero - 2. / 9), r2, zero + 1. / 6) * r;
    q = FN(fma)(FN(fma)(r2, zero + 2. / 15, zero - 2. / 5), r2, zero + 1. / 10);
    p = FN(fma)(-d, p, q);
    p = FN(fma)(p, d, FN(fma)(r2, zero - 1. / 3, zero + 1. / 2) * r);
    p = FN(fma)(p, d, FN(fma)(r2, zero + 2. / 3, zero - 1. / 3));
    p = FN(fma)(FN(fma)(p, d, -r), d * d, d);
    return FN(with_sign)(FN(fma)(slope, p, value), x);
}

#include "as_float.h"
#include "error_function.h"
#include "as_double.h"
#include "error_function.h"
#include "as_nothing.h"

#elif defined(T)

/* e^(-x^2 / 2) and the normal distribution's cdf of -|x|. What the rounded square, sum and quotient have no bits for is added to the
 * remainder of the exponential, as log(t P(t)) grows by about (0.2 + 0.6 t) t / s with x. */
NEEDLE_INLINE vec FN(normal)(vec x, vec *bell)
{
    const T s = FN(scale);
    const needle_format f = FN(format);
    vec zero = {0}, z = FN(smaller)(zero + FN(last), FN(abs)(x)), half = z * (T) -0.5, sum = z + s, t = s / sum, low, square, k, p,
        r;
    square = half * z;
    low = FN(fma)(t, z - (sum - s), FN(product_rest)(t, sum, zero + s));
    low = FN(fma)(FN(fma)(t, zero - (T) 0.6, zero - (T) 0.2), low, FN(product_rest)(half, z, square));
    k = FN(fma)(square, zero + (T) 1.4426950408889634, zero + (T) f.round), r = k - (T) f.round;
    r = FN(series)(FN(fma)(r, zero - (T) f.log2, square) + FN(fma)(r, zero - (T) f.log2_low, low));
    *bell = FN(scaled_down)(r + 1, (mask) k);
    low = t - (T) 0.3125; /* the first of the sum's terms on its own: one rounding less */
    p = FN(polynomial)(low, FN(cdf_terms) + 1, NEEDLE_COUNT(FN(cdf_terms)) - 1);
    p = FN(fma)(low, p, zero + FN(cdf_terms)[0]);
    sum = t * p;
    return FN(scaled_down)(FN(fma)(sum, r, FN(product_rest)(t, p, sum)) + sum, (mask) k);
}

#endif
