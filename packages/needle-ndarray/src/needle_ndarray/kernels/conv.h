/* Micro-kernels of convolutions and of the gradient of their weights: NEEDLE_ROWS places times two vectors of filters, or NEEDLE_THIN
 * places times one where that holds all of them. The sums stay in registers; nothing is packed but the weights. Of an image with one
 * channel and for few filters, vectors hold places. */
#ifndef NEEDLE_CONV_H
#define NEEDLE_CONV_H
#include "vectors.h"

enum { NEEDLE_THIN = 10, NEEDLE_FEW = 6, NEEDLE_SLOTS = 8 };

#include "as_float.h"
#include "conv.h"
#include "as_double.h"
#include "conv.h"
#include "as_nothing.h"

#elif defined(T)

/* a[r]             what place r sees: `outer` times `inner` runs of `length` elements, in steps of `down` and `across`
 * weight           V vectors per element seen, `b_step` from one another; for the next run `b_down` and `b_across` further on
 * out[r]           `width` sums of place r, for r < rows */
NEEDLE_INLINE void FN(tile_of)(const int R, const int V, const T *const *a, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner,
                               ptrdiff_t across, ptrdiff_t length, const T *weight, ptrdiff_t b_down, ptrdiff_t b_across,
                               ptrdiff_t b_step, T *const *out, ptrdiff_t rows, ptrdiff_t width)
{
    vec sum[NEEDLE_THIN][2] = {{{0}}};
    for (ptrdiff_t u = 0; u < outer; u++)
        for (ptrdiff_t v = 0; v < inner; v++) {
            const T *at[NEEDLE_THIN];
            for (int r = 0; r < R; r++)
                at[r] = a[r] + u * down + v * across;
            const T *b = weight + u * b_down + v * b_across;
            for (ptrdiff_t j = 0; j < length; j++, b += b_step) {
                vec first = FN(load)(b), second = FN(load)(b + (V - 1) * LANES);
                NEEDLE_UNROLL(16)
                for (int r = 0; r < R; r++) {
                    vec x = at[r][j] - (vec) {0};
                    sum[r][0] = FN(fma)(x, first, sum[r][0]);
                    if (V == 2)
                        sum[r][1] = FN(fma)(x, second, sum[r][1]);
                }
            }
        }
    NEEDLE_UNROLL(16)
    for (int r = 0; r < R; r++) {
        if (r < rows && width == V * LANES) {
            FN(store)(sum[r][0], out[r]);
            if (V == 2)
                FN(store)(sum[r][1], out[r] + LANES);
        } else if (r < rows) {
            FN(store_some)(sum[r][0], out[r], width < LANES ? width : LANES);
            if (width > LANES)
                FN(store_some)(sum[r][1], out[r] + LANES, width - LANES);
        }
    }
}
static void FN(tile)(int thin, const T *const *a, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner, ptrdiff_t across,
                     ptrdiff_t length, const T *weight, ptrdiff_t b_down, ptrdiff_t b_across, ptrdiff_t b_step, T *const *out,
                     ptrdiff_t rows, ptrdiff_t width)
{
    if (thin)
        FN(tile_of)(NEEDLE_THIN, 1, a, outer, down, inner, across, length, weight, b_down, b_across, b_step, out, rows, width);
    else if (rows <= NEEDLE_ROWS / 2)
        FN(tile_of)(NEEDLE_ROWS / 2, 2, a, outer, down, inner, across, length, weight, b_down, b_across, b_step, out, rows, width);
    else
        FN(tile_of)(NEEDLE_ROWS, 2, a, outer, down, inner, across, length, weight, b_down, b_across, b_step, out, rows, width);
}

