// Kernels with one mistake each, and the same without it: test_emulation.py says how each is found out.
// "here" marks the lines that the messages name.
// All take 64 floats and are meant to be launched with blocks of 64 threads.
// clang-format off: kernels that differ in one word stand side by side
#define KERNEL(name) extern "C" __global__ void name(const float* a, float* out, long long n)
#define I threadIdx.x
#define ALL 0xffffffffu

// ---- Barriers ---------------------------------------------------------------------------------------------------------
KERNEL(reversed) {
    __shared__ float tile[64];
    tile[I] = a[I];
    __syncthreads();
    out[I] = tile[63 - I];
}
KERNEL(missing_barrier) {
    __shared__ float tile[64];
    tile[I] = a[I];
    out[I] = tile[63 - I];    // here
}
KERNEL(passed_on) {    // each value moves 63 places on, one at a time
    __shared__ float tile[64];
    float value = a[I];
    for (int i = 0; i < 63; i++) {
        tile[I] = value;
        __syncthreads();
        value = tile[(I + 1) % 64];
        __syncthreads();
    }
    out[I] = value;
}
KERNEL(missing_second_barrier) {
    __shared__ float tile[64];
    float value = a[I];
    for (int i = 0; i < 63; i++) {
        tile[I] = value;
        __syncthreads();
        value = tile[(I + 1) % 64];
    }
    out[I] = value;
}
KERNEL(barrier_for_some) {
    if (I < 8) __syncthreads();    // here
    out[I] = a[I];
}
KERNEL(two_barriers) {
    if (I < 32)
        __syncthreads();    // here
    else
        __syncthreads();    // here
    out[I] = a[I];
}
KERNEL(early_return) {
    if (I >= 60) return;
    __syncthreads();
    out[I] = a[I];
}
KERNEL(barriers_of_different_number) {
    for (int i = 0; i <= (int)(I / 32); i++) __syncthreads();
    out[I] = a[I];
}

// ---- Warps --------------------------------------------------------------------------------------------------------------
KERNEL(warp_sums) {
    float sum = a[I];
    for (int d = 16; d; d /= 2) sum += __shfl_xor_sync(ALL, sum, d);
    out[I] = sum;
}
KERNEL(wrong_step) {
    float sum = a[I];
    for (int d = 8; d; d /= 2) sum += __shfl_xor_sync(ALL, sum, d);
    out[I] = sum;
}
KERNEL(halves) {       // two groups of lanes exchange apart from each other, one twice
    float v = a[I];
    if (I % 32 < 16) {
        v = __shfl_xor_sync(0xffffu, v, 1);
        v = __shfl_xor_sync(0xffffu, v, 1);
    }
    v = __shfl_xor_sync(ALL, v, 1);
    out[I] = v;
}
KERNEL(outside_its_mask) { out[I] = __shfl_down_sync(0xffffu, a[I], 1); }
KERNEL(lanes_that_do_not_come) {
    float v = a[I];
    if (I % 32 < 16) v = __shfl_down_sync(ALL, v, 1);    // here
    out[I] = v;
}
KERNEL(lanes_that_returned) {
    if (I == 5) return;
    out[I] = __shfl_xor_sync(ALL, a[I], 1);    // here
}
KERNEL(from_outside_the_mask) {
    float v = a[I];
    if (I % 32 < 16) v = __shfl_sync(0xffffu, v, 16 + I % 32);
    out[I] = v;
}
KERNEL(votes) {
    out[I] = __ballot_sync(ALL, I % 2) + (__any_sync(ALL, I == 3) ? 1 : 0) + (__all_sync(ALL, I < 32) ? 2 : 0);
}
KERNEL(neighbours) {   // lanes of one warp, through shared memory
    __shared__ float tile[64];
    tile[I] = a[I];
    __syncwarp();
    float v = tile[I ^ 1];
    __syncwarp();
    tile[I] = v;
    out[I] = v;
}
KERNEL(missing_syncwarp) {
    __shared__ float tile[64];
    tile[I] = a[I];
    __syncwarp();
    float v = tile[I ^ 1];
    tile[I] = v;
    out[I] = v;
}
KERNEL(a_shuffle_is_no_barrier) {
    __shared__ float tile[64];
    tile[I] = a[I];
    __shfl_sync(ALL, 0, 0);
    out[I] = tile[I ^ 1];
}
KERNEL(loaded_before_a_shuffle) {   // all lanes have loaded tile[32 ...] before one of them stores there
    __shared__ float tile[64];
    tile[I] = a[I];
    __syncthreads();
    float v = __shfl_sync(ALL, tile[I / 32 * 32], 0);
    if (I % 32 == 5) tile[I / 32 * 32] = 0;
    out[I] = v;
}
KERNEL(syncwarp_across_warps) {
    __shared__ float tile[64];
    tile[I] = a[I];
    __syncwarp();
    out[I] = tile[63 - I];
}

