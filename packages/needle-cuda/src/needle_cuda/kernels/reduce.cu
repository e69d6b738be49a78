// Reductions and scans. Each of `n` results is made of `m` elements: a row, wherever its elements lie (`reduced`), for every place of the
// kept axes (`kept`: out, then a). Where the elements of a row are neighbours, a warp or a block takes a row; where the rows are
// neighbours, a thread takes a row and a block 32 rows. Rows that are few and long are cut into `parts`, joined by `finish`.
// Who adds what to what depends on the shape only: the same bits on every run and on every device. Bound by memory.

// ---- What is made of the elements ------------------------------------------------------------------------------------------

// Float sums are made in double; those of doubles carry what each addition lost (Neumaier), so the error hardly grows with m.
struct sum_op {
#if defined(T_FLOAT64)
    struct A {
        double sum, lost;
    };
    typedef double R;
    DEVICE A start() { return {0.0, 0.0}; }
    DEVICE A take(A a, T x, i64) { return join(a, {x, 0.0}); }
    DEVICE A join(A a, A b) {
        const double sum = a.sum + b.sum;
        const double lost = fabs(a.sum) >= fabs(b.sum) ? (a.sum - sum) + b.sum : (b.sum - sum) + a.sum;
        return {sum, a.lost + b.lost + lost};
    }
    DEVICE R end(A a) { return a.lost - a.lost == 0 ? a.sum + a.lost : a.sum; } // inf - inf is not what was lost
#elif defined(T_FLOAT32)
    typedef double A;
    typedef float R;
    DEVICE A start() { return 0; }
    DEVICE A take(A a, T x, i64) { return a + x; }
    DEVICE A join(A a, A b) { return a + b; }
    DEVICE R end(A a) { return (R)a; }
#else
    typedef u64 A;                  // wraps
    typedef i64 R;
    DEVICE A start() { return 0; }
    DEVICE A take(A a, T x, i64) { return a + (u64)(i64)x; }
    DEVICE A join(A a, A b) { return a + b; }
    DEVICE R end(A a) { return (R)a; }
#endif
};

struct prod_op {
#ifdef T_FLOATING
    typedef double A;
    typedef T R;
    DEVICE A take(A a, T x, i64) { return a * x; }
#else
    typedef u64 A;
    typedef i64 R;
    DEVICE A take(A a, T x, i64) { return a * (u64)(i64)x; }
#endif
    DEVICE A start() { return 1; }
    DEVICE A join(A a, A b) { return a * b; }
    DEVICE R end(A a) { return (R)a; }
};

#if defined(T_FLOAT32)
#define LARGEST (__int_as_float(0x7f800000))
#define SMALLEST (-LARGEST)
#elif defined(T_FLOAT64)
#define LARGEST (__longlong_as_double(0x7ff0000000000000LL))
#define SMALLEST (-LARGEST)
#elif defined(T_INT32)
#define LARGEST 0x7fffffff
#define SMALLEST (-LARGEST - 1)
#elif defined(T_INT64)
#define LARGEST 0x7fffffffffffffffLL
#define SMALLEST (-LARGEST - 1)
#elif defined(T_UINT8)
#define LARGEST 0xff
#define SMALLEST 0
#else
#define LARGEST true
#define SMALLEST false
#endif

struct max_op {
    typedef T A;
    typedef T R;
    DEVICE A start() { return SMALLEST; }
    DEVICE A take(A a, T x, i64) { return larger(a, x); }
    DEVICE A join(A a, A b) { return larger(a, b); }
    DEVICE R end(A a) { return a; }
};

struct min_op {
    typedef T A;
    typedef T R;
    DEVICE A start() { return LARGEST; }
    DEVICE A take(A a, T x, i64) { return smaller(a, x); }
    DEVICE A join(A a, A b) { return smaller(a, b); }
    DEVICE R end(A a) { return a; }
};

struct any_op {
    typedef int A;
    typedef bool R;
    DEVICE A start() { return 0; }
    DEVICE A take(A a, T x, i64) { return a | (x != T(0)); }
    DEVICE A join(A a, A b) { return a | b; }
    DEVICE R end(A a) { return a != 0; }
};

struct all_op {
    typedef int A;
    typedef bool R;
    DEVICE A start() { return 1; }
    DEVICE A take(A a, T x, i64) { return a & (x != T(0)); }
    DEVICE A join(A a, A b) { return a & b; }
    DEVICE R end(A a) { return a != 0; }
};

struct Found {
    T value;
    i64 at; // -1: nothing yet
};

DEVICE bool before(T a, T b, int sign) { // whether a comes before b: NaN first
    return is_nan(a) ? !is_nan(b) : sign > 0 ? a > b : a < b;
}

template <int SIGN>
struct position_op {
    typedef Found A;
    typedef i64 R;
    DEVICE A start() { return {T(0), -1}; }
    DEVICE A take(A a, T x, i64 i) { return join(a, {x, i}); }
    DEVICE A join(A a, A b) {
        if (a.at < 0 || b.at < 0) return a.at < 0 ? b : a;
        if (before(a.value, b.value, SIGN)) return a;
        if (before(b.value, a.value, SIGN)) return b;
        return a.at < b.at ? a : b;
    }
    DEVICE R end(A a) { return a.at; }
};

