// Shared memory: one arena for the block that runs. A variable gets its place when the first thread of a launch comes to its
// declaration, between red zones; every block finds it poisoned.
#include "internal.h"

namespace emulator {

constexpr size_t RED_ZONE = 64;

alignas(256) char shared_memory[SHARED_ARENA];
std::vector<SharedVariable> shared_variables;
static size_t used;  // of the arena, red zones included

static char* new_variable(size_t size, size_t alignment, const char* name) {
    used = (used + RED_ZONE + alignment - 1) / alignment * alignment;
    char* start = shared_memory + used;
    now.shared_size += size;
    if (now.shared_size > SHARED_LIMIT || used + size + RED_ZONE > SHARED_ARENA)
        emulator_fail("%zu bytes of shared memory, with `%s`, exceed %zu", now.shared_size, name, SHARED_LIMIT);
    used += size;
    poison(start, size);
    shared_variables.push_back({reinterpret_cast<uintptr_t>(start), size, name});
    return start;
}

void start_shared_memory() {
    shared_variables.clear();
    used = 0;
    if (now.dynamic_size) new_variable(now.dynamic_size, 256, "dynamic shared memory");
}

void poison_shared_memory() {
    poison(shared_memory, used);
}

extern "C" {
void* emulator_shared(Site* site, size_t size, size_t alignment, const char* name) {
    if (site->launch != now.number) {
        site->launch = now.number;
        site->address = new_variable(size, alignment, name);
    }
    return site->address;
}
void* emulator_dynamic_shared() {
    return now.dynamic_size ? shared_memory + 256 : nullptr;
}
}
}  // namespace emulator
