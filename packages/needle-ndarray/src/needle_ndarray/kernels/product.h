/* Matrix products by strips of the result: two vectors of columns wide, NEEDLE_ROWS rows at a time, the sums in registers.
 *
 * A sum's bits depend on its row of a, its column of b and k alone: not on the strip, nor on how many rows there are. */
#ifndef NEEDLE_PRODUCT_H
#define NEEDLE_PRODUCT_H
#include "strip.h"
#include "vectors.h"

#define NEEDLE_EACH_ROW _Pragma("GCC unroll 8") for (int r = 0; r < R; r++)
#define NEEDLE_CASE(T, R)                                                                                                   \
    case R: needle_tile_##T(R, V, s, i, whole, a, a_row, a_col, b, b_row, k, base, base_row, out, out_row, alpha); break;
#define NEEDLE_SIX(T)                                                                                                       \
    NEEDLE_CASE(T, 1) NEEDLE_CASE(T, 2) NEEDLE_CASE(T, 3) NEEDLE_CASE(T, 4) NEEDLE_CASE(T, 5) NEEDLE_CASE(T, 6)
#if NEEDLE_ROWS == 8
#define NEEDLE_TILES(T) NEEDLE_SIX(T) NEEDLE_CASE(T, 7) NEEDLE_CASE(T, 8)
#else
#define NEEDLE_TILES(T) NEEDLE_SIX(T)
#endif
enum { needle_wide_float = 2 * needle_lanes_float, needle_wide_double = 2 * needle_lanes_double };

