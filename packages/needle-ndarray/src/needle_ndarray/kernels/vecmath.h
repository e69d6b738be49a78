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
_Pragma("omp declare simd notinbranch") extern double exp(double);
_Pragma("omp declare simd notinbranch") extern float expf(float);
_Pragma("omp declare simd notinbranch") extern double expm1(double);
_Pragma("omp declare simd notinbranch") extern float expm1f(float);
_Pragma("omp declare simd notinbranch") extern double log(double);
_Pragma("omp declare simd notinbranch") extern float logf(float);
_Pragma("omp declare simd notinbranch") extern double log1p(double);
_Pragma("omp declare simd notinbranch") extern float log1pf(float);
_Pragma("omp declare simd notinbranch") extern double sin(double);
_Pragma("omp declare simd notinbranch") extern float sinf(float);
_Pragma("omp declare simd notinbranch") extern double cos(double);
_Pragma("omp declare simd notinbranch") extern float cosf(float);
_Pragma("omp declare simd notinbranch") extern double erf(double);
_Pragma("omp declare simd notinbranch") extern float erff(float);
#define NEEDLE_VECTOR_MATH "libmvec"
#endif
#endif

#ifndef NEEDLE_VECTOR_MATH
#define NEEDLE_VECTOR_MATH "libm, scalar"
#endif

#endif
