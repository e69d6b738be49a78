// Rows of n elements, for nn.cu and norm.cu: one warp per row for short rows, a whole block for long ones.
// Blocks are (threads per row, rows): rows of a warp each lie side by side in a block, a row of more threads has the block.

// Each row, whatever the size of the grid; all threads of a row see the same one.
#define FOR_ROWS(row, rows) \
    for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < (rows); row += (i64)gridDim.x * blockDim.y)
// Each element of a row: neighbouring threads take neighbouring ones.
#define FOR_COLUMNS(j, n) for (i64 j = threadIdx.x; j < (n); j += blockDim.x)

// Over the threads of a row; all of them get the result. `scratch` is shared, of 32 elements.
template <class E>
DEVICE E row_threads_sum(E a, E* scratch) {
    return blockDim.x == WARP ? warp_sum(a) : block_sum(a, scratch);
}

template <class E>
DEVICE E row_threads_max(E a, E* scratch) {
    return blockDim.x == WARP ? warp_max(a) : block_max(a, scratch);
}

// What one thread adds up: runs of 32 in T, the runs in double. The error stays that of a run, however long the row.
struct Adder {
    T run = 0;
    Wide total = 0;
    int count = 0;

    __device__ void add(T a) {
        run += a;
        if (++count == 32) {
            total += run;
            run = 0;
            count = 0;
        }
    }
    __device__ Wide sum() const { return total + run; }
};
