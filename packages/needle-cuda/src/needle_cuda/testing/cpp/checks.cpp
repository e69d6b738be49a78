// Every load and store of a checked kernel. The kernel is compiled with -fsanitize=thread, whose calls end here: is the
// address within a buffer of the launch, has the shared memory been written, does another thread use the same place without a
// barrier between the two?
//
// Each byte of device and of shared memory has a Cell that remembers its last store and two last loads as Stamps. Accesses of
// more than four bytes are remembered at every fourth byte, smaller ones where they start.
#include <dlfcn.h>
#include <stdio.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "internal.h"

namespace emulator {

struct Stamp {
    uint64_t block : 26, thread : 10, epoch : 14, clock : 13, atomic : 1;
};
struct Cell {
    Stamp store, load, other_load;  // the loads are of different threads
};
constexpr uint64_t MAX_BLOCKS = (1u << 26) - 1;

static Cell* cells[PINNED + 1];
static Cell shared_cells[SHARED_ARENA];

// ---- Who knows of whose accesses ------------------------------------------------------------------------------------------

// A barrier orders all threads of a block: now.epoch. Within a warp, lane i knows what lane j did before j's clock was
// seen[i][j]. __syncwarp() makes lanes know of each other's stores and loads. Shuffles and votes order no memory, but what a
// lane has loaded before one, it has: a store behind it comes too late to disturb the load.
enum Knowledge { STORES, LOADS };
struct Warp {
    uint32_t seen[2][WARP][WARP];
};
static Warp warps[MAX_THREADS / WARP];
static bool warps_used = false;

static void meet(uint32_t (&seen)[WARP][WARP], unsigned mask) {
    uint32_t joined[WARP] = {};
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        seen[lane][lane]++;
        for (unsigned other = 0; other < WARP; other++) joined[other] = std::max(joined[other], seen[lane][other]);
    }
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) memcpy(seen[lane], joined, sizeof joined);
}

void check_collective(unsigned warp, unsigned mask, int what) {
    if (!now.kernel->checked) return;
    warps_used = true;
    if (what == SYNC) meet(warps[warp].seen[STORES], mask);
    meet(warps[warp].seen[LOADS], mask);
}

static uint64_t first_block;  // of this launch, by the numbers that stamps have
static uint64_t oldest;       // block whose accesses count: the first of the launch, or this one for its shared memory

static Stamp stamp(Knowledge knowledge, bool atomic) {
    unsigned thread = now.thread->number, lane = thread % WARP;
    Stamp made;
    made.block = now.block_number, made.thread = thread, made.epoch = now.epoch;
    made.clock = warps[thread / WARP].seen[knowledge][lane][lane], made.atomic = atomic;
    return made;
}

// No barrier between an earlier access, a load or a store, and the thread that runs now.
static bool concurrent(Knowledge knowledge, Stamp earlier, Stamp mine) {
    if (earlier.block < oldest) return false;
    if (earlier.block != mine.block) return true;
    if (earlier.thread == mine.thread || earlier.epoch != mine.epoch) return false;
    if (earlier.thread / WARP != mine.thread / WARP) return true;
    return warps[mine.thread / WARP].seen[knowledge][mine.thread % WARP][earlier.thread % WARP] <= earlier.clock;
}

// ---- Reports ----------------------------------------------------------------------------------------------------------------

static const void* access_from;  // the instruction

static std::string place() {
    Dl_info info;
    char text[200];
    size_t offset = 0;
    if (dladdr(access_from, &info))
        offset = reinterpret_cast<uintptr_t>(access_from) - reinterpret_cast<uintptr_t>(info.dli_fbase) - 1;
    const Index &b = emulator_here.block, &t = now.thread->index;
    // The caller finds the line of {at ...}.
    snprintf(text, sizeof text, "{at %#zx} in block (%u, %u, %u), thread (%u, %u, %u)", offset, b.x, b.y, b.z, t.x, t.y, t.z);
    return text;
}

