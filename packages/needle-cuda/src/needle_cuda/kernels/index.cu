// Rows by number: take, put, scatter_add. The rows of `a` are `a_row` elements apart; what is in a row lies as `inner` says (a first).
// put and scatter_add must find the entries that name one row, in their order, without luck deciding who comes first. Few entries
// are compared each with each; many are sorted by row, stably, by their digits of 8 bits. Then one thread owns a row's column
// and takes its entries in order. Bound by memory, and by the row that most entries name: its entries are added one by one.

// out[i, :] = a[index[i], :]
KERNEL take(const T* a, const i64* index, T* out, i64 a_row, i64 index_step, i64 out_row, const Joint inner, i64 rows,
            i64 columns) {
    FOR_EACH(i, rows * columns) {
        const i64 row = i / columns;
        const Places<2> at = places<2>(inner, i - row * columns);
        out[row * out_row + at.at[1]] = a[index[row * index_step] * a_row + at.at[0]];
    }
}

// ---- Few entries: each looks at all others, n^2 comparisons -----------------------------------------------------------------

KERNEL put_few(T* a, const i64* index, const T* values, i64 a_row, i64 index_step, i64 values_row, const Joint inner, i64 rows,
               i64 columns) {
    FOR_EACH(i, rows * columns) {
        const i64 row = i / columns, target = index[row * index_step];
        bool last = true;
        for (i64 j = row + 1; j < rows; j++) last = last && index[j * index_step] != target;
        if (!last) continue;
        const Places<2> at = places<2>(inner, i - row * columns);
        a[target * a_row + at.at[0]] = values[row * values_row + at.at[1]];
    }
}

KERNEL scatter_add_few(T* a, const i64* index, const T* values, i64 a_row, i64 index_step, i64 values_row, const Joint inner,
                       i64 rows, i64 columns) {
    FOR_EACH(i, rows * columns) {
        const i64 row = i / columns, target = index[row * index_step];
        bool first = true;
        for (i64 j = 0; j < row; j++) first = first && index[j * index_step] != target;
        if (!first) continue;
        const Places<2> at = places<2>(inner, i - row * columns);
        T sum = a[target * a_row + at.at[0]];
        for (i64 j = row; j < rows; j++) {
            if (index[j * index_step] == target) sum = wrap_add(sum, values[j * values_row + at.at[1]]);
        }
        a[target * a_row + at.at[0]] = sum;
    }
}

// ---- Many entries: keys[k] is the row and order[k] the entry, sorted --------------------------------------------------------

KERNEL put_sorted(T* a, const i64* keys, const i64* order, const T* values, i64 a_row, i64 values_row, const Joint inner, i64 rows,
                  i64 columns) {
    FOR_EACH(i, rows * columns) {
        const i64 k = i / columns, target = keys[k];
        if (k + 1 < rows && keys[k + 1] == target) continue;
        const Places<2> at = places<2>(inner, i - k * columns);
        a[target * a_row + at.at[0]] = values[order[k] * values_row + at.at[1]];
    }
}

KERNEL scatter_add_sorted(T* a, const i64* keys, const i64* order, const T* values, i64 a_row, i64 values_row, const Joint inner,
                          i64 rows, i64 columns) {
    FOR_EACH(i, rows * columns) {
        const i64 first = i / columns, target = keys[first];
        if (first > 0 && keys[first - 1] == target) continue;
        const Places<2> at = places<2>(inner, i - first * columns);
        T sum = a[target * a_row + at.at[0]];
        for (i64 k = first; k < rows && keys[k] == target; k++) sum = wrap_add(sum, values[order[k] * values_row + at.at[1]]);
        a[target * a_row + at.at[0]] = sum;
    }
}

// ---- The sort: a pass for each digit, least significant first; blocks of 256 threads, a slice of the entries each -----------------

#ifdef T_INT64 // independent of the dtype of the rows: compiled once

const int DIGITS = 256, SORT_WARPS = 8;

DEVICE int digit_of(i64 key, int shift) {
    return (int)(key >> shift) & (DIGITS - 1);
}

DEVICE int bits_set(u32 x) {
    int n = 0;
    for (; x; x &= x - 1) n++;
    return n;
}

// keys and order of the first pass: the index, and 0, 1, ...
KERNEL sort_start(const i64* index, i64 index_step, i64* keys, i64* order, i64 n) {
    FOR_EACH(i, n) {
        keys[i] = index[i * index_step];
        order[i] = i;
    }
}

// counts[digit, block]: how often the block's slice has the digit
KERNEL sort_count(const i64* keys, i64* counts, int shift, i64 slice, i64 n) {
    __shared__ int found[DIGITS];
    found[threadIdx.x] = 0;
    __syncthreads();
    const i64 first = blockIdx.x * slice, last = first + slice < n ? first + slice : n;
    for (i64 i = first + threadIdx.x; i < last; i += blockDim.x) atomicAdd(&found[digit_of(keys[i], shift)], 1);
    __syncthreads();
    counts[(i64)threadIdx.x * gridDim.x + blockIdx.x] = found[threadIdx.x];
}

// starts is the running sum of counts: where the block's entries of a digit end. Entries keep their order.
KERNEL sort_move(const i64* keys, const i64* order, const i64* counts, const i64* starts, i64* new_keys, i64* new_order, int shift,
                 i64 slice, i64 n) {
    __shared__ i64 next[DIGITS]; // where the next entry of a digit goes
    __shared__ int of_warp[SORT_WARPS][DIGITS]; // entries of a digit that a warp has in this round
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const i64 first = blockIdx.x * slice, last = first + slice < n ? first + slice : n;
    const i64 own = (i64)threadIdx.x * gridDim.x + blockIdx.x;
    next[threadIdx.x] = starts[own] - counts[own];
    for (i64 round = first; round < last; round += blockDim.x) {
        for (int w = 0; w < SORT_WARPS; w++) of_warp[w][threadIdx.x] = 0;
        __syncthreads();
        const i64 i = round + threadIdx.x;
        const bool in = i < last;
        const i64 key = in ? keys[i] : 0;
        const int digit = digit_of(key, shift);
        u32 same = __ballot_sync(FULL_WARP, in); // lanes with the same digit
#pragma unroll
        for (int bit = 0; bit < 8; bit++) {
            const u32 set = __ballot_sync(FULL_WARP, digit >> bit & 1);
            same &= digit >> bit & 1 ? set : ~set;
        }
        const int rank = bits_set(same & ((1u << lane) - 1));
        if (in && rank == 0) of_warp[warp][digit] = bits_set(same);
        __syncthreads();
        if (in) {
            i64 at = next[digit] + rank;
            for (int w = 0; w < warp; w++) at += of_warp[w][digit];
            new_keys[at] = key;
            new_order[at] = order[i];
        }
        __syncthreads();
        for (int w = 0; w < SORT_WARPS; w++) next[threadIdx.x] += of_warp[w][threadIdx.x];
    }
}

#endif
