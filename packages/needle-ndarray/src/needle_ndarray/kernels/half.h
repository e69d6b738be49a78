/* float16 and bfloat16: words of 16 bits, widened to float32 and rounded from it to the nearest, ties to even. Loops of shifts and
 * selections, which compilers turn into vectors; a NaN stays one, and becomes quiet. */
#ifndef NEEDLE_HALF_H
#define NEEDLE_HALF_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#ifdef __F16C__
#include <immintrin.h>
#endif

static inline float needle_float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint32_t needle_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float needle_widen_bfloat16(uint16_t word)
{
    uint32_t bits = (uint32_t) word << 16;
    return needle_float_of((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits);
}

static inline uint16_t needle_narrow_bfloat16(float value)
{
    uint32_t bits = needle_bits_of(value);
    uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (uint16_t) ((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

/* The exponent moves from a bias of 15 to one of 127 by a product with 2^112, which makes subnormals right as well. */
static inline float needle_widen_float16(uint16_t word)
{
    uint32_t sign = (uint32_t) (word & 0x8000) << 16, rest = word & 0x7fff;
    uint32_t bits = needle_bits_of(needle_float_of(rest << 13) * needle_float_of(0x77800000));
    bits = rest >= 0x7c00 ? rest << 13 | 0x7f800000 : bits;
    bits = rest > 0x7c00 ? bits | 0x400000 : bits;
    return needle_float_of(sign | bits);
}

static inline uint16_t needle_narrow_float16(float value)
{
    uint32_t bits = needle_bits_of(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    uint32_t normal = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    /* below 2^-14 the sum with 1/2 has its last bit where a subnormal has: the processor rounds */
    uint32_t small = needle_bits_of(needle_float_of(rest) + 0.5f) - 0x3f000000;
    uint32_t half = rest < 0x38800000 ? small : rest >= 0x47800000 ? 0x7c00 : normal;
    half = rest > 0x7f800000 ? 0x7e00 | (rest >> 13 & 0x3ff) : half;
    return (uint16_t) (sign | half);
}

/* As float32, and where that loses something the neighbour whose last bit is 1: rounded again, it is as if it was rounded once. */
static inline float needle_odd_float(double value)
{
    float near = (float) value;
    double back = near;
    uint32_t bits = needle_bits_of(near);
    if (back == value || value != value || value - value != 0)
        return near;
    if (value < 0 ? back < value : back > value)
        bits -= 1;
    return needle_float_of(bits | 1);
}

/* The same of an integer, whose lower bits count as one where it has more than a double holds. */
static inline float needle_odd_float_of_int(long long value)
{
    if (value >= 1LL << 40 || value <= -(1LL << 40))
        value = (value & ~0xffffLL) | ((value & 0xffff) ? 0x10000 : 0);
    return needle_odd_float((double) value);
}

/* out[i] = a[i], of words to float32 and back; `brain` says which of the two formats */
static inline void needle_widen(int brain, const uint16_t *a, float *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    if (brain) {
        for (; i < n; i++)
            out[i] = needle_widen_bfloat16(a[i]);
        return;
    }
#ifdef __F16C__
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) (a + i))));
#endif
    for (; i < n; i++)
        out[i] = needle_widen_float16(a[i]);
}

static inline void needle_narrow(int brain, const float *a, uint16_t *out, ptrdiff_t n)
{
    ptrdiff_t i = 0;
    if (brain) {
        for (; i < n; i++)
            out[i] = needle_narrow_bfloat16(a[i]);
        return;
    }
    for (; i < n; i++)
        out[i] = needle_narrow_float16(a[i]);
}

static inline uint16_t needle_narrow_one(int brain, double value)
{
    return brain ? needle_narrow_bfloat16(needle_odd_float(value)) : needle_narrow_float16(needle_odd_float(value));
}

static inline double needle_widen_one(int brain, uint16_t word)
{
    return brain ? needle_widen_bfloat16(word) : needle_widen_float16(word);
}

#endif
