// out (..., m, n) = a (..., m, k) @ b (..., k, n) for operands with any strides, transposed ones included.
#include "tile.cuh"

// Bound by arithmetic: a tile of 16 R on each side does 8 R multiplications per element that it reads.
// Blocks: (tiles of out, parts of k, matrices of the batch). With several parts of k, out is (parts, batch, m, n) and added up
// afterwards, in order.
template <int R>
DEVICE void matmul_tiles(const T* a, const Matrix& a_at, const T* b, const Matrix& b_at, i64 m, i64 k, i64 n, i64 batches, i64 span,
                         i64 part_step, T* left, T* right, T* out, const Matrix& out_at) {
    const i64 side = Tile<R>::SIDE, across = (n + side - 1) / side;
    const i64 row = blockIdx.x / across * side, column = blockIdx.x % across * side;
    const i64 first = blockIdx.y * span, last = first + span < k ? first + span : k;
    const int down = threadIdx.x / 16, along = threadIdx.x % 16;
    for (i64 batch = blockIdx.z; batch < batches; batch += gridDim.z) {
        Panel<R> rows(a + place(a_at.batch, batch) + row * a_at.row, a_at.row, a_at.column, m - row, first);
        Panel<R> columns(b + place(b_at.batch, batch) + column * b_at.column, b_at.column, b_at.row, n - column, first);
        Sum sums[R][R];
        clear<R>(sums);
        multiply_panels<R>(rows, columns, last - first, left, right, sums);
        T* target = out + place(out_at.batch, batch) + blockIdx.y * part_step;
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                const i64 y = row + corner<R>(down, i), x = column + corner<R>(along, j);
                if (y < m && x < n) target[y * out_at.row + x * out_at.column] = (T)sums[i][j];
            }
    }
}

#define MATMUL(name, R, BLOCKS)                                                                                        \
    extern "C" __global__ void __launch_bounds__(TILE_THREADS, BLOCKS)                                                 \
        name(const T* a, const Matrix a_at, const T* b, const Matrix b_at, i64 m, i64 k, i64 n, i64 batches, i64 span, \
             i64 part_step, T* out, const Matrix out_at) {                                                             \
        __shared__ alignas(16) T left[Tile<R>::SIZE];                                                                  \
        __shared__ alignas(16) T right[Tile<R>::SIZE];                                                                 \
        matmul_tiles<R>(a, a_at, b, b_at, m, k, n, batches, span, part_step, left, right, out, out_at);                \
    }

#if defined(T_FLOAT32) || defined(T_INT32)
MATMUL(matmul_128, 8, 1)   // large products; sums of 8-byte elements would not fit the registers
#endif
MATMUL(matmul_64, 4, sizeof(T) == 8 ? 1 : 2)
MATMUL(matmul_32, 2, 2)    // small and skinny ones

// ---- A matrix and a vector -----------------------------------------------------------------------------------------------

// out[i] = sum of a[i, k] b[k], a warp or a whole block (a row of its threads) per i: for rows that lie along k.
// Bound by bandwidth: each element of a is read once.
KERNEL matvec_rows(const T* a, const Matrix a_at, const T* b, const Matrix b_at, i64 m, i64 k, i64 batches, T* out,
                   const Matrix out_at) {
    __shared__ Sum scratch[WARP];
    for (i64 batch = blockIdx.z; batch < batches; batch += gridDim.z) {
        for (i64 i = (i64)blockIdx.x * blockDim.y + threadIdx.y; i < m; i += (i64)gridDim.x * blockDim.y) {
            const T* row = a + place(a_at.batch, batch) + i * a_at.row;
            const T* vector = b + place(b_at.batch, batch);
            Sum sum = 0;
            for (i64 j = threadIdx.x; j < k; j += blockDim.x) sum += (Sum)row[j * a_at.column] * (Sum)vector[j * b_at.row];
            sum = blockDim.x == WARP ? warp_sum(sum) : block_sum(sum, scratch);
            if (threadIdx.x == 0) out[place(out_at.batch, batch) + i * out_at.row] = (T)sum;
        }
    }
}

const int SLICES = 16;

// The same for columns that lie along i: 32 neighbouring i per block, SLICES threads share the k of each.
// Bound by bandwidth.
KERNEL matvec_columns(const T* a, const Matrix a_at, const T* b, const Matrix b_at, i64 m, i64 k, i64 batches, T* out,
                      const Matrix out_at) {
    __shared__ Sum scratch[SLICES][WARP];
    const i64 i = (i64)blockIdx.x * WARP + threadIdx.x;
    for (i64 batch = blockIdx.z; batch < batches; batch += gridDim.z) {
        const T* column = a + place(a_at.batch, batch) + i * a_at.row;
        const T* vector = b + place(b_at.batch, batch);
        Sum sum = 0;
        for (i64 j = threadIdx.y; i < m && j < k; j += SLICES) sum += (Sum)column[j * a_at.column] * (Sum)vector[j * b_at.row];
        __syncthreads();                // the last batch's sums were read
        scratch[threadIdx.y][threadIdx.x] = sum;
        __syncthreads();
        if (threadIdx.y == 0 && i < m) {
            for (int slice = 1; slice < SLICES; slice++) sum += scratch[slice][threadIdx.x];
            out[place(out_at.batch, batch) + i * out_at.row] = (T)sum;
        }
    }
}
