/* NEEDLE_SIDE elements of a row side by side, in however many vectors: sums have the same bits at every level. */
#ifndef NEEDLE_SIDES_H
#define NEEDLE_SIDES_H
#include "vectors.h"

enum { NEEDLE_SIDE = 16 };

#define NEEDLE_SIDES(T)                                                                                                     \
    enum { needle_parts_##T = NEEDLE_SIDE / needle_lanes_##T };                                                             \
    typedef struct {                                                                                                        \
        needle_vector_##T part[needle_parts_##T];                                                                           \
    } needle_side_##T;                                                                                                      \
                                                                                                                            \
    /* the next elements, and `fill` where the row has no more */                                                           \
    NEEDLE_INLINE needle_side_##T needle_load_##T(const T *x, ptrdiff_t left, T fill)                                       \
    {                                                                                                                       \
        needle_side_##T v;                                                                                                  \
        T line[NEEDLE_SIDE];                                                                                                \
        if (left >= NEEDLE_SIDE) {                                                                                          \
            for (int p = 0; p < needle_parts_##T; p++)                                                                      \
                v.part[p] = *(const needle_loose_##T *) (x + p * needle_lanes_##T);                                         \
            return v;                                                                                                       \
        }                                                                                                                   \
        for (int k = 0; k < NEEDLE_SIDE; k++)                                                                               \
            line[k] = k < left ? x[k] : fill;                                                                               \
        memcpy(&v, line, sizeof v);                                                                                         \
        return v;                                                                                                           \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE void needle_store_##T(needle_side_##T v, T *out, ptrdiff_t left)                                          \
    {                                                                                                                       \
        if (left >= NEEDLE_SIDE)                                                                                            \
            for (int p = 0; p < needle_parts_##T; p++)                                                                      \
                *(needle_loose_##T *) (out + p * needle_lanes_##T) = v.part[p];                                             \
        else                                                                                                                \
            memcpy(out, &v, left * sizeof(T));                                                                              \
    }                                                                                                                       \
                                                                                                                            \
    NEEDLE_INLINE double needle_fold_##T(const needle_side_##T *v)                                                          \
    {                                                                                                                       \
        T line[NEEDLE_SIDE];                                                                                                \
        memcpy(line, v, sizeof line);                                                                                       \
        for (int k = 0; k < 8; k++)                                                                                         \
            line[k] += line[8 + k];                                                                                         \
        for (int k = 0; k < 4; k++)                                                                                         \
            line[k] += line[4 + k];                                                                                         \
        return (line[0] + line[2]) + (line[1] + line[3]);                                                                   \
    }

NEEDLE_SIDES(float)
NEEDLE_SIDES(double)

#endif
