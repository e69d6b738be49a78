/* erf, and the normal distribution's cdf, of vectors: by a polynomial near 0, and by erfc(z) = e^(-z^2) times a slow function. */
#ifndef NEEDLE_ERROR_FUNCTION_H
#define NEEDLE_ERROR_FUNCTION_H
#include "exponential.h"

/* erf(x) = x + x (c0 + c1 x^2 + ...) for |x| <= 1, to 2^-29 and 2^-56 */
static const float needle_erf_terms_float[] = {0.12837916612625122f,   -0.3761262595653534f,  0.11283578723669052f,
                                               -0.026853347197175026f, 0.005187162198126316f, -0.0007997853099368513f,
                                               7.806903158780187e-05f};
static const double needle_erf_terms_double[] = {0.12837916709551256,     -0.37612638903183343,   0.1128379167093695,
                                                 -0.026866170641959154,   0.005223977596736226,   -0.0008548325485028146,
                                                 0.00012055280497867121,  -1.492446567249939e-05, 1.6444151064668888e-06,
                                                 -1.6183995555471515e-07, 1.361672037881834e-08,  -7.607854931022728e-10};
/* erfc(z) = e^(-z^2) t (c0 + c1 (t - 1/2) + ...) with t = s / (s + z), s = 3 and 4, to 2^-27 and 2^-53 */
static const float needle_erfc_terms_float[] = {0.35800230503082275f,  0.5889296531677246f,  0.7869710326194763f,
                                                0.8279101252555847f,   0.637490451335907f,   0.2862633466720581f,
                                                -0.02619486302137375f, -0.1310063898563385f, -0.041319750249385834f,
                                                0.05328122898936272f,  0.002653998089954257f};
static const double needle_erfc_terms_double[] = {
    0.27399891525012277,    0.4882743645404412,    0.7732087022652407,    1.0817076626263742,  1.3234063515111674,
    1.3920874979320415,     1.2221042386272523,    0.8438417061190859,    0.39117155854422914, 0.03596276147879753,
    -0.11649340417286559,   -0.0905287325081775,   -0.003723585291690196, 0.03863487893713243, 0.019237745824720837,
    -0.011735348335038923,  -0.013901243456574055, 0.0028476046744198734, 0.00814495649618063, -0.0012595889259862498,
    -0.0036205525422621015, 0.0014447479966320962};
/* the same for 1 <= z <= 4 and 6, to an error of erf of 2^-27 and 2^-55 */
static const float needle_far_terms_float[] = {0.35802456736564636f, 0.5881572365760803f, 0.7971867322921753f, 0.7621936202049255f,
                                               0.8484072685241699f};
static const double needle_far_terms_double[] = {0.2739989154162374,  0.48827435350813475, 0.773209013687237,   1.081702748670527,
                                                 1.3234537538341988,  1.3918068145437326,  1.2229965964947835,  0.8436976060082764,
                                                 0.37961798807584024, 0.08631066919587642, -0.21837112417440135};
static const float needle_erfc_scale_float = 3;
static const double needle_erfc_scale_double = 4;
static const float needle_far_float = 4;
static const double needle_far_double = 6;

#include "as_float.h"
#include "error_function.h"
#include "as_double.h"
#include "error_function.h"
#include "as_nothing.h"

#elif defined(T)

/* e^(-c x^2): the square of the first half of the digits is exact, the rest is added to the remainder of the exponential */
NEEDLE_INLINE vec FN(exp_square)(vec x, T c)
{
    vec head = (vec) ((mask) x & (INTEGER) FN(format).head);
    return FN(exp_sum)(head * head * -c, (x - head) * (x + head) * -c);
}

/* erfc(z), given e^(-z^2), for z >= 0 */
NEEDLE_INLINE vec FN(erfc_with)(vec z, vec e)
{
    vec t = FN(erfc_scale) / (FN(erfc_scale) + z);
    return e * t * FN(polynomial)(t - (T) 0.5, FN(erfc_terms), NEEDLE_COUNT(FN(erfc_terms)));
}

/* where |x| > 1, 1 - erfc(|x|), which needs no digits where erfc is small; NaN is no larger than 1 */
NEEDLE_INLINE vec FN(erf_of)(vec x)
{
    vec zero = {0}, z = FN(abs)(x), far = FN(smaller)(zero + FN(far), z), near = FN(smaller)(zero + 1, z), t, r, e;
    mask k;
    near = near + near * FN(polynomial)(near * near, FN(erf_terms), NEEDLE_COUNT(FN(erf_terms)));
    r = FN(reduce)(far * -far, &k);
    e = (FN(series)(r) + 1) * FN(power_of_2)(k);
    t = FN(erfc_scale) / (FN(erfc_scale) + far);
    far = 1 - e * t * FN(polynomial)(t - (T) 0.5, FN(far_terms), NEEDLE_COUNT(FN(far_terms)));
    return FN(with_sign)(FN(where)(z > (T) 1, far, near), x);
}

/* the normal distribution's cdf, given e^(-x^2 / 2): half of erfc(|x| / sqrt 2), or 1 - that */
NEEDLE_INLINE vec FN(normal_cdf)(vec x, vec e)
{
    vec half = FN(erfc_with)(FN(abs)(x) * (T) 0.70710678118654752440, e) * (T) 0.5;
    return FN(where)(x < (vec) {0}, half, 1 - half);
}

#endif
