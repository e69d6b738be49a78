/* A team of threads that work off the tasks of one call at a time.
 *
 * The caller never waits for a thread that sleeps: it takes every task that nobody has taken, and at the end waits only for those
 * who have begun one. So a call costs a microsecond where all are awake, and no more than the work itself where the other cores
 * are busy. (OpenMP gives each thread its share and waits for all of them: 50 microseconds for one that has gone to sleep, and
 * a time slice of the system for one whose core somebody else is using.) */
#ifndef NEEDLE_TEAM_H
#define NEEDLE_TEAM_H
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

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
    pthread_mutex_t busy, lock;
    pthread_cond_t work, done;
    needle_range range[NEEDLE_MAX_THREADS];
} team = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .work = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static inline void needle_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t needle_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Work off one's own share, then what is left of the others'. */
static void needle_take(int me)
{
    for (int k = 0; k < team.threads; k++) {
        needle_range *from = &team.range[(me + k) % team.threads];
        for (;;) {
            ptrdiff_t i = __atomic_fetch_add(&from->next, team.grain, __ATOMIC_RELAXED), end = from->end;
            if (i >= end)
                break;
            for (ptrdiff_t stop = i + team.grain < end ? i + team.grain : end; i < stop; i++)
                team.task(team.job, i, me);
        }
    }
}

static inline int needle_called(uint64_t gate, uint64_t last) { return (gate & NEEDLE_OPEN) && gate >> 32 != last; }

/* Wait for a call after the last: awake for a while, as long as nobody else wants the core, then asleep. */
static uint64_t needle_wait(uint64_t last)
{
    uint64_t gate;
    for (int64_t end = needle_now() + NEEDLE_AWAKE; needle_now() < end; sched_yield())
        for (int k = 0; k < 64; k++) {
            if (needle_called(gate = __atomic_load_n(&team.gate, __ATOMIC_ACQUIRE), last))
                return gate;
            needle_pause();
        }
    pthread_mutex_lock(&team.lock);
    __atomic_add_fetch(&team.sleeping, 1, __ATOMIC_SEQ_CST);
    while (!needle_called(gate = __atomic_load_n(&team.gate, __ATOMIC_SEQ_CST), last))
        pthread_cond_wait(&team.work, &team.lock);
    __atomic_sub_fetch(&team.sleeping, 1, __ATOMIC_SEQ_CST);
    pthread_mutex_unlock(&team.lock);
    return gate;
}

static void *needle_member(void *number)
{
    int me = (int) (intptr_t) number;
    uint64_t last = 0;
    for (;;) {
        uint64_t gate = needle_wait(last);
        while (needle_called(gate, last)) {
            if (!__atomic_compare_exchange_n(&team.gate, &gate, gate + 1, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
                continue; /* `gate` is what it is now */
            last = gate >> 32;
            if (me < team.threads)
                needle_take(me);
            gate = __atomic_sub_fetch(&team.gate, 1, __ATOMIC_SEQ_CST);
            if (!(gate & NEEDLE_INSIDE) && __atomic_load_n(&team.waiting, __ATOMIC_SEQ_CST)) {
                pthread_mutex_lock(&team.lock);
                pthread_cond_signal(&team.done);
                pthread_mutex_unlock(&team.lock);
            }
        }
    }
    return NULL;
}

/* Threads do not survive a fork: the child starts new ones. */
static void needle_forked(void)
{
    pthread_mutex_init(&team.busy, NULL);
    pthread_mutex_init(&team.lock, NULL);
    pthread_cond_init(&team.work, NULL);
    pthread_cond_init(&team.done, NULL);
    team.started = team.sleeping = team.waiting = 0;
    team.gate = 0;
}

static void needle_start(int threads)
{
    static int registered = 0;
    pthread_attr_t attributes;
    if (!registered)
        registered = pthread_atfork(NULL, NULL, needle_forked) == 0;
    if (pthread_attr_init(&attributes))
        return;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, NEEDLE_STACK);
    while (registered && team.started < threads - 1) {
        pthread_t thread;
        if (pthread_create(&thread, &attributes, needle_member, (void *) (intptr_t) (team.started + 1)))
            break; /* the caller takes what nobody takes */
        team.started++;
    }
    pthread_attr_destroy(&attributes);
}

/* Wait for those inside: awake for a while, then asleep, since one of them may have lost its core and can have this one. */
static void needle_finish(void)
{
    int64_t end = needle_now() + NEEDLE_PATIENCE;
    while (__atomic_load_n(&team.gate, __ATOMIC_ACQUIRE) & NEEDLE_INSIDE) {
        if (needle_now() >= end) {
            pthread_mutex_lock(&team.lock);
            __atomic_store_n(&team.waiting, 1, __ATOMIC_SEQ_CST);
            while (__atomic_load_n(&team.gate, __ATOMIC_SEQ_CST) & NEEDLE_INSIDE)
                pthread_cond_wait(&team.done, &team.lock);
            __atomic_store_n(&team.waiting, 0, __ATOMIC_SEQ_CST);
            pthread_mutex_unlock(&team.lock);
            return;
        }
        needle_pause();
    }
}

/* task(job, i, thread) for every i < n, with thread < threads; alone where the team works for somebody else, a task included. */
static void needle_share(needle_task task, const void *job, ptrdiff_t n, int threads)
{
    threads = threads < n ? threads : (int) n;
    if (threads <= 1 || pthread_mutex_trylock(&team.busy)) {
        for (ptrdiff_t i = 0; i < n; i++)
            task(job, i, 0);
        return;
    }
    if (team.started < threads - 1)
        needle_start(threads);
    team.task = task, team.job = job, team.threads = threads;
    team.grain = n / ((ptrdiff_t) threads * NEEDLE_CLAIMS) + 1;
    for (int t = 0; t < threads; t++) {
        team.range[t].next = n / threads * t + (t < n % threads ? t : n % threads);
        team.range[t].end = team.range[t].next + n / threads + (t < n % threads);
    }
    uint64_t call = (team.gate >> 32) + 1;
    __atomic_store_n(&team.gate, call << 32 | NEEDLE_OPEN, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&team.sleeping, __ATOMIC_SEQ_CST)) {
        pthread_mutex_lock(&team.lock);
        pthread_cond_broadcast(&team.work);
        pthread_mutex_unlock(&team.lock);
    }
    needle_take(0);
    if (__atomic_and_fetch(&team.gate, ~NEEDLE_OPEN, __ATOMIC_SEQ_CST) & NEEDLE_INSIDE)
        needle_finish();
    pthread_mutex_unlock(&team.busy);
}

#endif
