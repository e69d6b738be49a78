/* A lane block: NEEDLE_BLOCK elements of a row in however many vectors, so that sums have the same bits at every vector width. */
#ifndef NEEDLE_LANE_BLOCK_H
#define NEEDLE_LANE_BLOCK_H
#include "vectors.h"

#define NEEDLE_BLOCK 16
#define PARTS (NEEDLE_BLOCK / LANES)

#include "as_float.h"
#include "lane_block.h"
#include "as_double.h"
#include "lane_block.h"
#include "as_nothing.h"

#elif defined(T)

typedef struct {
    vec part[PARTS];
} lane_block;

/* the next elements, and `fill` where the row has no more */
NEEDLE_INLINE lane_block FN(load_block)(const T *x, ptrdiff_t left, T fill)
{
    lane_block v;
    T line[NEEDLE_BLOCK];
    if (left >= NEEDLE_BLOCK) {
        for (int p = 0; p < PARTS; p++)
            v.part[p] = FN(load)(x + p * LANES);
        return v;
    }
    for (int k = 0; k < NEEDLE_BLOCK; k++)
        line[k] = k < left ? x[k] : fill;
    memcpy(&v, line, sizeof v);
    return v;
}

NEEDLE_INLINE void FN(store_block)(lane_block v, T *out, ptrdiff_t left)
{
    if (left >= NEEDLE_BLOCK)
        for (int p = 0; p < PARTS; p++)
            FN(store)(v.part[p], out + p * LANES);
    else
        memcpy(out, &v, left * sizeof(T));
}

/* the sum of all lanes */
NEEDLE_INLINE double FN(sum_block)(const lane_block *v)
{
    T line[NEEDLE_BLOCK];
    memcpy(line, v, sizeof line);
    for (int k = 0; k < 8; k++)
        line[k] += line[8 + k];
    for (int k = 0; k < 4; k++)
        line[k] += line[4 + k];
    return (line[0] + line[2]) + (line[1] + line[3]);
}

#endif
