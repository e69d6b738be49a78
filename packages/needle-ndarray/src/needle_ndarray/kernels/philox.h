/* Philox-4x32-10 (Salmon et al. 2011): a block of four 32-bit words is a function of a 64-bit seed and a counter. Blocks go side by
 * side, a word of each in 64 bits of a vector: a product of 32 bits then has room, and its upper half is a shift away. */
#ifndef NEEDLE_PHILOX_H
#define NEEDLE_PHILOX_H
#include <stdint.h>
#include "vectors.h"

enum { NEEDLE_BLOCKS = NEEDLE_VECTOR / 8 }; /* side by side */
typedef uint64_t needle_words __attribute__((vector_size(NEEDLE_VECTOR)));
typedef uint32_t needle_halves __attribute__((vector_size(NEEDLE_VECTOR / 2), aligned(4), may_alias));

/* the product of the lower 32 bits, whatever the upper ones are */
#if defined(__AVX512F__)
#define needle_multiply(a, b) ((needle_words) _mm512_mul_epu32((__m512i) (a), (__m512i) (b)))
#elif defined(__AVX2__)
#define needle_multiply(a, b) ((needle_words) _mm256_mul_epu32((__m256i) (a), (__m256i) (b)))
#elif defined(__SSE2__)
#include <emmintrin.h>
#define needle_multiply(a, b) ((needle_words) _mm_mul_epu32((__m128i) (a), (__m128i) (b)))
#else
#define needle_multiply(a, b) (((a) & 0xffffffffu) * ((b) & 0xffffffffu))
#endif

/* n blocks, whole vectors of them, from the counter on; w0 .. w3 are their first to fourth words */
static void needle_philox(uint64_t seed, uint64_t counter, int n, uint32_t *w0, uint32_t *w1, uint32_t *w2, uint32_t *w3)
{
    needle_words zero = {0}, place = {0}, left = zero + 0xD2511F53u, right = zero + 0xCD9E8D57u;
    for (int k = 0; k < NEEDLE_BLOCKS; k++)
        place[k] = k;
    for (int i = 0; i < n; i += NEEDLE_BLOCKS) {
        needle_words c0 = place + (counter + i), c1 = c0 >> 32, c2 = zero, c3 = zero;
        uint32_t k0 = (uint32_t) seed, k1 = (uint32_t) (seed >> 32);
        NEEDLE_UNROLL(10)
        for (int r = 0; r < 10; r++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u) {
            needle_words p0 = needle_multiply(c0, left), p1 = needle_multiply(c2, right);
            c0 = (p1 >> 32) ^ c1 ^ k0;
            c1 = p1;
            c2 = (p0 >> 32) ^ c3 ^ k1;
            c3 = p0;
        }
        *(needle_halves *) (w0 + i) = __builtin_convertvector(c0, needle_halves);
        *(needle_halves *) (w1 + i) = __builtin_convertvector(c1, needle_halves);
        *(needle_halves *) (w2 + i) = __builtin_convertvector(c2, needle_halves);
        *(needle_halves *) (w3 + i) = __builtin_convertvector(c3, needle_halves);
    }
}

#endif
