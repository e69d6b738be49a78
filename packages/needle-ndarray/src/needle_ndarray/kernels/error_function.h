/* erf, and the normal distribution's cdf, of vectors. */
#ifndef NEEDLE_ERROR_FUNCTION_H
#define NEEDLE_ERROR_FUNCTION_H
#include "exponential.h"

/* erf(x) = x + x (c0 + c1 x^2 + ...) up to 1.25 and 1.5, to 2^-27 and 2^-53; from there on 1 - (c0 + c1 (x - from) + ...)^-16, to 2^-27
 * and 2^-55, and 1 beyond `end` */
static const float needle_erf_terms_float[] = {0.12837916612625122f,    -0.3761262893676758f,   0.11283674091100693f,
                                               -0.026860248297452927f,  0.0052090175449848175f, -0.0008339573978446424f,
                                               0.00010393896081950516f, -7.572994491056306e-06f};
static const float needle_far_terms_float[] = {1.0011543035507202f,    0.06597494333982468f,   0.04977183789014816f,
                                               0.00266452063806355f,   0.0034428194630891085f, -0.0005996333784423769f,
                                               0.00014011950406711549f};
static const double needle_erf_terms_double[] = {
    0.12837916709551256,    -0.3761263890318366,     0.11283791670952172,    -0.026866170644752472,  0.005223977622888114,
    -0.0008548326919323294, 0.00012055330200361515,  -1.492559921119387e-05, 1.6461446830347055e-06, -1.6359554760298015e-07,
    1.4764141760254426e-08, -1.2077474976220503e-09, 8.672539413354583e-11,  -4.891329596563436e-12, 1.5771246122018685e-13};
static const double needle_far_terms_double[] = {
    1.3983721764789787,    0.38613957139453325,    0.13404755219967476,    0.028639796641603512,   0.005832637829409976,
    0.0010613565506952488, 0.0001587904737487911,  2.608518730908706e-05,  3.186828920914308e-06,  4.4375860684487817e-07,
    6.11983784086911e-08,  2.9851805804544538e-09, 1.5698948836074755e-09, -9.990049815122941e-11, 2.87504992946833e-11};
static const float needle_near_float = 1.25f, needle_from_float = 0, needle_end_float = 3.92f;
static const double needle_near_double = 1.5, needle_from_double = 2, needle_end_double = 6;
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
#include "error_function.h"
#include "as_double.h"
#include "error_function.h"
#include "as_nothing.h"

#elif defined(T)

NEEDLE_INLINE vec FN(erf_of)(vec x)
{
    vec zero = {0}, z = FN(abs)(x), p = FN(smaller)(zero + FN(end), z) - FN(from);
    mask far = z > FN(near); /* NaN is not */
    p = FN(polynomial)(p, FN(far_terms), NEEDLE_COUNT(FN(far_terms)));
    NEEDLE_UNROLL(4)
    for (int i = 0; i < 4; i++)
        p = p * p;
    z = FN(fma)(z, FN(polynomial)(z * z, FN(erf_terms), NEEDLE_COUNT(FN(erf_terms))), z);
    return FN(with_sign)(FN(where)(far, 1 - 1 / p, z), x);
}

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
