/* Declares the vector variants of libm's functions, so that a plain loop over expf becomes vector code.
 *
 * glibc has them since 2.35 in libmvec, which the linker finds through libm. Everywhere else the loops call the scalar functions:
 * the same numbers within an ulp or two, only slower.
 */
#ifndef NEEDLE_VECMATH_H
#define NEEDLE_VECMATH_H

#include <math.h>

#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__SANITIZE_ADDRESS__)
#if __GLIBC_PREREQ(2, 35)
#define NEEDLE_VECTOR(name)                                                    \
    _Pragma("omp declare simd notinbranch") extern double name(double);        \
    _Pragma("omp declare simd notinbranch") extern float name##f(float);
NEEDLE_VECTOR(exp)
NEEDLE_VECTOR(expm1)
NEEDLE_VECTOR(log)
NEEDLE_VECTOR(log1p)
NEEDLE_VECTOR(sin)
NEEDLE_VECTOR(cos)
NEEDLE_VECTOR(tanh)
NEEDLE_VECTOR(erf)
#define NEEDLE_VECTOR_MATH "libmvec"
#endif
#endif

#ifndef NEEDLE_VECTOR_MATH
#define NEEDLE_VECTOR_MATH "libm, scalar"
#endif

#endif
