/* One tile of a convolution: NEEDLE_ROWS output places times two vectors of filters. The sums stay in registers while the
 * loop runs over what the places see; nothing is packed but the weights. Multiplications and additions are fused where the
 * instruction set has it: the build forbids contraction elsewhere, so it is asked for by name. */
#ifndef NEEDLE_TILE_H
#define NEEDLE_TILE_H
#include <stddef.h>
#include <string.h>

#if defined(__AVX512F__)
#include <immintrin.h>
#define NEEDLE_VECTOR 64
#define NEEDLE_ROWS 8
#define needle_fma_float(a, b, c) ((needle_vector_float) _mm512_fmadd_ps((__m512) (a), (__m512) (b), (__m512) (c)))
#define needle_fma_double(a, b, c) ((needle_vector_double) _mm512_fmadd_pd((__m512d) (a), (__m512d) (b), (__m512d) (c)))
#elif defined(__AVX2__) && defined(__FMA__)
#include <immintrin.h>
#define NEEDLE_VECTOR 32
#define NEEDLE_ROWS 6
#define needle_fma_float(a, b, c) ((needle_vector_float) _mm256_fmadd_ps((__m256) (a), (__m256) (b), (__m256) (c)))
#define needle_fma_double(a, b, c) ((needle_vector_double) _mm256_fmadd_pd((__m256d) (a), (__m256d) (b), (__m256d) (c)))
#else
#define NEEDLE_VECTOR 16
#define NEEDLE_ROWS 6
#define needle_fma_float(a, b, c) ((a) * (b) + (c))
#define needle_fma_double(a, b, c) ((a) * (b) + (c))
#endif

/* a[r]             what place r sees: `outer` times `inner` runs of `length` elements, `down` and `across` apart
 * b                the weights, two vectors per element seen
 * out[r]           `width` sums of place r, for r < rows */
#define NEEDLE_TILE(T)                                                                                                      \
    typedef T needle_vector_##T __attribute__((vector_size(NEEDLE_VECTOR)));                                                \
    typedef T needle_loose_##T __attribute__((vector_size(NEEDLE_VECTOR), aligned(sizeof(T)), may_alias));                  \
    static void needle_tile_##T(const T *const *a, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner, ptrdiff_t across,      \
                                ptrdiff_t length, const T *b, T *const *out, ptrdiff_t rows, ptrdiff_t width)               \
    {                                                                                                                       \
        enum { LANES = NEEDLE_VECTOR / sizeof(T) };                                                                         \
        needle_vector_##T sum[NEEDLE_ROWS][2] = {{{0}}};                                                                    \
        for (ptrdiff_t u = 0; u < outer; u++)                                                                               \
            for (ptrdiff_t v = 0; v < inner; v++) {                                                                         \
                const T *at[NEEDLE_ROWS];                                                                                   \
                for (int r = 0; r < NEEDLE_ROWS; r++)                                                                       \
                    at[r] = a[r] + u * down + v * across;                                                                   \
                for (ptrdiff_t j = 0; j < length; j++, b += 2 * LANES) {                                                    \
                    needle_vector_##T first = *(const needle_loose_##T *) b;                                                \
                    needle_vector_##T second = *(const needle_loose_##T *) (b + LANES);                                     \
                    _Pragma("GCC unroll 8") for (int r = 0; r < NEEDLE_ROWS; r++)                                           \
                    {                                                                                                       \
                        needle_vector_##T x = at[r][j] - (needle_vector_##T) {0};                                           \
                        sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                    \
                        sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                   \
                    }                                                                                                       \
                }                                                                                                           \
            }                                                                                                               \
        _Pragma("GCC unroll 8") for (int r = 0; r < NEEDLE_ROWS; r++)                                                       \
        {                                                                                                                   \
            if (r < rows && width == 2 * LANES) {                                                                           \
                *(needle_loose_##T *) out[r] = sum[r][0];                                                                   \
                *(needle_loose_##T *) (out[r] + LANES) = sum[r][1];                                                         \
            } else if (r < rows) {                                                                                          \
                T row[2 * LANES];                                                                                           \
                memcpy(row, &sum[r][0], sizeof row / 2);                                                                    \
                memcpy(row + LANES, &sum[r][1], sizeof row / 2);                                                            \
                memcpy(out[r], row, width * sizeof(T));                                                                     \
            }                                                                                                               \
        }                                                                                                                   \
    }

/* out[r][i] += sum over the places of a[place + at[r]] * b[place][i]: one tile of the gradient of the weights.
 * `outer` times `inner` places, in `a` they are `down` and `across` apart, in `b` they follow each other by `stride`. */
#define NEEDLE_OUTER_TILE(T)                                                                                                \
    static void needle_outer_tile_##T(const T *a, const ptrdiff_t *at, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner,    \
                                      ptrdiff_t across, const T *b, ptrdiff_t stride, T *const *out, ptrdiff_t rows,        \
                                      ptrdiff_t width)                                                                      \
    {                                                                                                                       \
        enum { LANES = NEEDLE_VECTOR / sizeof(T) };                                                                         \
        needle_vector_##T sum[NEEDLE_ROWS][2] = {{{0}}};                                                                    \
        ptrdiff_t here[NEEDLE_ROWS];                                                                                        \
        for (int r = 0; r < NEEDLE_ROWS; r++)                                                                               \
            here[r] = at[r];                                                                                                \
        for (ptrdiff_t u = 0; u < outer; u++, a += down) {                                                                  \
            const T *place = a;                                                                                             \
            for (ptrdiff_t v = 0; v < inner; v++, place += across, b += stride) {                                           \
                needle_vector_##T first = *(const needle_loose_##T *) b;                                                    \
                needle_vector_##T second = *(const needle_loose_##T *) (b + LANES);                                         \
                _Pragma("GCC unroll 8") for (int r = 0; r < NEEDLE_ROWS; r++)                                               \
                {                                                                                                           \
                    needle_vector_##T x = place[here[r]] - (needle_vector_##T) {0};                                         \
                    sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                        \
                    sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                       \
                }                                                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        for (int r = 0; r < NEEDLE_ROWS; r++)                                                                               \
            if (r < rows) {                                                                                                 \
                T row[2 * LANES];                                                                                           \
                memcpy(row, &sum[r][0], sizeof row / 2);                                                                    \
                memcpy(row + LANES, &sum[r][1], sizeof row / 2);                                                            \
                for (ptrdiff_t i = 0; i < width; i++)                                                                       \
                    out[r][i] += row[i];                                                                                    \
            }                                                                                                               \
    }

NEEDLE_TILE(float)
NEEDLE_TILE(double)
NEEDLE_OUTER_TILE(float)
NEEDLE_OUTER_TILE(double)

#endif
