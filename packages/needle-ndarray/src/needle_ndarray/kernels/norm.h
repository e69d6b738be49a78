/* What layer norm asks of a row: plain loops that `omp simd` makes vectors of. Cython cannot ask for them: there GCC unrolls the
 * lanes before it looks for vectors (sums of a row of 64 in 1.3 to 3 times the time), and checks six arrays for overlap (0.8 of the
 * speed of the derivative). Functions that keep lanes in registers are not inlined: elsewhere they would be spilled. */
#ifndef NEEDLE_NORM_H
#define NEEDLE_NORM_H
#include "vectors.h"

enum {
    NEEDLE_NORM_LANES = 16,     /* partial sums of a row, side by side: the same bits at every vector width */
    NEEDLE_NORM_RUN = 1024      /* elements added up before they go to a double: 64 to a lane */
};

static const volatile float needle_norm_zero = 0;       /* of a zero they know compilers make `rep stos`, 20 ns a row */

#include "as_float.h"
#include "norm.h"
#include "as_double.h"
#include "norm.h"
#include "as_nothing.h"

#elif defined(T)

/* lanes += d = x - x0 and d^2; of C = 4 also g = grad weight and g d */
NEEDLE_INLINE void FN(add)(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t n, T x0, T lane[][NEEDLE_NORM_LANES])
{
#pragma omp simd
    for (ptrdiff_t k = 0; k < n; k++) {
        T d = x[k] - x0;
        lane[0][k] += d;
        lane[1][k] += d * d;
        if (C == 4) {
            T g = grad[k] * weight[k];
            lane[2][k] += g;
            lane[3][k] += g * d;
        }
    }
}

/* the sum of the lanes, by halves */
NEEDLE_INLINE double FN(fold)(T *lane)
{
#pragma omp simd
    for (int k = 0; k < 8; k++)
        lane[k] += lane[8 + k];
#pragma omp simd simdlen(4)
    for (int k = 0; k < 4; k++)
        lane[k] += lane[4 + k];
    return (lane[0] + lane[2]) + (lane[1] + lane[3]);
}

NEEDLE_INLINE void FN(sums)(const int C, const T *grad, const T *weight, const T *x, ptrdiff_t n, double *out)
{
    const T zero = needle_norm_zero;
    for (int s = 0; s < C; s++)
        out[s] = 0;
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_NORM_RUN) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_NORM_RUN ? n : start + NEEDLE_NORM_RUN;
        T lane[4][NEEDLE_NORM_LANES];
#pragma omp simd
        for (int k = 0; k < NEEDLE_NORM_LANES; k++)
            lane[0][k] = lane[1][k] = lane[2][k] = lane[3][k] = zero;
        for (; j + NEEDLE_NORM_LANES <= stop; j += NEEDLE_NORM_LANES)
            FN(add)(C, grad + j, weight + j, x + j, NEEDLE_NORM_LANES, x[0], lane);
        if (j < stop)
            FN(add)(C, grad + j, weight + j, x + j, stop - j, x[0], lane);
        NEEDLE_UNROLL(4)
        for (int s = 0; s < C; s++)
            out[s] += FN(fold)(lane[s]);
    }
}

/* out = the sums of d = x - x[0] and of d^2 */
static __attribute__((noinline)) void FN(layer_norm_sums)(const T *x, ptrdiff_t n, double *out) { FN(sums)(2, x, x, x, n, out); }

/* out = the sums of d = x - x[0], d^2, g = grad weight and g d */
static __attribute__((noinline)) void FN(layer_norm_grad_sums)(const T *grad, const T *weight, const T *x, ptrdiff_t n, double *out)
{
    FN(sums)(4, grad, weight, x, n, out);
}

/* lane += ((x - x0) - mean)^2 */
NEEDLE_INLINE void FN(add_squares)(const T *x, T x0, T mean, T *lane)
{
#pragma omp simd
    for (int k = 0; k < NEEDLE_NORM_LANES; k++)
        lane[k] += ((x[k] - x0) - mean) * ((x[k] - x0) - mean);
}

/* mean of ((x - x[0]) - mean)^2; lanes without an element of the last block count as x[0] + mean, rounded */
static __attribute__((noinline)) double FN(layer_norm_variance)(const T *x, ptrdiff_t n, T mean)
{
    double squares = 0;
    for (ptrdiff_t start = 0; start < n; start += NEEDLE_NORM_RUN) {
        ptrdiff_t j = start, stop = n - start < NEEDLE_NORM_RUN ? n : start + NEEDLE_NORM_RUN;
        T lane[NEEDLE_NORM_LANES] = {0}, last[NEEDLE_NORM_LANES];
        for (; j + NEEDLE_NORM_LANES <= stop; j += NEEDLE_NORM_LANES)
            FN(add_squares)(x + j, x[0], mean, lane);
        if (j < stop) {
            for (int k = 0; k < NEEDLE_NORM_LANES; k++)
                last[k] = k < stop - j ? x[j + k] : x[0] + mean;
            FN(add_squares)(last, x[0], mean, lane);
        }
        squares += FN(fold)(lane);
    }
    return squares / n;
}

/* dx = scale (g - mean_g - x^ mean_gx), dweight += grad x^, dbias += grad, for g = grad weight, x^ = scale ((x - x[0]) - mean) */
static void FN(layer_norm_derivative)(const T *grad, const T *x, ptrdiff_t n, const T *weight, T mean, T scale, T mean_g, T mean_gx,
                                      T *dx, T *dweight, T *dbias)
{
    const T x0 = x[0];
#pragma omp simd
    for (ptrdiff_t j = 0; j < n; j++) {
        T g = grad[j], hat = ((x[j] - x0) - mean) * scale;
        T dw = dweight[j] + g * hat, db = dbias[j] + g;
        dx[j] = scale * ((g * weight[j] - mean_g) - hat * mean_gx);
        dweight[j] = dw;
        dbias[j] = db;
    }
}

#endif
