/* The largest of a row, and the exponentials of a row with their sum. */
#ifndef NEEDLE_SOFTMAX_H
#define NEEDLE_SOFTMAX_H
#include <math.h>
#include "exponential.h"

enum { NEEDLE_EXPS = 256 };         /* elements added up before they go to a double: 16 to a lane */

#define NEEDLE_SOFTMAX(T)                                                                                                   \
    NEEDLE_INLINE void needle_keep_largest_##T(const T *x, ptrdiff_t left, needle_side_##T *best)                           \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, -INFINITY);                                                            \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
            best->part[p] = needle_larger_##T(v.part[p], best->part[p]);                                                    \
    }                                                                                                                       \
                                                                                                                            \
    /* the largest of n elements; NaNs do not count */                                                                      \
    static T needle_largest_##T(const T *x, ptrdiff_t n)                                                                    \
    {                                                                                                                       \
        needle_side_##T best = needle_load_##T(x, 0, -INFINITY);                                                            \
        T line[NEEDLE_SIDE];                                                                                                \
        ptrdiff_t j = 0;                                                                                                    \
        for (; j + NEEDLE_SIDE <= n; j += NEEDLE_SIDE)                                                                      \
            needle_keep_largest_##T(x + j, NEEDLE_SIDE, &best);                                                             \
        if (j < n)                                                                                                          \
            needle_keep_largest_##T(x + j, n - j, &best);                                                                   \
        memcpy(line, &best, sizeof line);                                                                                   \
        for (int k = 1; k < NEEDLE_SIDE; k++)                                                                               \
            line[0] = line[k] > line[0] ? line[k] : line[0];                                                                \
        return line[0];                                                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_add_exps_##T(const int subnormal, const T *x, ptrdiff_t left, T shift, T *out,                \
                                           needle_side_##T *sum)                                                            \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, -INFINITY);                                                            \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
        {                                                                                                                   \
            v.part[p] = subnormal ? needle_exp_##T(v.part[p] - shift) : needle_exp_normal_##T(v.part[p] - shift);           \
            sum->part[p] += v.part[p];                                                                                      \
        }                                                                                                                   \
        if (out)                                                                                                            \
            needle_store_##T(v, out, left);                                                                                 \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE double needle_exps_of_##T(const int subnormal, const T *x, ptrdiff_t n, T shift, T *out)                  \
    {                                                                                                                       \
        double total = 0;                                                                                                   \
        for (ptrdiff_t start = 0; start < n; start += NEEDLE_EXPS) {                                                        \
            ptrdiff_t j = start, stop = n - start < NEEDLE_EXPS ? n : start + NEEDLE_EXPS;                                  \
            needle_side_##T sum = {{{0}}};                                                                                  \
            _Pragma("GCC unroll 2") for (; j + NEEDLE_SIDE <= stop; j += NEEDLE_SIDE)                                       \
                needle_add_exps_##T(subnormal, x + j, NEEDLE_SIDE, shift, out ? out + j : out, &sum);                       \
            if (j < stop)                                                                                                   \
                needle_add_exps_##T(subnormal, x + j, stop - j, shift, out ? out + j : out, &sum);                          \
            total += needle_fold_##T(&sum);                                                                                 \
        }                                                                                                                   \
        return total;                                                                                                       \
    }                                                                                                                       \
                                                                                                                            \
    /* the sum of e^(x - shift); out = each of them, where it is not NULL; 0 for `subnormal` ones, unless asked for */      \
    static double needle_exps_##T(int subnormal, const T *x, ptrdiff_t n, T shift, T *out)                                  \
    {                                                                                                                       \
        return subnormal ? needle_exps_of_##T(1, x, n, shift, out) : needle_exps_of_##T(0, x, n, shift, out);               \
    }

NEEDLE_SOFTMAX(float)
NEEDLE_SOFTMAX(double)

#endif
