/* Square tiles of a transposed array, in registers: a quarter of the time of a loop over elements. */
#ifndef NEEDLE_TRANSPOSE_H
#define NEEDLE_TRANSPOSE_H
#include "vectors.h"

#include "as_float.h"
#include "transpose.h"
#include "as_double.h"
#include "transpose.h"
#include "as_nothing.h"

#elif defined(T)

/* out[r, j] = a[j, r] for r, j < LANES. A round zips vectors that are half of them apart, which rotates the bits of an element's
 * place (vector, lane) by one: after log2 LANES rounds the two have changed places. */
NEEDLE_INLINE void FN(transpose)(const T *a, ptrdiff_t stride, T *out, ptrdiff_t out_stride)
{
    vec x[LANES], zipped[LANES];
    for (int j = 0; j < LANES; j++)
        x[j] = FN(load)(a + j * stride);
    for (int round = 1; round < LANES; round *= 2) {
        for (int i = 0; i < LANES / 2; i++)
            FN(zip)(x[i], x[i + LANES / 2], &zipped[2 * i], &zipped[2 * i + 1]);
        memcpy(x, zipped, sizeof x);
    }
    for (int r = 0; r < LANES; r++)
        FN(store)(x[r], out + r * out_stride);
}

/* the same for r, j < n, a multiple of LANES */
static void FN(transpose_tile)(const T *a, ptrdiff_t stride, T *out, ptrdiff_t out_stride, ptrdiff_t n)
{
    for (ptrdiff_t r = 0; r < n; r += LANES)
        for (ptrdiff_t j = 0; j < n; j += LANES)
            FN(transpose)(a + j * stride + r, stride, out + r * out_stride + j, out_stride);
}

#endif
