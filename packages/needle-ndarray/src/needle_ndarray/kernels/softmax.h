/* The largest of a row, and the exponentials of a row with their sum. */
#ifndef NEEDLE_SOFTMAX_H
#define NEEDLE_SOFTMAX_H
#include <math.h>
#include "exponential.h"

enum { NEEDLE_EXPS = 256 };         /* elements added up before they go to a double: 16 to a lane */

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

#endif
