// Chapter 5 with what Needle's kernels are made of: `#include "common.cuh"` is that file of needle_cuda/kernels, which has the macros KERNEL
// and FOR_EACH and the function block_sum.
#define T_FLOAT32
#include "common.cuh"
#define TILE 16

KERNEL saxpy(float c, const float* a, const float* b, float* out, i64 n) {
    FOR_EACH(i, n) out[i] = c * a[i] + b[i];
}

KERNEL transpose(const float* a, float* out, i64 rows, i64 columns) {
    __shared__ float tile[TILE][TILE + 1];
    i64 i = (i64)blockIdx.y * TILE + threadIdx.y, j = (i64)blockIdx.x * TILE + threadIdx.x;
    if (i < rows && j < columns) tile[threadIdx.y][threadIdx.x] = a[i * columns + j];
    __syncthreads();
    i = (i64)blockIdx.x * TILE + threadIdx.y, j = (i64)blockIdx.y * TILE + threadIdx.x;
    if (i < columns && j < rows) out[i * rows + j] = tile[threadIdx.x][threadIdx.y];
}

KERNEL row_sums(const float* a, float* out, i64 rows, i64 columns) {
    __shared__ float sums[256];
    float sum = 0;
    for (i64 j = threadIdx.x; j < columns; j += blockDim.x) sum += a[blockIdx.x * columns + j];
    sums[threadIdx.x] = sum;
    for (int half = blockDim.x / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = sums[0];
}

KERNEL matmul(const float* a, const float* b, float* out, i64 m, i64 k, i64 n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    const int x = threadIdx.x, y = threadIdx.y;
    const i64 i = (i64)blockIdx.y * TILE + y, j = (i64)blockIdx.x * TILE + x;
    float sum = 0;
    for (i64 start = 0; start < k; start += TILE) {
        left[y][x] = i < m && start + x < k ? a[i * k + start + x] : 0;
        right[y][x] = start + y < k && j < n ? b[(start + y) * n + j] : 0;
        __syncthreads();
        for (int p = 0; p < TILE; p++) sum += left[y][p] * right[p][x];
        __syncthreads();
    }
    if (i < m && j < n) out[i * n + j] = sum;
}
