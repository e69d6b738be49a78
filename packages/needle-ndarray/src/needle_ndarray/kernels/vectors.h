/* Vectors as wide as the instruction set has them, for loops whose sums must stay in registers. Multiplications and additions
 * are fused where they can be: the build forbids contraction elsewhere, so it is asked for by name. */
#ifndef NEEDLE_VECTORS_H
#define NEEDLE_VECTORS_H
#include <stddef.h>
#include <string.h>

#define NEEDLE_INLINE static inline __attribute__((always_inline))

#if defined(__AVX512F__)
#include <immintrin.h>
#define NEEDLE_VECTOR 64
#define NEEDLE_ROWS 8
#define needle_fma_float(a, b, c) ((needle_vector_float) _mm512_fmadd_ps((__m512) (a), (__m512) (b), (__m512) (c)))
#define needle_fma_double(a, b, c) ((needle_vector_double) _mm512_fmadd_pd((__m512d) (a), (__m512d) (b), (__m512d) (c)))
#define needle_larger_float(a, b) ((needle_vector_float) _mm512_max_ps((__m512) (a), (__m512) (b)))
#define needle_larger_double(a, b) ((needle_vector_double) _mm512_max_pd((__m512d) (a), (__m512d) (b)))
#define needle_smaller_float(a, b) ((needle_vector_float) _mm512_min_ps((__m512) (a), (__m512) (b)))
#define needle_smaller_double(a, b) ((needle_vector_double) _mm512_min_pd((__m512d) (a), (__m512d) (b)))
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define NEEDLE_VECTOR 32
#define NEEDLE_ROWS 6
#define needle_fma_float(a, b, c) ((needle_vector_float) _mm256_fmadd_ps((__m256) (a), (__m256) (b), (__m256) (c)))
#define needle_fma_double(a, b, c) ((needle_vector_double) _mm256_fmadd_pd((__m256d) (a), (__m256d) (b), (__m256d) (c)))
#define needle_larger_float(a, b) ((needle_vector_float) _mm256_max_ps((__m256) (a), (__m256) (b)))
#define needle_larger_double(a, b) ((needle_vector_double) _mm256_max_pd((__m256d) (a), (__m256d) (b)))
#define needle_smaller_float(a, b) ((needle_vector_float) _mm256_min_ps((__m256) (a), (__m256) (b)))
#define needle_smaller_double(a, b) ((needle_vector_double) _mm256_min_pd((__m256d) (a), (__m256d) (b)))
#else
#define NEEDLE_VECTOR 16
#define NEEDLE_ROWS 6
#define needle_fma_float(a, b, c) ((a) * (b) + (c))
#define needle_fma_double(a, b, c) ((a) * (b) + (c))
#define needle_larger_float(a, b) needle_where_float((a) > (b), a, b)
#define needle_larger_double(a, b) needle_where_double((a) > (b), a, b)
#define needle_smaller_float(a, b) needle_where_float((a) < (b), a, b)
#define needle_smaller_double(a, b) needle_where_double((a) < (b), a, b)
#endif

/* needle_vector_T, the same at any address (loose), integers as wide (mask), and how many elements it has. Of larger and smaller
 * the second counts where one is NaN. */
#define NEEDLE_VECTORS(T, I)                                                                                                \
    typedef T needle_vector_##T __attribute__((vector_size(NEEDLE_VECTOR)));                                                \
    typedef I needle_mask_##T __attribute__((vector_size(NEEDLE_VECTOR)));                                                  \
    typedef T needle_loose_##T __attribute__((vector_size(NEEDLE_VECTOR), aligned(sizeof(T)), may_alias));                  \
    enum { needle_lanes_##T = NEEDLE_VECTOR / sizeof(T) };                                                                  \
    static inline needle_vector_##T needle_where_##T(needle_mask_##T which, needle_vector_##T a, needle_vector_##T b)       \
    {                                                                                                                       \
        return (needle_vector_##T) ((which & (needle_mask_##T) a) | (~which & (needle_mask_##T) b));                        \
    }

NEEDLE_VECTORS(float, int)
NEEDLE_VECTORS(double, long long)

#endif
