/* What is read next is for double; see vectors.h. */
#include "as_nothing.h"
#define T double
#define INTEGER long long
#define UNSIGNED unsigned long long
#define FN(name) needle_##name##_double
#define X86(name) NEEDLE_X86(name##_pd)
#define vec FN(vec)
#define mask FN(mask)
#define bits FN(bits)
#define unaligned FN(unaligned)
#define lane_block FN(lane_block)
#define LANES ((int) (NEEDLE_VECTOR / sizeof(T)))
