/* Cells of recurrent layers, a row of each: everything that a few units need in one go, without a pass over memory for every gate.
 * `x` is what comes from the input, `y` from the state; gates and preactivations lie side by side, n units each. */
#ifndef NEEDLE_CELLS_H
#define NEEDLE_CELLS_H
#include "activations.h"

#include "as_float.h"
#include "cells.h"
#include "as_double.h"
#include "cells.h"
#include "as_nothing.h"

#elif defined(T)

/* x + (y + bias) of the units at `at` */
NEEDLE_INLINE vec FN(preactivation)(const T *x, const T *y, const T *bias, ptrdiff_t at, ptrdiff_t left)
{
    return FN(load_some)(x + at, left) + (FN(load_some)(y + at, left) + FN(load_some)(bias + at, left));
}

/* gates = i, f, g, o */
NEEDLE_INLINE void FN(lstm_gates)(const T *x, const T *y, const T *bias, T *gates, ptrdiff_t n, ptrdiff_t j, ptrdiff_t left)
{
    vec i = FN(sigmoid_of)(FN(preactivation)(x, y, bias, j, left));
    vec f = FN(sigmoid_of)(FN(preactivation)(x, y, bias, n + j, left));
    vec g = FN(tanh_of)(FN(preactivation)(x, y, bias, 2 * n + j, left));
    vec o = FN(sigmoid_of)(FN(preactivation)(x, y, bias, 3 * n + j, left));
    FN(store_some)(i, gates + j, left);
    FN(store_some)(f, gates + n + j, left);
    FN(store_some)(g, gates + 2 * n + j, left);
    FN(store_some)(o, gates + 3 * n + j, left);
}

/* c_out = f c + i g;  h_out = o tanh(c_out) */
NEEDLE_INLINE void FN(lstm_states)(const T *c, T *h_out, T *c_out, const T *gates, ptrdiff_t n, ptrdiff_t j, ptrdiff_t left)
{
    vec i = FN(load_some)(gates + j, left), f = FN(load_some)(gates + n + j, left);
    vec g = FN(load_some)(gates + 2 * n + j, left), o = FN(load_some)(gates + 3 * n + j, left);
    vec next = f * FN(load_some)(c + j, left) + i * g;
    FN(store_some)(next, c_out + j, left);
    FN(store_some)(o * FN(tanh_of)(next), h_out + j, left);
}

/* t = tanh(c_out), d = dy + dh, e = dc + d o (1 - t^2): ds of the four gates, dc_out = e f */
NEEDLE_INLINE void FN(lstm_grad_units)(const T *dy, const T *dh, const T *dc, const T *gates, const T *c, const T *c_out, T *ds,
                                       T *dc_out, ptrdiff_t n, ptrdiff_t j, ptrdiff_t left)
{
    vec i = FN(load_some)(gates + j, left), f = FN(load_some)(gates + n + j, left);
    vec g = FN(load_some)(gates + 2 * n + j, left), o = FN(load_some)(gates + 3 * n + j, left);
    vec t = FN(tanh_of)(FN(load_some)(c_out + j, left));
    vec d = FN(load_some)(dy + j, left) + FN(load_some)(dh + j, left);
    vec e = FN(load_some)(dc + j, left) + d * o * (1 - t * t);
    FN(store_some)(e * g * i * (1 - i), ds + j, left);
    FN(store_some)(e * FN(load_some)(c + j, left) * f * (1 - f), ds + n + j, left);
    FN(store_some)(e * i * (1 - g * g), ds + 2 * n + j, left);
    FN(store_some)(d * t * o * (1 - o), ds + 3 * n + j, left);
    FN(store_some)(e * f, dc_out + j, left);
}

