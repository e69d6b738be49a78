/* Layer norm of a few rows at a time: what one row waits for (a sum, a root, a division) is hidden behind the others. */
#ifndef NEEDLE_NORM_H
#define NEEDLE_NORM_H
#include <math.h>
#include "lane_block.h"

enum {
    NEEDLE_RUN = 1024,      /* elements added up before they go to a double: 64 to a lane */
    NEEDLE_GROUP = 4        /* rows */
};
#define NEEDLE_FAR 8        /* mean(d)^2 / var from which mean(d^2) - mean(d)^2 would lose digits */

#include "as_float.h"
#include "norm.h"
#include "as_double.h"
#include "norm.h"
#include "as_nothing.h"

#elif defined(T)

NEEDLE_INLINE void FN(add_squares)(const T *x, ptrdiff_t left, T x0, T mean, lane_block *squares)
{
    lane_block v = FN(load_block)(x, left, x0 + mean);
    for (int p = 0; p < PARTS; p++) {
        vec centred = (v.part[p] - x0) - mean;
        squares->part[p] += centred * centred;
    }
}

/* mean of ((x - x0) - mean)^2 */
static double FN(variance)(const T *x, ptrdiff_t n, T mean)
{
    double acc = 0;
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_RUN) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_RUN ? n : start + NEEDLE_RUN;
        lane_block squares = {{{0}}};
        for (; j + NEEDLE_BLOCK <= stop; j += NEEDLE_BLOCK)
            FN(add_squares)(x + j, NEEDLE_BLOCK, x[0], mean, &squares);
        if (j < stop)
            FN(add_squares)(x + j, stop - j, x[0], mean, &squares);
        acc += FN(sum_block)(&squares);
    }
    return acc / n;
}

/* sums of d = x - x0 and d^2, and of the last two of C = 4 as well: g = grad weight and g d */
NEEDLE_INLINE void FN(add)(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t left, T x0, lane_block *sums)
{
    lane_block v = FN(load_block)(x, left, x0), g = v, w = v;
    if (C == 4)
        g = FN(load_block)(grad, left, 0), w = FN(load_block)(weight, left, 0);
    NEEDLE_UNROLL(8)
    for (int p = 0; p < PARTS; p++) {
        vec d = v.part[p] - x0, each = g.part[p] * w.part[p];
        sums[0].part[p] += d;
        sums[1].part[p] += d * d;
        if (C == 4) {
            sums[2].part[p] += each;
            sums[3].part[p] += each * d;
        }
    }
}

NEEDLE_INLINE void FN(sums)(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t n, double *out)
{
    for (int s = 0; s < C; s++)
        out[s] = 0;
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_RUN) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_RUN ? n : start + NEEDLE_RUN;
        lane_block sums[4];
        NEEDLE_UNROLL(4)
        for (int s = 0; s < C; s++) {
            NEEDLE_UNROLL(8)
            for (int p = 0; p < PARTS; p++)
                sums[s].part[p] = (vec) {0};
        }
        for (; j + NEEDLE_BLOCK <= stop; j += NEEDLE_BLOCK)
            FN(add)(C, grad + j, weight + j, x + j, NEEDLE_BLOCK, x[0], sums);
        if (j < stop)
            FN(add)(C, grad + j, weight + j, x + j, stop - j, x[0], sums);
        NEEDLE_UNROLL(4)
        for (int s = 0; s < C; s++)
            out[s] += FN(sum_block)(&sums[s]);
    }
}

/* mean - x0 and (var + eps)^(-1/2), from the sums of d and d^2 */
NEEDLE_INLINE void FN(moments)(const T *x, ptrdiff_t n, const double *sums, double eps, T *mean, T *scale)
{
    double m = sums[0] / n, var = sums[1] / n - m * m;
    if (m * m > NEEDLE_FAR * var)
        var = FN(variance)(x, n, (T) m);
    *mean = (T) m, *scale = (T) (1 / sqrt(var + eps));
}

NEEDLE_INLINE void FN(normalise)(const T *x, ptrdiff_t left, const T *weight, const T *bias, T x0, T mean, T scale, T *out)
{
    lane_block v = FN(load_block)(x, left, 0), w = FN(load_block)(weight, left, 0);
    lane_block b = FN(load_block)(bias, left, 0);
    for (int p = 0; p < PARTS; p++)
        v.part[p] = ((v.part[p] - x0) - mean) * scale * w.part[p] + b.part[p];
    FN(store_block)(v, out, left);
}

