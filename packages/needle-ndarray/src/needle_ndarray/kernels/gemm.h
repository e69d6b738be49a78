/* The micro-kernel of matrix products, and the packing of its right operand.
 *
 * A micro-panel is a group of columns of the result, two vectors wide or narrower; the micro-kernel computes a few rows of it with
 * all sums in registers. A sum's bits depend on its row of a, its column of b and k alone: not on the micro-panel, nor on how many
 * rows there are. */
#ifndef NEEDLE_GEMM_H
#define NEEDLE_GEMM_H
#include "vectors.h"

typedef struct {
    void *data;
    ptrdiff_t row, col; /* elements from row to row, from column to column */
} needle_matrix;

/* out (m, n) = base + alpha a (m, k) @ b (k, n); base is NULL, out, or another matrix */
typedef struct {
    needle_matrix a, b, base, out;
    ptrdiff_t m, k, n;
    double alpha;
} needle_gemm;

#define WIDE (2 * LANES)        /* columns of a micro-panel */

#include "as_float.h"
#include "gemm.h"
#include "as_double.h"
#include "gemm.h"
#include "as_nothing.h"

#elif defined(T)

/* R rows of sums to `out` one by one: columns that are not whole vectors, or do not lie side by side */
static __attribute__((noinline)) void FN(store_edge)(const needle_gemm *g, ptrdiff_t row, int R, ptrdiff_t skip, const T *sum)
{
    for (int r = 0; r < R; r++)
        for (ptrdiff_t j = skip; j < g->n; j++) {
            T value = (T) g->alpha * sum[r * WIDE + j];
            if (g->base.data)
                value += ((const T *) g->base.data)[(row + r) * g->base.row + j * g->base.col];
            ((T *) g->out.data)[(row + r) * g->out.row + j * g->out.col] = value;
        }
}

/* R rows from `row` on; V vectors hold the columns, which are `whole` if they fill the vectors and lie side by side */
NEEDLE_INLINE void FN(micro_kernel)(const int R, const int V, const needle_gemm *g, ptrdiff_t row, ptrdiff_t skip, int whole,
                                    const T *a, ptrdiff_t a_row, ptrdiff_t a_col, const T *b, ptrdiff_t b_row, const T *base,
                                    T *out)
{
    vec sum[NEEDLE_ROWS][2] = {{{0}}};
    ptrdiff_t k = g->k, base_row = g->base.row, out_row = g->out.row;
    T alpha = (T) g->alpha;
    for (ptrdiff_t l = 0; l < k; l++, b += b_row) {
        vec first = FN(load)(b), second = FN(load)(b + (V - 1) * LANES);
        NEEDLE_UNROLL(8)
        for (int r = 0; r < R; r++) {
            vec x = a[r * a_row + l * a_col] - (vec) {0};
            sum[r][0] = FN(fma)(x, first, sum[r][0]);
            if (V == 2)
                sum[r][1] = FN(fma)(x, second, sum[r][1]);
        }
    }
    if (!whole) {
        T edge[NEEDLE_ROWS][WIDE];
        NEEDLE_UNROLL(8)
        for (int r = 0; r < R; r++)
            for (int v = 0; v < V; v++)
                FN(store)(sum[r][v], edge[r] + v * LANES);
        FN(store_edge)(g, row, R, skip, edge[0]);
        return;
    }
    NEEDLE_UNROLL(8)
    for (int r = 0; r < R; r++)
        for (int v = 0; v < V; v++) {
            vec value = alpha * sum[r][v];
            if (base)
                value += FN(load)(base + r * base_row + v * LANES);
            FN(store)(value, out + r * out_row + v * LANES);
        }
}

