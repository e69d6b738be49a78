/* Products of a few float32 rows with a matrix of small elements, which are widened as they are read: the time is that of reading
 * them, half or a quarter of what float32 takes. Elements are words of float16 (0) or bfloat16 (1), or bytes (2) that mean w - 128.
 * Every sum has one order, however the columns are cut. */
#ifndef NEEDLE_WEIGHTS_H
#define NEEDLE_WEIGHTS_H

#include "half.h"

enum {
    NEEDLE_WEIGHT_COLUMNS = 128, /* of a block: its sums stay in registers and the first cache */
    NEEDLE_WEIGHT_DEPTH = 512,   /* of a column that is widened at once */
    NEEDLE_WEIGHT_LANES = 32     /* sums side by side of a dot product */
};

static inline void needle_widen_weights(int format, const char *a, float *out, ptrdiff_t n)
{
    if (format == 2)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = (float) ((int) ((const unsigned char *) a)[i] - 128);
    else if (format == 1)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] = needle_float_of((uint32_t) ((const uint16_t *) a)[i] << 16);
    else
        needle_widen(0, (const uint16_t *) a, out, n);
}

/* sums[j] += x[0] w[0, j] + x[1] w[1, j] + x[2] w[2, j] + x[3] w[3, j], of rows that lie `step` bytes apart */
static inline void needle_four_rows(int format, const float *x, const char *w, ptrdiff_t step, float *sums, ptrdiff_t n)
{
    float r[4][NEEDLE_WEIGHT_COLUMNS];
    for (int l = 0; l < 4; l++)
        needle_widen_weights(format, w + l * step, r[l], n);
    for (ptrdiff_t j = 0; j < n; j++)
        sums[j] = sums[j] + x[0] * r[0][j] + x[1] * r[1][j] + x[2] * r[2][j] + x[3] * r[3][j];
}

/* out[i, j] = scale[j] * sum of a[i, l] w[l, j] for a block of at most NEEDLE_WEIGHT_COLUMNS columns, whose rows are contiguous and
 * lie `step` bytes apart. Several rows of a: each block of w is widened once for all of them. */
static inline void needle_weight_rows(int format, const float *a, ptrdiff_t a_row, const char *w, ptrdiff_t step,
                                      const float *scale, float *out, ptrdiff_t out_row, ptrdiff_t m, ptrdiff_t k, ptrdiff_t n)
{
    float r[4][NEEDLE_WEIGHT_COLUMNS], sums[NEEDLE_WEIGHT_COLUMNS];
    for (ptrdiff_t i = 0; i < m; i++)
        memset(out + i * out_row, 0, n * sizeof(float));
    for (ptrdiff_t l = 0; l < k; l += 4) {
        int rows = k - l < 4 ? (int) (k - l) : 4;
        for (int r_ = 0; r_ < 4; r_++) {
            if (r_ < rows)
                needle_widen_weights(format, w + (l + r_) * step, r[r_], n);
            else
                memset(r[r_], 0, n * sizeof(float));
        }
        for (ptrdiff_t i = 0; i < m; i++) {
            const float *x = a + i * a_row + l;
            float x0 = x[0], x1 = rows > 1 ? x[1] : 0, x2 = rows > 2 ? x[2] : 0, x3 = rows > 3 ? x[3] : 0;
            float *y = out + i * out_row;
            memcpy(sums, y, n * sizeof(float));
            for (ptrdiff_t j = 0; j < n; j++)
                sums[j] = sums[j] + x0 * r[0][j] + x1 * r[1][j] + x2 * r[2][j] + x3 * r[3][j];
            memcpy(y, sums, n * sizeof(float));
        }
    }
    for (ptrdiff_t i = 0; scale != NULL && i < m; i++)
        for (ptrdiff_t j = 0; j < n; j++)
            out[i * out_row + j] *= scale[j];
}

