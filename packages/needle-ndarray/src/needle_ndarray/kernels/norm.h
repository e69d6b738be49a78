/* Layer norm of a few rows at a time: what one row waits for (a fold, a root, a division) is hidden behind the others. */
#ifndef NEEDLE_NORM_H
#define NEEDLE_NORM_H
#include <math.h>
#include "sides.h"

enum {
    NEEDLE_RUN = 1024,      /* elements added up before they go to a double: 64 to a lane */
    NEEDLE_GROUP = 4        /* rows */
};
#define NEEDLE_FAR 8        /* mean(d)^2 / var from which mean(d^2) - mean(d)^2 would lose digits */

#define NEEDLE_NORM(T)                                                                                                      \
    NEEDLE_INLINE void needle_add_squares_##T(const T *x, ptrdiff_t left, T x0, T mean, needle_side_##T *squares)           \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, x0 + mean);                                                            \
        for (int p = 0; p < needle_parts_##T; p++) {                                                                        \
            needle_vector_##T apart = (v.part[p] - x0) - mean;                                                              \
            squares->part[p] += apart * apart;                                                                              \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    /* mean of ((x - x0) - mean)^2 */                                                                                       \
    static double needle_variance_##T(const T *x, ptrdiff_t n, T mean)                                                      \
    {                                                                                                                       \
        double acc = 0;                                                                                                     \
        for (ptrdiff_t start = 0; start < n; start += NEEDLE_RUN) {                                                         \
            ptrdiff_t j = start, stop = n - start < NEEDLE_RUN ? n : start + NEEDLE_RUN;                                    \
            needle_side_##T squares = {{{0}}};                                                                              \
            for (; j + NEEDLE_SIDE <= stop; j += NEEDLE_SIDE)                                                               \
                needle_add_squares_##T(x + j, NEEDLE_SIDE, x[0], mean, &squares);                                           \
            if (j < stop)                                                                                                   \
                needle_add_squares_##T(x + j, stop - j, x[0], mean, &squares);                                              \
            acc += needle_fold_##T(&squares);                                                                               \
        }                                                                                                                   \
        return acc / n;                                                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    /* sums of d = x - x0 and d^2, and of the last two of C = 4 as well: g = grad weight and g d */                         \
    NEEDLE_INLINE void needle_add_##T(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t left, T x0,        \
                                      needle_side_##T *sums)                                                                \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, x0), g = v, w = v;                                                     \
        if (C == 4)                                                                                                         \
            g = needle_load_##T(grad, left, 0), w = needle_load_##T(weight, left, 0);                                       \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
        {                                                                                                                   \
            needle_vector_##T d = v.part[p] - x0, each = g.part[p] * w.part[p];                                             \
            sums[0].part[p] += d;                                                                                           \
            sums[1].part[p] += d * d;                                                                                       \
            if (C == 4) {                                                                                                   \
                sums[2].part[p] += each;                                                                                    \
                sums[3].part[p] += each * d;                                                                                \
            }                                                                                                               \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_sums_##T(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t n, double *out)   \
    {                                                                                                                       \
        for (int s = 0; s < C; s++)                                                                                         \
            out[s] = 0;                                                                                                     \
        for (ptrdiff_t start = 0; start < n; start += NEEDLE_RUN) {                                                         \
            ptrdiff_t j = start, stop = n - start < NEEDLE_RUN ? n : start + NEEDLE_RUN;                                    \
            needle_side_##T sums[4];                                                                                        \
            _Pragma("GCC unroll 4") for (int s = 0; s < C; s++)                                                             \
                _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                          \
                    sums[s].part[p] = (needle_vector_##T) {0};                                                              \
            for (; j + NEEDLE_SIDE <= stop; j += NEEDLE_SIDE)                                                               \
                needle_add_##T(C, grad + j, weight + j, x + j, NEEDLE_SIDE, x[0], sums);                                    \
            if (j < stop)                                                                                                   \
                needle_add_##T(C, grad + j, weight + j, x + j, stop - j, x[0], sums);                                       \
            _Pragma("GCC unroll 4") for (int s = 0; s < C; s++)                                                             \
                out[s] += needle_fold_##T(&sums[s]);                                                                        \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    /* mean - x0 and (var + eps)^(-1/2), from the sums of d and d^2 */                                                      \
    NEEDLE_INLINE void needle_moments_##T(const T *x, ptrdiff_t n, const double *sums, double eps, T *mean, T *scale)       \
    {                                                                                                                       \
        double m = sums[0] / n, var = sums[1] / n - m * m;                                                                  \
        if (m * m > NEEDLE_FAR * var)                                                                                       \
            var = needle_variance_##T(x, n, (T) m);                                                                         \
        *mean = (T) m, *scale = (T) (1 / sqrt(var + eps));                                                                  \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_normalise_##T(const T *x, ptrdiff_t left, const T *weight, const T *bias, T x0, T mean,       \
                                            T scale, T *out)                                                                \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, 0), w = needle_load_##T(weight, left, 0);                              \
        needle_side_##T b = needle_load_##T(bias, left, 0);                                                                 \
        for (int p = 0; p < needle_parts_##T; p++)                                                                          \
            v.part[p] = ((v.part[p] - x0) - mean) * scale * w.part[p] + b.part[p];                                          \
        needle_store_##T(v, out, left);                                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    /* out = ((x - x0) - mean) scale weight + bias */                                                                      \
    static void needle_layer_norm_group_##T(const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, const T *bias,        \
                                            double eps, T *out)                                                             \
    {                                                                                                                       \
        double sums[NEEDLE_GROUP][4];                                                                                       \
        T mean[NEEDLE_GROUP], scale[NEEDLE_GROUP];                                                                          \
        for (ptrdiff_t i = 0; i < rows; i++)                                                                                \
            needle_sums_##T(2, x, weight, x + i * n, n, sums[i]);                                                           \
        for (ptrdiff_t i = 0; i < rows; i++)                                                                                \
            needle_moments_##T(x + i * n, n, sums[i], eps, &mean[i], &scale[i]);                                            \
        for (ptrdiff_t i = 0; i < rows; i++, x += n, out += n) {                                                            \
            ptrdiff_t j = 0;                                                                                                \
            T x0 = x[0];                                                                                                    \
            for (; j + NEEDLE_SIDE <= n; j += NEEDLE_SIDE)                                                                  \
                needle_normalise_##T(x + j, NEEDLE_SIDE, weight + j, bias + j, x0, mean[i], scale[i], out + j);             \
            if (j < n)                                                                                                      \
                needle_normalise_##T(x + j, n - j, weight + j, bias + j, x0, mean[i], scale[i], out + j);                   \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_layer_norm_##T(const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight, const T *bias, double eps,  \
                                      T *out)                                                                               \
    {                                                                                                                       \
        for (; rows > 0; rows -= NEEDLE_GROUP, x += NEEDLE_GROUP * n, out += NEEDLE_GROUP * n)                              \
            needle_layer_norm_group_##T(x, rows < NEEDLE_GROUP ? rows : NEEDLE_GROUP, n, weight, bias, eps, out);           \
    }                                                                                                                       \
                                                                                                                            \
    typedef struct {                                                                                                        \
        T x0, mean, scale, mean_g, mean_gx;                                                                                 \
    } needle_row_##T;                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_slope_##T(needle_row_##T row, const T *grad, const T *x, ptrdiff_t left, const T *weight, T *dx,\
                                        T *dweight, T *dbias)                                                               \
    {                                                                                                                       \
        needle_side_##T v = needle_load_##T(x, left, row.x0), g = needle_load_##T(grad, left, 0);                           \
        needle_side_##T w = needle_load_##T(weight, left, 0);                                                               \
        needle_side_##T dw = needle_load_##T(dweight, left, 0), db = needle_load_##T(dbias, left, 0);                       \
        _Pragma("GCC unroll 8") for (int p = 0; p < needle_parts_##T; p++)                                                  \
        {                                                                                                                   \
            needle_vector_##T hat = ((v.part[p] - row.x0) - row.mean) * row.scale;                                          \
            dw.part[p] += g.part[p] * hat;                                                                                  \
            db.part[p] += g.part[p];                                                                                        \
            v.part[p] = row.scale * ((g.part[p] * w.part[p] - row.mean_g) - hat * row.mean_gx);                             \
        }                                                                                                                   \
        needle_store_##T(v, dx, left);                                                                                      \
        needle_store_##T(dw, dweight, left);                                                                                \
        needle_store_##T(db, dbias, left);                                                                                  \
    }                                                                                                                       \
                                                                                                                            \
    /* dx = scale (g - mean g - x^ mean(g x^)) for g = grad weight, x^ = scale (x - mean);  dweight += grad x^,             \
     * dbias += grad */                                                                                                    \
    static void needle_layer_norm_grad_group_##T(const T *grad, const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight,   \
                                                 double eps, T *dx, T *dweight, T *dbias)                                   \
    {                                                                                                                       \
        double sums[NEEDLE_GROUP][4];                                                                                       \
        needle_row_##T row[NEEDLE_GROUP];                                                                                   \
        for (ptrdiff_t i = 0; i < rows; i++)                                                                                \
            needle_sums_##T(4, grad + i * n, weight, x + i * n, n, sums[i]);                                                \
        for (ptrdiff_t i = 0; i < rows; i++) {                                                                              \
            const double *s = sums[i];                                                                                      \
            needle_moments_##T(x + i * n, n, s, eps, &row[i].mean, &row[i].scale);                                          \
            row[i].x0 = x[i * n], row[i].mean_g = (T) (s[2] / n);                                                           \
            row[i].mean_gx = (T) ((s[3] - s[2] * (s[0] / n)) * row[i].scale / n);                                           \
        }                                                                                                                   \
        for (ptrdiff_t i = 0; i < rows; i++, grad += n, x += n, dx += n) {                                                  \
            ptrdiff_t j = 0;                                                                                                \
            for (; j + NEEDLE_SIDE <= n; j += NEEDLE_SIDE)                                                                  \
                needle_slope_##T(row[i], grad + j, x + j, NEEDLE_SIDE, weight + j, dx + j, dweight + j, dbias + j);         \
            if (j < n)                                                                                                      \
                needle_slope_##T(row[i], grad + j, x + j, n - j, weight + j, dx + j, dweight + j, dbias + j);               \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_layer_norm_grad_##T(const T *grad, const T *x, ptrdiff_t rows, ptrdiff_t n, const T *weight,         \
                                           double eps, T *dx, T *dweight, T *dbias)                                         \
    {                                                                                                                       \
        for (ptrdiff_t i = 0; i < rows; i += NEEDLE_GROUP)                                                                  \
            needle_layer_norm_grad_group_##T(grad + i * n, x + i * n, rows - i < NEEDLE_GROUP ? rows - i : NEEDLE_GROUP, n, \
                                             weight, eps, dx + i * n, dweight, dbias);                                      \
    }

NEEDLE_NORM(float)
NEEDLE_NORM(double)

#endif
