/* Products of one query with keys and of its weights with values, row by row where they lie: a matrix product would first copy the
 * keys, which it reads by columns, and takes twice as long. A sum has one order, by the sizes alone. */
#ifndef NEEDLE_QUERIES_H
#define NEEDLE_QUERIES_H
#include "vectors.h"

#include "as_float.h"
#include "queries.h"
#include "as_double.h"
#include "queries.h"
#include "as_nothing.h"

#elif defined(T)

/* the sum of the lanes, by halves */
NEEDLE_INLINE T FN(lane_sum)(vec v)
{
    T lane[LANES];
    FN(store)(v, lane);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            lane[i] += lane[i + half];
    return lane[0];
}

/* out[r] = scale * sum of q[l] k[r, l] for `count` rows of k, side by side */
NEEDLE_INLINE void FN(few_dots)(int count, const T *q, const T *k, ptrdiff_t step, ptrdiff_t d, T scale, T *out)
{
    vec sum[4] = {{0}};
    ptrdiff_t l = 0;
    for (; l + LANES <= d; l += LANES)
        for (int r = 0; r < count; r++)
            sum[r] = FN(fma)(FN(load)(q + l), FN(load)(k + r * step + l), sum[r]);
    if (l < d)
        for (int r = 0; r < count; r++)
            sum[r] = FN(fma)(FN(load_some)(q + l, d - l, 0), FN(load_some)(k + r * step + l, d - l, 0), sum[r]);
    for (int r = 0; r < count; r++)
        out[r] = scale * FN(lane_sum)(sum[r]);
}

/* out[j] = scale * sum of q[l] k[j, l] for n rows of k */
static void FN(dots)(const T *q, const T *k, ptrdiff_t step, ptrdiff_t n, ptrdiff_t d, T scale, T *out)
{
    ptrdiff_t j = 0;
    for (; j + 4 <= n; j += 4)
        FN(few_dots)(4, q, k + j * step, step, d, scale, out + j);
    for (; j < n; j++)
        FN(few_dots)(1, q, k + j * step, step, d, scale, out + j);
}

/* out[l] = sum of w[j] v[j, l] over n rows of v, for `count` vectors of columns */
NEEDLE_INLINE void FN(few_columns)(int count, const T *w, const T *v, ptrdiff_t step, ptrdiff_t n, T *out)
{
    vec sum[8] = {{0}};
    for (ptrdiff_t j = 0; j < n; j++) {
        vec weight = (vec) {0} + w[j];
        for (int c = 0; c < count; c++)
            sum[c] = FN(fma)(weight, FN(load)(v + j * step + c * LANES), sum[c]);
    }
    for (int c = 0; c < count; c++)
        FN(store)(sum[c], out + c * LANES);
}

/* out[l] = sum of w[j] v[j, l] over n rows of v with d columns */
static void FN(weighted_rows)(const T *w, const T *v, ptrdiff_t step, ptrdiff_t n, ptrdiff_t d, T *out)
{
    ptrdiff_t l = 0;
    for (; l + 8 * LANES <= d; l += 8 * LANES)
        FN(few_columns)(8, w, v + l, step, n, out + l);
    for (; l + LANES <= d; l += LANES)
        FN(few_columns)(1, w, v + l, step, n, out + l);
    if (l < d) {
        vec sum = {0};
        for (ptrdiff_t j = 0; j < n; j++)
            sum = FN(fma)((vec) {0} + w[j], FN(load_some)(v + j * step + l, d - l, 0), sum);
        FN(store_some)(sum, out + l, d - l);
    }
}

#endif