/* gates = r, z, new, m with m = y + bias of the last third;  h_out = new + z (h - new) */
NEEDLE_INLINE void FN(gru_units)(const T *x, const T *y, const T *bias, const T *h, T *h_out, T *gates, ptrdiff_t n, ptrdiff_t j,
                                 ptrdiff_t left)
{
    vec r = FN(sigmoid_of)(FN(preactivation)(x, y, bias, j, left));
    vec z = FN(sigmoid_of)(FN(preactivation)(x, y, bias, n + j, left));
    vec m = FN(load_some)(y + 2 * n + j, left) + FN(load_some)(bias + 2 * n + j, left);
    vec new = FN(tanh_of)(FN(load_some)(x + 2 * n + j, left) + r * m);
    FN(store_some)(r, gates + j, left);
    FN(store_some)(z, gates + n + j, left);
    FN(store_some)(new, gates + 2 * n + j, left);
    FN(store_some)(m, gates + 3 * n + j, left);
    FN(store_some)(new + z *(FN(load_some)(h + j, left) - new), h_out + j, left);
}

/* d = dy + dh: dx and ds of the three gates, dh_out = d z */
NEEDLE_INLINE void FN(gru_grad_units)(const T *dy, const T *dh, const T *h, const T *gates, T *dx, T *ds, T *dh_out, ptrdiff_t n,
                                      ptrdiff_t j, ptrdiff_t left)
{
    vec r = FN(load_some)(gates + j, left), z = FN(load_some)(gates + n + j, left);
    vec new = FN(load_some)(gates + 2 * n + j, left), m = FN(load_some)(gates + 3 * n + j, left);
    vec d = FN(load_some)(dy + j, left) + FN(load_some)(dh + j, left);
    vec dnew = d * (1 - z) * (1 - new *new);
    vec dz = d * (FN(load_some)(h + j, left) - new) * z * (1 - z), dr = dnew * m * r * (1 - r);
    FN(store_some)(dr, dx + j, left);
    FN(store_some)(dz, dx + n + j, left);
    FN(store_some)(dnew, dx + 2 * n + j, left);
    FN(store_some)(dr, ds + j, left);
    FN(store_some)(dz, ds + n + j, left);
    FN(store_some)(dnew * r, ds + 2 * n + j, left);
    FN(store_some)(d * z, dh_out + j, left);
}

static void FN(lstm)(const T *x, const T *y, const T *bias, const T *c, T *h_out, T *c_out, T *gates, ptrdiff_t n)
{
    ptrdiff_t j;
    for (j = 0; j + LANES <= n; j += LANES)
        FN(lstm_gates)(x, y, bias, gates, n, j, LANES);
    if (j < n)
        FN(lstm_gates)(x, y, bias, gates, n, j, n - j);
    for (j = 0; j + LANES <= n; j += LANES)
        FN(lstm_states)(c, h_out, c_out, gates, n, j, LANES);
    if (j < n)
        FN(lstm_states)(c, h_out, c_out, gates, n, j, n - j);
}

static void FN(lstm_grad)(const T *dy, const T *dh, const T *dc, const T *gates, const T *c, const T *c_out, T *ds, T *dc_out,
                          ptrdiff_t n)
{
    ptrdiff_t j;
    for (j = 0; j + LANES <= n; j += LANES)
        FN(lstm_grad_units)(dy, dh, dc, gates, c, c_out, ds, dc_out, n, j, LANES);
    if (j < n)
        FN(lstm_grad_units)(dy, dh, dc, gates, c, c_out, ds, dc_out, n, j, n - j);
}

static void FN(gru)(const T *x, const T *y, const T *bias, const T *h, T *h_out, T *gates, ptrdiff_t n)
{
    ptrdiff_t j;
    for (j = 0; j + LANES <= n; j += LANES)
        FN(gru_units)(x, y, bias, h, h_out, gates, n, j, LANES);
    if (j < n)
        FN(gru_units)(x, y, bias, h, h_out, gates, n, j, n - j);
}

static void FN(gru_grad)(const T *dy, const T *dh, const T *h, const T *gates, T *dx, T *ds, T *dh_out, ptrdiff_t n)
{
    ptrdiff_t j;
    for (j = 0; j + LANES <= n; j += LANES)
        FN(gru_grad_units)(dy, dh, h, gates, dx, ds, dh_out, n, j, LANES);
    if (j < n)
        FN(gru_grad_units)(dy, dh, h, gates, dx, ds, dh_out, n, j, n - j);
}

#endif
