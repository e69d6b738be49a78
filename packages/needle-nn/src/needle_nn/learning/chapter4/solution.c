/* Chapter 4 in C: the loops of needle_ndarray/kernels, without threads, vectors and other dtypes. */
#include <stdint.h>

int compact(const float *a, float *out, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset) {
    int64_t index[8] = {0}, n = 1;
    for (int axis = 0; axis < ndim; axis++) n *= shape[axis];
    const float *at = a + offset;
    for (int64_t i = 0; i < n; i++) {
        out[i] = *at;
        for (int axis = ndim - 1; axis >= 0; axis--) { /* count like an odometer */
            at += strides[axis];
            if (++index[axis] < shape[axis]) break;
            at -= strides[axis] * shape[axis];
            index[axis] = 0;
        }
    }
    return 0;
}

int add(const float *a, const float *b, float *out, int64_t n) {
    for (int64_t i = 0; i < n; i++) out[i] = a[i] + b[i];
    return 0;
}

int row_sums(const float *a, float *out, int64_t rows, int64_t columns) {
    for (int64_t i = 0; i < rows; i++) {
        double sum = 0;
        for (int64_t j = 0; j < columns; j++) sum += a[i * columns + j];
        out[i] = (float)sum;
    }
    return 0;
}

int matmul(const float *a, const float *b, float *out, int64_t m, int64_t k, int64_t n) {
    for (int64_t i = 0; i < m * n; i++) out[i] = 0;
    for (int64_t i = 0; i < m; i++)
        for (int64_t p = 0; p < k; p++)
            for (int64_t j = 0; j < n; j++) out[i * n + j] += a[i * k + p] * b[p * n + j];
    return 0;
}
