// float16 and bfloat16: words of 16 bits, widened to float and rounded from it to the nearest, ties to even. By shifts, without the
// headers of CUDA, which NVRTC would have to find. A NaN stays one, and becomes quiet.
#pragma once

DEVICE float widen_bfloat16(unsigned short word) {
    const u32 bits = (u32)word << 16;
    return __int_as_float((int)((bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits));
}

DEVICE unsigned short narrow_bfloat16(float value) {
    const u32 bits = (u32)__float_as_int(value);
    const u32 rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    return (unsigned short)((bits & 0x7fffffff) > 0x7f800000 ? bits >> 16 | 0x40 : rounded);
}

// The exponent moves from a bias of 15 to one of 127 by a product with 2^112, which makes subnormals right as well.
DEVICE float widen_float16(unsigned short word) {
    const u32 sign = (u32)(word & 0x8000) << 16, rest = word & 0x7fff;
    u32 bits = (u32)__float_as_int(__int_as_float((int)(rest << 13)) * __int_as_float(0x77800000));
    if (rest >= 0x7c00) bits = rest << 13 | 0x7f800000;
    if (rest > 0x7c00) bits |= 0x400000;
    return __int_as_float((int)(sign | bits));
}

DEVICE unsigned short narrow_float16(float value) {
    const u32 bits = (u32)__float_as_int(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
    u32 half = (rest - 0x38000000 + 0xfff + (rest >> 13 & 1)) >> 13;
    // below 2^-14 the sum with 1/2 has its last bit where a subnormal has: the processor rounds
    if (rest < 0x38800000) half = (u32)__float_as_int(__int_as_float((int)rest) + 0.5f) - 0x3f000000;
    if (rest >= 0x47800000) half = 0x7c00;
    if (rest > 0x7f800000) half = 0x7e00 | (rest >> 13 & 0x3ff);
    return (unsigned short)(sign | half);
}

// As float, and where that loses something the neighbour whose last bit is 1: rounded again, it is as if it was rounded once.
DEVICE float odd_float(double value) {
    const float near = (float)value;
    const double back = near;
    u32 bits = (u32)__float_as_int(near);
    if (back == value || value != value || value - value != 0) return near;
    if (value < 0 ? back < value : back > value) bits -= 1;
    return __int_as_float((int)(bits | 1));
}

DEVICE float odd_float(float value) {
    return value;
}

// Of an integer, whose lower bits count as one where it has more than a double holds.
DEVICE float odd_float(i64 value) {
    if (value >= 1LL << 40 || value <= -(1LL << 40)) value = (value & ~0xffffLL) | (value & 0xffff ? 0x10000 : 0);
    return odd_float((double)value);
}

DEVICE float odd_float(int value) {
    return odd_float((double)value);
}
