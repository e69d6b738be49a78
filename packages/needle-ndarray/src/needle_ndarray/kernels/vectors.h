/* Vectors as wide as the instruction set has them, for loops whose sums must stay in registers.
 *
 * Functions for float and for double have one source: a header reads itself once for each.
 *
 *     #ifndef NEEDLE_NORM_H            at first what does not depend on the type, then
 *     #include "as_float.h"            T is float, `vec` its vector, FN(exp) is needle_exp_float
 *     #include "norm.h"
 *     #include "as_double.h"
 *     #include "norm.h"
 *     #include "as_nothing.h"
 *     #elif defined(T)                 the functions
 */
#ifndef NEEDLE_VECTORS_H
#define NEEDLE_VECTORS_H
#include <stddef.h>
#include <string.h>

/* NEEDLE_FMA: products and additions are fused where a kernel asks for it.
 * NEEDLE_ROWS: rows of a register tile that is two vectors wide, as many as leave registers for its operands */
#if defined(__AVX512F__)
#include <immintrin.h>
#define NEEDLE_VECTOR 64
#define NEEDLE_FMA
#define NEEDLE_ROWS 8
#define NEEDLE_X86(name) _mm512_##name
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define NEEDLE_VECTOR 32
#define NEEDLE_FMA
#define NEEDLE_ROWS 6
#define NEEDLE_X86(name) _mm256_##name
#else
#define NEEDLE_VECTOR 16
#define NEEDLE_ROWS 6
#if defined(__SSE2__)
#include <emmintrin.h>
#define NEEDLE_X86(name) _mm_##name
#elif defined(__aarch64__)
#include <arm_neon.h>
#define NEEDLE_FMA
#endif
#endif

#define NEEDLE_INLINE static inline __attribute__((always_inline))
#define NEEDLE_PRAGMA(text) _Pragma(#text)
#if defined(__clang__)
#define NEEDLE_UNROLL(n) NEEDLE_PRAGMA(clang loop unroll_count(n))
#else
#define NEEDLE_UNROLL(n) NEEDLE_PRAGMA(GCC unroll n)
#endif

#include "as_float.h"
#include "vectors.h"
#include "as_double.h"
#include "vectors.h"
#include "as_nothing.h"

#elif defined(T)

typedef T vec __attribute__((vector_size(NEEDLE_VECTOR)));
typedef INTEGER mask __attribute__((vector_size(NEEDLE_VECTOR))); /* what a comparison of vectors gives: all bits, or none */
typedef UNSIGNED bits __attribute__((vector_size(NEEDLE_VECTOR)));
typedef T unaligned __attribute__((vector_size(NEEDLE_VECTOR), aligned(sizeof(T)), may_alias));

/* a where `which` is true, else b */
NEEDLE_INLINE vec FN(where)(mask which, vec a, vec b)
{
#if defined(__AVX512F__)
    __m512i all = (__m512i) which;
    return sizeof(T) == 4 ? (vec) _mm512_mask_blend_ps(_mm512_movepi32_mask(all), (__m512) b, (__m512) a)
                          : (vec) _mm512_mask_blend_pd(_mm512_movepi64_mask(all), (__m512d) b, (__m512d) a);
#elif NEEDLE_VECTOR == 32
    return X86(blendv)(b, a, (vec) which);
#else
    return (vec) ((which & (mask) a) | (~which & (mask) b));
#endif
}

/* whether any lane is true */
NEEDLE_INLINE int FN(any)(mask which)
{
#if defined(__AVX512F__)
    return _mm512_test_epi64_mask((__m512i) which, (__m512i) which) != 0;
#elif defined(NEEDLE_X86)
    return X86(movemask)((vec) which) != 0;
#else
    long long half[2];
    memcpy(half, &which, sizeof half);
    return (half[0] | half[1]) != 0;
#endif
}

/* fma(a, b, c) = a b + c, with one rounding where the processor has it: the build forbids contraction elsewhere, so it is asked
 * for by name. larger, smaller: the second counts where one is NaN. */
