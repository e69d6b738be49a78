/* At most `limit` calls of BLAS at once, any number where it is 0: each holds a buffer, see blas_buffers.h. */
#ifndef NEEDLE_GATE_H
#define NEEDLE_GATE_H
#include <sched.h>

static inline void needle_enter(int *running, const int *limit)
{
    for (;;) {
        int n = __atomic_load_n(running, __ATOMIC_RELAXED), most = __atomic_load_n(limit, __ATOMIC_RELAXED);
        if (most && n >= most)
            sched_yield();
        else if (__atomic_compare_exchange_n(running, &n, n + 1, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
            return;
    }
}

static inline void needle_leave(int *running) { __atomic_sub_fetch(running, 1, __ATOMIC_RELEASE); }

#endif
