/* Products of a few float32 rows with a matrix of small elements, which are widened as they are read: the time is that of reading
 * them, half or a quarter of what float32 takes. A format is 0 for float16, 1 for bfloat16, 2 for bytes that mean w - 128. The sum
 * of an element has one order, however the columns are cut. */
#ifndef NEEDLE_WEIGHTS_H
#define NEEDLE_WEIGHTS_H

#include "half.h"
#include "vectors.h"

enum {
    NEEDLE_WEIGHT_COLUMNS = 1024, /* of a block at most: its sums stay in the first cache */
    NEEDLE_WEIGHT_LANES = NEEDLE_VECTOR / 4,
    NEEDLE_WEIGHT_ROWS = 8, /* of the matrix, read side by side */
    NEEDLE_LINE = 64        /* bytes of a cache line */
};

/* As many elements as a vector has lanes, widened */
NEEDLE_INLINE needle_vec_float needle_weight_vector(int format, const char *a)
{
#if defined(__AVX512F__)
    if (format == 0)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) a));
    if (format == 1)
        return (needle_vec_float) _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *) a)), 16);
    return _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *) a)), _mm512_set1_epi32(128)));
#elif defined(__AVX2__) && defined(__F16C__)
    if (format == 0)
        return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) a));
    if (format == 1)
        return (needle_vec_float) _mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) a)), 16);
    return _mm256_cvtepi32_ps(_mm256_sub_epi32(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *) a)), _mm256_set1_epi32(128)));
#else
    needle_vec_float v;
    for (int i = 0; i < NEEDLE_WEIGHT_LANES; i++) {
        if (format == 2)
            v[i] = (float) (((const unsigned char *) a)[i] - 128);
        else if (format == 1)
            v[i] = needle_float_of((uint32_t) ((const uint16_t *) a)[i] << 16);
        else
            v[i] = needle_widen_float16(((const uint16_t *) a)[i]);
    }
    return v;
#endif
}

/* The same of the first n elements; the others have no meaning, and nothing beyond is read */
NEEDLE_INLINE needle_vec_float needle_weight_some(int format, const char *a, ptrdiff_t n)
{
    char held[2 * NEEDLE_WEIGHT_LANES] = {0};
    memcpy(held, a, n * (format == 2 ? 1 : 2));
    return needle_weight_vector(format, held);
}

/* sums[j] += sum of x[u] w[u, j] over u < rows, of rows that lie `step` bytes apart, for the first n columns, a vector at most */
NEEDLE_INLINE void needle_weight_add_vector(int format, int rows, const needle_vec_float *x, const char *w, ptrdiff_t step,
                                            float *sums, ptrdiff_t n)
{
    needle_vec_float odd = {0}, even = needle_load_float(sums), v;
    NEEDLE_UNROLL(8)
    for (int u = 0; u < rows; u++) {
        v = n == NEEDLE_WEIGHT_LANES ? needle_weight_vector(format, w + u * step) : needle_weight_some(format, w + u * step, n);
        if (u % 2)
            odd = needle_fma_float(x[u], v, odd);
        else
            even = needle_fma_float(x[u], v, even);
    }
    needle_store_float(even + odd, sums);
}

/* The same for n columns. The next rows are fetched meanwhile: the processor, which sees short pieces of many rows, would not, and
 * bytes take half the time with it. Fetching beyond the matrix does nothing. */
NEEDLE_INLINE void needle_weight_add(int format, int rows, const float *x, const char *w, ptrdiff_t step, float *sums, ptrdiff_t n)
{
    int item = format == 2 ? 1 : 2;
    ptrdiff_t j = 0;
    needle_vec_float zero = {0}, wide[NEEDLE_WEIGHT_ROWS];
    NEEDLE_UNROLL(8)
    for (int u = 0; u < rows; u++)
        wide[u] = zero + x[u];
    for (; j + NEEDLE_LINE / item <= n; j += NEEDLE_LINE / item) {
        NEEDLE_UNROLL(8)
        for (int u = 0; u < rows; u++)
            __builtin_prefetch(w + (rows + u) * step + j * item);
        for (ptrdiff_t i = j; i < j + NEEDLE_LINE / item; i += NEEDLE_WEIGHT_LANES)
            needle_weight_add_vector(format, rows, wide, w + i * item, step, sums + i, NEEDLE_WEIGHT_LANES);
    }
    for (; j + NEEDLE_WEIGHT_LANES <= n; j += NEEDLE_WEIGHT_LANES)
        needle_weight_add_vector(format, rows, wide, w + j * item, step, sums + j, NEEDLE_WEIGHT_LANES);
    if (j < n)
        needle_weight_add_vector(format, rows, wide, w + j * item, step, sums + j, n - j);
}