typedef position_op<1> argmax_op;
typedef position_op<-1> argmin_op;

// ---- Across a warp and a block -----------------------------------------------------------------------------------------------

template <class A>
DEVICE A down(A a, int d) {
    return (A)__shfl_down_sync(FULL_WARP, a, d);
}

DEVICE bool down(bool a, int d) {
    return __shfl_down_sync(FULL_WARP, (int)a, d) != 0;
}

DEVICE Found down(Found a, int d) {
    return {down(a.value, d), down(a.at, d)};
}

#ifdef T_FLOAT64
DEVICE sum_op::A down(sum_op::A a, int d) {
    return {down(a.sum, d), down(a.lost, d)};
}
#endif

const int MAX_WARPS = 8;

// Lanes 0 .. blockDim.x - 1 joined; lane 0 gets the result. More than a warp only where blockDim.y is 1.
template <class Op>
DEVICE typename Op::A across(typename Op::A a) {
    typedef typename Op::A A;
    __shared__ __align__(16) char scratch[MAX_WARPS * sizeof(A)];
    A* of_warp = (A*)scratch;
#pragma unroll
    for (int d = WARP / 2; d > 0; d /= 2) a = Op::join(a, down(a, d));
    if (blockDim.x == WARP) return a;
    __syncthreads(); // the last row's results have been read
    if (threadIdx.x % WARP == 0) of_warp[threadIdx.x / WARP] = a;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int w = 1; w < blockDim.x / WARP; w++) a = Op::join(a, of_warp[w]);
    }
    return a;
}

// ---- Loops -------------------------------------------------------------------------------------------------------------------

// The elements [first, last) of a row, every `step`-th from `first` on.
template <class Op>
DEVICE typename Op::A walk(const T* row, const View& reduced, i64 first, i64 last, i64 step) {
    typename Op::A acc = Op::start();
    if (reduced.ndim <= 1) {
        const i64 stride = reduced.strides[0];
#pragma unroll 4
        for (i64 i = first; i < last; i += step) acc = Op::take(acc, row[i * stride], i);
    } else {
        for (i64 i = first; i < last; i += step) acc = Op::take(acc, row[place(reduced, i)], i);
    }
    return acc;
}

template <class Op>
DEVICE void keep(typename Op::A acc, typename Op::R* out, typename Op::A* partial, i64 at, i64 row, i64 part, i64 parts) {
    if (parts == 1) {
        out[at] = Op::end(acc);
    } else {
        partial[row * parts + part] = acc;
    }
}

// blockDim.x lanes take a row together.
template <class Op>
DEVICE void rows(const T* a, typename Op::R* out, typename Op::A* partial, const Joint& kept, const View& reduced, i64 n, i64 m,
                 i64 parts) {
    const i64 chunk = (m + parts - 1) / parts;
    for (i64 item = (i64)blockIdx.x * blockDim.y + threadIdx.y; item < n * parts; item += (i64)gridDim.x * blockDim.y) {
        const i64 row = item / parts, part = item % parts, end = (part + 1) * chunk;
        const Places<2> at = places<2>(kept, row);
        typename Op::A acc = walk<Op>(a + at.at[1], reduced, part * chunk + threadIdx.x, end < m ? end : m, blockDim.x);
        acc = across<Op>(acc);
        if (threadIdx.x == 0) keep<Op>(acc, out, partial, at.at[0], row, part, parts);
    }
}

// A thread takes a row; where blockDim.y > 1, so many threads share it. Blocks have at most 256 threads.
template <class Op>
DEVICE void columns(const T* a, typename Op::R* out, typename Op::A* partial, const Joint& kept, const View& reduced, i64 n, i64 m,
                    i64 parts) {
    typedef typename Op::A A;
    __shared__ __align__(16) char scratch[MAX_WARPS * WARP * sizeof(A)];
    A* shared = (A*)scratch;
    const i64 chunk = (m + parts - 1) / parts, tiles = (n + blockDim.x - 1) / blockDim.x;
    for (i64 item = blockIdx.x; item < tiles * parts; item += gridDim.x) {
        const i64 row = item / parts * blockDim.x + threadIdx.x, part = item % parts, end = (part + 1) * chunk;
        Places<2> at = {{0, 0}};
        A acc = Op::start();
        if (row < n) {
            at = places<2>(kept, row);
            acc = walk<Op>(a + at.at[1], reduced, part * chunk + threadIdx.y, end < m ? end : m, blockDim.y);
        }
        if (blockDim.y > 1) {
            __syncthreads();
            shared[threadIdx.y * blockDim.x + threadIdx.x] = acc;
            __syncthreads();
            if (threadIdx.y == 0) {
                for (int y = 1; y < blockDim.y; y++) acc = Op::join(acc, shared[y * blockDim.x + threadIdx.x]);
            }
        }
        if (row < n && threadIdx.y == 0) keep<Op>(acc, out, partial, at.at[0], row, part, parts);
    }
}

