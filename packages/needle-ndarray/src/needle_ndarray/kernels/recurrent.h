/* Rows of a product with a matrix that was packed once: R rows times two vectors of columns, the sums in registers. */
#ifndef NEEDLE_RECURRENT_H
#define NEEDLE_RECURRENT_H
#include "vectors.h"

/* out[r, :width] = sum over k of a[r, k] b[k, :], for rows `row` and `out_row` apart; a sum's bits do not depend on R */
#define NEEDLE_PRODUCT(T)                                                                                                   \
    static inline __attribute__((always_inline)) void needle_product_of_##T(                                                \
        const int R, const T *a, ptrdiff_t row, ptrdiff_t k, const T *b, T *out, ptrdiff_t out_row, ptrdiff_t width)        \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T sum[NEEDLE_ROWS][2] = {{{0}}};                                                                    \
        for (ptrdiff_t j = 0; j < k; j++, b += 2 * LANES) {                                                                 \
            needle_vector_##T first = *(const needle_loose_##T *) b;                                                        \
            needle_vector_##T second = *(const needle_loose_##T *) (b + LANES);                                             \
            _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)                                                             \
            {                                                                                                               \
                needle_vector_##T x = a[r * row + j] - (needle_vector_##T) {0};                                             \
                sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                            \
                sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                           \
            }                                                                                                               \
        }                                                                                                                   \
        _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)                                                                 \
        {                                                                                                                   \
            T *to = out + r * out_row;                                                                                      \
            if (width == 2 * LANES) {                                                                                       \
                *(needle_loose_##T *) to = sum[r][0];                                                                       \
                *(needle_loose_##T *) (to + LANES) = sum[r][1];                                                             \
            } else {                                                                                                        \
                T line[2 * LANES];                                                                                          \
                memcpy(line, &sum[r][0], sizeof line / 2);                                                                  \
                memcpy(line + LANES, &sum[r][1], sizeof line / 2);                                                          \
                memcpy(to, line, width * sizeof(T));                                                                        \
            }                                                                                                               \
        }                                                                                                                   \
    }                                                                                                                       \
    static void needle_product_##T(int rows, const T *a, ptrdiff_t row, ptrdiff_t k, const T *b, T *out, ptrdiff_t out_row, \
                                   ptrdiff_t width)                                                                         \
    {                                                                                                                       \
        switch (rows) {                                                                                                     \
        case 1: needle_product_of_##T(1, a, row, k, b, out, out_row, width); break;                                         \
        case 2: needle_product_of_##T(2, a, row, k, b, out, out_row, width); break;                                         \
        case 3: needle_product_of_##T(3, a, row, k, b, out, out_row, width); break;                                         \
        case 4: needle_product_of_##T(4, a, row, k, b, out, out_row, width); break;                                         \
        case 5: needle_product_of_##T(5, a, row, k, b, out, out_row, width); break;                                         \
        case 6: needle_product_of_##T(6, a, row, k, b, out, out_row, width); break;                                         \
        NEEDLE_MORE_ROWS(T)                                                                                                 \
        }                                                                                                                   \
    }

#if NEEDLE_ROWS == 8
#define NEEDLE_MORE_ROWS(T)                                                                                                 \
        case 7: needle_product_of_##T(7, a, row, k, b, out, out_row, width); break;                                         \
        case 8: needle_product_of_##T(8, a, row, k, b, out, out_row, width); break;
#else
#define NEEDLE_MORE_ROWS(T)
#endif

NEEDLE_PRODUCT(float)
NEEDLE_PRODUCT(double)

#endif
