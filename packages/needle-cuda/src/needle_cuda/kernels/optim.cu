// Steps of optimizers, in place, many parameters in one launch: their addresses and sizes come as an argument of the kernel, and
// each block takes a CHUNK of one of them. Arithmetic is in T in the order of the formulas, every result rounded (this file is
// compiled with --fmad=false): the same bits as on every other backend. Bound by bandwidth.

const int COUNT = 64;                   // parameters of one launch (optimizers.py)
const i64 CHUNK = 4096;                 // elements of one block

struct Parameters {
    T* at[4][COUNT];                    // p, g, and u or m, v
    i64 size[COUNT], first[COUNT];      // elements, and the first block; none is empty
    i64 count;
};

enum { VELOCITY = 1, NESTEROV = 2, WEIGHT_DECAY = 4, L1 = 8, DECOUPLED = 16 };

// The parameter that a block works on: the last one that begins at or before it
DEVICE int parameter_of(const Parameters& all, i64 block) {
    int low = 0, high = (int)all.count;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (all.first[middle] <= block) low = middle;
        else high = middle;
    }
    return low;
}

// Each element i of the block's chunk of parameter k
#define FOR_CHUNK(i, k, all)                                                            \
    const int k = parameter_of(all, blockIdx.x);                                        \
    const i64 i##_from = (blockIdx.x - all.first[k]) * CHUNK;                           \
    const i64 i##_to = i##_from + CHUNK < all.size[k] ? i##_from + CHUNK : all.size[k]; \
    for (i64 i = i##_from + threadIdx.x; i < i##_to; i += blockDim.x)

// g + weight_decay p + l1 sign(p); penalties of 0 are left out
DEVICE T penalised(T g, T p, i64 rule, T weight_decay, T l1) {
    if (rule & WEIGHT_DECAY) g = g + weight_decay * p;
    if (rule & L1) g = g + l1 * (p > 0 ? (T)1 : p < 0 ? (T)-1 : p == 0 ? (T)0 : p);
    return g;
}

// u = momentum u + rest g';  p -= lr u / correction, or along momentum u + rest g' with Nesterov; p -= lr g' without velocities
KERNEL sgd_step(const Parameters all, i64 rule, T lr, T momentum, T rest, T weight_decay, T l1, T correction) {
    FOR_CHUNK(i, k, all) {
        const T p = all.at[0][k][i], g = penalised(all.at[1][k][i], p, rule, weight_decay, l1);
        T along = g;
        if (rule & VELOCITY) {
            const T each = rest * g, u = momentum * all.at[2][k][i] + each;
            all.at[2][k][i] = u;
            along = (rule & NESTEROV ? momentum * u + each : u) / correction;
        }
        all.at[0][k][i] = p - lr * along;
    }
}

// m = beta1 m + one_minus_beta1 g';  v = beta2 v + one_minus_beta2 g' g';
// p -= lr (m / correction1) / (sqrt(v / correction2) + eps); decoupled: g' = g, and p -= decay p comes first
KERNEL adam_step(const Parameters all, i64 rule, T lr, T beta1, T one_minus_beta1, T beta2, T one_minus_beta2, T eps,
                 T weight_decay, T decay, T correction1, T correction2) {
    FOR_CHUNK(i, k, all) {
        T p = all.at[0][k][i];
        if (rule & DECOUPLED) p = p - decay * p;
        const T g = penalised(all.at[1][k][i], p, rule, weight_decay, 0);
        const T m = beta1 * all.at[2][k][i] + one_minus_beta1 * g, v = beta2 * all.at[3][k][i] + one_minus_beta2 * g * g;
        all.at[2][k][i] = m;
        all.at[3][k][i] = v;
        all.at[0][k][i] = p - lr * (m / correction1) / (sqrt(v / correction2) + eps);
    }
}