/* out = ((x - x0) - mean) scale weight + bias */
static void FN(layer_norm_group)(const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, const T *bias, double eps, T *out)
{
    double sums[NEEDLE_GROUP][4];
    T mean[NEEDLE_GROUP], scale[NEEDLE_GROUP];
    for (ptrdiff_t i = 0; i < rows; i++)
        FN(sums)(2, x, weight, x + i * n, n, sums[i]);
    for (ptrdiff_t i = 0; i < rows; i++)
        FN(moments)(x + i * n, n, sums[i], eps, &mean[i], &scale[i]);
    for (ptrdiff_t i = 0; i < rows; i++, x += n, out += n) {
        ptrdiff_t j = 0;
        T x0 = x[0];
        for (; j + NEEDLE_BLOCK <= n; j += NEEDLE_BLOCK)
            FN(normalise)(x + j, NEEDLE_BLOCK, weight + j, bias + j, x0, mean[i], scale[i], out + j);
        if (j < n)
            FN(normalise)(x + j, n - j, weight + j, bias + j, x0, mean[i], scale[i], out + j);
    }
}

static void FN(layer_norm)(const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, const T *bias, double eps, T *out)
{
    for (; rows > 0; rows -= NEEDLE_GROUP, x += NEEDLE_GROUP * n, out += NEEDLE_GROUP * n)
        FN(layer_norm_group)(x, rows < NEEDLE_GROUP ? rows : NEEDLE_GROUP, n, weight, bias, eps, out);
}

typedef struct {
    T x0, mean, scale, mean_g, mean_gx;
} FN(norm_row);

NEEDLE_INLINE void FN(layer_norm_derivative)(FN(norm_row) row, const T *grad, const T *x, ptrdiff_t left, const T *weight, T *dx,
                                             T *dweight, T *dbias)
{
    lane_block v = FN(load_block)(x, left, row.x0), g = FN(load_block)(grad, left, 0);
    lane_block w = FN(load_block)(weight, left, 0);
    lane_block dw = FN(load_block)(dweight, left, 0), db = FN(load_block)(dbias, left, 0);
    NEEDLE_UNROLL(8)
    for (int p = 0; p < PARTS; p++) {
        vec hat = ((v.part[p] - row.x0) - row.mean) * row.scale;
        dw.part[p] += g.part[p] * hat;
        db.part[p] += g.part[p];
        v.part[p] = row.scale * ((g.part[p] * w.part[p] - row.mean_g) - hat * row.mean_gx);
    }
    FN(store_block)(v, dx, left);
    FN(store_block)(dw, dweight, left);
    FN(store_block)(db, dbias, left);
}

/* dx = scale (g - mean g - x^ mean(g x^)) for g = grad weight, x^ = scale (x - mean);  dweight += grad x^,
 * dbias += grad */
static void FN(layer_norm_grad_group)(const T *grad, const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, double eps, T *dx,
                                      T *dweight, T *dbias)
{
    double sums[NEEDLE_GROUP][4];
    FN(norm_row) row[NEEDLE_GROUP];
    for (ptrdiff_t i = 0; i < rows; i++)
        FN(sums)(4, grad + i * n, weight, x + i * n, n, sums[i]);
    for (ptrdiff_t i = 0; i < rows; i++) {
        const double *s = sums[i];
        FN(moments)(x + i * n, n, s, eps, &row[i].mean, &row[i].scale);
        row[i].x0 = x[i * n], row[i].mean_g = (T) (s[2] / n);
        row[i].mean_gx = (T) ((s[3] - s[2] * (s[0] / n)) * row[i].scale / n);
    }
    for (ptrdiff_t i = 0; i < rows; i++, grad += n, x += n, dx += n) {
        ptrdiff_t j = 0;
        for (; j + NEEDLE_BLOCK <= n; j += NEEDLE_BLOCK)
            FN(layer_norm_derivative)(row[i], grad + j, x + j, NEEDLE_BLOCK, weight + j, dx + j, dweight + j, dbias + j);
        if (j < n)
            FN(layer_norm_derivative)(row[i], grad + j, x + j, n - j, weight + j, dx + j, dweight + j, dbias + j);
    }
}

static void FN(layer_norm_grad)(const T *grad, const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, double eps, T *dx,
                                T *dweight, T *dbias)
{
    for (ptrdiff_t i = 0; i < rows; i += NEEDLE_GROUP)
        FN(layer_norm_grad_group)(grad + i * n, x + i * n, rows - i < NEEDLE_GROUP ? rows - i : NEEDLE_GROUP, n, weight, eps,
                                  dx + i * n, dweight, dbias);
}

#endif
