/* Tiles of a convolution and of the gradient of its weights: NEEDLE_ROWS rows times two vectors of filters, or NEEDLE_THIN rows
 * times one where that holds all of them. The sums stay in registers; nothing is packed but the weights. */
#ifndef NEEDLE_TILE_H
#define NEEDLE_TILE_H
#include "vectors.h"

enum { NEEDLE_THIN = 10 };

/* a[r]             what place r sees: `outer` times `inner` runs of `length` elements, `down` and `across` apart
 * weight           V vectors per element seen; for the next run they are `b_down` and `b_across` further on
 * out[r]           `width` sums of place r, for r < rows */
#define NEEDLE_TILE(T)                                                                                                      \
    static inline __attribute__((always_inline)) void needle_tile_of_##T(                                                   \
        const int R, const int V, const T *const *a, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner, ptrdiff_t across,    \
        ptrdiff_t length, const T *weight, ptrdiff_t b_down, ptrdiff_t b_across, T *const *out, ptrdiff_t rows,             \
        ptrdiff_t width)                                                                                                    \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T sum[NEEDLE_THIN][2] = {{{0}}};                                                                    \
        for (ptrdiff_t u = 0; u < outer; u++)                                                                               \
            for (ptrdiff_t v = 0; v < inner; v++) {                                                                         \
                const T *at[NEEDLE_THIN];                                                                                   \
                for (int r = 0; r < R; r++)                                                                                 \
                    at[r] = a[r] + u * down + v * across;                                                                   \
                const T *b = weight + u * b_down + v * b_across;                                                            \
                for (ptrdiff_t j = 0; j < length; j++, b += V * LANES) {                                                    \
                    needle_vector_##T first = *(const needle_loose_##T *) b;                                                \
                    needle_vector_##T second = *(const needle_loose_##T *) (b + (V - 1) * LANES);                           \
                    _Pragma("GCC unroll 16") for (int r = 0; r < R; r++)                                                    \
                    {                                                                                                       \
                        needle_vector_##T x = at[r][j] - (needle_vector_##T) {0};                                           \
                        sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                    \
                        if (V == 2)                                                                                         \
                            sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                               \
                    }                                                                                                       \
                }                                                                                                           \
            }                                                                                                               \
        _Pragma("GCC unroll 16") for (int r = 0; r < R; r++)                                                                \
        {                                                                                                                   \
            if (r < rows && width == V * LANES) {                                                                           \
                *(needle_loose_##T *) out[r] = sum[r][0];                                                                   \
                if (V == 2)                                                                                                 \
                    *(needle_loose_##T *) (out[r] + LANES) = sum[r][1];                                                     \
            } else if (r < rows) {                                                                                          \
                T row[2 * LANES];                                                                                           \
                memcpy(row, &sum[r][0], sizeof row / 2);                                                                    \
                memcpy(row + LANES, &sum[r][1], sizeof row / 2);                                                            \
                memcpy(out[r], row, width * sizeof(T));                                                                     \
            }                                                                                                               \
        }                                                                                                                   \
    }                                                                                                                       \
    static void needle_tile_##T(int thin, const T *const *a, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner,              \
                                ptrdiff_t across, ptrdiff_t length, const T *weight, ptrdiff_t b_down, ptrdiff_t b_across,  \
                                T *const *out, ptrdiff_t rows, ptrdiff_t width)                                             \
    {                                                                                                                       \
        if (thin)                                                                                                           \
            needle_tile_of_##T(NEEDLE_THIN, 1, a, outer, down, inner, across, length, weight, b_down, b_across, out, rows,  \
                               width);                                                                                      \
        else                                                                                                                \
            needle_tile_of_##T(NEEDLE_ROWS, 2, a, outer, down, inner, across, length, weight, b_down, b_across, out, rows,  \
                               width);                                                                                      \
    }

/* out[r][i] += sum over the places of a[place + at[r]] * b[place][i]: one tile of the gradient of the weights.
 * `outer` times `inner` places, in `a` they are `down` and `across` apart, in `b` they follow each other by `stride`. */
