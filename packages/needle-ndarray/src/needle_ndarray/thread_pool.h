/* A pool of threads that work off the tasks of one call at a time.
 *
 * The caller never waits for a thread that sleeps: it takes every task that nobody has taken, and at the end waits only for those
 * who have begun one. So a call costs a microsecond where all are awake, and no more than the work itself where the other cores
 * are busy. (OpenMP gives each thread its share and waits for all of them: 50 microseconds for one that has gone to sleep, and
 * a time slice of the system for one whose core somebody else is using.) */
#ifndef NEEDLE_THREAD_POOL_H
#define NEEDLE_THREAD_POOL_H
#include "portable.h"

enum { NEEDLE_MAX_THREADS = 1024, NEEDLE_CLAIMS = 32 }; /* a thread takes its share in so many claims: others may take the rest */
#define NEEDLE_AWAKE 1000000 /* nanoseconds a thread looks for the next call before it sleeps */
#define NEEDLE_PATIENCE 50000 /* and the caller for the end of the last task */
#define NEEDLE_STACK (4 << 20)
#define NEEDLE_OPEN (UINT64_C(1) << 31) /* the gate: the number of the call, whether it is open, how many are inside */
#define NEEDLE_INSIDE (NEEDLE_OPEN - 1)

typedef void (*needle_task)(const void *job, ptrdiff_t i, int thread);

typedef struct { /* one thread's share, in a cache line of its own */
    ptrdiff_t next, end;
    char padding[64 - 2 * sizeof(ptrdiff_t)];
} needle_range;

static struct {
    needle_task task;
    const void *job;
    ptrdiff_t grain;
    int threads, started, sleeping, waiting;
    uint64_t gate;
    needle_mutex busy, lock;
    needle_condition work, done;
    needle_range range[NEEDLE_MAX_THREADS];
} pool = {.busy = NEEDLE_MUTEX, .lock = NEEDLE_MUTEX, .work = NEEDLE_CONDITION, .done = NEEDLE_CONDITION};

static inline void needle_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* Work off one's own share, then what is left of the others'. */
static void needle_take(int me)
{
    for (int k = 0; k < pool.threads; k++) {
        needle_range *from = &pool.range[(me + k) % pool.threads];
        for (;;) {
            ptrdiff_t i = __atomic_fetch_add(&from->next, pool.grain, __ATOMIC_RELAXED), end = from->end;
            if (i >= end)
                break;
            for (ptrdiff_t stop = i + pool.grain < end ? i + pool.grain : end; i < stop; i++)
                pool.task(pool.job, i, me);
        }
    }
}

static inline int needle_called(uint64_t gate, uint64_t last) { return (gate & NEEDLE_OPEN) && gate >> 32 != last; }

/* Wait for a call after the last: awake for a while, as long as nobody else wants the core, then asleep. */
static uint64_t needle_wait(uint64_t last)
{
    uint64_t gate;
    for (int64_t end = needle_now() + NEEDLE_AWAKE; needle_now() < end; needle_yield())
        for (int k = 0; k < 64; k++) {
            if (needle_called(gate = __atomic_load_n(&pool.gate, __ATOMIC_ACQUIRE), last))
                return gate;
            needle_pause();
        }
    needle_lock(&pool.lock);
    __atomic_add_fetch(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
    while (!needle_called(gate = __atomic_load_n(&pool.gate, __ATOMIC_SEQ_CST), last))
        needle_sleep(&pool.work, &pool.lock);
    __atomic_sub_fetch(&pool.sleeping, 1, __ATOMIC_SEQ_CST);
    needle_unlock(&pool.lock);
    return gate;
}

NEEDLE_THREAD needle_member(void *number)
{
    int me = (int) (intptr_t) number;
    uint64_t last = 0;
    for (;;) {
        uint64_t gate = needle_wait(last);
        while (needle_called(gate, last)) {
            if (!__atomic_compare_exchange_n(&pool.gate, &gate, gate + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                continue; /* `gate` is what it is now */
            last = gate >> 32;
            if (me < pool.threads)
                needle_take(me);
            gate = __atomic_sub_fetch(&pool.gate, 1, __ATOMIC_SEQ_CST);
            if (!(gate & NEEDLE_INSIDE) && __atomic_load_n(&pool.waiting, __ATOMIC_SEQ_CST)) {
                needle_lock(&pool.lock);
                needle_wake(&pool.done);
                needle_unlock(&pool.lock);
            }
        }
    }
    return 0;
}

/* Threads do not survive a fork: the child starts new ones. */
static void needle_forked(void)
{
    pool.busy = pool.lock = (needle_mutex) NEEDLE_MUTEX;
    pool.work = pool.done = (needle_condition) NEEDLE_CONDITION;
    pool.started = pool.sleeping = pool.waiting = 0;
    pool.gate = 0;
}

static void needle_start(int threads)
{
    static int registered = 0;
    if (!registered)
        registered = needle_in_forked(needle_forked);
    while (registered && pool.started < threads - 1) {
        if (!needle_start_thread(needle_member, (void *) (intptr_t) (pool.started + 1), NEEDLE_STACK))
            break; /* the caller takes what nobody takes */
        pool.started++;
    }
}

/* Wait for those inside: awake for a while, then asleep, since one of them may have lost its core and can have this one. */
static void needle_finish(void)
{
    int64_t end = needle_now() + NEEDLE_PATIENCE;
    while (__atomic_load_n(&pool.gate, __ATOMIC_ACQUIRE) & NEEDLE_INSIDE) {
        if (needle_now() >= end) {
            needle_lock(&pool.lock);
            __atomic_store_n(&pool.waiting, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&pool.gate, __ATOMIC_SEQ_CST) & NEEDLE_INSIDE)
                needle_sleep(&pool.done, &pool.lock);
            __atomic_store_n(&pool.waiting, 0, __ATOMIC_SEQ_CST);
            needle_unlock(&pool.lock);
            return;
        }
        needle_pause();
    }
}

/* task(job, i, thread) for every i < n, with thread < threads; alone where the pool works for somebody else, a task included. */
static void needle_share(needle_task task, const void *job, ptrdiff_t n, int threads)
{
    threads = threads < n ? threads : (int) n;
    if (threads <= 1 || !needle_try_lock(&pool.busy)) {
        for (ptrdiff_t i = 0; i < n; i++)
            task(job, i, 0);
        return;
    }
    if (pool.started < threads - 1)
        needle_start(threads);
    pool.task = task, pool.job = job, pool.threads = threads;
    pool.grain = n / ((ptrdiff_t) threads * NEEDLE_CLAIMS) + 1;
    for (int t = 0; t < threads; t++) {
        pool.range[t].next = n / threads * t + (t < n % threads ? t : n % threads);
        pool.range[t].end = pool.range[t].next + n / threads + (t < n % threads);
    }
    uint64_t call = (pool.gate >> 32) + 1;
    __atomic_store_n(&pool.gate, call << 32 | NEEDLE_OPEN, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&pool.sleeping, __ATOMIC_SEQ_CST)) {
        needle_lock(&pool.lock);
        needle_wake_all(&pool.work);
        needle_unlock(&pool.lock);
    }
    needle_take(0);
    if (__atomic_and_fetch(&pool.gate, ~NEEDLE_OPEN, __ATOMIC_SEQ_CST) & NEEDLE_INSIDE)
        needle_finish();
    needle_unlock(&pool.busy);
}

#endif
