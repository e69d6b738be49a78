/* The gradient of one window of max pooling, a vector of channels at a time: first where the largest is, then to each place of
 * the window its share, which is nothing or all. */
#ifndef NEEDLE_POOL_H
#define NEEDLE_POOL_H
#include "vectors.h"

/* x, out           the corner of the window inside of the image; `rows` times `columns` places, `down` and `across` apart
 * first, last      rows of the window whose places are written
 * The largest is the first of them, or the first NaN. */
#define NEEDLE_MAX_GRAD(T, I)                                                                                               \
    static void needle_max_grad_##T(const T *x, ptrdiff_t rows, ptrdiff_t down, ptrdiff_t columns, ptrdiff_t across,        \
                                    const T *y, ptrdiff_t first, ptrdiff_t last, T *out, ptrdiff_t n)                       \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        ptrdiff_t i = 0;                                                                                                    \
        for (; i + LANES <= n; i += LANES) {                                                                                \
            needle_mask_##T best = (needle_mask_##T) * (const needle_loose_##T *) (x + i), best_at = {0};                   \
            I at = 0;                                                                                                       \
            for (ptrdiff_t u = 0; u < rows; u++)                                                                            \
                for (ptrdiff_t v = 0; v < columns; v++, at++) {                                                             \
                    needle_vector_##T here = *(const needle_loose_##T *) (x + u * down + v * across + i);                   \
                    needle_vector_##T so_far = (needle_vector_##T) best;                                                    \
                    needle_mask_##T wins = (here > so_far) | ((here != here) & (so_far == so_far));                         \
                    best = (wins & (needle_mask_##T) here) | (~wins & best);                                                \
                    best_at = (wins & (at - (needle_mask_##T) {0})) | (~wins & best_at);                                    \
                }                                                                                                           \
            needle_mask_##T share = (needle_mask_##T) * (const needle_loose_##T *) (y + i);                                 \
            at = (I) (first * columns);                                                                                     \
            for (ptrdiff_t u = first; u < last; u++)                                                                        \
                for (ptrdiff_t v = 0; v < columns; v++, at++) {                                                             \
                    needle_loose_##T *to = (needle_loose_##T *) (out + u * down + v * across + i);                          \
                    *to += (needle_vector_##T) ((best_at == at - (needle_mask_##T) {0}) & share);                           \
                }                                                                                                           \
        }                                                                                                                   \
        for (; i < n; i++) {                                                                                                \
            T best = x[i];                                                                                                  \
            ptrdiff_t best_u = 0, best_v = 0;                                                                               \
            for (ptrdiff_t u = 0; u < rows; u++)                                                                            \
                for (ptrdiff_t v = 0; v < columns; v++) {                                                                   \
                    T here = x[u * down + v * across + i];                                                                  \
                    if (here > best || (here != here && best == best))                                                      \
                        best = here, best_u = u, best_v = v;                                                                \
                }                                                                                                           \
            if (first <= best_u && best_u < last)                                                                           \
                out[best_u * down + best_v * across + i] += y[i];                                                           \
        }                                                                                                                   \
    }

NEEDLE_MAX_GRAD(float, int)
NEEDLE_MAX_GRAD(double, long long)

#endif
