// Chapter 5: CUDA kernels. The text is in chapter5.md; `needle learn check 5` compiles this file for the emulator and checks it.
//
// Any grid has to give the right result for saxpy; the others are launched as their comments say.
// Remove the line TODO of a kernel when you have written it.
#define TODO return /* tells the checks that this kernel is not written yet */
#define TILE 16

// out[i] = c a[i] + b[i] for i < n
extern "C" __global__ void saxpy(float c, const float* a, const float* b, float* out, long long n) {
    TODO;
}

// out (columns, rows) = a (rows, columns) transposed. Blocks of (TILE, TILE) threads; block (x, y) has the tile whose columns of a begin
// at x * TILE, and its rows at y * TILE. Go through a tile in shared memory.
extern "C" __global__ void transpose(const float* a, float* out, long long rows, long long columns) {
    TODO;
}

// out[i] = the sum of row i of a (rows, columns): block i has row i; blockDim.x is a power of 2, at most 256
extern "C" __global__ void row_sums(const float* a, float* out, long long rows, long long columns) {
    TODO;
}

// out (m, n) = a (m, k) b (k, n). Blocks of (TILE, TILE) threads; block (x, y) has the tile of out whose columns begin at x * TILE, and its
// rows at y * TILE. Tiles of a and b go through shared memory.
extern "C" __global__ void matmul(const float* a, const float* b, float* out, long long m, long long k, long long n) {
    TODO;
}
