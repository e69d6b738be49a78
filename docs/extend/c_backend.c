/* Kernels of docs/extend/c_backend.py. c_kernels.h is included once per dtype; what stands here serves all of them. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#define MAX_DIMS 32
enum { NEGATIVE, ABS, RELU, SQRT, ADD, SUBTRACT, MULTIPLY, DIVIDE, MAXIMUM, MINIMUM }; /* the order of OPS in c_backend.py */

/* The common shape of the operands, and the strides of each, in elements */
typedef struct {
    int64_t ndim, shape[MAX_DIMS], strides[3][MAX_DIMS];
} Layout;

/* The loop of a kernel goes along the last axis: its length, and the step of an operand. */
static int64_t inner(const Layout *at) { return at->ndim ? at->shape[at->ndim - 1] : 1; }
static int64_t step(const Layout *at, int operand) { return at->ndim ? at->strides[operand][at->ndim - 1] : 0; }

/* Where a kernel is: the index of its row, and where the row begins in each operand */
typedef struct {
    int64_t index[MAX_DIMS], place[3];
} Walk;

/* Go to the next row, counting like an odometer over all axes but the last; 0 at the end. */
static int next(const Layout *at, Walk *w) {
    for (int64_t axis = at->ndim - 2; axis >= 0; axis--) {
        int64_t back = ++w->index[axis] < at->shape[axis] ? 0 : at->shape[axis];
        for (int k = 0; k < 3; k++) w->place[k] += at->strides[k][axis] * (1 - back);
        if (!back) return 1;
        w->index[axis] = 0;
    }
    return 0;
}

void *take_memory(int64_t bytes) { return aligned_alloc(64, (bytes + 127) / 64 * 64); }
void give_back(void *memory) { free(memory); }

#define FLOATING 1
#define T float
#define NAME(x) x##_float32
#include "c_kernels.h"
#undef T
#undef NAME
#define T double
#define NAME(x) x##_float64
#include "c_kernels.h"
#undef T
#undef NAME
#undef FLOATING
#define FLOATING 0
#define T int32_t
#define NAME(x) x##_int32
#include "c_kernels.h"
#undef T
#undef NAME
#define T int64_t
#define NAME(x) x##_int64
#include "c_kernels.h"
