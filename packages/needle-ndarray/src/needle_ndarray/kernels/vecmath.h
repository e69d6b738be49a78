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
#define NEEDLE_VECTOR_FUNCTION(name)                                           \
    _Pragma("omp declare simd notinbranch") extern double name(double);        \
    _Pragma("omp declare simd notinbranch") extern float name##f(float);
NEEDLE_VECTOR_FUNCTION(exp)
NEEDLE_VECTOR_FUNCTION(expm1)
NEEDLE_VECTOR_FUNCTION(log)
NEEDLE_VECTOR_FUNCTION(log1p)
NEEDLE_VECTOR_FUNCTION(sin)
NEEDLE_VECTOR_FUNCTION(cos)
NEEDLE_VECTOR_FUNCTION(erf)
#define NEEDLE_VECTOR_MATH "libmvec"
#endif
#endif

#ifndef NEEDLE_VECTOR_MATH
#define NEEDLE_VECTOR_MATH "libm, scalar"
#endif

#endif
