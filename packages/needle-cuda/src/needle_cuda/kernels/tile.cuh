// Tiles of matrix products, for matmul.cu, conv.cu and attention.cu.
//
// 256 threads, 16 x 16 of them, make a square tile of out, SIDE = 16 R elements on each side: a thread holds R x R sums in
// registers. The operands come DEPTH columns of k at a time through shared memory, both with k first: left[k][m], right[k][n].
// A thread reads vectors of four neighbours, one 16-byte load each; lanes of a warp read neighbouring vectors or the same, so
// reading has no bank conflicts. PITCH keeps rows aligned for that and spreads the columns over the banks when tiles are stored.

#if defined(T_INT32) || defined(T_UINT8)
typedef u32 Sum;        // wraps around
#elif defined(T_INT64)
typedef u64 Sum;
#else
typedef T Sum;
#endif

// Matrices (products.py): where each of a batch begins, and the steps along its rows and columns.
struct Matrix {
    View batch;
    i64 row, column;
};

const int DEPTH = 16;
const int TILE_THREADS = 256;
const int UNROLL = 4;

template <int R>
struct Tile {
    static const int SIDE = 16 * R;
    static const int PITCH = SIDE + 4;
    static const int SIZE = DEPTH * PITCH;
    static const int WIDTH = R < 4 ? R : 4;
};

template <int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Vector {
    T at[N];
};

// Where the i-th of the R elements of a thread lies on its side of the tile: vectors of neighbours, 16 threads apart.
template <int R>
DEVICE int corner(int thread, int i) {
    const int width = Tile<R>::WIDTH;
    return i / width * (16 * width) + thread * width + i % width;
}

template <int R>
DEVICE void read_vectors(const T* row, int thread, T (&out)[R]) {
    const int width = Tile<R>::WIDTH;
#pragma unroll
    for (int i = 0; i < R; i += width) {
        const Vector<width> part = *(const Vector<width>*)(row + corner<R>(thread, i));
#pragma unroll
        for (int j = 0; j < width; j++) out[i + j] = part.at[j];
    }
}

// sums += left^T right over one tile's DEPTH
template <int R>
DEVICE void multiply(const T* left, const T* right, Sum (&sums)[R][R]) {
    const int down = threadIdx.x / 16, along = threadIdx.x % 16;
#pragma unroll UNROLL
    for (int k = 0; k < DEPTH; k++) {
        T a[R], b[R];
        read_vectors<R>(left + k * Tile<R>::PITCH, down, a);
        read_vectors<R>(right + k * Tile<R>::PITCH, along, b);
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) sums[i][j] += (Sum)a[i] * (Sum)b[j];
    }
}

template <int R>
DEVICE void clear(Sum (&sums)[R][R]) {
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) sums[i][j] = 0;
}

// ---- From global memory to shared memory, by way of registers: R elements of a tile per thread ------------------------------

// A thread's part of the tiles of a matrix: neighbouring threads go along k where that is contiguous, else along the side. Its
// elements lie at equal steps in the matrix and in the tile, so one address and one step stand for all of them.
template <int R>
struct Part {
    bool along_k;
    int side, k, side_step, k_step;     // the first element in the tile, and from one element to the next

    __device__ Part(bool along_k) : along_k(along_k) {
        side = threadIdx.x / (along_k ? DEPTH : 1) % Tile<R>::SIDE;
        k = along_k ? threadIdx.x % DEPTH : threadIdx.x / Tile<R>::SIDE;
        side_step = along_k ? TILE_THREADS / DEPTH : 0;
        k_step = along_k ? 0 : TILE_THREADS / Tile<R>::SIDE;
    }
    __device__ void keep(const T (&held)[R], T* tile) const {
        T* at = tile + k * Tile<R>::PITCH + side;
        const int step = k_step * Tile<R>::PITCH + side_step;
#pragma unroll
        for (int i = 0; i < R; i++) at[i * step] = held[i];
    }
};

// A matrix with steps along the tile's side and along k; 0 beyond its sides and the end of k.
template <int R>
struct Panel : Part<R> {
    const T* from;                      // the thread's first element of the next tile
    i64 step, next;
    int sides;

    __device__ Panel(const T* first, i64 along_side, i64 along_k, i64 sides, i64 k = 0)
        : Part<R>(along_k == 1 || along_side != 1), sides(sides < Tile<R>::SIDE ? (int)sides : Tile<R>::SIDE) {
        from = first + this->side * along_side + (k + this->k) * along_k;
        step = this->side_step * along_side + this->k_step * along_k;
        next = DEPTH * along_k;
    }
    // The thread's elements of the next tile, of which `left` columns of k are there.
    __device__ void fetch(i64 left, T (&held)[R]) {
        const int depth = left < DEPTH ? (int)left : DEPTH;
        const T* at = from;
#pragma unroll
        for (int i = 0; i < R; i++) {
            const bool inside = this->side + i * this->side_step < sides && this->k + i * this->k_step < depth;
            held[i] = inside ? *at : (T)0;
            at += step;
        }
        from += next;
    }
};

// sums += the product of two operands over `count` columns of k; the next tiles travel while these are multiplied. The tiles are
// free again after the next barrier.
template <int R, class A, class B>
DEVICE void multiply_panels(A& a, B& b, i64 count, T* left, T* right, Sum (&sums)[R][R]) {
    T from_a[R], from_b[R];
    a.fetch(count, from_a);
    b.fetch(count, from_b);
    for (i64 k = 0; k < count; k += DEPTH) {
        __syncthreads();                // all have read the tiles of before
        a.keep(from_a, left);
        b.keep(from_b, right);
        __syncthreads();
        if (k + DEPTH < count) {
            a.fetch(count - k - DEPTH, from_a);
            b.fetch(count - k - DEPTH, from_b);
        }
        multiply<R>(left, right, sums);
    }
}
