/* Loops that compute float32 in double: for functions whose float32 polynomials would need almost as many terms. */
#ifndef NEEDLE_WIDE_H
#define NEEDLE_WIDE_H
#include "vectors.h"

typedef float needle_half __attribute__((vector_size(NEEDLE_VECTOR / 2)));
typedef float needle_half_unaligned __attribute__((vector_size(NEEDLE_VECTOR / 2), aligned(sizeof(float)), may_alias));

NEEDLE_INLINE needle_vec_double needle_load_wide(const float *x)
{
    return __builtin_convertvector(*(const needle_half_unaligned *) x, needle_vec_double);
}

NEEDLE_INLINE void needle_store_wide(needle_vec_double v, float *out)
{
    *(needle_half_unaligned *) out = __builtin_convertvector(v, needle_half);
}

#endif
