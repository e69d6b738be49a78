// CUDA C++ for g++: what the text of a kernel file may use, in terms of the emulator's runtime.
// The text itself is preprocessed before it meets this file, so its macros cannot disturb a header.
#pragma once
#include <math.h>

#include <cstring>
#include <type_traits>
#include <utility>

#include "runtime.h"

// ---- Words of the language; __global__ and __shared__ are rewritten in the text ------------------------------
#define __device__
#define __host__
#define __constant__ static
#define __noinline__ __attribute__((noinline))
#define __forceinline__ inline __attribute__((always_inline))
#define __align__(n) __attribute__((aligned(n)))
#define NEEDLE_UNCHECKED __attribute__((no_sanitize("thread")))

#define threadIdx (emulator::emulator_here.thread)
#define blockIdx (emulator::emulator_here.block)
#define blockDim (emulator::emulator_here.block_size)
#define gridDim (emulator::emulator_here.grid_size)
static constexpr int warpSize = emulator::WARP;

// ---- Vector types ------------------------------------------------------------------------------------------------
#define NEEDLE_VECTOR(type, name, bytes)                                   \
    struct alignas(2 * bytes) name##2 {                                    \
        type x, y;                                                         \
    };                                                                     \
    struct name##3 {                                                       \
        type x, y, z;                                                      \
    };                                                                     \
    struct alignas(4 * bytes > 16 ? 16 : 4 * bytes) name##4 {              \
        type x, y, z, w;                                                   \
    };                                                                     \
    static inline name##2 make_##name##2(type x, type y) {                 \
        return {x, y};                                                     \
    }                                                                      \
    static inline name##3 make_##name##3(type x, type y, type z) {         \
        return {x, y, z};                                                  \
    }                                                                      \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { \
        return {x, y, z, w};                                               \
    }
NEEDLE_VECTOR(float, float, 4)
NEEDLE_VECTOR(double, double, 8)
NEEDLE_VECTOR(int, int, 4)
NEEDLE_VECTOR(unsigned, uint, 4)
NEEDLE_VECTOR(unsigned char, uchar, 1)
NEEDLE_VECTOR(long long, longlong, 8)
NEEDLE_VECTOR(unsigned long long, ulonglong, 8)
#undef NEEDLE_VECTOR

// ---- Barriers and warps ------------------------------------------------------------------------------------------
#define __syncthreads() emulator::emulator_barrier(__LINE__)
#define __syncwarp       \
    emulator::SyncWarp { \
        __LINE__         \
    }
#define __shfl_sync(mask, value, ...) emulator::shuffle_from(__LINE__, mask, value, __VA_ARGS__)
#define __shfl_up_sync(mask, value, ...) emulator::shuffle_up(__LINE__, mask, value, __VA_ARGS__)
#define __shfl_down_sync(mask, value, ...) emulator::shuffle_down(__LINE__, mask, value, __VA_ARGS__)
#define __shfl_xor_sync(mask, value, ...) emulator::shuffle_xor(__LINE__, mask, value, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emulator::ballot(__LINE__, mask, predicate)
#define __any_sync(mask, predicate) (emulator::ballot(__LINE__, mask, predicate) != 0)
#define __all_sync(mask, predicate) (emulator::ballot(__LINE__, mask, !(predicate)) == 0)

