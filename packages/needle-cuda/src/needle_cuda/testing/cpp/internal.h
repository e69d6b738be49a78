// What the parts of the runtime share: the launch that runs (scheduler.cpp), device memory (memory.cpp) and the
// record of every load and store (checks.cpp).
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "runtime.h"

namespace emulator {

// ---- scheduler.cpp --------------------------------------------------------------------------------------------------
enum State : uint8_t { NOT_STARTED, RUNNING, AT_BARRIER, AT_COLLECTIVE, RETURNED };

struct Fiber;
struct Thread {
    Index index;
    unsigned number;  // within the block, x fastest
    State state;
    Fiber* fiber;
    int line;  // where it waits
    // what it brings to an exchange of its warp, and takes home
    int what, source;
    unsigned mask;
    uint64_t value, result;
};

struct Launch {
    const Kernel* kernel = nullptr;
    const char* arguments = nullptr;
    int device = 0;
    uint64_t number = 0;        // counts launches
    uint64_t block_number = 0;  // counts blocks, over all launches
    uint64_t block = 0;         // number of the block within the grid
    unsigned epoch = 0;         // barriers the block has passed
    unsigned threads = 0;       // per block
    size_t dynamic_size = 0, shared_size = 0;
    Thread* thread = nullptr;  // that runs
};
extern Launch now;
extern unsigned thread_order;

// ---- memory.cpp -------------------------------------------------------------------------------------------------------
constexpr int PINNED = 16;  // "device" of pinned host memory; devices are 0 ... 15
constexpr size_t GUARD = 256;
constexpr uint32_t POISON = 0x7ffffea5;  // a NaN of float and double, a huge int, neither true nor false

struct Block {
    uintptr_t start;
    size_t size, capacity;
    int device;
};
const Block* find_block(uintptr_t address);  // live one whose data or guard zones hold the address
int region_of(uintptr_t address);            // device, PINNED, or -1
uintptr_t region_base(int region);
void poison(void* start, size_t size);
void each_pointer(const Kernel* kernel, const char* arguments, const std::function<void(int, uintptr_t)>& act);
std::string check_pointers(const Kernel* kernel, const char* arguments, int device);
std::string check_guards(const Kernel* kernel, const char* arguments);

size_t region_size();

// ---- shared.cpp -------------------------------------------------------------------------------------------------------
constexpr size_t SHARED_ARENA = SHARED_LIMIT + 64 * 1024;
struct SharedVariable {
    uintptr_t start;
    size_t size;
    const char* name;
};
extern std::vector<SharedVariable> shared_variables;
extern char shared_memory[];
void start_shared_memory();   // of a launch
void poison_shared_memory();  // of a block

// ---- checks.cpp -------------------------------------------------------------------------------------------------------
void start_checks(uint64_t blocks);  // of a launch of so many blocks
void start_block_checks();
void check_collective(unsigned warp, unsigned mask, int what);  // its lanes have met
}  // namespace emulator