/* out[j] = scale[j] * sum of a[l] w[l, j] for at most NEEDLE_WEIGHT_COLUMNS columns, in rows that are contiguous */
NEEDLE_INLINE void needle_weight_row(int format, const float *a, const char *w, ptrdiff_t step, const float *scale, float *out,
                                     ptrdiff_t k, ptrdiff_t n)
{
    float sums[NEEDLE_WEIGHT_COLUMNS + NEEDLE_WEIGHT_LANES];
    ptrdiff_t l = 0;
    memset(sums, 0, (n + NEEDLE_WEIGHT_LANES) * sizeof(float));
    for (; l + NEEDLE_WEIGHT_ROWS <= k; l += NEEDLE_WEIGHT_ROWS)
        needle_weight_add(format, NEEDLE_WEIGHT_ROWS, a + l, w + l * step, step, sums, n);
    for (; l < k; l++)
        needle_weight_add(format, 1, a + l, w + l * step, step, sums, n);
    for (ptrdiff_t j = 0; j < n; j++)
        out[j] = scale == NULL ? sums[j] : scale[j] * sums[j];
}

/* sum of a[l] w[l] over a column that is contiguous */
NEEDLE_INLINE float needle_weight_dot(int format, const float *a, const char *w, ptrdiff_t k)
{
    int item = format == 2 ? 1 : 2;
    needle_vec_float sums[4] = {{0}};
    ptrdiff_t l = 0;
    float total = 0;
    for (; l + 4 * NEEDLE_WEIGHT_LANES <= k; l += 4 * NEEDLE_WEIGHT_LANES) {
        NEEDLE_UNROLL(4)
        for (int u = 0; u < 4; u++) {
            ptrdiff_t at = l + u * NEEDLE_WEIGHT_LANES;
            sums[u] = needle_fma_float(needle_load_float(a + at), needle_weight_vector(format, w + at * item), sums[u]);
        }
    }
    for (; l < k; l += NEEDLE_WEIGHT_LANES) {
        ptrdiff_t n = k - l < NEEDLE_WEIGHT_LANES ? k - l : NEEDLE_WEIGHT_LANES;
        sums[0] = needle_fma_float(needle_load_some_float(a + l, n, 0), needle_weight_some(format, w + l * item, n), sums[0]);
    }
    sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    for (int i = 0; i < NEEDLE_WEIGHT_LANES; i++)
        total += sums[0][i];
    return total;
}

/* out[i, j] = scale[j] * sum of a[i, l] w[l, j] for a block of columns; `row` and `column` are w's strides, in elements */
NEEDLE_INLINE void needle_weight_block(int format, const float *a, ptrdiff_t a_row, const char *w, ptrdiff_t row, ptrdiff_t column,
                                       const float *scale, float *out, ptrdiff_t out_row, ptrdiff_t m, ptrdiff_t k, ptrdiff_t n)
{
    int item = format == 2 ? 1 : 2;
    if (row == 1 && column != 1) {
        for (ptrdiff_t j = 0; j < n; j++)
            for (ptrdiff_t i = 0; i < m; i++)
                out[i * out_row + j] =
                    needle_weight_dot(format, a + i * a_row, w + j * column * item, k) * (scale == NULL ? 1 : scale[j]);
        return;
    }
    for (ptrdiff_t i = 0; i < m; i++)
        needle_weight_row(format, a + i * a_row, w, row * item, scale, out + i * out_row, k, n);
}

/* The same, by the format */
static void needle_weights(int format, const float *a, ptrdiff_t a_row, const char *w, ptrdiff_t row, ptrdiff_t column,
                           const float *scale, float *out, ptrdiff_t out_row, ptrdiff_t m, ptrdiff_t k, ptrdiff_t n)
{
    if (format == 0)
        needle_weight_block(0, a, a_row, w, row, column, scale, out, out_row, m, k, n);
    else if (format == 1)
        needle_weight_block(1, a, a_row, w, row, column, scale, out, out_row, m, k, n);
    else
        needle_weight_block(2, a, a_row, w, row, column, scale, out, out_row, m, k, n);
}

#endif
