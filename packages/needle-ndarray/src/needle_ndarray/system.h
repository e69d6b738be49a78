/* What the allocator and the choice of kernels ask of the system. */
#ifndef NEEDLE_SYSTEM_H
#define NEEDLE_SYSTEM_H
#include <stddef.h>
#include <stdlib.h>
#include "portable.h"

/* In a sanitizer build only the bytes asked for may be touched, of blocks in use only. */
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
static inline void needle_lend(void *block, ptrdiff_t nbytes, ptrdiff_t block_bytes)
{
    ASAN_UNPOISON_MEMORY_REGION(block, nbytes);
    ASAN_POISON_MEMORY_REGION((char *) block + nbytes, block_bytes - nbytes);
}
static inline void needle_end(void *block, ptrdiff_t block_bytes) { ASAN_UNPOISON_MEMORY_REGION(block, block_bytes); }
#else
static inline void needle_lend(void *block, ptrdiff_t nbytes, ptrdiff_t block_bytes)
{
    (void) block, (void) nbytes, (void) block_bytes;
}
static inline void needle_end(void *block, ptrdiff_t block_bytes) { (void) block, (void) block_bytes; }
#endif

#if defined(__linux__)
#include <sys/mman.h>
static inline void needle_huge_pages(void *block, size_t nbytes) { (void) madvise(block, nbytes, MADV_HUGEPAGE); }
#else
static inline void needle_huge_pages(void *block, size_t nbytes) { (void) block, (void) nbytes; }
#endif

static inline int needle_highest_bit(ptrdiff_t n) { return 63 - __builtin_clzll((unsigned long long) n); }

/* The x86-64 level (2, 3, 4) whose instructions the processor has and the system lets programs use: 1 for less, 0 elsewhere.
 * By cpuid, since not every compiler's library brings what __builtin_cpu_supports reads. */
#if defined(__x86_64__)
#include <cpuid.h>
static int needle_cpu_level(void)
{
    unsigned a, b = 0, c = 0, d, saved = 0, high, features;
    if (!__get_cpuid(1, &a, &b, &features, &d) || !(features & bit_SSE4_2) || !(features & bit_POPCNT))
        return 1;
    if (features & bit_OSXSAVE)
        __asm__("xgetbv" : "=a"(saved), "=d"(high) : "c"(0)); /* registers that the system saves */
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d))
        b = 0;
    const unsigned v3 = bit_AVX2 | bit_BMI | bit_BMI2, v4 = bit_AVX512F | bit_AVX512BW | bit_AVX512CD | bit_AVX512DQ | bit_AVX512VL;
    if ((saved & 0x06) != 0x06 || !(features & bit_FMA) || (b & v3) != v3)
        return 2;
    return (saved & 0xe0) == 0xe0 && (b & v4) == v4 ? 4 : 3;
}
#else
static int needle_cpu_level(void) { return 0; }
#endif

#endif
