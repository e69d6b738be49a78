// Attention: out = softmax(scale q k^T + mask) v and its gradients, for q (..., t, d), k (..., s, d), v (..., s, e). The (t, s)
// matrix of weights lives in shared memory, one tile of SIDE queries and SIDE keys at a time, and is never written to global
// memory; the gradients compute it again. Tiles that a causal mask leaves empty are skipped.
// Bound by arithmetic: every product is one of tiles (tile.cuh). Blocks side by side, one for each SIDE columns of out, compute the
// weights each for itself.
#include "tile.cuh"

#if defined(T_FLOAT32)
const int R = 4;
#else
const int R = 2;        // doubles take twice the memory
#endif
const int SIDE = Tile<R>::SIDE;
const int PITCH = Tile<R>::PITCH;

enum { NO_MASK, BOOL_MASK, FLOAT_MASK };

struct Attention {
    Matrix q, k, v, mask;
    i64 t, s, d, e, batches, masked, causal;
    double scale;
};

#define ATTENTION_KERNEL extern "C" __global__ void __launch_bounds__(TILE_THREADS, 1)
#define DOWN ((int)threadIdx.x / 16) // a thread's rows of a tile are queries, its columns keys
#define ALONG ((int)threadIdx.x % 16)

// Over the 16 threads that share their rows
DEVICE T row_sum(T a) {
#pragma unroll
    for (int d = 8; d > 0; d /= 2) a += __shfl_xor_sync(FULL_WARP, a, d);
    return a;
}

DEVICE T row_max(T a) { // NaN is left out: it comes through the differences
#pragma unroll
    for (int d = 8; d > 0; d /= 2) {
        const T other = __shfl_xor_sync(FULL_WARP, a, d);
        a = other > a ? other : a;
    }
    return a;
}

// Keys that the queries up to `query` see, counted from the first
DEVICE i64 visible(const Attention& job, i64 query) {
    const i64 end = query + 1 + job.s - job.t;
    return !job.causal || end > job.s ? job.s : end < 0 ? 0 : end;
}

// What one batch's block works on, and its scratch in shared memory
struct Block {
    const T *q, *k, *v;
    const void* mask;
    T *left, *right, *weights;
};

// scores = scale q k^T + mask for queries and keys from `query` and `key` on; -inf for what is not seen
DEVICE void score(const Attention& job, const Block& block, i64 query, i64 key, T (&scores)[R][R]) {
    Panel<R> queries(block.q + query * job.q.row, job.q.row, job.q.column, job.t - query);
    Panel<R> keys(block.k + key * job.k.row, job.k.row, job.k.column, job.s - key);
    clear<R>(scores);
    multiply_panels<R>(queries, keys, job.d, block.left, block.right, scores);
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
            const i64 y = query + corner<R>(DOWN, i), x = key + corner<R>(ALONG, j);
            const i64 at = y * job.mask.row + x * job.mask.column;
            bool seen = y < job.t && x < job.s && (!job.causal || x <= y + job.s - job.t);
            if (seen && job.masked == BOOL_MASK) seen = ((const bool*)block.mask)[at];
            scores[i][j] = seen ? scores[i][j] * (T)job.scale : -infinity();
            if (seen && job.masked == FLOAT_MASK) scores[i][j] += ((const T*)block.mask)[at];
        }
}

// dp = grad v^T
DEVICE void weight_grad(const Attention& job, const Block& block, const T* grad, const Matrix& grad_at, i64 query, i64 key,
                        T (&dp)[R][R]) {
    Panel<R> grads(grad + query * grad_at.row, grad_at.row, grad_at.column, job.t - query);
    Panel<R> values(block.v + key * job.v.row, job.v.row, job.v.column, job.s - key);
    clear<R>(dp);
    multiply_panels<R>(grads, values, job.e, block.left, block.right, dp);
}

// The tile to shared memory, [query][key] or, turned, [key][query]
template <bool TURNED>
DEVICE void store(const T (&values)[R][R], T* weights) {
    __syncthreads(); // all have read the tile of before
#pragma unroll
    for (int i = 0; i < R; i++)
#pragma unroll
        for (int j = 0; j < R; j++) {
            const int y = corner<R>(DOWN, i), x = corner<R>(ALONG, j);
            weights[TURNED ? x * PITCH + y : y * PITCH + x] = values[i][j];
        }
}

// sums += weights^T b, for the `count` <= SIDE rows of b that go with the stored tile
DEVICE void multiply_stored(const T* weights, Panel<R> b, i64 count, T* right, T (&sums)[R][R]) {
    T held[R];
    b.fetch(count, held);
    for (i64 k = 0; k < count; k += DEPTH) {
        __syncthreads(); // the weights are there, and `right` was read
        b.keep(held, right);
        __syncthreads();
        if (k + DEPTH < count) b.fetch(count - k - DEPTH, held);
        multiply<R>(weights + k * PITCH, right, sums);
    }
}

