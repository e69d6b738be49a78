// Device memory: a range of addresses per device, so that a pointer tells whose it is. Every block starts poisoned and
// lies between guard zones.
#include <sys/mman.h>

#include <cstring>
#include <map>
#include <unordered_map>

#include "internal.h"

namespace emulator {

constexpr size_t REGION = size_t(64) << 30;  // addresses, not memory
constexpr size_t GRAIN = 512;                // as cupy's pool rounds
constexpr size_t LARGE = size_t(1) << 20;    // a block this large goes back to the system when it is freed

constexpr size_t STEP = size_t(4) << 20;     // by which the accessible part of a region grows

static uintptr_t bases[PINNED + 1];
static uintptr_t ends[PINNED + 1];    // of what has been handed out
static uintptr_t limits[PINNED + 1];  // of what may be accessed
static std::map<uintptr_t, Block> blocks;
static std::unordered_map<size_t, std::vector<uintptr_t>> unused[PINNED + 1];

size_t region_size() {
    return REGION;
}

uintptr_t region_base(int region) {
    if (!bases[region]) {
        void* start = mmap(nullptr, REGION, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (start == MAP_FAILED) return 0;
        bases[region] = ends[region] = limits[region] = reinterpret_cast<uintptr_t>(start);
    }
    return bases[region];
}

int region_of(uintptr_t address) {
    for (int region = 0; region <= PINNED; region++)
        if (bases[region] && address >= bases[region] && address < bases[region] + REGION) return region;
    return -1;
}

const Block* find_block(uintptr_t address) {
    auto after = blocks.upper_bound(address + GUARD);
    if (after == blocks.begin()) return nullptr;
    const Block& block = std::prev(after)->second;
    return address < block.start + block.capacity + GUARD ? &block : nullptr;
}

void poison(void* start, size_t size) {
    // The pattern follows the address, so that words read in step are POISON wherever the block starts.
    uintptr_t address = reinterpret_cast<uintptr_t>(start), end = address + size;
    auto byte = [](uintptr_t at) { return static_cast<unsigned char>(POISON >> 8 * (at % 4)); };
    for (; address % 4 && address < end; address++) *reinterpret_cast<unsigned char*>(address) = byte(address);
    for (; address + 4 <= end; address += 4) *reinterpret_cast<uint32_t*>(address) = POISON;
    for (; address < end; address++) *reinterpret_cast<unsigned char*>(address) = byte(address);
}

// Guard zones hold other NaNs than poison does, and no two places the same: what a kernel computes from one and stores
// into another is seen.
static uint32_t guard_word(uintptr_t address) {
    uint32_t hash = uint32_t(address >> 2) * 2654435761u;
    return 0x7ff80000u | (hash >> 13 & 0x7ffff) | 0x0202;
}
static unsigned char guard_byte(uintptr_t address) {
    return guard_word(address) >> 8 * (address % 4);
}

static void fill_guard(uintptr_t start, uintptr_t end) {
    for (; start % 4 && start < end; start++) *reinterpret_cast<unsigned char*>(start) = guard_byte(start);
    for (; start + 4 <= end; start += 4) *reinterpret_cast<uint32_t*>(start) = guard_word(start);
    for (; start < end; start++) *reinterpret_cast<unsigned char*>(start) = guard_byte(start);
}

// Distance from `start` of the first byte that has changed, or -1.
static ptrdiff_t first_change(uintptr_t start, uintptr_t end) {
    uintptr_t at = start;
    while (at % 4 && at < end && *reinterpret_cast<unsigned char*>(at) == guard_byte(at)) at++;
    if (at % 4 == 0)
        while (at + 4 <= end && *reinterpret_cast<uint32_t*>(at) == guard_word(at)) at += 4;
    for (; at < end; at++)
        if (*reinterpret_cast<unsigned char*>(at) != guard_byte(at)) return at - start;
    return -1;
}

static bool grow(int region, uintptr_t end) {
    if (end <= limits[region]) return true;
    size_t more = (end - limits[region] + STEP - 1) / STEP * STEP;
    if (mprotect(reinterpret_cast<void*>(limits[region]), more, PROT_READ | PROT_WRITE)) return false;
    limits[region] += more;
    return true;
}

extern "C" {
uintptr_t emulator_allocate(int region, size_t size) {
    size_t capacity = (size + GRAIN - 1) / GRAIN * GRAIN, whole = capacity + 2 * GUARD;
    if (!region_base(region)) return 0;
    uintptr_t start;
    auto& reusable = unused[region][capacity];
    if (!reusable.empty()) {
        start = reusable.back();
        reusable.pop_back();
    } else {
        if (whole > bases[region] + REGION - ends[region] || !grow(region, ends[region] + whole)) return 0;
        start = ends[region] + GUARD;
        ends[region] += whole;
    }
    blocks[start] = {start, size, capacity, region};
    poison(reinterpret_cast<void*>(start), size);
    fill_guard(start - GUARD, start);
    fill_guard(start + size, start + capacity + GUARD);
    return start;
}

int emulator_release(uintptr_t start) {
    auto found = blocks.find(start);
    if (found == blocks.end()) return -1;
    const Block block = found->second;
    blocks.erase(found);
    unused[block.device][block.capacity].push_back(start);
    if (block.capacity >= LARGE) {
        uintptr_t first = (start + 4095) / 4096 * 4096, last = (start + block.capacity) / 4096 * 4096;
        madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
    }
    return 0;
}

static std::string error;

// Why `size` bytes at the address are not all in one live block of this region; null if they are.
const char* emulator_check_range(int region, uintptr_t address, size_t size) {
    const Block* block = find_block(address);
    int there = region_of(address);
    if (there != region)
        error = there < 0 ? "the pointer is no device memory"
                          : "the pointer belongs to device " + std::to_string(there) + ", not " + std::to_string(region);
    else if (!block || address < block->start || address > block->start + block->size)
        error = "the pointer is in no live allocation";
    else if (size > block->start + block->size - address)
        error = std::to_string(size) + " bytes exceed the allocation of " + std::to_string(block->size) + " bytes by " +
                std::to_string(address + size - block->start - block->size);
    else return nullptr;
    return error.c_str();
}
int emulator_region_of(uintptr_t address) {
    return region_of(address);
}
void emulator_poison(uintptr_t address, size_t size) {
    poison(reinterpret_cast<void*>(address), size);
}
}

// ---- Around a launch --------------------------------------------------------------------------------------------------

// Calls act(parameter, address) for each pointer among the arguments. A struct may hold pointers, too: any of its words that
// is an address of device memory is taken for one.
void each_pointer(const Kernel* kernel, const char* arguments, const std::function<void(int, uintptr_t)>& act) {
    for (int i = 0; i < kernel->parameter_count; i++) {
        const Parameter& parameter = kernel->parameters[i];
        uintptr_t address;
        if (parameter.kind == POINTER || parameter.kind == STRUCT) {
            for (size_t at = 0; at + sizeof address <= size_t(parameter.size); at += sizeof address) {
                memcpy(&address, arguments + at, sizeof address);
                if (parameter.kind == POINTER ? address != 0 : region_of(address) >= 0) act(i, address);
            }
        }
        arguments += slot_size(parameter.size);
    }
}

// "{parameter i}" is replaced by the parameter's name where it is known.
std::string check_pointers(const Kernel* kernel, const char* arguments, int device) {
    std::string found;
    each_pointer(kernel, arguments, [&](int i, uintptr_t address) {
        if (region_of(address) == PINNED) return;
        if (const char* why = emulator_check_range(device, address, 0)) found = "{parameter " + std::to_string(i) + "}: " + why;
    });
    return found;
}

std::string check_guards(const Kernel* kernel, const char* arguments) {
    std::string found;
    each_pointer(kernel, arguments, [&](int i, uintptr_t address) {
        const Block* block = find_block(address);
        if (!block) return;
        uintptr_t end = block->start + block->size, limit = block->start + block->capacity + GUARD;
        ptrdiff_t left = first_change(block->start - GUARD, block->start), right = first_change(end, limit);
        std::string where = "{parameter " + std::to_string(i) + "}: stored out of bounds, ";
        if (left >= 0) found = where + std::to_string(GUARD - left) + " bytes before the start of " + std::to_string(block->size);
        if (right >= 0) found = where + std::to_string(right) + " bytes after the end of " + std::to_string(block->size);
        // One report is enough: the next launch finds the zones whole.
        if (left >= 0) fill_guard(block->start - GUARD, block->start);
        if (right >= 0) fill_guard(end, limit);
    });
    return found;
}
}  // namespace emulator