/* The same for one row of a, with its sums kept, and a block of columns whose width the compiler knows */
static inline void needle_weight_row(int format, const float *a, const char *w, ptrdiff_t step, const float *scale, float *out,
                                     ptrdiff_t k)
{
    float sums[NEEDLE_WEIGHT_COLUMNS] = {0}, r[NEEDLE_WEIGHT_COLUMNS];
    ptrdiff_t l = 0;
    for (; l + 4 <= k; l += 4)
        needle_four_rows(format, a + l, w + l * step, step, sums, NEEDLE_WEIGHT_COLUMNS);
    for (; l < k; l++) {
        needle_widen_weights(format, w + l * step, r, NEEDLE_WEIGHT_COLUMNS);
        for (int j = 0; j < NEEDLE_WEIGHT_COLUMNS; j++)
            sums[j] += a[l] * r[j];
    }
    for (int j = 0; j < NEEDLE_WEIGHT_COLUMNS; j++)
        out[j] = scale == NULL ? sums[j] : scale[j] * sums[j];
}

/* out[i] = scale * sum of a[i, l] w[l] for one column that is contiguous */
static inline void needle_weight_column(int format, const float *a, ptrdiff_t a_row, const char *w, ptrdiff_t item, float scale,
                                        float *out, ptrdiff_t out_row, ptrdiff_t m, ptrdiff_t k)
{
    float wide[NEEDLE_WEIGHT_DEPTH];
    for (ptrdiff_t i = 0; i < m; i++)
        out[i * out_row] = 0;
    for (ptrdiff_t l = 0; l < k; l += NEEDLE_WEIGHT_DEPTH) {
        ptrdiff_t n = k - l < NEEDLE_WEIGHT_DEPTH ? k - l : NEEDLE_WEIGHT_DEPTH, whole = n - n % NEEDLE_WEIGHT_LANES;
        needle_widen_weights(format, w + l * item, wide, n);
        for (ptrdiff_t i = 0; i < m; i++) {
            const float *x = a + i * a_row + l;
            float sums[NEEDLE_WEIGHT_LANES] = {0}, total = 0;
            for (ptrdiff_t s = 0; s < whole; s += NEEDLE_WEIGHT_LANES)
                for (int j = 0; j < NEEDLE_WEIGHT_LANES; j++)
                    sums[j] += x[s + j] * wide[s + j];
            for (ptrdiff_t s = whole; s < n; s++)
                total += x[s] * wide[s];
            for (int width = NEEDLE_WEIGHT_LANES / 2; width > 0; width /= 2)
                for (int j = 0; j < width; j++)
                    sums[j] += sums[width + j];
            out[i * out_row] += total + sums[0];
        }
    }
    for (ptrdiff_t i = 0; i < m; i++)
        out[i * out_row] *= scale;
}

/* A block of columns, by the way they lie */
static inline void needle_weight_block(int format, const float *a, ptrdiff_t a_row, const char *w, ptrdiff_t row, ptrdiff_t column,
                                       ptrdiff_t item, const float *scale, float *out, ptrdiff_t out_row, ptrdiff_t m, ptrdiff_t k,
                                       ptrdiff_t n)
{
    if (row == 1 && column != 1) {
        for (ptrdiff_t j = 0; j < n; j++)
            needle_weight_column(format, a, a_row, w + j * column * item, item, scale == NULL ? 1 : scale[j], out + j, out_row, m,
                                 k);
    } else if (m == 1 && n == NEEDLE_WEIGHT_COLUMNS) {
        switch (format) { /* a format that the compiler knows */
        case 0: needle_weight_row(0, a, w, row * item, scale, out, k); break;
        case 1: needle_weight_row(1, a, w, row * item, scale, out, k); break;
        default: needle_weight_row(2, a, w, row * item, scale, out, k);
        }
    } else {
        needle_weight_rows(format, a, a_row, w, row * item, scale, out, out_row, m, k, n);
    }
}

#endif