// The parts of each row joined, by a warp each.
template <class Op>
DEVICE void finish(const typename Op::A* partial, typename Op::R* out, const Joint& kept, i64 n, i64 parts) {
    for (i64 row = (i64)blockIdx.x * blockDim.y + threadIdx.y; row < n; row += (i64)gridDim.x * blockDim.y) {
        typename Op::A acc = Op::start();
        for (i64 part = threadIdx.x; part < parts; part += WARP) acc = Op::join(acc, partial[row * parts + part]);
        acc = across<Op>(acc);
        if (threadIdx.x == 0) out[places<2>(kept, row).at[0]] = Op::end(acc);
    }
}

#ifdef REDUCE_OP // a module holds one op: -DREDUCE_OP=sum
typedef JOIN(REDUCE_OP, _op) Chosen;

KERNEL JOIN(JOIN(reduce_, REDUCE_OP), _rows)(const T* a, Chosen::R* out, Chosen::A* partial, const Joint kept, const View reduced,
                                             i64 n, i64 m, i64 parts) {
    rows<Chosen>(a, out, partial, kept, reduced, n, m, parts);
}

KERNEL JOIN(JOIN(reduce_, REDUCE_OP), _columns)(const T* a, Chosen::R* out, Chosen::A* partial, const Joint kept,
                                                const View reduced, i64 n, i64 m, i64 parts) {
    columns<Chosen>(a, out, partial, kept, reduced, n, m, parts);
}

KERNEL JOIN(JOIN(reduce_, REDUCE_OP), _finish)(const Chosen::A* partial, Chosen::R* out, const Joint kept, i64 n, i64 parts) {
    finish<Chosen>(partial, out, kept, n, parts);
}
#endif

// ---- Running sums ------------------------------------------------------------------------------------------------------------

#if !defined(REDUCE_OP) && (defined(T_FLOATING) || defined(T_INT64))

const int EACH = 4; // neighbours that a thread adds up by itself

DEVICE Wide wide_add(Wide a, Wide b) {
#ifdef T_FLOATING
    return a + b;
#else
    return (Wide)((u64)a + (u64)b);
#endif
}

// A block of 256 threads scans 1024 elements of a line; totals[line, tile] is their sum.
KERNEL scan_rows(const T* a, T* out, Wide* totals, const Joint kept, i64 a_step, i64 out_step, i64 n, i64 m) {
    __shared__ Wide of_warp[MAX_WARPS];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    const i64 tile = (i64)blockDim.x * EACH, tiles = (m + tile - 1) / tile;
    for (i64 item = blockIdx.x; item < n * tiles; item += gridDim.x) {
        const i64 line = item / tiles, first = item % tiles * tile + (i64)threadIdx.x * EACH;
        const Places<2> at = places<2>(kept, line);
        Wide own[EACH], total = 0;
        for (int k = 0; k < EACH; k++) {
            if (first + k < m) total = wide_add(total, (Wide)a[at.at[1] + (first + k) * a_step]);
            own[k] = total;
        }
        Wide up_to = total; // of this lane and those before it
#pragma unroll
        for (int d = 1; d < WARP; d *= 2) {
            const Wide other = __shfl_up_sync(FULL_WARP, up_to, d);
            if (lane >= d) up_to = wide_add(other, up_to);
        }
        Wide earlier = __shfl_up_sync(FULL_WARP, up_to, 1);
        if (lane == 0) earlier = 0;
        __syncthreads(); // the last tile's sums have been read
        if (lane == WARP - 1) of_warp[warp] = up_to;
        __syncthreads();
        Wide warps = 0;
        for (int w = 0; w < warp; w++) warps = wide_add(warps, of_warp[w]);
        earlier = wide_add(warps, earlier);
        for (int k = 0; k < EACH; k++) {
            if (first + k < m) out[at.at[0] + (first + k) * out_step] = (T)wide_add(earlier, own[k]);
        }
        if (threadIdx.x == blockDim.x - 1) totals[item] = wide_add(earlier, total);
    }
}

// The sums of all tiles before (totals, scanned) added to each element.
KERNEL scan_shift(T* out, const Wide* totals, const Joint kept, i64 out_step, i64 n, i64 m, i64 tile) {
    const i64 tiles = (m + tile - 1) / tile;
    FOR_EACH(i, n * m) {
        const i64 line = i / m, at = i % m;
        if (at >= tile) {
            T* place = out + places<2>(kept, line).at[0] + at * out_step;
            *place = (T)wide_add((Wide)*place, totals[line * tiles + at / tile - 1]);
        }
    }
}

// A thread scans a line: for lines that are neighbours.
KERNEL scan_columns(const T* a, T* out, const Joint kept, i64 a_step, i64 out_step, i64 n, i64 m) {
    FOR_EACH(line, n) {
        const Places<2> at = places<2>(kept, line);
        Wide total = 0;
        for (i64 i = 0; i < m; i++) {
            total = wide_add(total, (Wide)a[at.at[1] + i * a_step]);
            out[at.at[0] + i * out_step] = (T)total;
        }
    }
}

#endif
