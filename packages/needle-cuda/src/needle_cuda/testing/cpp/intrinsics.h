// CUDA's built-in functions of one thread: arithmetic, bits, and the overloads of <math.h> that CUDA has.
#pragma once

template <class V> static inline V __ldg(const V* address) {
    return *address;
}

// ---- Bits ----------------------------------------------------------------------------------------------------------
template <class To, class From> static inline To needle_bits(From value) {
    static_assert(sizeof(To) == sizeof(From), "the same bits under another type");
    To out;
    std::memcpy(&out, &value, sizeof out);
    return out;
}
static inline unsigned __float_as_uint(float x) {
    return needle_bits<unsigned>(x);
}
static inline int __float_as_int(float x) {
    return needle_bits<int>(x);
}
static inline float __uint_as_float(unsigned x) {
    return needle_bits<float>(x);
}
static inline float __int_as_float(int x) {
    return needle_bits<float>(x);
}
static inline long long __double_as_longlong(double x) {
    return needle_bits<long long>(x);
}
static inline double __longlong_as_double(long long x) {
    return needle_bits<double>(x);
}

static inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
static inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
static inline int __clz(int x) {
    return x ? __builtin_clz(unsigned(x)) : 32;
}
static inline int __clzll(long long x) {
    return x ? __builtin_clzll((unsigned long long)x) : 64;
}
static inline int __ffs(int x) {
    return __builtin_ffs(x);
}
static inline int __ffsll(long long x) {
    return __builtin_ffsll(x);
}
static inline unsigned __umulhi(unsigned a, unsigned b) {
    return unsigned((uint64_t(a) * b) >> 32);
}
static inline int __mulhi(int a, int b) {
    return int((int64_t(a) * b) >> 32);
}
static inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    return (unsigned long long)(((unsigned __int128)a * b) >> 64);
}

// ---- Arithmetic without contraction, and the fast variants (here: the accurate ones) -----------------------------
static inline float __fadd_rn(float a, float b) {
    return a + b;
}
static inline float __fsub_rn(float a, float b) {
    return a - b;
}
static inline float __fmul_rn(float a, float b) {
    return a * b;
}
static inline float __fdiv_rn(float a, float b) {
    return a / b;
}
static inline float __fsqrt_rn(float a) {
    return sqrtf(a);
}
static inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
static inline double __dadd_rn(double a, double b) {
    return a + b;
}
static inline double __dsub_rn(double a, double b) {
    return a - b;
}
static inline double __dmul_rn(double a, double b) {
    return a * b;
}
static inline double __ddiv_rn(double a, double b) {
    return a / b;
}
static inline double __fma_rn(double a, double b, double c) {
    return fma(a, b, c);
}
static inline float __int2float_rn(int x) {
    return float(x);
}
static inline float __uint2float_rn(unsigned x) {
    return float(x);
}
static inline float __ll2float_rn(long long x) {
    return float(x);
}
static inline float __double2float_rn(double x) {
    return float(x);
}
static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
static inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}
static inline float rsqrt(float x) {
    return rsqrtf(x);
}
static inline float needle_expf(float x) {
    return expf(x);
}
static inline float needle_logf(float x) {
    return logf(x);
}
#define __expf(x) needle_expf(x)
#define __logf(x) needle_logf(x)
#define __fdividef(a, b) ((a) / (b))
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __powf(a, b) powf(a, b)
#define sinpif(x) sinf(3.14159265358979324f * (x))
#define cospif(x) cosf(3.14159265358979324f * (x))

// ---- min and max: CUDA's overloads -----------------------------------------------------------------------------------
#define NEEDLE_MIN_MAX(type)                 \
    static inline type min(type a, type b) { \
        return b < a ? b : a;                \
    }                                        \
    static inline type max(type a, type b) { \
        return a < b ? b : a;                \
    }
NEEDLE_MIN_MAX(int)
NEEDLE_MIN_MAX(unsigned)
NEEDLE_MIN_MAX(long)
NEEDLE_MIN_MAX(unsigned long)
NEEDLE_MIN_MAX(long long)
NEEDLE_MIN_MAX(unsigned long long)
#undef NEEDLE_MIN_MAX
static inline float min(float a, float b) {
    return fminf(a, b);
}
static inline float max(float a, float b) {
    return fmaxf(a, b);
}
static inline double min(double a, double b) {
    return fmin(a, b);
}
static inline double max(double a, double b) {
    return fmax(a, b);
}