/* sum[r] of LANES places each -> out[i f + r], for i < n places */
NEEDLE_INLINE void FN(turn)(const vec *sum, ptrdiff_t f, T *out, ptrdiff_t n)
{
    vec a[NEEDLE_SLOTS], b[NEEDLE_SLOTS];
    T place[NEEDLE_SLOTS * LANES];
    NEEDLE_UNROLL(8)
    for (int r = 0; r < NEEDLE_SLOTS; r++)
        a[r] = r < NEEDLE_FEW ? sum[r] : (vec) {0};
    NEEDLE_UNROLL(3)
    for (int rounds = 0; rounds < 3; rounds++) { /* each interleaves the halves: in the end, the slots of a place are neighbours */
        NEEDLE_UNROLL(4)
        for (int i = 0; i < NEEDLE_SLOTS / 2; i++)
            FN(zip)(a[i], a[i + NEEDLE_SLOTS / 2], &b[2 * i], &b[2 * i + 1]);
        memcpy(a, b, sizeof a);
    }
    memcpy(place, a, sizeof place);
    ptrdiff_t i = 0;
    for (; i < n && i * f + NEEDLE_SLOTS <= n * f; i++) /* what it writes beyond f is written again, with the next place */
        memcpy(out + i * f, place + i * NEEDLE_SLOTS, NEEDLE_SLOTS * sizeof(T));
    for (; i < n; i++)
        for (ptrdiff_t r = 0; r < f; r++)
            out[i * f + r] = place[i * NEEDLE_SLOTS + r];
}

/* out[i f + r] = sum of x[u down + v across + i] weight[u b_down + v b_across + r] over outer times inner places, for n <= V LANES
 * places of a row and f <= NEEDLE_FEW filters; weights are 0 from f on, x is readable to the whole width of the vectors */
NEEDLE_INLINE void FN(plane_of)(const int V, const T *x, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner, ptrdiff_t across,
                                const T *weight, ptrdiff_t b_down, ptrdiff_t b_across, ptrdiff_t f, T *out, ptrdiff_t n)
{
    vec sum[2][NEEDLE_FEW] = {{{0}}};
    for (ptrdiff_t u = 0; u < outer; u++)
        for (ptrdiff_t v = 0; v < inner; v++) {
            const T *at = x + u * down + v * across, *b = weight + u * b_down + v * b_across;
            vec first = FN(load)(at), second = FN(load)(at + (V - 1) * LANES);
            NEEDLE_UNROLL(6)
            for (int r = 0; r < NEEDLE_FEW; r++) {
                vec w = b[r] - (vec) {0};
                sum[0][r] = FN(fma)(first, w, sum[0][r]);
                if (V == 2)
                    sum[1][r] = FN(fma)(second, w, sum[1][r]);
            }
        }
    FN(turn)(sum[0], f, out, n < LANES ? n : LANES);
    if (V == 2)
        FN(turn)(sum[1], f, out + LANES * f, n - LANES);
}
static void FN(plane)(const T *x, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner, ptrdiff_t across, const T *weight,
                      ptrdiff_t b_down, ptrdiff_t b_across, ptrdiff_t f, T *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    for (; i + LANES < n; i += 2 * LANES)
        FN(plane_of)(2, x + i, outer, down, inner, across, weight, b_down, b_across, f, out + i * f,
                     n - i < 2 * LANES ? n - i : 2 * LANES);
    if (i < n)
        FN(plane_of)(1, x + i, outer, down, inner, across, weight, b_down, b_across, f, out + i * f, n - i);
}

/* out[i][k] = x[i across + k channel]: a row of n places whose c channels lie apart, the channels side by side */
static void FN(gather)(const T *x, ptrdiff_t across, ptrdiff_t channel, ptrdiff_t n, ptrdiff_t c, T *out)
{
    ptrdiff_t i = 0;
#if !defined(__clang__) /* which has no shuffle of two vectors whose order is a vector */
    if (c == 3 && across == 1) {
        mask pair[3], third[3];
        NEEDLE_UNROLL(3)
        for (int k = 0; k < 3; k++)
            NEEDLE_UNROLL(16)
        for (int j = 0; j < LANES; j++) {
            int place = (k * LANES + j) / 3, from = (k * LANES + j) % 3;
            pair[k][j] = from == 1 ? LANES + place : place;
            third[k][j] = from == 2 ? LANES + place : j;
        }
        for (; i + LANES <= n; i += LANES) {
            vec red = FN(load)(x + i), green = FN(load)(x + channel + i), blue = FN(load)(x + 2 * channel + i);
            NEEDLE_UNROLL(3)
            for (int k = 0; k < 3; k++)
                FN(store)(__builtin_shuffle(__builtin_shuffle(red, green, pair[k]), blue, third[k]), out + 3 * i + k * LANES);
        }
    }
#endif
    for (; i < n; i++)
        for (ptrdiff_t k = 0; k < c; k++)
            out[i * c + k] = x[i * across + k * channel];
}

