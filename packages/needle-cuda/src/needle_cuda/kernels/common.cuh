// What every kernel file starts from. A module is this text and one .cu file, compiled for one dtype:
//   -DT_FLOAT32      (or T_FLOAT64, T_INT32, T_INT64, T_UINT8, T_BOOL, and where elements are only moved T_FLOAT16, T_BFLOAT16)
// which T then is, so kernels carry no dtype in their names. No headers: NVRTC brings the functions of CUDA, nothing else.
#pragma once

typedef long long i64;
typedef unsigned long long u64;
typedef unsigned int u32;

#if defined(T_FLOAT32)
typedef float T;
#elif defined(T_FLOAT64)
typedef double T;
#elif defined(T_INT32)
typedef int T;
#elif defined(T_INT64)
typedef i64 T;
#elif defined(T_UINT8)
typedef unsigned char T;
#elif defined(T_FLOAT16) || defined(T_BFLOAT16)
typedef unsigned short T;       // the word; half.cuh says what it means
#else
typedef bool T;
#endif

#if defined(T_FLOAT32) || defined(T_FLOAT64)
#define T_FLOATING 1
#else
#define T_INTEGER 1     // and bool
#endif

#ifdef T_FLOATING         // what T is added up in
typedef double Wide;
#else
typedef i64 Wide;
#endif

#define DEVICE static __device__ __forceinline__
#define KERNEL extern "C" __global__ void
#define JOINED(a, b) a##b
#define JOIN(a, b) JOINED(a, b)     // of what the macros stand for

// ---- Loops -------------------------------------------------------------------------------------------------------------

#define THREAD ((i64)blockIdx.x * blockDim.x + threadIdx.x)
#define THREADS ((i64)gridDim.x * blockDim.x)
// Each i in [0, n), whatever the size of the grid: neighbouring threads take neighbouring i.
#define FOR_EACH(i, n) for (i64 i = THREAD, i##_step = THREADS; i < (n); i += i##_step)

// ---- Layouts (views.py) ------------------------------------------------------------------------------------------------

const int MAX_DIMS = 32;
const int MAX_OPERANDS = 4;

struct View {
    i64 shape[MAX_DIMS], strides[MAX_DIMS], ndim;
};

struct Joint {
    i64 shape[MAX_DIMS], strides[MAX_OPERANDS][MAX_DIMS], ndim;
};

template <int N>
struct Places {
    i64 at[N];
};

// Where element i (row-major) lies, in elements from the first one.
DEVICE i64 place(const View& view, i64 i) {
    i64 at = 0;
#pragma unroll 1                         // unrolled it is the larger part of many kernels
    for (int axis = (int)view.ndim - 1; axis > 0; axis--) {
        const i64 n = view.shape[axis];
        i64 rest = i;
        if (i <= 0xffffffffLL && n <= 0xffffffffLL) {   // a 64-bit division costs several 32-bit ones
            i = (u32)i / (u32)n;
        } else {
            i = i / n;
        }
        at += (rest - i * n) * view.strides[axis];
    }
    return view.ndim ? at + i * view.strides[0] : at;
}

// The same for N operands at once.
template <int N>
DEVICE Places<N> places(const Joint& joint, i64 i) {
    Places<N> out;
#pragma unroll
    for (int k = 0; k < N; k++) out.at[k] = 0;
#pragma unroll 1
    for (int axis = (int)joint.ndim - 1; axis >= 0; axis--) {
        i64 rest = i;
        if (axis > 0) {
            const i64 n = joint.shape[axis];
            if (i <= 0xffffffffLL && n <= 0xffffffffLL) {
                i = (u32)i / (u32)n;
            } else {
                i = i / n;
            }
            rest -= i * n;
        }
#pragma unroll
        for (int k = 0; k < N; k++) out.at[k] += rest * joint.strides[k][axis];
    }
    return out;
}

// ---- Vectors: four elements in one load ----------------------------------------------------------------------------------

template <class E>
struct alignas(4 * sizeof(E)) Four {
    E v[4];
};

template <class E>
DEVICE bool aligned(const E* p) {
    return (u64)p % sizeof(Four<E>) == 0;
}

// ---- Numbers -----------------------------------------------------------------------------------------------------------

#if defined(T_FLOATING)
DEVICE T infinity() {
    return (T)__int_as_float(0x7f800000);
}
#endif

// The kinds of a value: NaN is not itself, an infinity minus itself is not 0.
template <class E>
DEVICE bool is_nan(E a) {
    return a != a;
}

template <class E>
DEVICE E larger(E a, E b) {             // NaN if either is
    return a >= b || is_nan(a) ? a : b;
}

template <class E>
DEVICE E smaller(E a, E b) {
    return a <= b || is_nan(a) ? a : b;
}

// Integers wrap around, which C++ promises for unsigned ones only; for bool, + is or, * is and.
#if defined(T_INT32) || defined(T_UINT8)
typedef u32 Unsigned;
#elif defined(T_INT64)
typedef u64 Unsigned;
#else
typedef T Unsigned;
#endif

DEVICE T wrap_add(T a, T b) {
    return (T)((Unsigned)a + (Unsigned)b);
}

DEVICE T wrap_subtract(T a, T b) {
    return (T)((Unsigned)a - (Unsigned)b);
}

DEVICE T wrap_multiply(T a, T b) {
    return (T)((Unsigned)a * (Unsigned)b);
}

#define FULL_WARP 0xffffffffu
#define WARP 32

// Over the lanes of a warp, all of which take part; every lane gets the result, in the same order of additions each time.
template <class E>
DEVICE E warp_sum(E a) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) a += __shfl_xor_sync(FULL_WARP, a, d);
    return a;
}

template <class E>
DEVICE E warp_max(E a) {
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) a = larger(a, __shfl_xor_sync(FULL_WARP, a, d));
    return a;
}

// Over a block of whole warps (at most 1024 threads); every thread gets the result. `scratch` is shared, of 32 elements.
template <class E>
DEVICE E block_sum(E a, E* scratch) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    a = warp_sum(a);
    __syncthreads();                    // somebody may still read what the last call left
    if (lane == 0) scratch[warp] = a;
    __syncthreads();
    a = scratch[0];
    for (int w = 1; w < warps; w++) a += scratch[w];
    return a;
}

template <class E>
DEVICE E block_max(E a, E* scratch) {
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP, warps = blockDim.x / WARP;
    a = warp_max(a);
    __syncthreads();
    if (lane == 0) scratch[warp] = a;
    __syncthreads();
    a = scratch[0];
    for (int w = 1; w < warps; w++) a = larger(a, scratch[w]);
    return a;
}
