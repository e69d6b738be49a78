// Philox-4x32-10 (Salmon et al. 2011): a block of four 32-bit words is a function of a 64-bit seed and a counter. The normal
// distribution uses only + - * / sqrt on doubles, each rounded by itself (--fmad=false): the bits are those of the CPU.
// Bound by arithmetic: about 100 integer operations a block, and for normal numbers 60 of float64 a pair.

struct Words {
    u32 w[4];
};

DEVICE Words philox(u64 seed, u64 counter) {
    Words c = {{(u32)counter, (u32)(counter >> 32), 0, 0}};
    u32 k0 = (u32)seed, k1 = (u32)(seed >> 32);
#pragma unroll
    for (int round = 0; round < 10; round++) {
        const u64 p0 = (u64)0xD2511F53u * c.w[0], p1 = (u64)0xCD9E8D57u * c.w[2];
        c = {{(u32)(p1 >> 32) ^ c.w[1] ^ k0, (u32)p1, (u32)(p0 >> 32) ^ c.w[3] ^ k1, (u32)p0}};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// 53 random bits as a double in [0, 1)
DEVICE double unit(u32 high, u32 low) {
    return ((double)(high >> 5) * 67108864.0 + (double)(low >> 6)) / 9007199254740992.0;
}

// ln x for x in (0, 1]: x = m 2^e with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m - 1) / (m + 1)) by its series
DEVICE double log_unit(double x) {
    const i64 bits = __double_as_longlong(x);
    const i64 e = (bits - 0x3fe6a09e667f3bcdLL) >> 52;
    const double m = __longlong_as_double(bits - e * 0x0010000000000000LL);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    const double series =
        1.0 + z * (1.0 / 3 +
                   z * (1.0 / 5 +
                        z * (1.0 / 7 +
                             z * (1.0 / 9 + z * (1.0 / 11 + z * (1.0 / 13 + z * (1.0 / 15 + z * (1.0 / 17 + z * (1.0 / 19)))))))));
    return (double)e * 0.6931471805599453 + 2.0 * s * series;
}

// sin(pi/2 x) for x in [0, 1], by Taylor's series
DEVICE double sine_quarter(double x) {
    const double t = x * 1.5707963267948966, z = t * t;
    return t *
           (1.0 - z * (1.0 / 6) *
                      (1.0 - z * (1.0 / 20) *
                                 (1.0 - z * (1.0 / 42) *
                                            (1.0 - z * (1.0 / 72) *
                                                       (1.0 - z * (1.0 / 110) *
                                                                  (1.0 - z * (1.0 / 156) *
                                                                             (1.0 - z * (1.0 / 210) *
                                                                                        (1.0 - z * (1.0 / 272) *
                                                                                                   (1.0 - z * (1.0 / 342))))))))));
}

// Box and Muller: two normal numbers in place, from u in (0, 1] and v in [0, 1)
DEVICE void box_muller(double& u, double& v) {
    const double radius = sqrt(-2.0 * log_unit(u));
    double turn = v * 4.0;
    const int quarter = (int)turn;
    turn -= (double)quarter;
    const double sine = radius * sine_quarter(turn), cosine = radius * sine_quarter(1.0 - turn);
    u = quarter & 1 ? sine : cosine;            // quarter turns swap sine and cosine and change signs
    v = quarter & 1 ? cosine : sine;
    if (quarter == 1 || quarter == 2) u = -u;
    if (quarter >= 2) v = -v;
}

#ifdef T_FLOATING

const int NUMBERS = 16 / sizeof(T);             // of a block: float32 takes one word each, float64 two

DEVICE void store(const T* numbers, T* out, i64 block, i64 n) {
    for (int k = 0; k < NUMBERS; k++) {
        if (block * NUMBERS + k < n) out[block * NUMBERS + k] = numbers[k];
    }
}

KERNEL random_uniform(u64 seed, u64 counter, T* out, i64 n) {
    FOR_EACH(block, (n + NUMBERS - 1) / NUMBERS) {
        const Words c = philox(seed, counter + (u64)block);
        T numbers[NUMBERS];
#pragma unroll
        for (int k = 0; k < NUMBERS; k++) {
#ifdef T_FLOAT32
            numbers[k] = (float)(c.w[k] >> 8) * (1.0f / 16777216.0f);
#else
            numbers[k] = unit(c.w[2 * k], c.w[2 * k + 1]);
#endif
        }
        store(numbers, out, block, n);
    }
}

KERNEL random_normal(u64 seed, u64 counter, T* out, i64 n) {
    FOR_EACH(block, (n + NUMBERS - 1) / NUMBERS) {
        const Words c = philox(seed, counter + (u64)block);
        T numbers[NUMBERS];
#pragma unroll
        for (int k = 0; k < NUMBERS; k += 2) {
#ifdef T_FLOAT32
            double u = ((double)c.w[k] + 1.0) * (1.0 / 4294967296.0), v = (double)c.w[k + 1] * (1.0 / 4294967296.0);
#else
            double u = 1.0 - unit(c.w[0], c.w[1]), v = unit(c.w[2], c.w[3]);
#endif
            box_muller(u, v);
            numbers[k] = (T)u;
            numbers[k + 1] = (T)v;
        }
        store(numbers, out, block, n);
    }
}

#endif