/* All rows, in tiles of nearly equal height: 5 + 5 rows take less time than 6 + 4. Strides that are constants are arguments. */
NEEDLE_INLINE void FN(rows)(const int V, const needle_gemm *g, ptrdiff_t skip, ptrdiff_t a_row, ptrdiff_t a_col, ptrdiff_t b_row)
{
    const T *a = g->a.data, *b = g->b.data, *base = g->base.data;
    T *out = g->out.data;
    ptrdiff_t base_row = base ? g->base.row : 0;
    int added_twice = skip && base == out;
    int whole = g->out.col == 1 && g->n == V * LANES && (!base || (g->base.col == 1 && !added_twice));
    unsigned rows = (unsigned) g->m, tiles = (rows + NEEDLE_ROWS - 1) / NEEDLE_ROWS, low = tiles ? rows / tiles : 0;
    unsigned high = rows - tiles * low, i = 0;
    for (unsigned t = 0, R; t < tiles; t++, i += R, a += R * a_row, base += R * base_row, out += R * g->out.row)
        switch (R = low + (t < high)) {
        case 1: FN(micro_kernel)(1, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 2: FN(micro_kernel)(2, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 3: FN(micro_kernel)(3, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 4: FN(micro_kernel)(4, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 5: FN(micro_kernel)(5, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 6: FN(micro_kernel)(6, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
#if NEEDLE_ROWS == 8
        case 7: FN(micro_kernel)(7, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
        case 8: FN(micro_kernel)(8, V, g, i, skip, whole, a, a_row, a_col, b, b_row, base, out); break;
#endif
        }
}

/* A micro-panel: g with at most WIDE columns, whose rows of b are readable to the whole width of the vectors. The first `skip`
 * columns have been written, with the same numbers. */
static void FN(micro_panel)(const needle_gemm *g, ptrdiff_t skip)
{
    if (g->n <= LANES)
        FN(rows)(1, g, skip, g->a.row, g->a.col, g->b.row);
    else if (g->b.row == WIDE && g->a.col == 1)
        FN(rows)(2, g, skip, g->a.row, 1, WIDE);
    else if (g->b.row == WIDE && g->a.row == 1)
        FN(rows)(2, g, skip, 1, g->a.col, WIDE);
    else
        FN(rows)(2, g, skip, g->a.row, g->a.col, g->b.row);
}

/* sum[v] += a[0] b[0][v] + ... in R steps, for vectors v of columns from `from` on; the last one ends with the last column */
NEEDLE_INLINE void FN(add_rows)(const int R, const needle_gemm *g, ptrdiff_t from, ptrdiff_t vectors, ptrdiff_t l, T *sum)
{
    const T *a = (const T *) g->a.data + l * g->a.col, *b = (const T *) g->b.data + l * g->b.row;
    vec x[8];
    NEEDLE_UNROLL(8)
    for (int r = 0; r < R; r++)
        x[r] = a[r * g->a.col] - (vec) {0};
    for (ptrdiff_t v = 0; v < vectors; v++) {
        ptrdiff_t j = from + v * LANES <= g->n - LANES ? from + v * LANES : g->n - LANES;
        vec s = FN(load)(sum + v * LANES);
        NEEDLE_UNROLL(8)
        for (int r = 0; r < R; r++)
            s = FN(fma)(x[r], FN(load)(b + r * g->b.row + j), s);
        FN(store)(s, sum + v * LANES);
    }
}

/* A product of one row, of a vector or more columns that lie side by side in all operands: b is read in order, eight rows at a
 * time, and the sums, whose bits are the micro-kernel's, stay in the first cache. */
static void FN(one_row)(const needle_gemm *g)
{
    enum { MOST = 1024 };
    const T *base = g->base.data;
    T sum[MOST], alpha = (T) g->alpha, *out = g->out.data;
    for (ptrdiff_t from = 0; from < g->n; from += MOST) {
        ptrdiff_t columns = g->n - from < MOST ? g->n - from : MOST, vectors = (columns + LANES - 1) / LANES, l = 0;
        ptrdiff_t whole = columns / LANES * LANES, back = vectors * LANES - columns; /* columns that the last vector has twice */
        memset(sum, 0, vectors * LANES * sizeof(T));
        for (; l + 8 <= g->k; l += 8)
            FN(add_rows)(8, g, from, vectors, l, sum);
        for (; l < g->k; l++)
            FN(add_rows)(1, g, from, vectors, l, sum);
        for (ptrdiff_t j = 0; j < columns; j++) {
            T value = alpha * sum[j < whole ? j : j + back];
            out[from + j] = base ? value + base[from + j] : value;
        }
    }
}

/* out = the halves of x interleaved: x[0], x[n / 2], x[1], x[n / 2 + 1] ... element by element */
NEEDLE_INLINE void FN(interleave)(const vec *x, vec *out)
{
    for (int i = 0; i < LANES / 2; i++)
        FN(zip)(x[i], x[i + LANES / 2], &out[2 * i], &out[2 * i + 1]);
}

/* out[l * wide + j] = b[j * b_col + l], as many of both as a vector holds: each round interleaves the halves */
NEEDLE_INLINE void FN(transpose)(const T *b, ptrdiff_t b_col, T *out, ptrdiff_t wide)
{
    vec x[LANES], y[LANES];
    for (int j = 0; j < LANES; j++)
        x[j] = FN(load)(b + j * b_col);
    for (int n = LANES; n > 1; n /= 2) {
        FN(interleave)(x, y);
        memcpy(x, y, sizeof x);
    }
    for (int l = 0; l < LANES; l++)
        FN(store)(x[l], out + l * wide);
}

/* A micro-panel of b (k, cols) in rows of one or two vectors, 0 beyond the last column */
static void FN(pack)(const T *b, ptrdiff_t b_row, ptrdiff_t b_col, ptrdiff_t k, ptrdiff_t cols, T *packed)
{
    ptrdiff_t wide = cols <= LANES ? LANES : WIDE, l = 0;
    if (b_col == 1 && cols == wide)
        for (; l < k; l++)
            for (int v = 0; v < wide; v += LANES)
                FN(store)(FN(load)(b + l * b_row + v), packed + l * wide + v);
    else if (b_row == 1 && cols == wide)
        for (; l + LANES <= k; l += LANES)
            for (int v = 0; v < wide; v += LANES)
                FN(transpose)(b + l + v * b_col, b_col, packed + l * wide + v, wide);
    for (; l < k; l++)
        for (ptrdiff_t j = 0; j < wide; j++)
            packed[l * wide + j] = j < cols ? b[l * b_row + j * b_col] : 0;
}

#endif
