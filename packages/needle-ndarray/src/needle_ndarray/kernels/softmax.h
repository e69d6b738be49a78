/* The largest of a row, the exponentials of a row with their sum, and what gradients of such rows are made of. */
#ifndef NEEDLE_SOFTMAX_H
#define NEEDLE_SOFTMAX_H
#include <math.h>
#include "exponential.h"

enum { NEEDLE_EXPS = 256 };         /* elements added up before they go to a double: 16 to a lane */
enum { NEEDLE_SUMS = 4 };           /* lane blocks side by side, so that no sum waits for the one before it */
enum { NEEDLE_PRODUCTS = 1024 };    /* products added up before they go to a double: 16 to a lane */

#include "as_float.h"
#include "softmax.h"
#include "as_double.h"
#include "softmax.h"
#include "as_nothing.h"

#elif defined(T)

NEEDLE_INLINE void FN(keep_largest)(const T *x, ptrdiff_t left, lane_block *best)
{
    lane_block v = FN(load_block)(x, left, -INFINITY);
    NEEDLE_UNROLL(8)
    for (int p = 0; p < PARTS; p++)
        best->part[p] = FN(larger)(v.part[p], best->part[p]);
}

/* the largest of n elements; NaNs do not count */
static T FN(largest)(const T *x, ptrdiff_t n)
{
    lane_block best = FN(load_block)(x, 0, -INFINITY);
    T line[LANES];
    ptrdiff_t j = 0;
    for (; j + NEEDLE_BLOCK <= n; j += NEEDLE_BLOCK)
        FN(keep_largest)(x + j, NEEDLE_BLOCK, &best);
    if (j < n)
        FN(keep_largest)(x + j, n - j, &best);
    for (int p = 1; p < PARTS; p++)
        best.part[0] = FN(larger)(best.part[p], best.part[0]);
    memcpy(line, &best.part[0], sizeof line);
    for (int half = LANES / 2; half > 0; half /= 2) /* halves: one element after the other takes three times as long */
        for (int k = 0; k < half; k++)
            line[k] = line[half + k] > line[k] ? line[half + k] : line[k];
    return line[0];
}

NEEDLE_INLINE void FN(add_exps)(const int subnormal, const T *x, ptrdiff_t left, T shift, T *out, lane_block *sum)
{
    lane_block v = FN(load_block)(x, left, -INFINITY);
    NEEDLE_UNROLL(8)
    for (int p = 0; p < PARTS; p++) {
        v.part[p] = subnormal ? FN(exp)(v.part[p] - shift) : FN(exp_normal)(v.part[p] - shift);
        sum->part[p] += v.part[p];
    }
    if (out)
        FN(store_block)(v, out, left);
}

NEEDLE_INLINE double FN(exps_of)(const int subnormal, const T *x, ptrdiff_t n, T shift, T *out)
{
    double total = 0;
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_EXPS) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_EXPS ? n : start + NEEDLE_EXPS;
        lane_block sum = {{{0}}};
        NEEDLE_UNROLL(2)
        for (; j + NEEDLE_BLOCK <= stop; j += NEEDLE_BLOCK)
            FN(add_exps)(subnormal, x + j, NEEDLE_BLOCK, shift, out ? out + j : out, &sum);
        if (j < stop)
            FN(add_exps)(subnormal, x + j, stop - j, shift, out ? out + j : out, &sum);
        total += FN(sum_block)(&sum);
    }
    return total;
}

/* the sum of e^(x - shift); out = each of them, where it is not NULL; 0 for `subnormal` ones, unless asked for */
static double FN(exps)(int subnormal, const T *x, ptrdiff_t n, T shift, T *out)
{
    return subnormal ? FN(exps_of)(1, x, n, shift, out) : FN(exps_of)(0, x, n, shift, out);
}

NEEDLE_INLINE void FN(add_products)(const T *a, const T *b, ptrdiff_t left, lane_block *sum)
{
    lane_block v = FN(load_block)(a, left, 0), w = b ? FN(load_block)(b, left, 0) : v;
    NEEDLE_UNROLL(8)
    for (int p = 0; p < PARTS; p++)
        sum->part[p] += b ? v.part[p] * w.part[p] : v.part[p];
}

NEEDLE_INLINE double FN(products_of)(const T *a, const T *b, ptrdiff_t n)
{
    const ptrdiff_t width = NEEDLE_SUMS * NEEDLE_BLOCK;
    double total = 0;
    if (n <= NEEDLE_BLOCK) { /* the others would be 0 */
        lane_block sum = {{{0}}};
        FN(add_products)(a, b, n, &sum);
        return FN(sum_block)(&sum);
    }
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_PRODUCTS) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_PRODUCTS ? n : start + NEEDLE_PRODUCTS;
        lane_block sum[NEEDLE_SUMS] = {{{{0}}}};
        for (; j + width <= stop; j += width) {
            NEEDLE_UNROLL(4)
            for (int q = 0; q < NEEDLE_SUMS; q++)
                FN(add_products)(a + j + q * NEEDLE_BLOCK, b ? b + j + q * NEEDLE_BLOCK : b, NEEDLE_BLOCK, &sum[q]);
        }
        for (int q = 0; j < stop; q++, j += NEEDLE_BLOCK)
            FN(add_products)(a + j, b ? b + j : b, stop - j, &sum[q]);
        for (int p = 0; p < PARTS; p++)
            sum[0].part[p] = (sum[0].part[p] + sum[1].part[p]) + (sum[2].part[p] + sum[3].part[p]);
        total += FN(sum_block)(&sum[0]);
    }
    return total;
}

/* the sum of a b, of a where b is NULL */
static double FN(products)(const T *a, const T *b, ptrdiff_t n)
{
    return b ? FN(products_of)(a, b, n) : FN(products_of)(a, NULL, n);
}

/* out = b - e^(x - shift) a, without b e^(x - shift) a */
NEEDLE_INLINE void FN(exps_times)(T a, const T *x, T shift, const T *b, ptrdiff_t n, T *out)
{
    for (ptrdiff_t j = 0; j < n; j += NEEDLE_BLOCK) {
        lane_block v = FN(load_block)(x + j, n - j, 0), w = b ? FN(load_block)(b + j, n - j, 0) : v;
        for (int p = 0; p < PARTS; p++) {
            v.part[p] = FN(exp_of)(v.part[p] - shift) * a;
            v.part[p] = b ? w.part[p] - v.part[p] : v.part[p];
        }
        FN(store_block)(v, out + j, n - j);
    }
}

/* out = grad - e^y total */
static void FN(log_softmax_derivative)(const T *grad, const T *y, T total, ptrdiff_t n, T *out)
{
    FN(exps_times)(total, y, 0, grad, n, out);
}

/* out = grad e^(x - y) */
static void FN(logsumexp_derivative)(T grad, const T *x, T y, ptrdiff_t n, T *out) { FN(exps_times)(grad, x, y, NULL, n, out); }

#endif
