/* Channels of one window, vectors of them at a time: their maxima, and the gradient of those. A function does as many as it can
 * and answers how many. C because a Cython loop takes twice as long for 8 channels: GCC vectorises it from 32 on only.
 *
 * x, out           an image: its rows have `row` elements, its places `c`
 * to_row_end       elements up to the end of a row: the last vector may reach into the places after this one, which come later */
#ifndef NEEDLE_POOL_H
#define NEEDLE_POOL_H
#include "vectors.h"
#include <math.h>

typedef struct { /* the part of a window that is inside of the image */
    ptrdiff_t top, bottom, left, right;
} needle_window;

#include "as_float.h"
#include "pool.h"
#include "as_double.h"
#include "pool.h"
#include "as_nothing.h"

#elif defined(T)

/* the larger of two numbers, the first if they are equal, NaN if one is */
NEEDLE_INLINE vec FN(larger_or_nan)(vec best, vec a) { return FN(where)(a != a, a, FN(larger)(a, best)); }

/* best = the largest of the window for V vectors of channels, NaN if one is; -inf where the window is empty */
NEEDLE_INLINE void FN(largest)(const int V, const T *x, ptrdiff_t row, ptrdiff_t c, const needle_window *here, vec *best)
{
    NEEDLE_UNROLL(4)
    for (int k = 0; k < V; k++)
        best[k] = (vec) {0} - (T) INFINITY;
    for (ptrdiff_t iy = here->top; iy < here->bottom; iy++)
        for (ptrdiff_t ix = here->left; ix < here->right; ix++) {
            const T *place = x + iy * row + ix * c;
            NEEDLE_UNROLL(4)
            for (int k = 0; k < V; k++) {
                best[k] = FN(larger_or_nan)(best[k], FN(load)(place + k * LANES));
            }
        }
}

/* out[ox c + i] = the largest of two by two places, the windows `step` elements from one another: as many windows of a row as whole
 * vectors fit in x[..width] and out[..out_width] */
static ptrdiff_t FN(max_pairs)(const T *x, ptrdiff_t row, ptrdiff_t c, ptrdiff_t step, ptrdiff_t width, T *out, ptrdiff_t out_width)
{
    ptrdiff_t ox = 0, reach = (c + LANES - 1) / LANES * LANES;
    for (; ox * step + c + reach <= width && ox * c + reach <= out_width; ox++)
        for (ptrdiff_t i = 0; i < c; i += LANES) {
            const T *place = x + ox * step + i;
            vec above = FN(larger_or_nan)(FN(load)(place), FN(load)(place + c));
            vec below = FN(larger_or_nan)(FN(load)(place + row), FN(load)(place + row + c));
            FN(store)(FN(larger_or_nan)(above, below), out + ox * c + i);
        }
    return ox;
}

/* out[i] = the largest of the window */
static ptrdiff_t FN(max_window)(const T *x, ptrdiff_t row, ptrdiff_t c, const needle_window *here, ptrdiff_t to_row_end, T *out)
{
    ptrdiff_t i = 0;
    for (; i + 4 * LANES <= c; i += 4 * LANES) {
        vec best[4];
        FN(largest)(4, x + i, row, c, here, best);
        NEEDLE_UNROLL(4)
        for (int k = 0; k < 4; k++)
            FN(store)(best[k], out + i + k * LANES);
    }
    for (; i < c && i + LANES <= to_row_end; i += LANES) {
        vec best;
        FN(largest)(1, x + i, row, c, here, &best);
        FN(store)(best, out + i);
    }
    return i;
}

/* out[first place of the largest, or of the first NaN] += y in `count` lanes, if that is in a row top <= iy < bottom */
NEEDLE_INLINE void FN(max_grad_vectors)(const int V, const T *x, ptrdiff_t row, ptrdiff_t c, const needle_window *here, const T *y,
                                        ptrdiff_t count, ptrdiff_t top, ptrdiff_t bottom, T *out)
{
    vec best[4];
    mask left[4], lane; /* left: what is yet to be added */
    FN(largest)(V, x, row, c, here, best);
    for (int k = 0; k < LANES; k++)
        lane[k] = k;
    NEEDLE_UNROLL(4)
    for (int k = 0; k < V; k++)
        left[k] = (mask) FN(load)(y + k * LANES);
    if (count < LANES)
        left[0] &= lane < (INTEGER) count - (mask) {0};
    for (ptrdiff_t iy = here->top; iy < here->bottom && iy < bottom; iy++)
        for (ptrdiff_t ix = here->left; ix < here->right; ix++) {
            ptrdiff_t at = iy * row + ix * c;
            NEEDLE_UNROLL(4)
            for (int k = 0; k < V; k++, at += LANES) {
                vec a = FN(load)(x + at);
                mask wins = (a == best[k]) | (a != a); /* if one is NaN, so is the largest */
                if (iy >= top)
                    FN(store)(FN(load)(out + at) + (vec) (wins & left[k]), out + at);
                left[k] &= ~wins;
            }
        }
}
static ptrdiff_t FN(max_grad)(const T *x, ptrdiff_t row, ptrdiff_t c, const needle_window *here, ptrdiff_t to_row_end, const T *y,
                              ptrdiff_t top, ptrdiff_t bottom, T *out)
{
    ptrdiff_t i = 0;
    for (; i + 4 * LANES <= c; i += 4 * LANES)
        FN(max_grad_vectors)(4, x + i, row, c, here, y + i, c - i, top, bottom, out + i);
    for (; i < c && i + LANES <= to_row_end; i += LANES)
        FN(max_grad_vectors)(1, x + i, row, c, here, y + i, c - i, top, bottom, out + i);
    return i;
}

#endif
