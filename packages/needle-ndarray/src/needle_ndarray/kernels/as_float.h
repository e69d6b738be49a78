/* What is read next is for float; see vectors.h. */
#include "as_nothing.h"
#define T float
#define INTEGER int
#define UNSIGNED unsigned
#define FN(name) needle_##name##_float
#define X86(name) NEEDLE_X86(name##_ps)
#define vec FN(vec)
#define mask FN(mask)
#define bits FN(bits)
#define unaligned FN(unaligned)
#define lane_block FN(lane_block)
#define LANES ((int) (NEEDLE_VECTOR / sizeof(T)))
