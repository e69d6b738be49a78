// Filling and copying, between any two layouts and dtypes. Bound by memory.

KERNEL fill_one(T* out, T value) {
    if (THREAD == 0) *out = value;
}

KERNEL fill(T* out, T value, i64 n) {
    const i64 fours = aligned(out) ? n / 4 : 0;
    FOR_EACH(i, fours) {
        Four<T> x;
#pragma unroll
        for (int k = 0; k < 4; k++) x.v[k] = value;
        ((Four<T>*)out)[i] = x;
    }
    for (i64 i = 4 * fours + THREAD; i < n; i += THREADS) out[i] = value;
}

KERNEL fill_strided(T* out, T value, const Joint joint, i64 n) {
    FOR_EACH(i, n) out[places<1>(joint, i).at[0]] = value;
}

#if defined(S_FLOAT32)      // S is the dtype copied from
typedef float S;
#elif defined(S_FLOAT64)
typedef double S;
#elif defined(S_INT32)
typedef int S;
#elif defined(S_INT64)
typedef i64 S;
#elif defined(S_UINT8)
typedef unsigned char S;
#elif defined(S_BOOL)
typedef bool S;
#elif defined(S_FLOAT16) || defined(S_BFLOAT16)
typedef unsigned short S;
#else
#define NO_S
#endif

#ifndef NO_S

#include "half.cuh"

// As NumPy's astype: anything but 0 is True, integers wrap, floats lose their fraction. A float beyond an integer's range, and NaN,
// becomes its smallest one, as on x86. To uint8 they go by way of int.
template <class E>
DEVICE T from_float(E a) {
#if defined(T_INT32)
    return a > E(-2147483649.0) && a < E(2147483648.0) ? (T)a : (T)0x80000000u;
#elif defined(T_UINT8)
    return a > E(-2147483649.0) && a < E(2147483648.0) ? (T)(int)a : (T)0;
#elif defined(T_INT64)
    return a >= E(-9223372036854775808.0) && a < E(9223372036854775808.0) ? (T)a : (T)0x8000000000000000ull;
#elif defined(T_BOOL)
    return a != E(0);
#elif defined(T_FLOAT16)
    return narrow_float16(odd_float(a));
#elif defined(T_BFLOAT16)
    return narrow_bfloat16(odd_float(a));
#else
    return (T)a;
#endif
}

DEVICE T cast(S a) {
#if (defined(S_FLOAT16) && defined(T_FLOAT16)) || (defined(S_BFLOAT16) && defined(T_BFLOAT16))
    return a;
#elif defined(S_FLOAT16)
    return from_float(widen_float16(a));
#elif defined(S_BFLOAT16)
    return from_float(widen_bfloat16(a));
#elif defined(S_FLOAT32) || defined(S_FLOAT64)
    return from_float(a);
#elif defined(T_FLOAT16) && (defined(S_INT32) || defined(S_INT64))
    return narrow_float16(odd_float(a));
#elif defined(T_FLOAT16)
    return narrow_float16((float)a);
#elif defined(T_BFLOAT16) && (defined(S_INT32) || defined(S_INT64))
    return narrow_bfloat16(odd_float(a));
#elif defined(T_BFLOAT16)
    return narrow_bfloat16((float)a);
#elif defined(T_BOOL)
    return a != S(0);
#else
    return (T)a;
#endif
}

KERNEL copy(const S* a, i64 step, S value, T* out, i64 n) {
    const S one = step ? S(0) : a == 0 ? value : *a;
    const i64 fours = aligned(out) && (step == 0 || aligned(a)) ? n / 4 : 0;
    FOR_EACH(i, fours) {
        Four<S> x;
        Four<T> y;
        if (step) x = ((const Four<S>*)a)[i];
#pragma unroll
        for (int k = 0; k < 4; k++) y.v[k] = cast(step ? x.v[k] : one);
        ((Four<T>*)out)[i] = y;
    }
    for (i64 i = 4 * fours + THREAD; i < n; i += THREADS) out[i] = cast(step ? a[i] : one);
}

KERNEL copy_strided(const S* a, T* out, const Joint joint, i64 n) {
    FOR_EACH(i, n) {
        const Places<2> at = places<2>(joint, i);
        out[at.at[0]] = cast(a[at.at[1]]);
    }
}

// Matrices of `rows` x `columns` whose columns are contiguous in `a` and whose rows are in `out`: through a tile in shared memory, so
// that both sides are read and written 32 neighbours at a time. Blocks of (32, 8) threads.
KERNEL transpose(const S* a, T* out, i64 rows, i64 columns, i64 out_row, i64 a_column, i64 count, const Joint others) {
    const int TILE = 32, LINES = 8;
    __shared__ S tile[TILE][TILE + 1];      // one more, so that a column's elements are in different banks
    const i64 down = (rows + TILE - 1) / TILE, across = (columns + TILE - 1) / TILE;
    for (i64 t = blockIdx.x; t < count * down * across; t += gridDim.x) {
        const i64 j = t % across, i = t / across % down;
        const Places<2> at = places<2>(others, t / (across * down));
        const i64 row0 = i * TILE, column0 = j * TILE;
        for (int line = threadIdx.y; line < TILE; line += LINES) {
            const i64 row = row0 + threadIdx.x, column = column0 + line;
            if (row < rows && column < columns) tile[line][threadIdx.x] = a[at.at[1] + row + column * a_column];
        }
        __syncthreads();
        for (int line = threadIdx.y; line < TILE; line += LINES) {
            const i64 row = row0 + line, column = column0 + threadIdx.x;
            if (row < rows && column < columns) out[at.at[0] + row * out_row + column] = cast(tile[threadIdx.x][line]);
        }
        __syncthreads();
    }
}

#endif