/* out[r][i] += sum over the places of a[place + at[r]] * b[place][i]: one tile of the gradient of the weights.
 * `outer` times `inner` places, in `a` in steps of `down` and `across`, in `b` one after the other in steps of `stride`. */
NEEDLE_INLINE void FN(outer_tile_of)(const int R, const int V, const T *a, const ptrdiff_t *at, ptrdiff_t outer, ptrdiff_t down,
                                     ptrdiff_t inner, ptrdiff_t across, const T *b, ptrdiff_t stride, T *const *out, ptrdiff_t rows,
                                     ptrdiff_t width)
{
    vec sum[NEEDLE_THIN][2] = {{{0}}};
    ptrdiff_t here[NEEDLE_THIN];
    for (int r = 0; r < R; r++)
        here[r] = at[r];
    for (ptrdiff_t u = 0; u < outer; u++, a += down) {
        const T *place = a;
        for (ptrdiff_t v = 0; v < inner; v++, place += across, b += stride) {
            vec first = FN(load)(b), second = FN(load)(b + (V - 1) * LANES);
            NEEDLE_UNROLL(16)
            for (int r = 0; r < R; r++) {
                vec x = place[here[r]] - (vec) {0};
                sum[r][0] = FN(fma)(x, first, sum[r][0]);
                if (V == 2)
                    sum[r][1] = FN(fma)(x, second, sum[r][1]);
            }
        }
    }
    NEEDLE_UNROLL(16)
    for (int r = 0; r < R; r++)
        if (r < rows) {
            T row[2 * LANES];
            memcpy(row, &sum[r][0], sizeof row / 2);
            memcpy(row + LANES, &sum[r][1], sizeof row / 2);
            for (ptrdiff_t i = 0; i < width; i++)
                out[r][i] += row[i];
        }
}
static void FN(outer_tile)(int thin, const T *a, const ptrdiff_t *at, ptrdiff_t outer, ptrdiff_t down, ptrdiff_t inner,
                           ptrdiff_t across, const T *b, ptrdiff_t stride, T *const *out, ptrdiff_t rows, ptrdiff_t width)
{
    if (thin)
        FN(outer_tile_of)(NEEDLE_THIN, 1, a, at, outer, down, inner, across, b, stride, out, rows, width);
    else
        FN(outer_tile_of)(NEEDLE_ROWS, 2, a, at, outer, down, inner, across, b, stride, out, rows, width);
}

/* out[i] = (add ? out[i] : 0) + sum of a[i] * b[i] over `outer` times `inner` places, for n channels. C because whole vectors are
 * summed by fma, which the build has by name only. */
static void FN(weigh)(const T *a, ptrdiff_t outer, ptrdiff_t a_down, ptrdiff_t inner, ptrdiff_t a_across, const T *b,
                      ptrdiff_t b_down, ptrdiff_t b_across, T *out, ptrdiff_t n, int add)
{
    ptrdiff_t i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vec sum[4] = {{0}};
        for (ptrdiff_t u = 0; u < outer; u++)
            for (ptrdiff_t v = 0; v < inner; v++) {
                const T *x = a + u * a_down + v * a_across + i, *w = b + u * b_down + v * b_across + i;
                NEEDLE_UNROLL(4)
                for (int r = 0; r < 4; r++)
                    sum[r] = FN(fma)(FN(load)(x + r * LANES), FN(load)(w + r * LANES), sum[r]);
            }
        NEEDLE_UNROLL(4)
        for (int r = 0; r < 4; r++) {
            T *to = out + i + r * LANES;
            FN(store)(add ? FN(load)(to) + sum[r] : sum[r], to);
        }
    }
    for (; i + LANES <= n; i += LANES) {
        vec sum = {0};
        for (ptrdiff_t u = 0; u < outer; u++)
            for (ptrdiff_t v = 0; v < inner; v++)
                sum = FN(fma)(FN(load)(a + u * a_down + v * a_across + i), FN(load)(b + u * b_down + v * b_across + i), sum);
        FN(store)(add ? FN(load)(out + i) + sum : sum, out + i);
    }
    for (; i < n; i++) {
        T sum = 0;
        for (ptrdiff_t u = 0; u < outer; u++)
            for (ptrdiff_t v = 0; v < inner; v++)
                sum += a[u * a_down + v * a_across + i] * b[u * b_down + v * b_across + i];
        out[i] = add ? out[i] + sum : sum;
    }
}

#endif