namespace emulator {
struct SyncWarp {
    int line;
    void operator()(unsigned mask = ~0u) const { emulator_collective(SYNC, mask, 0, 0, line); }
};

inline unsigned ballot(int line, unsigned mask, int predicate) {
    return unsigned(emulator_collective(BALLOT, mask, predicate != 0, 0, line));
}

template <class V> NEEDLE_UNCHECKED V shuffle(int line, unsigned mask, V value, int source) {
    static_assert(sizeof(V) <= 8 && std::is_arithmetic<V>::value, "a shuffle moves a number of at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    bits = emulator_collective(SHUFFLE, mask, bits, source, line);
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
template <class V> V shuffle_from(int line, unsigned mask, V value, int lane, int width = WARP) {
    int first = int(emulator_lane()) & ~(width - 1);
    return shuffle(line, mask, value, first + (lane & (width - 1)));
}
template <class V> V shuffle_up(int line, unsigned mask, V value, unsigned distance, int width = WARP) {
    int lane = emulator_lane(), first = lane & ~(width - 1), from = lane - int(distance);
    return shuffle(line, mask, value, from < first ? lane : from);
}
template <class V> V shuffle_down(int line, unsigned mask, V value, unsigned distance, int width = WARP) {
    int lane = emulator_lane(), end = (lane & ~(width - 1)) + width, from = lane + int(distance);
    return shuffle(line, mask, value, from >= end ? lane : from);
}
template <class V> V shuffle_xor(int line, unsigned mask, V value, int bits, int width = WARP) {
    int lane = emulator_lane(), end = (lane & ~(width - 1)) + width, from = lane ^ bits;
    return shuffle(line, mask, value, from >= end ? lane : from);
}

// ---- Launching: a row of the table of kernels ----------------------------------------------------------------------
template <class A>
constexpr int kind_of = std::is_pointer<A>::value          ? POINTER
                        : std::is_floating_point<A>::value ? FLOATING
                        : std::is_integral<A>::value       ? INTEGER
                                                           : STRUCT;
template <class... A> struct Signature {
    static constexpr Parameter parameters[sizeof...(A) + 1] = {{int(sizeof(A)), kind_of<A>}..., {0, 0}};

    static constexpr size_t offset(size_t index) {
        size_t at = 0;
        for (size_t i = 0; i < index; i++) at += slot_size(parameters[i].size);
        return at;
    }
    template <size_t... I>
    NEEDLE_UNCHECKED static void unpack(void (*function)(A...), const char* arguments, std::index_sequence<I...>) {
        function(*reinterpret_cast<const A*>(arguments + offset(I))...);
    }
    NEEDLE_UNCHECKED static void call(void (*function)(), const char* arguments) {
        unpack(reinterpret_cast<void (*)(A...)>(function), arguments, std::index_sequence_for<A...>{});
    }
};
template <class... A> constexpr Parameter Signature<A...>::parameters[];

template <class... A>
Kernel kernel(const char* name, void (*function)(A...), const char* parameter_names, int max_threads, int checked) {
    using S = Signature<std::decay_t<A>...>;
    return {name,   reinterpret_cast<void (*)()>(function), &S::call, S::parameters, sizeof...(A), parameter_names, max_threads,
            checked};
}
}  // namespace emulator

// ---- Atomics: threads run one at a time, so plain arithmetic is atomic ---------------------------------------------
#define NEEDLE_ATOMIC(name, statement)                                                                               \
    template <class V> NEEDLE_UNCHECKED static inline V name(V* address, typename std::common_type<V>::type value) { \
        emulator::emulator_atomic(address, sizeof(V));                                                               \
        V old = *address;                                                                                            \
        statement;                                                                                                   \
        return old;                                                                                                  \
    }
NEEDLE_ATOMIC(atomicAdd, *address = V(old + value))
NEEDLE_ATOMIC(atomicSub, *address = V(old - value))
NEEDLE_ATOMIC(atomicMax, if (value > old) * address = value)
NEEDLE_ATOMIC(atomicMin, if (value < old) * address = value)
NEEDLE_ATOMIC(atomicAnd, *address = old & value)
NEEDLE_ATOMIC(atomicOr, *address = old | value)
NEEDLE_ATOMIC(atomicXor, *address = old ^ value)
NEEDLE_ATOMIC(atomicExch, *address = value)
#undef NEEDLE_ATOMIC
template <class V>
NEEDLE_UNCHECKED static inline V atomicCAS(V* address, typename std::common_type<V>::type expected,
                                           typename std::common_type<V>::type value) {
    emulator::emulator_atomic(address, sizeof(V));
    V old = *address;
    if (old == expected) *address = value;
    return old;
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}

#include "intrinsics.h"
