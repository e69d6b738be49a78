/* A strip of a matrix product, as wide as two vectors or narrower:
 * out[i, j] = base[i, j] + alpha sum of a[i, l] b[l, j] for i < rows, l < k, skip <= j < cols. base: NULL, out, or another matrix.
 * Rows of b are readable to the whole width of the vectors. What is skipped has been written, with the same numbers. */
#ifndef NEEDLE_STRIP_H
#define NEEDLE_STRIP_H
#include <stddef.h>

typedef struct {
    const void *a, *b, *base;
    void *out;
    ptrdiff_t a_row, a_col, b_row, base_row, base_col, out_row, out_col, rows, k, skip, cols;
    double alpha;
} needle_strip;

#endif