static void report_race(const char* memory, const char* mine, const char* theirs, Stamp earlier, Stamp me) {
    char who[96];
    if (earlier.block == me.block) snprintf(who, sizeof who, "thread %u of the block", unsigned(earlier.thread));
    else snprintf(who, sizeof who, "thread %u of another block", unsigned(earlier.thread));
    emulator_fail("race: %s %s by thread %u and %s by %s, with no barrier between them%s", memory, mine, unsigned(me.thread),
                  theirs, who, (", " + place()).c_str());
}

static void check_cell(Cell& cell, bool store, bool atomic, const char* memory) {
    Stamp me = stamp(store ? STORES : LOADS, atomic);
    if (!(atomic && cell.store.atomic) && concurrent(STORES, cell.store, me))
        report_race(memory, store ? "stored" : "loaded", "stored", cell.store, me);
    if (store) {
        for (Stamp load : {cell.load, cell.other_load})
            if (concurrent(LOADS, load, me)) report_race(memory, "stored", "loaded", load, me);
        // An atomic after a plain store of the same thread does not undo that other threads may meet the plain one.
        Stamp last = cell.store;
        if (last.block == me.block && last.thread == me.thread && last.epoch == me.epoch) me.atomic &= last.atomic;
        cell.store = me;
        return;
    }
    if (cell.load.block != me.block || cell.load.thread != me.thread) {
        bool keep = concurrent(LOADS, cell.other_load, me) && cell.other_load.thread / WARP != me.thread / WARP;
        if (!keep) cell.other_load = cell.load;
    }
    cell.load = me;
}

// ---- Where an address is --------------------------------------------------------------------------------------------------

struct Buffer {
    uintptr_t start, end;
    int parameter;
};
static std::vector<Buffer> buffers;  // of this launch
static size_t recent;                // the one that was used last

static void check_shared(uintptr_t address, size_t size, bool store, bool atomic) {
    const SharedVariable* near = nullptr;
    bool inside = false;
    for (const SharedVariable& each : shared_variables) {
        if (address >= each.start) near = &each;
        if (address >= each.start && address + size <= each.start + each.size) {
            inside = true;
            break;
        }
    }
    if (!inside)
        emulator_fail("%s %zu bytes out of bounds of shared memory, at byte %td of `%s`, which has %zu, %s",
                      store ? "stores" : "loads", size, near ? ptrdiff_t(address - near->start) : -1, near ? near->name : "?",
                      near ? near->size : 0, place().c_str());
    size_t offset = address - reinterpret_cast<uintptr_t>(shared_memory);
    oldest = now.block_number;
    size_t missing = 0, first = 0;
    for (size_t at = 0; at < size; at += 4) {
        Cell& cell = shared_cells[offset + at];
        bool written =
            cell.store.block == now.block_number || shared_cells[(offset + at) & ~size_t(3)].store.block == now.block_number;
        if (!written && !missing++) first = at;
        check_cell(cell, store, atomic, near->name);
    }
    // A struct is loaded as a whole, with gaps that nobody writes.
    if ((!store || atomic) && missing && (size <= 8 || missing * 8 > size))
        emulator_fail("loads shared memory that was not written: byte %zu of `%s`, %s", address + first - near->start, near->name,
                      place().c_str());
}

static void report_outside(uintptr_t address, size_t size, bool store) {
    const Buffer* near = nullptr;
    ptrdiff_t distance = 0;
    for (const Buffer& each : buffers) {
        ptrdiff_t away = address < each.start ? ptrdiff_t(address - each.start) : ptrdiff_t(address + size - each.end);
        if (!near || std::abs(away) < std::abs(distance)) near = &each, distance = away;
    }
    if (!near) emulator_fail("%s an address of no parameter, %s", store ? "stores to" : "loads from", place().c_str());
    emulator_fail("{parameter %d}: %s out of bounds, %td bytes %s of %zu, %s", near->parameter, store ? "stored" : "loaded",
                  std::abs(distance), distance < 0 ? "before the start" : "beyond the end", size_t(near->end - near->start),
                  place().c_str());
}

