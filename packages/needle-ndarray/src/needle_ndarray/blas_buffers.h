/* Buffers of OpenBLAS: it takes one of 32 MB for every call that runs at a time, keeps it for later calls, and ends the process
 * where there is no memory for one. So where memory is limited the buffers are taken before the first product, by calls that are
 * seen to run at the same time, and from then on no more calls run at once than there are buffers. */
#ifndef NEEDLE_BLAS_BUFFERS_H
#define NEEDLE_BLAS_BUFFERS_H
#include <stdlib.h>
#include "portable.h"
#if !defined(_WIN32)
#include <sys/mman.h>
#include <sys/resource.h>
#endif

enum { NEEDLE_HELD = 128, NEEDLE_HELD_STACK = 1 << 20 };   /* rows and columns of the products that hold a buffer */

typedef void (*needle_sgemm)(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda, const float *b,
                             int ldb, float beta, float *c, int ldc);

typedef struct {
    needle_sgemm gemm;
    const float *zeros;                                 /* (depth, NEEDLE_HELD) */
    int depth, done;
    float out[NEEDLE_HELD * NEEDLE_HELD];               /* what is not 0 has not been begun */
} needle_holder;

NEEDLE_THREAD needle_hold(void *given)
{
    needle_holder *h = given;
    h->gemm(101, 112, 111, NEEDLE_HELD, NEEDLE_HELD, h->depth, 1, h->zeros, NEEDLE_HELD, h->zeros, NEEDLE_HELD, 0, h->out,
            NEEDLE_HELD);
    __atomic_store_n(&h->done, 1, __ATOMIC_RELEASE);
    return 0;
}

/* One buffer, taken by the thread that asks: nothing else is allocated between the look for memory and the call. */
static int needle_take_first(needle_sgemm gemm)
{
    static const float zeros[NEEDLE_HELD * NEEDLE_HELD];
    static needle_holder holder;                        /* not on the stack, and not from malloc */
    holder = (needle_holder) {.gemm = gemm, .zeros = zeros, .depth = NEEDLE_HELD};
    needle_hold(&holder);
    return 1;
}

#if defined(_WIN32) /* nothing limits the memory of a process alone */
static int needle_memory_is_limited(void) { return 0; }
static int needle_fits(size_t bytes) { return (void) bytes, 1; }
static int needle_take_buffers(needle_sgemm gemm, int count, int depth) { return (void) gemm, (void) count, (void) depth, 0; }
#else
/* Whether the system may refuse memory that the machine has. */
static int needle_memory_is_limited(void)
{
    struct rlimit space, data;
    return getrlimit(RLIMIT_AS, &space) || getrlimit(RLIMIT_DATA, &data) || space.rlim_cur != RLIM_INFINITY ||
           data.rlim_cur != RLIM_INFINITY;
}

static int needle_fits(size_t bytes)
{
    void *found = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return found != MAP_FAILED && munmap(found, bytes) == 0;
}

/* How many products were at work in one moment: their result is cleared, which comes after the buffer is taken, and not done. */
static int needle_at_work(needle_holder *holders, int count, int *all_begun, int *any_done)
{
    int begun = 0, working = 0;
    char seen[count];
    for (int i = 0; i < count; i++)
        begun += seen[i] = *(volatile float *) holders[i].out == 0;
    for (int i = 0; i < count; i++) {
        int done = __atomic_load_n(&holders[i].done, __ATOMIC_ACQUIRE);
        working += seen[i] && !done;
        *any_done |= done;
    }
    *all_begun = begun == count;
    return working;
}

/* Run `count` products in threads of their own: how many buffers are certain to be there afterwards. */
static int needle_take_buffers(needle_sgemm gemm, int count, int depth)
{
    needle_holder *holders = malloc(count * sizeof(needle_holder));
    pthread_t *threads = malloc(count * sizeof(pthread_t));
    float *zeros = calloc((size_t) depth * NEEDLE_HELD, sizeof(float));
    pthread_attr_t attributes;
    int started = 0, most = 0, all_begun = 0, any_done = 0;
    if (holders && threads && zeros && !pthread_attr_init(&attributes)) {
        pthread_attr_setstacksize(&attributes, NEEDLE_HELD_STACK);
        for (; started < count; started++) {
            holders[started] = (needle_holder) {.gemm = gemm, .zeros = zeros, .depth = depth};
            holders[started].out[0] = 1;
            if (pthread_create(&threads[started], &attributes, needle_hold, &holders[started]))
                break;
        }
        pthread_attr_destroy(&attributes);
        while (!any_done && !all_begun) {
            int now = needle_at_work(holders, started, &all_begun, &any_done);
            most = now > most ? now : most;
            needle_yield();
        }
        for (int i = 0; i < started; i++)
            pthread_join(threads[i], NULL);
    }
    free(holders), free(threads), free(zeros);
    return most;
}
#endif

#endif
