/* One window of max pooling and its gradient, a vector of channels at a time. The gradient looks for the largest first, then gives
 * each place of the window its share, which is nothing or all.
 *
 * room             elements up to the end of a row: the last vector may reach into the places after this one, which come later */
#ifndef NEEDLE_POOL_H
#define NEEDLE_POOL_H
#include "vectors.h"
#include <math.h>

/* out[i] = the largest of the window, NaN if one is; -inf where it is empty */
#define NEEDLE_MAX_WINDOW(T)                                                                                                \
    static void needle_max_window_##T(const T *x, ptrdiff_t rows, ptrdiff_t down, ptrdiff_t columns, ptrdiff_t across,      \
                                      T *out, ptrdiff_t n, ptrdiff_t room)                                                  \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        ptrdiff_t i = 0;                                                                                                    \
        for (; i < n && i + LANES <= room; i += LANES) {                                                                    \
            needle_vector_##T best = -(T) INFINITY - (needle_vector_##T) {0};                                               \
            for (ptrdiff_t u = 0; u < rows; u++)                                                                            \
                for (ptrdiff_t v = 0; v < columns; v++) {                                                                   \
                    needle_vector_##T here = *(const needle_loose_##T *) (x + u * down + v * across + i);                   \
                    needle_mask_##T wins = (here > best) | (here != here);                                                  \
                    best = (needle_vector_##T) ((wins & (needle_mask_##T) here) | (~wins & (needle_mask_##T) best));        \
                }                                                                                                           \
            *(needle_loose_##T *) (out + i) = best;                                                                         \
        }                                                                                                                   \
        for (; i < n; i++) {                                                                                                \
            T best = -(T) INFINITY;                                                                                         \
            for (ptrdiff_t u = 0; u < rows; u++)                                                                            \
                for (ptrdiff_t v = 0; v < columns; v++) {                                                                   \
                    T here = x[u * down + v * across + i];                                                                  \
                    best = (here > best) | (here != here) ? here : best;                                                    \
                }                                                                                                           \
            out[i] = best;                                                                                                  \
        }                                                                                                                   \
    }

/* x, out           the corner of the window inside of the image; `rows` times `columns` places, `down` and `across` apart
 * first, last      rows of the window whose places are written
 * The largest is the first of them, or the first NaN. */
#define NEEDLE_MAX_GRAD(T, I)                                                                                               \
    static void needle_max_grad_##T(const T *x, ptrdiff_t rows, ptrdiff_t down, ptrdiff_t columns, ptrdiff_t across,        \
                                    const T *y, ptrdiff_t first, ptrdiff_t last, T *out, ptrdiff_t n, ptrdiff_t room)       \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_mask_##T lane;                                                                                               \
        for (int k = 0; k < LANES; k++)                                                                                     \
            lane[k] = k;                                                                                                    \
        ptrdiff_t i = 0;                                                                                                    \
        for (; i < n && i + LANES <= room; i += LANES) {                                                                    \
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
            share &= lane < (I) (n - i < LANES ? n - i : LANES) - (needle_mask_##T) {0};                                    \
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

NEEDLE_MAX_WINDOW(float)
NEEDLE_MAX_WINDOW(double)
NEEDLE_MAX_GRAD(float, int)
NEEDLE_MAX_GRAD(double, long long)

#endif