#if defined(NEEDLE_FMA) && defined(NEEDLE_X86)
NEEDLE_INLINE vec FN(fma)(vec a, vec b, vec c) { return X86(fmadd)(a, b, c); }
#elif defined(NEEDLE_FMA)
NEEDLE_INLINE vec FN(fma)(vec a, vec b, vec c)
{
    return sizeof(T) == 4 ? (vec) vfmaq_f32((float32x4_t) c, (float32x4_t) a, (float32x4_t) b)
                          : (vec) vfmaq_f64((float64x2_t) c, (float64x2_t) a, (float64x2_t) b);
}
#else
NEEDLE_INLINE vec FN(fma)(vec a, vec b, vec c) { return a * b + c; }
#endif
#if defined(NEEDLE_X86)
NEEDLE_INLINE vec FN(larger)(vec a, vec b) { return X86(max)(a, b); }
NEEDLE_INLINE vec FN(smaller)(vec a, vec b) { return X86(min)(a, b); }
#else
NEEDLE_INLINE vec FN(larger)(vec a, vec b) { return FN(where)(a > b, a, b); }
NEEDLE_INLINE vec FN(smaller)(vec a, vec b) { return FN(where)(a < b, a, b); }
#endif

/* x without its sign; x >= 0 with the sign of another number */
NEEDLE_INLINE vec FN(abs)(vec x) { return (vec) ((mask) x & ~(mask) (-(vec) {0})); }
NEEDLE_INLINE vec FN(with_sign)(vec x, vec sign) { return (vec) ((mask) x | ((mask) sign & (mask) (-(vec) {0}))); }

/* low = a0 b0 a1 b1 ..., high = the same of the upper halves */
NEEDLE_INLINE void FN(zip)(vec a, vec b, vec *low, vec *high)
{
#if defined(__clang__)          /* which makes shuffles of such loops, and has none whose order is a variable */
    for (int i = 0; i < LANES / 2; i++) {
        (*low)[2 * i] = a[i], (*low)[2 * i + 1] = b[i];
        (*high)[2 * i] = a[LANES / 2 + i], (*high)[2 * i + 1] = b[LANES / 2 + i];
    }
#else
    mask order;
    for (int i = 0; i < LANES; i++)
        order[i] = i / 2 + i % 2 * LANES;
    *low = __builtin_shuffle(a, b, order);
    *high = __builtin_shuffle(a, b, order + LANES / 2);
#endif
}

NEEDLE_INLINE vec FN(load)(const T *x) { return *(const unaligned *) x; }
NEEDLE_INLINE void FN(store)(vec v, T *out) { *(unaligned *) out = v; }

/* all bits of the first n lanes */
NEEDLE_INLINE mask FN(first)(ptrdiff_t n)
{
    mask lane;
    for (int k = 0; k < LANES; k++)
        lane[k] = k;
    return lane < (mask) {0} + (INTEGER) n;
}

/* the first n elements, as many as there are lanes or fewer, and `fill` in the other lanes */
NEEDLE_INLINE vec FN(load_some)(const T *x, ptrdiff_t n, T fill)
{
#if defined(__AVX512F__)
    return X86(mask_loadu)((vec) {0} + fill, (1u << n) - 1, x);
#elif NEEDLE_VECTOR == 32 /* a memcpy of a size that is not known takes four times as long */
    return FN(where)(FN(first)(n), X86(maskload)(x, (__m256i) FN(first)(n)), (vec) {0} + fill);
#else
    vec v = (vec) {0} + fill;
    memcpy(&v, x, n * sizeof(T));
    return v;
#endif
}

NEEDLE_INLINE void FN(store_some)(vec v, T *out, ptrdiff_t n)
{
#if defined(__AVX512F__)
    X86(mask_storeu)(out, (1u << n) - 1, v);
#elif NEEDLE_VECTOR == 32
    X86(maskstore)(out, (__m256i) FN(first)(n), v);
#else
    memcpy(out, &v, n * sizeof(T));
#endif
}

#endif
