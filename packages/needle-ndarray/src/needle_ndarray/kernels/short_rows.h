/* Reductions of rows of 4 to 31 elements, four rows side by side: tiles of 4x4 elements are transposed in registers, so that a vector
 * has one element of each row. Every row is folded from its first element on, as one row alone would be. */
#ifndef NEEDLE_SHORT_ROWS_H
#define NEEDLE_SHORT_ROWS_H
#include "vectors.h"

enum { NEEDLE_FOLD_SUM, NEEDLE_FOLD_PROD, NEEDLE_FOLD_MAX, NEEDLE_FOLD_MIN, NEEDLE_FOLD_ANY, NEEDLE_FOLD_ALL };

/* what elements are added up in */
typedef double needle_total_float;
typedef double needle_total_double;
typedef long long needle_total_int;
typedef long long needle_total_int64;

#if defined(__clang__)
#define NEEDLE_SHUFFLE(order, a, b, i, j, k, l) __builtin_shufflevector(a, b, i, j, k, l)
#else
#define NEEDLE_SHUFFLE(order, a, b, i, j, k, l) __builtin_shuffle(a, b, (order) {i, j, k, l})
#endif

#include "as_float.h"
#include "short_rows.h"
#include "as_double.h"
#include "short_rows.h"
#include "as_nothing.h"
#define T int
#define INTEGER int
#define FN(name) needle_##name##_int
#include "short_rows.h"
#include "as_nothing.h"
#define T long long
#define INTEGER long long
#define FN(name) needle_##name##_int64
#include "short_rows.h"
#include "as_nothing.h"

#elif defined(T)

typedef T FN(four) __attribute__((vector_size(4 * sizeof(T))));
typedef INTEGER FN(which) __attribute__((vector_size(4 * sizeof(T))));
typedef FN(total) FN(totals) __attribute__((vector_size(4 * sizeof(FN(total)))));

typedef struct {                    /* of four rows */
    FN(totals) total;
    FN(four) extreme;
    FN(which) found;
} FN(folded);

/* one element more of each row; of equal extremes, and of NaNs, the last counts */
NEEDLE_INLINE void FN(fold_in)(const int op, FN(four) x, FN(folded) * so_far)
{
    FN(four) best = so_far->extreme;
    FN(which) take;
    if (op == NEEDLE_FOLD_SUM)
        so_far->total += __builtin_convertvector(x, FN(totals));
    else if (op == NEEDLE_FOLD_PROD)
        so_far->total *= __builtin_convertvector(x, FN(totals));
    else if (op == NEEDLE_FOLD_ANY || op == NEEDLE_FOLD_ALL)
        so_far->found |= op == NEEDLE_FOLD_ANY ? (FN(which))(x != 0) : (FN(which))(x == 0);
    else {
        take = (FN(which))(op == NEEDLE_FOLD_MAX ? x >= best : x <= best) | (FN(which))(x != x);
        so_far->extreme = (FN(four))((take & (FN(which)) x) | (~take & (FN(which)) best));
    }
}

NEEDLE_INLINE FN(four) FN(load_four)(const T *x)
{
    FN(four) v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* out[c] = a[0..3][c] */
NEEDLE_INLINE void FN(columns_of)(const T *a, ptrdiff_t stride, FN(four) * out)
{
    FN(four) r0 = FN(load_four)(a), r1 = FN(load_four)(a + stride);
    FN(four) r2 = FN(load_four)(a + 2 * stride), r3 = FN(load_four)(a + 3 * stride);
    FN(four) low = NEEDLE_SHUFFLE(FN(which), r0, r1, 0, 4, 1, 5), high = NEEDLE_SHUFFLE(FN(which), r0, r1, 2, 6, 3, 7);
    FN(four) low2 = NEEDLE_SHUFFLE(FN(which), r2, r3, 0, 4, 1, 5), high2 = NEEDLE_SHUFFLE(FN(which), r2, r3, 2, 6, 3, 7);
    out[0] = NEEDLE_SHUFFLE(FN(which), low, low2, 0, 1, 4, 5);
    out[1] = NEEDLE_SHUFFLE(FN(which), low, low2, 2, 3, 6, 7);
    out[2] = NEEDLE_SHUFFLE(FN(which), high, high2, 0, 1, 4, 5);
    out[3] = NEEDLE_SHUFFLE(FN(which), high, high2, 2, 3, 6, 7);
}

/* out = op over each of four rows of n >= 4 elements */
NEEDLE_INLINE void FN(fold_four)(const int op, const T *a, ptrdiff_t stride, ptrdiff_t n, FN(total) * out)
{
    FN(four) column[4];
    FN(folded) so_far = {{0}};
    FN(totals) total;
    ptrdiff_t j = 0;
    FN(columns_of)(a, stride, column);
    so_far.extreme = column[0];
    so_far.total += (FN(total))(op == NEEDLE_FOLD_PROD);
    for (; j + 4 <= n; j += 4) {
        FN(columns_of)(a + j, stride, column);
        for (int c = 0; c < 4; c++)
            FN(fold_in)(op, column[c], &so_far);
    }
    if (j < n) {                    /* the last four again, without those that are folded */
        FN(columns_of)(a + n - 4, stride, column);
        if (n - j > 2)
            FN(fold_in)(op, column[1], &so_far);
        if (n - j > 1)
            FN(fold_in)(op, column[2], &so_far);
        FN(fold_in)(op, column[3], &so_far);
    }
    if (op == NEEDLE_FOLD_SUM || op == NEEDLE_FOLD_PROD)
        total = so_far.total;
    else if (op == NEEDLE_FOLD_MAX || op == NEEDLE_FOLD_MIN)
        total = __builtin_convertvector(so_far.extreme, FN(totals));
    else
        total =
            __builtin_convertvector(op == NEEDLE_FOLD_ANY ? so_far.found & (INTEGER) 1 : so_far.found + (INTEGER) 1, FN(totals));
    memcpy(out, &total, sizeof total);
}

NEEDLE_INLINE void FN(fold_all)(const int op, const T *a, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t n, FN(total) * out)
{
    ptrdiff_t i = 0;
    for (; i + 4 <= rows; i += 4)
        FN(fold_four)(op, a + i * stride, stride, n, out + i);
    if (i < rows)                   /* some of them twice */
        FN(fold_four)(op, a + (rows - 4) * stride, stride, n, out + rows - 4);
}

/* out[i] = op over row i of n >= 4 elements, for 4 rows or more; `stride` elements from row to row */
static void FN(fold_short_rows)(int op, const T *a, ptrdiff_t stride, ptrdiff_t rows, ptrdiff_t n, FN(total) * out)
{
    switch (op) {
    case NEEDLE_FOLD_SUM: FN(fold_all)(NEEDLE_FOLD_SUM, a, stride, rows, n, out); break;
    case NEEDLE_FOLD_PROD: FN(fold_all)(NEEDLE_FOLD_PROD, a, stride, rows, n, out); break;
    case NEEDLE_FOLD_MAX: FN(fold_all)(NEEDLE_FOLD_MAX, a, stride, rows, n, out); break;
    case NEEDLE_FOLD_MIN: FN(fold_all)(NEEDLE_FOLD_MIN, a, stride, rows, n, out); break;
    case NEEDLE_FOLD_ANY: FN(fold_all)(NEEDLE_FOLD_ANY, a, stride, rows, n, out); break;
    default: FN(fold_all)(NEEDLE_FOLD_ALL, a, stride, rows, n, out);
    }
}

#endif