// SIDE columns of a matrix (rows, columns) from one of its rows on, as the right operand
DEVICE Panel<R> columns_of(const T* from, const Matrix& at, i64 row, i64 column, i64 columns) {
    return Panel<R>(from + row * at.row + column * at.column, at.column, at.row, columns - column);
}

DEVICE i64 rows_left(i64 rows, i64 from) {
    return rows - from < SIDE ? rows - from : SIDE;
}

#define ROOM                                       \
    __shared__ alignas(16) T left[Tile<R>::SIZE];  \
    __shared__ alignas(16) T right[Tile<R>::SIZE]; \
    __shared__ alignas(16) T weights[SIDE * PITCH]

#define BLOCK_OF(batch)                                                                        \
    {q + place(job.q.batch, batch),                                                            \
     k + place(job.k.batch, batch),                                                            \
     v + place(job.v.batch, batch),                                                            \
     job.masked == BOOL_MASK ? (const void*)((const bool*)mask + place(job.mask.batch, batch)) \
                             : (const void*)((const T*)mask + place(job.mask.batch, batch)),   \
     left,                                                                                     \
     right,                                                                                    \
     weights}

// ---- Forward -------------------------------------------------------------------------------------------------------------

// out (batches, t, e); blocks are (SIDE queries, SIDE columns of v, matrix of the batch). The largest score and the sum of each
// row are kept up while keys go by, and what was added up is scaled to them.
ATTENTION_KERNEL attention(const T* q, const T* k, const T* v, const void* mask, const Attention job, T* out) {
    ROOM;
    const i64 query = (i64)blockIdx.x * SIDE, column = (i64)blockIdx.y * SIDE;
    for (i64 batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
        const Block block = BLOCK_OF(batch);
        T largest[R], total[R], sums[R][R], p[R][R];
        clear<R>(sums);
#pragma unroll
        for (int i = 0; i < R; i++) largest[i] = -infinity(), total[i] = 0;
        const i64 keys = visible(job, query + SIDE - 1);
        for (i64 key = 0; key < keys; key += SIDE) {
            score(job, block, query, key, p);
#pragma unroll
            for (int i = 0; i < R; i++) {
                T top = largest[i], sum = 0;
#pragma unroll
                for (int j = 0; j < R; j++) top = p[i][j] > top ? p[i][j] : top;
                top = row_max(top);
                const T shift = top == -infinity() ? (T)0 : top, factor = exp(largest[i] - shift);
#pragma unroll
                for (int j = 0; j < R; j++) {
                    p[i][j] = exp(p[i][j] - shift);
                    sum += p[i][j];
                    sums[i][j] *= factor;
                }
                total[i] = total[i] * factor + row_sum(sum);
                largest[i] = top;
            }
            store<true>(p, weights);
            multiply_stored(weights, columns_of(block.v, job.v, key, column, job.e), rows_left(job.s, key), right, sums);
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                const i64 y = query + corner<R>(DOWN, i), x = column + corner<R>(ALONG, j);
                if (y < job.t && x < job.e) out[(batch * job.t + y) * job.e + x] = total[i] == 0 ? (T)0 : sums[i][j] / total[i];
            }
    }
}

// ---- Backward: for p the softmax, ds = scale p (dp - sum p dp) with dp = grad v^T ---------------------------------------------

// statistics (3, batches, t): of each query the largest score, 1 / sum e^(score - largest) or 0, and sum p dp.
ATTENTION_KERNEL attention_statistics(const T* grad, const T* q, const T* k, const T* v, const void* mask, const Attention job,
                                      const Matrix grad_at, T* statistics) {
    ROOM;
    const i64 query = (i64)blockIdx.x * SIDE;
    for (i64 batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
        const Block block = BLOCK_OF(batch);
        T largest[R], total[R], along[R], p[R][R], dp[R][R];
#pragma unroll
        for (int i = 0; i < R; i++) largest[i] = -infinity(), total[i] = 0, along[i] = 0;
        const i64 keys = visible(job, query + SIDE - 1);
        for (i64 key = 0; key < keys; key += SIDE) {
            score(job, block, query, key, p);
            weight_grad(job, block, grad + place(grad_at.batch, batch), grad_at, query, key, dp);
#pragma unroll
            for (int i = 0; i < R; i++) {
                T top = largest[i], sum = 0, sum_dp = 0;
#pragma unroll
                for (int j = 0; j < R; j++) top = p[i][j] > top ? p[i][j] : top;
                top = row_max(top);
                const T shift = top == -infinity() ? (T)0 : top, factor = exp(largest[i] - shift);
#pragma unroll
                for (int j = 0; j < R; j++) {
                    const T e = exp(p[i][j] - shift);
                    sum += e;
                    sum_dp += e * dp[i][j];
                }
                total[i] = total[i] * factor + row_sum(sum);
                along[i] = along[i] * factor + row_sum(sum_dp);
                largest[i] = top;
            }
        }
#pragma unroll
        for (int i = 0; i < R; i++) {
            const i64 y = query + corner<R>(DOWN, i), rows = job.batches * job.t;
            if (ALONG == 0 && y < job.t) {
                const T inverse = total[i] == 0 ? (T)0 : 1 / total[i];
                T* at = statistics + batch * job.t + y;
                at[0] = largest[i] == -infinity() ? (T)0 : largest[i];
                at[rows] = inverse;
                at[2 * rows] = along[i] * inverse;
            }
        }
    }
}

