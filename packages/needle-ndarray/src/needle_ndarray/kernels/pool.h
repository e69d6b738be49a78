/* One window of max pooling and its gradient, a vector of channels at a time. The gradient looks for the largest first, then gives
 * each place of the window its share, which is nothing or all.
 *
 * to_row_end          elements up to the end of a row: the last vector may reach into the places after this one, which come later */
#ifndef NEEDLE_POOL_H
#define NEEDLE_POOL_H
#include "vectors.h"
#include <math.h>

#include "as_float.h"
#include "pool.h"
#include "as_double.h"
#include "pool.h"
#include "as_nothing.h"

#elif defined(T)

/* out[i] = the largest of the window, NaN if one is; -inf where it is empty */
static void FN(max_window)(const T *x, ptrdiff_t rows, ptrdiff_t down, ptrdiff_t columns, ptrdiff_t across, T *out, ptrdiff_t n,
                           ptrdiff_t to_row_end)
{
    ptrdiff_t i = 0;
    for (; i < n && i + LANES <= to_row_end; i += LANES) {
        vec best = (vec) {0} - (T) INFINITY;
        for (ptrdiff_t u = 0; u < rows; u++)
            for (ptrdiff_t v = 0; v < columns; v++) {
                vec here = FN(load)(x + u * down + v * across + i);
                mask wins = (here > best) | (here != here);
                best = FN(where)(wins, here, best);
            }
        FN(store)(best, out + i);
    }
    for (; i < n; i++) {
        T best = -(T) INFINITY;
        for (ptrdiff_t u = 0; u < rows; u++)
            for (ptrdiff_t v = 0; v < columns; v++) {
                T here = x[u * down + v * across + i];
                best = here > best || here != here ? here : best;
            }
        out[i] = best;
    }
}

/* x, out           the corner of the window inside of the image; `rows` times `columns` places, `down` and `across` apart
 * first, last      rows of the window whose places are written
 * The largest is the first of them, or the first NaN. */
static void FN(max_grad)(const T *x, ptrdiff_t rows, ptrdiff_t down, ptrdiff_t columns, ptrdiff_t across, const T *y,
                         ptrdiff_t first, ptrdiff_t last, T *out, ptrdiff_t n, ptrdiff_t to_row_end)
{
    mask lane;
    for (int k = 0; k < LANES; k++)
        lane[k] = k;
    ptrdiff_t i = 0;
    for (; i < n && i + LANES <= to_row_end; i += LANES) {
        mask best = (mask) FN(load)(x + i), best_at = {0};
        INTEGER at = 0;
        for (ptrdiff_t u = 0; u < rows; u++)
            for (ptrdiff_t v = 0; v < columns; v++, at++) {
                vec here = FN(load)(x + u * down + v * across + i);
                vec so_far = (vec) best;
                mask wins = (here > so_far) | ((here != here) & (so_far == so_far));
                best = (wins & (mask) here) | (~wins & best);
                best_at = (wins & (at - (mask) {0})) | (~wins & best_at);
            }
        mask share = (mask) FN(load)(y + i);
        share &= lane < (INTEGER) (n - i < LANES ? n - i : LANES) - (mask) {0};
        at = (INTEGER) (first * columns);
        for (ptrdiff_t u = first; u < last; u++)
            for (ptrdiff_t v = 0; v < columns; v++, at++) {
                T *to = out + u * down + v * across + i;
                FN(store)(FN(load)(to) + (vec) ((best_at == at - (mask) {0}) & share), to);
            }
    }
    for (; i < n; i++) {
        T best = x[i];
        ptrdiff_t best_u = 0, best_v = 0;
        for (ptrdiff_t u = 0; u < rows; u++)
            for (ptrdiff_t v = 0; v < columns; v++) {
                T here = x[u * down + v * across + i];
                if (here > best || (here != here && best == best))
                    best = here, best_u = u, best_v = v;
            }
        if (first <= best_u && best_u < last)
            out[best_u * down + best_v * across + i] += y[i];
    }
}

#endif