// ---- Bounds -------------------------------------------------------------------------------------------------------------
KERNEL(same) { if (I < n) out[I] = a[I]; }
KERNEL(stores_right) { out[I + 1] = a[I]; }    // here
KERNEL(stores_left) { out[(int)I - 1] = a[I]; }    // here
KERNEL(stores_far) { out[I == 7 ? 4096 : I] = a[I]; }
KERNEL(loads_right) { out[I] = a[I + 1]; }    // here
KERNEL(loads_left) { out[I] = a[(int)I - 1]; }    // here
KERNEL(nowhere) { out[I] = *(const float*)8; }
struct alignas(16) Four {
    float v[4];
};
KERNEL(fours) { if (I < 16) ((Four*)out)[I] = ((const Four*)a)[I]; }
KERNEL(misaligned) { if (I < 15) ((Four*)(out + 1))[I] = ((const Four*)a)[I]; }
KERNEL(shared_right) {
    __shared__ float tile[32], other[32];
    tile[I] = a[I];
    if (I < 32) other[I] = 0;
    out[I] = tile[I];
}
struct Gap {
    float value;
    double other;
};
KERNEL(structs_with_gaps) {
    __shared__ Gap tile[64];
    tile[I].value = a[I];
    tile[I].other = 1;
    __syncthreads();
    const Gap found = tile[63 - I];
    out[I] = found.value * (float)found.other;
}
KERNEL(uninitialised) {
    __shared__ float tile[64];
    if (I) tile[I] = a[I];
    __syncthreads();
    out[I] = tile[I];    // here
}
KERNEL(left_by_another_block) {
    __shared__ float tile[64];
    if (blockIdx.x == 0) tile[I] = a[I];
    __syncthreads();
    out[I + 64 * blockIdx.x] = tile[I];
}

// ---- Races in device memory ---------------------------------------------------------------------------------------------
KERNEL(counts) { atomicAdd(out, a[I]); }
KERNEL(counts_without_atomics) { out[0] += a[I]; }
KERNEL(atomic_beside_plain) {
    if (I == 0) out[0] = 0;
    atomicAdd(out, a[I]);
}
KERNEL(in_place) { out[I] = out[I] + a[I]; }
KERNEL(in_place_of_the_neighbour) {
    float v = out[63 - I];
    out[I] = v;
}
KERNEL(blocks_overlap) { out[I + 60 * blockIdx.x] = a[I]; }

// ---- Everything else ------------------------------------------------------------------------------------------------------
KERNEL(deep) {
    volatile char room[300000];
    for (int i = 0; i < 300000; i += 100) room[i] = (char)i;
    out[I] = a[I] + room[n];
}
KERNEL(divides) { out[I] = float((int)(I + 7) / (int)(n - 64)); }
extern "C" __global__ void __launch_bounds__(128) bounded(const float* a, float* out, long long n) { out[I] = a[I]; }
KERNEL(much_static) {
    __shared__ double big[6000];
    extern __shared__ double more[];
    big[I] = a[I];
    out[I] = n ? (float)big[I] : (float)more[I];
}
struct Pair {
    long long first;
    float second;
};
extern "C" __global__ void many_kinds(const float* a, float* out, int i, long long l, float f, double d, bool b, Pair pair) {
    out[I] = a[I] + i + l + f + d + b + pair.first + pair.second;
}
