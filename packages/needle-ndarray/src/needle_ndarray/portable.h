/* Threads, time, memory and libraries under one name on every system: Win32's on Windows, POSIX's elsewhere. */
#ifndef NEEDLE_PORTABLE_H
#define NEEDLE_PORTABLE_H
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#ifndef WIN32_LEAN_AND_MEAN
#define WIN32_LEAN_AND_MEAN
#endif
#include <malloc.h>
#include <process.h>
#include <windows.h>

typedef SRWLOCK needle_mutex;
typedef CONDITION_VARIABLE needle_condition;
#define NEEDLE_MUTEX SRWLOCK_INIT
#define NEEDLE_CONDITION CONDITION_VARIABLE_INIT
#define NEEDLE_THREAD static unsigned __stdcall

static inline void needle_lock(needle_mutex *mutex) { AcquireSRWLockExclusive(mutex); }
static inline int needle_try_lock(needle_mutex *mutex) { return TryAcquireSRWLockExclusive(mutex); }
static inline void needle_unlock(needle_mutex *mutex) { ReleaseSRWLockExclusive(mutex); }
static inline void needle_sleep(needle_condition *until, needle_mutex *mutex)
{
    SleepConditionVariableSRW(until, mutex, INFINITE, 0);
}
static inline void needle_wake(needle_condition *until) { WakeConditionVariable(until); }
static inline void needle_wake_all(needle_condition *until) { WakeAllConditionVariable(until); }
static inline void needle_yield(void) { SwitchToThread(); }

static inline int64_t needle_now(void)
{
    LARGE_INTEGER ticks, per_second;
    QueryPerformanceCounter(&ticks);
    QueryPerformanceFrequency(&per_second);
    return ticks.QuadPart / per_second.QuadPart * 1000000000 +
           ticks.QuadPart % per_second.QuadPart * 1000000000 / per_second.QuadPart;
}

/* Start a thread that nobody waits for; 0 where the system has none left. */
static inline int needle_start_thread(unsigned(__stdcall *body)(void *), void *given, size_t stack)
{
    uintptr_t thread = _beginthreadex(NULL, (unsigned) stack, body, given, STACK_SIZE_PARAM_IS_A_RESERVATION, NULL);
    return thread && CloseHandle((HANDLE) thread);
}

static inline int needle_in_forked(void (*child)(void)) { return (void) child, 1; } /* a process here is never a copy of another */

static inline ptrdiff_t needle_physical_memory(void)
{
    MEMORYSTATUSEX memory = {.dwLength = sizeof memory};
    return GlobalMemoryStatusEx(&memory) ? (ptrdiff_t) memory.ullTotalPhys : 0;
}

static inline void *needle_aligned(size_t alignment, size_t nbytes) { return _aligned_malloc(nbytes, alignment); }
static inline void needle_free_aligned(void *block) { _aligned_free(block); }
static inline void needle_trim(void) {}

static inline void *needle_open_library(const char *utf8)
{
    wchar_t path[4096];
    return MultiByteToWideChar(CP_UTF8, 0, utf8, -1, path, 4096) ? (void *) LoadLibraryW(path) : NULL;
}
static inline void *needle_symbol(void *library, const char *name) { return (void *) GetProcAddress((HMODULE) library, name); }

#else
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

typedef pthread_mutex_t needle_mutex;
typedef pthread_cond_t needle_condition;
#define NEEDLE_MUTEX PTHREAD_MUTEX_INITIALIZER
#define NEEDLE_CONDITION PTHREAD_COND_INITIALIZER
#define NEEDLE_THREAD static void *

static inline void needle_lock(needle_mutex *mutex) { pthread_mutex_lock(mutex); }
static inline int needle_try_lock(needle_mutex *mutex) { return pthread_mutex_trylock(mutex) == 0; }
static inline void needle_unlock(needle_mutex *mutex) { pthread_mutex_unlock(mutex); }
static inline void needle_sleep(needle_condition *until, needle_mutex *mutex) { pthread_cond_wait(until, mutex); }
static inline void needle_wake(needle_condition *until) { pthread_cond_signal(until); }
static inline void needle_wake_all(needle_condition *until) { pthread_cond_broadcast(until); }
static inline void needle_yield(void) { sched_yield(); }

static inline int64_t needle_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t) t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int needle_start_thread(void *(*body)(void *), void *given, size_t stack)
{
    pthread_t thread;
    pthread_attr_t attributes;
    if (pthread_attr_init(&attributes))
        return 0;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, stack);
    int failed = pthread_create(&thread, &attributes, body, given);
    pthread_attr_destroy(&attributes);
    return !failed;
}

static inline int needle_in_forked(void (*child)(void)) { return pthread_atfork(NULL, NULL, child) == 0; }

static inline ptrdiff_t needle_physical_memory(void)
{
    return (ptrdiff_t) sysconf(_SC_PHYS_PAGES) * (ptrdiff_t) sysconf(_SC_PAGESIZE);
}

static inline void *needle_aligned(size_t alignment, size_t nbytes)
{
    void *block;
    return posix_memalign(&block, alignment, nbytes) ? NULL : block;
}
static inline void needle_free_aligned(void *block) { free(block); }

/* glibc keeps small blocks that were freed; the others give them back by themselves */
static inline void needle_trim(void)
{
#if defined(__GLIBC__)
    malloc_trim(0);
#endif
}

static inline void *needle_open_library(const char *path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static inline void *needle_symbol(void *library, const char *name) { return dlsym(library, name); }
#endif

#endif
