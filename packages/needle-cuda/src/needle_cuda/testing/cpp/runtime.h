// What compiled kernels and the emulator's runtime agree on.
#pragma once
#include <cstddef>
#include <cstdint>

namespace emulator {

constexpr unsigned WARP = 32;
constexpr unsigned MAX_THREADS = 1024;
constexpr size_t SHARED_LIMIT = 48 * 1024;

struct Index {
    unsigned x, y, z;
};

// A kernel parameter lies in the packed arguments at a multiple of SLOT.
constexpr size_t SLOT = 16;
constexpr size_t slot_size(size_t size) {
    return (size + SLOT - 1) / SLOT * SLOT;
}

enum Kind : int { INTEGER = 0, FLOATING = 1, POINTER = 2, STRUCT = 3 };

struct Parameter {
    int size;
    int kind;
};

struct Kernel {
    const char* name;
    void (*function)();
    void (*call)(void (*function)(), const char* arguments);  // run the kernel for the current thread
    const Parameter* parameters;
    int parameter_count;
    const char* parameter_names;  // joined by commas
    int max_threads;  // of __launch_bounds__, or MAX_THREADS
    int checked;      // its loads and stores report themselves
};

struct Thread;

// Where the thread that runs now is. One launch at a time: the callers hold Python's lock.
struct Place {
    Index thread, block, block_size, grid_size;
};

// One declaration of shared memory: where this launch has put it.
struct Site {
    uint64_t launch;
    char* address;
};

enum Collective : int { SYNC = 0, SHUFFLE = 1, BALLOT = 2 };

extern "C" {
extern Place emulator_here;
void emulator_barrier(int line);
// Exchange within the lanes of the mask: the value of lane `source` (SHUFFLE), or a bit per lane (BALLOT).
uint64_t emulator_collective(int what, unsigned mask, uint64_t value, int source, int line);
unsigned emulator_lane();
void* emulator_shared(Site* site, size_t size, size_t alignment, const char* name);
void* emulator_dynamic_shared();
void emulator_atomic(const void* address, size_t size);
[[noreturn]] void emulator_fail(const char* format, ...) __attribute__((format(printf, 1, 2)));
}
}  // namespace emulator