static void check_global(int region, uintptr_t address, size_t size, bool store, bool atomic) {
    for (size_t tried = 0; tried < buffers.size(); tried++) {
        const Buffer& each = buffers[recent];
        if (address >= each.start && address + size <= each.end) {
            Cell* cell = cells[region] + (address - region_base(region));
            oldest = first_block;
            for (size_t at = 0; at < size; at += 4) check_cell(cell[at], store, atomic, "device memory");
            return;
        }
        recent = (recent + 1) % buffers.size();
    }
    report_outside(address, size, store);
}

static void check(const void* pointer, size_t size, bool store, bool atomic, const void* from) {
    uintptr_t address = reinterpret_cast<uintptr_t>(pointer), arena = reinterpret_cast<uintptr_t>(shared_memory);
    access_from = from;
    if (address >= arena && address < arena + SHARED_ARENA) return check_shared(address, size, store, atomic);
    int region = region_of(address);
    if (region >= 0) check_global(region, address, size, store, atomic);
    // anything else is the thread's own stack, or a constant
}

// ---- Around a launch and a block ------------------------------------------------------------------------------------------

static void reserve_cells(int region) {
    if (cells[region]) return;
    size_t size = region_size() * sizeof(Cell);
    void* start = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) emulator_fail("no addresses for the record of accesses");
    cells[region] = static_cast<Cell*>(start);
}

static void forget_all() {
    for (Cell* each : cells)
        if (each) madvise(each, region_size() * sizeof(Cell), MADV_DONTNEED);
    memset(shared_cells, 0, sizeof shared_cells);
}

void start_checks(uint64_t blocks) {
    if (now.block_number + blocks > MAX_BLOCKS) {  // stamps would come round again
        forget_all();
        now.block_number = 0;
    }
    first_block = now.block_number + 1;
    if (!now.kernel->checked) return;
    buffers.clear();
    recent = 0;
    each_pointer(now.kernel, now.arguments, [](int i, uintptr_t address) {
        if (const Block* block = find_block(address)) {
            buffers.push_back({block->start, block->start + block->size, i});
            reserve_cells(block->device);
        }
    });
}

void start_block_checks() {
    if (warps_used) memset(warps, 0, sizeof warps);
    warps_used = false;
}

extern "C" {
void emulator_atomic(const void* address, size_t size) {
    if (now.kernel->checked) check(address, size, true, true, __builtin_return_address(0));
}

static void check_aligned(const void* pointer, size_t size, bool store, const void* from) {
    access_from = from;
    if (reinterpret_cast<uintptr_t>(pointer) % size)
        emulator_fail("misaligned: %s %zu bytes at an address that is no multiple of %zu, %s", store ? "stores" : "loads", size,
                      size, place().c_str());
    check(pointer, size, store, false, from);
}

#define HOOK(size)                                                        \
    void __tsan_read##size(void* address) {                               \
        check_aligned(address, size, false, __builtin_return_address(0)); \
    }                                                                     \
    void __tsan_write##size(void* address) {                              \
        check_aligned(address, size, true, __builtin_return_address(0));  \
    }                                                                     \
    void __tsan_unaligned_read##size(void* address) {                     \
        check(address, size, false, false, __builtin_return_address(0));  \
    }                                                                     \
    void __tsan_unaligned_write##size(void* address) {                    \
        check(address, size, true, false, __builtin_return_address(0));   \
    }
HOOK(1)
HOOK(2)
HOOK(4)
HOOK(8)
HOOK(16)
void __tsan_read_range(void* address, size_t size) {
    check(address, size, false, false, __builtin_return_address(0));
}
void __tsan_write_range(void* address, size_t size) {
    check(address, size, true, false, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
}  // namespace emulator
