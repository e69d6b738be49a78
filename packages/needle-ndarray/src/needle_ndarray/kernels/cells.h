/* Cells of recurrent layers, a row of each: everything that a few units need in one go, without a pass over memory for every gate.
 * `x` is what comes from the input, `y` from the state; gates and sums lie side by side, n units each. */
#ifndef NEEDLE_CELLS_H
#define NEEDLE_CELLS_H
#include "activations.h"

#define NEEDLE_CELLS(T)                                                                                                     \
    /* units from p on, as many as a vector holds or as are left; zeros after those */                                      \
    NEEDLE_INLINE needle_vector_##T needle_units_##T(const T *p, ptrdiff_t left)                                            \
    {                                                                                                                       \
        T line[needle_lanes_##T] = {0};                                                                                     \
        if (left >= needle_lanes_##T)                                                                                       \
            return *(const needle_loose_##T *) p;                                                                           \
        memcpy(line, p, left * sizeof(T));                                                                                  \
        return *(const needle_loose_##T *) line;                                                                            \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_keep_units_##T(needle_vector_##T v, T *p, ptrdiff_t left)                                     \
    {                                                                                                                       \
        if (left >= needle_lanes_##T)                                                                                       \
            *(needle_loose_##T *) p = v;                                                                                    \
        else                                                                                                                \
            memcpy(p, &v, left * sizeof(T));                                                                                \
    }                                                                                                                       \
                                                                                                                            \
    /* x + (y + bias) of the units at `at` */                                                                               \
    NEEDLE_INLINE needle_vector_##T needle_sum_##T(const T *x, const T *y, const T *bias, ptrdiff_t at, ptrdiff_t left)     \
    {                                                                                                                       \
        return needle_units_##T(x + at, left) + (needle_units_##T(y + at, left) + needle_units_##T(bias + at, left));       \
    }                                                                                                                       \
                                                                                                                            \
    /* gates = i, f, g, o */                                                                                                \
    NEEDLE_INLINE void needle_lstm_gates_##T(const T *x, const T *y, const T *bias, T *gates, ptrdiff_t n, ptrdiff_t j,     \
                                             ptrdiff_t left)                                                                \
    {                                                                                                                       \
        needle_vector_##T i = needle_sigmoid_of_##T(needle_sum_##T(x, y, bias, j, left));                                   \
        needle_vector_##T f = needle_sigmoid_of_##T(needle_sum_##T(x, y, bias, n + j, left));                               \
        needle_vector_##T g = needle_tanh_of_##T(needle_sum_##T(x, y, bias, 2 * n + j, left));                              \
        needle_vector_##T o = needle_sigmoid_of_##T(needle_sum_##T(x, y, bias, 3 * n + j, left));                           \
        needle_keep_units_##T(i, gates + j, left);                                                                          \
        needle_keep_units_##T(f, gates + n + j, left);                                                                      \
        needle_keep_units_##T(g, gates + 2 * n + j, left);                                                                  \
        needle_keep_units_##T(o, gates + 3 * n + j, left);                                                                  \
    }                                                                                                                       \
                                                                                                                            \
    /* c_out = f c + i g;  h_out = o tanh(c_out) */                                                                         \
    NEEDLE_INLINE void needle_lstm_states_##T(const T *c, T *h_out, T *c_out, const T *gates, ptrdiff_t n, ptrdiff_t j,     \
                                              ptrdiff_t left)                                                               \
    {                                                                                                                       \
        needle_vector_##T i = needle_units_##T(gates + j, left), f = needle_units_##T(gates + n + j, left);                 \
        needle_vector_##T g = needle_units_##T(gates + 2 * n + j, left), o = needle_units_##T(gates + 3 * n + j, left);     \
        needle_vector_##T next = f * needle_units_##T(c + j, left) + i * g;                                                 \
        needle_keep_units_##T(next, c_out + j, left);                                                                       \
        needle_keep_units_##T(o * needle_tanh_of_##T(next), h_out + j, left);                                               \
    }                                                                                                                       \
                                                                                                                            \
    /* t = tanh(c_out), d = dy + dh, e = dc + d o (1 - t^2): ds of the four gates, dc_out = e f */                          \
    NEEDLE_INLINE void needle_lstm_grad_units_##T(const T *dy, const T *dh, const T *dc, const T *gates, const T *c,        \
                                                  const T *c_out, T *ds, T *dc_out, ptrdiff_t n, ptrdiff_t j,               \
                                                  ptrdiff_t left)                                                           \
    {                                                                                                                       \
        needle_vector_##T i = needle_units_##T(gates + j, left), f = needle_units_##T(gates + n + j, left);                 \
        needle_vector_##T g = needle_units_##T(gates + 2 * n + j, left), o = needle_units_##T(gates + 3 * n + j, left);     \
        needle_vector_##T t = needle_tanh_of_##T(needle_units_##T(c_out + j, left));                                        \
        needle_vector_##T d = needle_units_##T(dy + j, left) + needle_units_##T(dh + j, left);                              \
        needle_vector_##T e = needle_units_##T(dc + j, left) + d * o * (1 - t * t);                                         \
        needle_keep_units_##T(e * g * i * (1 - i), ds + j, left);                                                           \
        needle_keep_units_##T(e * needle_units_##T(c + j, left) * f * (1 - f), ds + n + j, left);                           \
        needle_keep_units_##T(e * i * (1 - g * g), ds + 2 * n + j, left);                                                   \
        needle_keep_units_##T(d * t * o * (1 - o), ds + 3 * n + j, left);                                                   \
        needle_keep_units_##T(e * f, dc_out + j, left);                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    /* gates = r, z, new, m with m = y + bias of the last third;  h_out = new + z (h - new) */                              \
    NEEDLE_INLINE void needle_gru_units_##T(const T *x, const T *y, const T *bias, const T *h, T *h_out, T *gates,          \
                                            ptrdiff_t n, ptrdiff_t j, ptrdiff_t left)                                       \
    {                                                                                                                       \
        needle_vector_##T r = needle_sigmoid_of_##T(needle_sum_##T(x, y, bias, j, left));                                   \
        needle_vector_##T z = needle_sigmoid_of_##T(needle_sum_##T(x, y, bias, n + j, left));                               \
        needle_vector_##T m = needle_units_##T(y + 2 * n + j, left) + needle_units_##T(bias + 2 * n + j, left);             \
        needle_vector_##T new = needle_tanh_of_##T(needle_units_##T(x + 2 * n + j, left) + r * m);                          \
        needle_keep_units_##T(r, gates + j, left);                                                                          \
        needle_keep_units_##T(z, gates + n + j, left);                                                                      \
        needle_keep_units_##T(new, gates + 2 * n + j, left);                                                                \
        needle_keep_units_##T(m, gates + 3 * n + j, left);                                                                  \
        needle_keep_units_##T(new + z * (needle_units_##T(h + j, left) - new), h_out + j, left);                            \
    }                                                                                                                       \
                                                                                                                            \
    /* d = dy + dh: dx and ds of the three gates, dh_out = d z */                                                           \
    NEEDLE_INLINE void needle_gru_grad_units_##T(const T *dy, const T *dh, const T *h, const T *gates, T *dx, T *ds,        \
                                                 T *dh_out, ptrdiff_t n, ptrdiff_t j, ptrdiff_t left)                       \
    {                                                                                                                       \
        needle_vector_##T r = needle_units_##T(gates + j, left), z = needle_units_##T(gates + n + j, left);                 \
        needle_vector_##T new = needle_units_##T(gates + 2 * n + j, left), m = needle_units_##T(gates + 3 * n + j, left);   \
        needle_vector_##T d = needle_units_##T(dy + j, left) + needle_units_##T(dh + j, left);                              \
        needle_vector_##T dnew = d * (1 - z) * (1 - new * new);                                                             \
        needle_vector_##T dz = d * (needle_units_##T(h + j, left) - new) * z * (1 - z), dr = dnew * m * r * (1 - r);        \
        needle_keep_units_##T(dr, dx + j, left);                                                                            \
        needle_keep_units_##T(dz, dx + n + j, left);                                                                        \
        needle_keep_units_##T(dnew, dx + 2 * n + j, left);                                                                  \
        needle_keep_units_##T(dr, ds + j, left);                                                                            \
        needle_keep_units_##T(dz, ds + n + j, left);                                                                        \
        needle_keep_units_##T(dnew * r, ds + 2 * n + j, left);                                                              \
        needle_keep_units_##T(d * z, dh_out + j, left);                                                                     \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_lstm_##T(const T *x, const T *y, const T *bias, const T *c, T *h_out, T *c_out, T *gates,            \
                                ptrdiff_t n)                                                                                \
    {                                                                                                                       \
        NEEDLE_EACH_UNIT(T, needle_lstm_gates_##T, x, y, bias, gates)                                                       \
        NEEDLE_EACH_UNIT(T, needle_lstm_states_##T, c, h_out, c_out, gates)                                                 \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_lstm_grad_##T(const T *dy, const T *dh, const T *dc, const T *gates, const T *c, const T *c_out,     \
                                     T *ds, T *dc_out, ptrdiff_t n)                                                         \
    {                                                                                                                       \
        NEEDLE_EACH_UNIT(T, needle_lstm_grad_units_##T, dy, dh, dc, gates, c, c_out, ds, dc_out)                            \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_gru_##T(const T *x, const T *y, const T *bias, const T *h, T *h_out, T *gates, ptrdiff_t n)          \
    {                                                                                                                       \
        NEEDLE_EACH_UNIT(T, needle_gru_units_##T, x, y, bias, h, h_out, gates)                                              \
    }                                                                                                                       \
                                                                                                                            \
    static void needle_gru_grad_##T(const T *dy, const T *dh, const T *h, const T *gates, T *dx, T *ds, T *dh_out,          \
                                    ptrdiff_t n)                                                                            \
    {                                                                                                                       \
        NEEDLE_EACH_UNIT(T, needle_gru_grad_units_##T, dy, dh, h, gates, dx, ds, dh_out)                                    \
    }

/* whole vectors of units, and what is left of one: a unit's bits do not depend on its place */
#define NEEDLE_EACH_UNIT(T, units, ...)                                                                                     \
    for (ptrdiff_t j = 0; j + needle_lanes_##T <= n; j += needle_lanes_##T)                                                 \
        units(__VA_ARGS__, n, j, needle_lanes_##T);                                                                         \
    if (n % needle_lanes_##T)                                                                                               \
        units(__VA_ARGS__, n, n - n % needle_lanes_##T, n % needle_lanes_##T);

NEEDLE_CELLS(float)
NEEDLE_CELLS(double)

#endif
