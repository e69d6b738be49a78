/* Tiles of a small matrix product: NEEDLE_ROWS rows times two vectors of columns, the sums in registers. */
#ifndef NEEDLE_PRODUCT_H
#define NEEDLE_PRODUCT_H
#include "vectors.h"

enum { needle_wide_float = 2 * needle_lanes_float, needle_wide_double = 2 * needle_lanes_double };

/* out[i, j] = alpha sum of a[i, l] b[l, j] for i < rows, skip <= j < cols: at most one tile; added to what is there if `add`.
 * Rows of b are readable to the tile's whole width. What is skipped has been written, or will be, with the same numbers. V: how
 * many vectors hold the columns. */
#define NEEDLE_PRODUCT(T)                                                                                                   \
    static inline __attribute__((always_inline)) void needle_product_of_##T(                                                \
        const int V, const T *a, ptrdiff_t a_row, ptrdiff_t a_col, const T *b, ptrdiff_t b_row, T *out, ptrdiff_t out_row,  \
        ptrdiff_t out_col, ptrdiff_t rows, ptrdiff_t skip, ptrdiff_t cols, ptrdiff_t k, T alpha, int add)                   \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T sum[NEEDLE_ROWS][2] = {{{0}}};                                                                    \
        const T *at[NEEDLE_ROWS];                                                                                           \
        for (int r = 0; r < NEEDLE_ROWS; r++)                                                                               \
            at[r] = a + (r < rows ? r : rows - 1) * a_row;                                                                  \
        for (ptrdiff_t l = 0; l < k; l++, b += b_row) {                                                                     \
            needle_vector_##T first = *(const needle_loose_##T *) b;                                                        \
            needle_vector_##T second = *(const needle_loose_##T *) (b + (V - 1) * LANES);                                   \
            _Pragma("GCC unroll 8") for (int r = 0; r < NEEDLE_ROWS; r++)                                                   \
            {                                                                                                               \
                needle_vector_##T x = at[r][l * a_col] - (needle_vector_##T) {0};                                           \
                sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                            \
                if (V == 2)                                                                                                 \
                    sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                       \
            }                                                                                                               \
        }                                                                                                                   \
        int whole = out_col == 1 && cols == V * LANES && !(add && skip);                                                    \
        _Pragma("GCC unroll 8") for (int r = 0; r < NEEDLE_ROWS; r++)                                                       \
        {                                                                                                                   \
            if (r < rows && whole) {                                                                                        \
                needle_loose_##T *to = (needle_loose_##T *) (out + r * out_row);                                            \
                for (int v = 0; v < V; v++) {                                                                               \
                    needle_vector_##T value = alpha * sum[r][v];                                                            \
                    to[v] = add ? value + (needle_vector_##T) to[v] : value;                                                \
                }                                                                                                           \
            } else if (r < rows) {                                                                                          \
                T row[2 * LANES];                                                                                           \
                memcpy(row, &sum[r][0], sizeof row / 2);                                                                    \
                memcpy(row + LANES, &sum[r][1], sizeof row / 2);                                                            \
                for (ptrdiff_t j = skip; j < cols; j++) {                                                                   \
                    T *to = out + r * out_row + j * out_col;                                                                \
                    *to = add ? *to + alpha * row[j] : alpha * row[j];                                                      \
                }                                                                                                           \
            }                                                                                                               \
        }                                                                                                                   \
    }                                                                                                                       \
    static void needle_product_##T(const T *a, ptrdiff_t a_row, ptrdiff_t a_col, const T *b, ptrdiff_t b_row, T *out,       \
                                   ptrdiff_t out_row, ptrdiff_t out_col, ptrdiff_t rows, ptrdiff_t skip, ptrdiff_t cols,    \
                                   ptrdiff_t k, T alpha, int add)                                                           \
    {                                                                                                                       \
        if (cols <= needle_lanes_##T)                                                                                       \
            needle_product_of_##T(1, a, a_row, a_col, b, b_row, out, out_row, out_col, rows, skip, cols, k, alpha, add);    \
        else                                                                                                                \
            needle_product_of_##T(2, a, a_row, a_col, b, b_row, out, out_row, out_col, rows, skip, cols, k, alpha, add);    \
    }

NEEDLE_PRODUCT(float)
NEEDLE_PRODUCT(double)

#endif
