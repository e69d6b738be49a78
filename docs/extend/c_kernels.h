/* The kernels of one dtype: T is the type, NAME(x) adds its suffix to a name, FLOATING says whether it has NaN. */

static T NAME(larger)(T a, T b) { return a > b || a != a ? a : b; } /* NaN if either is: b where neither comparison holds */
static T NAME(smaller)(T a, T b) { return a < b || a != a ? a : b; }

/* out = op(a), any strides */
void NAME(unary)(int op, const Layout *at, const T *a, T *out) {
    Walk w = {0};
    int64_t n = inner(at), da = step(at, 0), d = step(at, 1);
    do {
        const T *x = a + w.place[0];
        T *y = out + w.place[1];
        switch (op) {
            case NEGATIVE: for (int64_t i = 0; i < n; i++) y[i * d] = -x[i * da]; break;
            case ABS: for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da] < 0 ? -x[i * da] : x[i * da] + 0; break;
            case RELU: for (int64_t i = 0; i < n; i++) y[i * d] = NAME(larger)(x[i * da], 0); break;
#if FLOATING
            case SQRT: for (int64_t i = 0; i < n; i++) y[i * d] = (T)sqrt(x[i * da]); break;
#endif
        }
    } while (next(at, &w));
}

/* out = op(a, b), any strides */
void NAME(binary)(int op, const Layout *at, const T *a, const T *b, T *out) {
    Walk w = {0};
    int64_t n = inner(at), da = step(at, 0), db = step(at, 1), d = step(at, 2);
    do {
        const T *x = a + w.place[0], *z = b + w.place[1];
        T *y = out + w.place[2];
        switch (op) {
            case ADD: for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da] + z[i * db]; break;
            case SUBTRACT: for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da] - z[i * db]; break;
            case MULTIPLY: for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da] * z[i * db]; break;
            case MAXIMUM: for (int64_t i = 0; i < n; i++) y[i * d] = NAME(larger)(x[i * da], z[i * db]); break;
            case MINIMUM: for (int64_t i = 0; i < n; i++) y[i * d] = NAME(smaller)(x[i * da], z[i * db]); break;
#if FLOATING
            case DIVIDE: for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da] / z[i * db]; break;
#endif
        }
    } while (next(at, &w));
}

/* out = a, any strides: also how views of this width are brought in order */
void NAME(copy)(const Layout *at, const T *a, T *out) {
    Walk w = {0};
    int64_t n = inner(at), da = step(at, 0), d = step(at, 1);
    do {
        const T *x = a + w.place[0];
        T *y = out + w.place[1];
        for (int64_t i = 0; i < n; i++) y[i * d] = x[i * da];
    } while (next(at, &w));
}

#if FLOATING
/* The sum of n numbers in halves, so that the error grows with log n. */
static T NAME(pairwise)(const T *a, int64_t n) {
    T sum = 0;
    if (n > 32) return NAME(pairwise)(a, n / 2) + NAME(pairwise)(a + n / 2, n - n / 2);
    for (int64_t i = 0; i < n; i++) sum += a[i];
    return sum;
}

/* out[i] = sum of row i of a, compact (rows, n) */
void NAME(sum)(const T *a, T *out, int64_t rows, int64_t n) {
    for (int64_t i = 0; i < rows; i++) out[i] = NAME(pairwise)(a + i * n, n);
}

/* out (m, n) = a (m, k) b (k, n), compact; sums are taken over blocks of k, as in `pairwise` */
void NAME(matmul)(const T *a, const T *b, T *out, int64_t m, int64_t k, int64_t n) {
    double *sums = malloc(sizeof(double) * (n + 1));
    for (int64_t i = 0; i < m; i++) {
        for (int64_t j = 0; j < n; j++) sums[j] = 0;
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++) sums[j] += (double)a[i * k + p] * b[p * n + j];
        for (int64_t j = 0; j < n; j++) out[i * n + j] = (T)sums[j];
    }
    free(sums);
}
#endif