#define NEEDLE_PRODUCT(T)                                                                                                   \
    /* the sums of R rows from row i on, one by one: columns that are not a whole vector, or lie apart */                   \
    static __attribute__((noinline)) void needle_edge_##T(const needle_strip *s, ptrdiff_t i, int R, const T *sum)          \
    {                                                                                                                       \
        for (int r = 0; r < R; r++)                                                                                         \
            for (ptrdiff_t j = s->skip; j < s->cols; j++) {                                                                 \
                T value = (T) s->alpha * sum[r * needle_wide_##T + j];                                                      \
                if (s->base)                                                                                                \
                    value += ((const T *) s->base)[(i + r) * s->base_row + j * s->base_col];                                \
                ((T *) s->out)[(i + r) * s->out_row + j * s->out_col] = value;                                              \
            }                                                                                                               \
    }                                                                                                                       \
                                                                                                                            \
    /* R rows from row i on; V: how many vectors hold the columns, which are `whole` if they lie as vectors do */           \
    NEEDLE_INLINE void needle_tile_##T(const int R, const int V, const needle_strip *s, ptrdiff_t i, int whole, const T *a, \
                                       ptrdiff_t a_row, ptrdiff_t a_col, const T *b, ptrdiff_t b_row, ptrdiff_t k,          \
                                       const T *base, ptrdiff_t base_row, T *out, ptrdiff_t out_row, T alpha)               \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T sum[NEEDLE_ROWS][2] = {{{0}}};                                                                    \
        for (ptrdiff_t l = 0; l < k; l++, b += b_row) {                                                                     \
            needle_vector_##T first = *(const needle_loose_##T *) b;                                                        \
            needle_vector_##T second = *(const needle_loose_##T *) (b + (V - 1) * LANES);                                   \
            NEEDLE_EACH_ROW {                                                                                               \
                needle_vector_##T x = a[r * a_row + l * a_col] - (needle_vector_##T) {0};                                   \
                sum[r][0] = needle_fma_##T(x, first, sum[r][0]);                                                            \
                if (V == 2)                                                                                                 \
                    sum[r][1] = needle_fma_##T(x, second, sum[r][1]);                                                       \
            }                                                                                                               \
        }                                                                                                                   \
        if (!whole) {                                                                                                       \
            T edge[NEEDLE_ROWS][2 * LANES];                                                                                 \
            NEEDLE_EACH_ROW for (int v = 0; v < V; v++)                                                                     \
                *(needle_loose_##T *) (edge[r] + v * LANES) = sum[r][v];                                                    \
            needle_edge_##T(s, i, R, edge[0]);                                                                              \
            return;                                                                                                         \
        }                                                                                                                   \
        NEEDLE_EACH_ROW for (int v = 0; v < V; v++) {                                                                       \
            needle_vector_##T value = alpha * sum[r][v];                                                                    \
            if (base)                                                                                                       \
                value += *(const needle_loose_##T *) (base + r * base_row + v * LANES);                                     \
            *(needle_loose_##T *) (out + r * out_row + v * LANES) = value;                                                  \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    /* all rows, in tiles of nearly equal height: 5 + 5 rows take less time than 6 + 4; compilers may know the strides */   \
    NEEDLE_INLINE void needle_rows_##T(const int V, const needle_strip *s, ptrdiff_t a_row, ptrdiff_t a_col,                \
                                       ptrdiff_t b_row)                                                                     \
    {                                                                                                                       \
        const T *a = s->a, *b = s->b, *base = s->base, alpha = (T) s->alpha;                                                \
        T *out = s->out;                                                                                                    \
        ptrdiff_t k = s->k, base_row = base ? s->base_row : 0, out_row = s->out_row;                                        \
        int again = s->skip && base == out; /* would be added twice */                                                      \
        int whole = s->out_col == 1 && s->cols == V * needle_lanes_##T && (!base || (s->base_col == 1 && !again));          \
        unsigned rows = (unsigned) s->rows, tiles = (rows + NEEDLE_ROWS - 1) / NEEDLE_ROWS, low = tiles ? rows / tiles : 0; \
        unsigned high = rows - tiles * low, i = 0;                                                                          \
        for (unsigned t = 0, R; t < tiles; t++, i += R, a += R * a_row, base += R * base_row, out += R * out_row)           \
            switch (R = low + (t < high)) {                                                                                 \
            NEEDLE_TILES(T)                                                                                                 \
            }                                                                                                               \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_strip_##T(const needle_strip *s)                                                                     \
    {                                                                                                                       \
        enum { WIDE = needle_wide_##T };                                                                                    \
        if (s->cols <= needle_lanes_##T)                                                                                    \
            needle_rows_##T(1, s, s->a_row, s->a_col, s->b_row);                                                            \
        else if (s->b_row == WIDE && s->a_col == 1)                                                                         \
            needle_rows_##T(2, s, s->a_row, 1, WIDE);                                                                       \
        else if (s->b_row == WIDE && s->a_row == 1)                                                                         \
            needle_rows_##T(2, s, 1, s->a_col, WIDE);                                                                       \
        else                                                                                                                \
            needle_rows_##T(2, s, s->a_row, s->a_col, s->b_row);                                                            \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_interleave_##T(const needle_vector_##T *x, needle_vector_##T *out)                            \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_mask_##T low, high;                                                                                          \
        for (int i = 0; i < LANES; i++)                                                                                     \
            low[i] = i / 2 + i % 2 * LANES, high[i] = low[i] + LANES / 2;                                                   \
        for (int i = 0; i < LANES / 2; i++) {                                                                               \
            out[2 * i] = __builtin_shuffle(x[i], x[i + LANES / 2], low);                                                    \
            out[2 * i + 1] = __builtin_shuffle(x[i], x[i + LANES / 2], high);                                               \
        }                                                                                                                   \
    }                                                                                                                       \
                                                                                                                            \
    /* out[l * wide + j] = b[j * b_col + l], as many of both as a vector holds: each round interleaves the halves */        \
    NEEDLE_INLINE void needle_transposed_##T(const T *b, ptrdiff_t b_col, T *out, ptrdiff_t wide)                           \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        needle_vector_##T x[LANES], y[LANES];                                                                               \
        for (int j = 0; j < LANES; j++)                                                                                     \
            x[j] = *(const needle_loose_##T *) (b + j * b_col);                                                             \
        for (int n = LANES; n > 1; n /= 2) {                                                                                \
            needle_interleave_##T(x, y);                                                                                    \
            memcpy(x, y, sizeof x);                                                                                         \
        }                                                                                                                   \
        for (int l = 0; l < LANES; l++)                                                                                     \
            *(needle_loose_##T *) (out + l * wide) = x[l];                                                                  \
    }                                                                                                                       \
                                                                                                                            \
    /* a strip of b (k, cols) in rows of one or two vectors, 0 beyond the last column */                                    \
    static void needle_pack_##T(const T *b, ptrdiff_t b_row, ptrdiff_t b_col, ptrdiff_t k, ptrdiff_t cols, T *packed)       \
    {                                                                                                                       \
        enum { LANES = needle_lanes_##T };                                                                                  \
        ptrdiff_t wide = cols <= LANES ? LANES : 2 * LANES, l = 0;                                                          \
        if (b_col == 1 && cols == wide)                                                                                     \
            for (; l < k; l++)                                                                                              \
                for (int v = 0; v < wide; v += LANES)                                                                       \
                    *(needle_loose_##T *) (packed + l * wide + v) = *(const needle_loose_##T *) (b + l * b_row + v);        \
        else if (b_row == 1 && cols == wide)                                                                                \
            for (; l + LANES <= k; l += LANES)                                                                              \
                for (int v = 0; v < wide; v += LANES)                                                                       \
                    needle_transposed_##T(b + l + v * b_col, b_col, packed + l * wide + v, wide);                           \
        for (; l < k; l++)                                                                                                  \
            for (ptrdiff_t j = 0; j < wide; j++)                                                                            \
                packed[l * wide + j] = j < cols ? b[l * b_row + j * b_col] : 0;                                             \
    }

NEEDLE_PRODUCT(float)
NEEDLE_PRODUCT(double)

#endif
