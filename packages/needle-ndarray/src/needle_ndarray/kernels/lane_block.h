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

/* how many elements of `left` a part has */
NEEDLE_INLINE ptrdiff_t FN(in_part)(int p, ptrdiff_t left)
{
    ptrdiff_t n = left - p * LANES;
    return n < 0 ? 0 : n < LANES ? n : LANES;
}

/* the next elements, and `fill` where the row has no more */
NEEDLE_INLINE lane_block FN(load_block)(const T *x, ptrdiff_t left, T fill)
{
    lane_block v;
    for (int p = 0; p < PARTS; p++)
        v.part[p] = left >= NEEDLE_BLOCK ? FN(load)(x + p * LANES) : FN(load_some)(x + p * LANES, FN(in_part)(p, left), fill);
    return v;
}

NEEDLE_INLINE void FN(store_block)(lane_block v, T *out, ptrdiff_t left)
{
    for (int p = 0; p < PARTS; p++)
        if (left >= NEEDLE_BLOCK)
            FN(store)(v.part[p], out + p * LANES);
        else
            FN(store_some)(v.part[p], out + p * LANES, FN(in_part)(p, left));
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
