/* Chapter 4: kernels for the CPU. `needle learn check 4` compiles and checks this file.
 *
 * Sizes, strides and offsets count elements. Where an array is said to be compact, its elements are one after the other.
 * Remove the line TODO of a function when you have written it.
 */
#include <stdint.h>

#define TODO return 1 /* tells the checks that this function is not written yet */

/* out, compact, = the view of a with this shape (ndim numbers), strides and offset. ndim is 0 to 8. */
int compact(const float *a, float *out, int ndim, const int64_t *shape, const int64_t *strides, int64_t offset) {
    TODO;
    return 0;
}

/* out = a + b, all compact with n elements */
int add(const float *a, const float *b, float *out, int64_t n) {
    TODO;
    return 0;
}

/* out[i] = the sum of row i of a, compact (rows, columns); add up in double */
int row_sums(const float *a, float *out, int64_t rows, int64_t columns) {
    TODO;
    return 0;
}

/* out (m, n) = a (m, k) b (k, n), all compact */
int matmul(const float *a, const float *b, float *out, int64_t m, int64_t k, int64_t n) {
    TODO;
    return 0;
}