#define NEEDLE_OUTER_TILE(T)                                                                                                \
    static inline __attribute__((always_inline)) void needle_outer_tile_of_##T(                                             \
        const int R, const int V, const T *a, const ptrdiff_t *at, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner,        \
        ptrdiff_t across, const T *b, ptrdiff_t stride, T *const *out, ptrdiff_t rows, ptrdiff_t width)                     \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T sum[NEEDLE_THIN][2] = {{{0}}};                                                                    \
        ptrdiff_t here[NEEDLE_THIN];                                                                                        \
        for (int r = 0; r < R; r++)                                                                                         \
            here[r] = at[r];                                                                                                \
        for (ptrdiff_t u = 0; u < outer; u++, a += down) {                                                                  \
            const T *place = a;                                                                                             \
            for (ptrdiff_t v = 0; v < inner; v++, place += across, b += stride) {                                           \
                needle_vector_##T first = *(const needle_loose_##T *) b;                                                    \
                needle_vector_##T second = *(const needle_loose_##T *) (b + (V - 1) * LANES);                               \
                _Pragma("GCC unroll 16") for (int r = 0; r < R; r++)                                                        \
                {                                                                                                           \
                    needle_vector_##T x = place[here[r]] - (needle_vector_##T) {0};                                         \
                    sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                        \
                    if (V == 2)                                                                                             \
                        sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                   \
                }                                                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        _Pragma("GCC unroll 16") for (int r = 0; r < R; r++)                                                                \
            if (r < rows) {                                                                                                 \
                T row[2 * LANES];                                                                                           \
                memcpy(row, &sum[r][0], sizeof row / 2);                                                                    \
                memcpy(row + LANES, &sum[r][1], sizeof row / 2);                                                            \
                for (ptrdiff_t i = 0; i < width; i++)                                                                       \
                    out[r][i] += row[i];                                                                                    \
            }                                                                                                               \
    }                                                                                                                       \
    static void needle_outer_tile_##T(int thin, const T *a, const ptrdiff_t *at, ptrdiff_t outer, ptrdiff_t down,           \
                                      ptrdiff_t inner, ptrdiff_t across, const T *b, ptrdiff_t stride, T *const *out,       \
                                      ptrdiff_t rows, ptrdiff_t width)                                                      \
    {                                                                                                                       \
        if (thin)                                                                                                           \
            needle_outer_tile_of_##T(NEEDLE_THIN, 1, a, at, outer, down, inner, across, b, stride, out, rows, width);       \
        else                                                                                                                \
            needle_outer_tile_of_##T(NEEDLE_ROWS, 2, a, at, outer, down, inner, across, b, stride, out, rows, width);       \
    }

/* out[i] = (add ? out[i] : 0) + sum of a[i] * b[i] over `outer` times `inner` places, for n channels */
#define NEEDLE_WEIGH(T)                                                                                                     \
    static void needle_weigh_##T(const T *a, ptrdiff_t outer, ptrdiff_t a_down, ptrdiff_t inner, ptrdiff_t a_across,        \
                                 const T *b, ptrdiff_t b_down, ptrdiff_t b_across, T *out, ptrdiff_t n, int add)            \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        ptrdiff_t i = 0;                                                                                                    \
        for (; i + 4 * LANES <= n; i += 4 * LANES) {                                                                        \
            needle_vector_##T sum[4] = {{0}};                                                                               \
            for (ptrdiff_t u = 0; u < outer; u++)                                                                           \
                for (ptrdiff_t v = 0; v < inner; v++)                                                                       \
                    _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++)                                                     \
                        sum[r] = needle_fma_##T(                                                                            \
                            *(const needle_loose_##T *) (a + u * a_down + v * a_across + i + r * LANES),                    \
                            *(const needle_loose_##T *) (b + u * b_down + v * b_across + i + r * LANES), sum[r]);           \
            _Pragma("GCC unroll 4") for (int r = 0; r < 4; r++)                                                             \
            {                                                                                                               \
                needle_loose_##T *to = (needle_loose_##T *) (out + i + r * LANES);                                          \
                *to = add ? (needle_vector_##T) *to + sum[r] : sum[r];                                                      \
            }                                                                                                               \
        }                                                                                                                   \
        for (; i + LANES <= n; i += LANES) {                                                                                \
            needle_vector_##T sum = {0};                                                                                    \
            for (ptrdiff_t u = 0; u < outer; u++)                                                                           \
                for (ptrdiff_t v = 0; v < inner; v++)                                                                       \
                    sum = needle_fma_##T(*(const needle_loose_##T *) (a + u * a_down + v * a_across + i),                   \
                                         *(const needle_loose_##T *) (b + u * b_down + v * b_across + i), sum);             \
            needle_loose_##T *to = (needle_loose_##T *) (out + i);                                                          \
            *to = add ? (needle_vector_##T) *to + sum : sum;                                                                \
        }                                                                                                                   \
        for (; i < n; i++) {                                                                                                \
            T sum = 0;                                                                                                      \
            for (ptrdiff_t u = 0; u < outer; u++)                                                                           \
                for (ptrdiff_t v = 0; v < inner; v++)                                                                       \
                    sum += a[u * a_down + v * a_across + i] * b[u * b_down + v * b_across + i];                             \
            out[i] = add ? out[i] + sum : sum;                                                                              \
        }                                                                                                                   \
    }

NEEDLE_TILE(float)
NEEDLE_TILE(double)
NEEDLE_OUTER_TILE(float)
NEEDLE_OUTER_TILE(double)
NEEDLE_WEIGH(float)
NEEDLE_WEIGH(double)

#endif