// p = softmax of the scores, and dp = ds, by the statistics of the tile's queries
DEVICE void weigh(const Attention& job, const T* statistics, i64 batch, i64 query, T (&p)[R][R]) {
#pragma unroll
    for (int i = 0; i < R; i++) {
        const i64 y = query + corner<R>(DOWN, i), rows = job.batches * job.t;
        const T* at = statistics + batch * job.t + y;
        const T largest = y < job.t ? at[0] : (T)0, inverse = y < job.t ? at[rows] : (T)0;
#pragma unroll
        for (int j = 0; j < R; j++) p[i][j] = exp(p[i][j] - largest) * inverse;
    }
}

DEVICE void score_grad(const Attention& job, const T* statistics, i64 batch, i64 query, const T (&p)[R][R], T (&dp)[R][R]) {
#pragma unroll
    for (int i = 0; i < R; i++) {
        const i64 y = query + corner<R>(DOWN, i), rows = job.batches * job.t;
        const T along = y < job.t ? statistics[2 * rows + batch * job.t + y] : (T)0;
#pragma unroll
        for (int j = 0; j < R; j++) dp[i][j] = p[i][j] * (dp[i][j] - along) * (T)job.scale;
    }
}

// dq (batches, t, d) = ds k; blocks are (SIDE queries, SIDE columns of k, matrix of the batch).
ATTENTION_KERNEL attention_query_grad(const T* grad, const T* q, const T* k, const T* v, const void* mask, const Attention job,
                                      const Matrix grad_at, const T* statistics, T* dq) {
    ROOM;
    const i64 query = (i64)blockIdx.x * SIDE, column = (i64)blockIdx.y * SIDE;
    for (i64 batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
        const Block block = BLOCK_OF(batch);
        T sums[R][R], p[R][R], ds[R][R];
        clear<R>(sums);
        const i64 keys = visible(job, query + SIDE - 1);
        for (i64 key = 0; key < keys; key += SIDE) {
            score(job, block, query, key, p);
            weigh(job, statistics, batch, query, p);
            weight_grad(job, block, grad + place(grad_at.batch, batch), grad_at, query, key, ds);
            score_grad(job, statistics, batch, query, p, ds);
            store<true>(ds, weights);
            multiply_stored(weights, columns_of(block.k, job.k, key, column, job.d), rows_left(job.s, key), right, sums);
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                const i64 y = query + corner<R>(DOWN, i), x = column + corner<R>(ALONG, j);
                if (y < job.t && x < job.d) dq[(batch * job.t + y) * job.d + x] = sums[i][j];
            }
    }
}

// dk (batches, s, d) = ds^T q and dv (batches, s, e) = p^T grad; blocks are (SIDE keys, SIDE columns of q and of grad, matrix).
ATTENTION_KERNEL attention_key_grad(const T* grad, const T* q, const T* k, const T* v, const void* mask, const Attention job,
                                    const Matrix grad_at, const T* statistics, T* dk, T* dv) {
    ROOM;
    const i64 key = (i64)blockIdx.x * SIDE, column = (i64)blockIdx.y * SIDE;
    for (i64 batch = blockIdx.z; batch < job.batches; batch += gridDim.z) {
        const Block block = BLOCK_OF(batch);
        const T* grads = grad + place(grad_at.batch, batch);
        T sums_k[R][R], sums_v[R][R], p[R][R], ds[R][R];
        clear<R>(sums_k);
        clear<R>(sums_v);
        const i64 earliest = job.causal && key + job.t - job.s > 0 ? key + job.t - job.s : 0;
        for (i64 query = earliest; query < job.t; query += SIDE) {
            score(job, block, query, key, p);
            weigh(job, statistics, batch, query, p);
            store<false>(p, weights);
            multiply_stored(weights, columns_of(grads, grad_at, query, column, job.e), rows_left(job.t, query), right, sums_v);
            weight_grad(job, block, grads, grad_at, query, key, ds);
            score_grad(job, statistics, batch, query, p, ds);
            store<false>(ds, weights);
            multiply_stored(weights, columns_of(block.q, job.q, query, column, job.d), rows_left(job.t, query), right, sums_k);
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++) {
                const i64 y = key + corner<R>(DOWN, i), x = column + corner<R>(ALONG, j);
                if (y < job.s && x < job.d) dk[(batch * job.s + y) * job.d + x] = sums_k[i][j];
                if (y < job.s && x < job.e) dv[(batch * job.s + y) * job.e + x] = sums_v[i][j];
            }
    }
}
