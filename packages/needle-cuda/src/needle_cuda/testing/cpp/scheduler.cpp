// Runs the threads of a launch: one after the other on one stack until one of them has to wait; a thread that waits
// keeps its stack (a fiber), and the next thread gets a new one. Kernels without barriers cost a plain loop.
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstring>

#include "internal.h"

namespace emulator {

constexpr size_t STACK = 128 * 1024;  // of which the lowest page is a guard
constexpr size_t PAGE = 4096;

struct Fiber {
    ucontext_t first;
    jmp_buf jump;
    bool started;
    char* stack;
    Thread* thread;  // that runs or waits on it; null: idle
};

Launch now;
unsigned thread_order = 0;  // 0 forward, 1 reverse, 2 random

static std::vector<Thread> threads;
static std::vector<unsigned> order;
static std::vector<Fiber*> fibers, idle;
static unsigned next_thread, returned;
static Fiber* fiber;
static jmp_buf scheduler_jump;
static jmp_buf escape;
static bool launched = false;
static std::string message;
static uint64_t random_state = 88172645463325252ull;
static uint64_t switches;

extern "C" {
Place emulator_here;

void emulator_configure(unsigned order_number, uint64_t seed) {
    thread_order = order_number;
    random_state = seed * 2654435769u + 88172645463325252ull;
}
uint64_t emulator_switches() {
    return switches;
}

void emulator_fail(const char* format, ...) {
    char text[1024];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    message = text;
    _longjmp(escape, 1);
}
}

static std::string position(const Thread* thread) {
    char text[160];
    const Index &b = emulator_here.block, &t = thread->index;
    snprintf(text, sizeof text, "block (%u, %u, %u), thread (%u, %u, %u)", b.x, b.y, b.z, t.x, t.y, t.z);
    return text;
}

// ---- Fibers -----------------------------------------------------------------------------------------------------------

static void to_scheduler() {
    switches++;
    if (!_setjmp(fiber->jump)) _longjmp(scheduler_jump, 1);
}

static void set_thread(Thread* thread) {
    now.thread = thread;
    emulator_here.thread = thread->index;
    thread->state = RUNNING;
}

static void fiber_main() {
    for (;;) {
        while (next_thread < now.threads) {
            Thread* thread = &threads[order[next_thread++]];
            fiber->thread = thread;
            thread->fiber = fiber;
            set_thread(thread);
            now.kernel->call(now.kernel->function, now.arguments);
            // By now another fiber may have run: the thread is the one of this fiber again.
            fiber->thread->state = RETURNED;
            returned++;
        }
        fiber->thread = nullptr;
        idle.push_back(fiber);
        to_scheduler();
    }
}

static Fiber* idle_fiber() {
    if (!idle.empty()) {
        Fiber* found = idle.back();
        idle.pop_back();
        return found;
    }
    void* stack = mmap(nullptr, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stack == MAP_FAILED) emulator_fail("no memory for the stack of a thread");
    mprotect(stack, PAGE, PROT_NONE);
    Fiber* made = new Fiber{};
    made->stack = static_cast<char*>(stack);
    fibers.push_back(made);
    return made;
}

static void resume(Fiber* chosen) {
    fiber = chosen;
    if (fiber->thread) set_thread(fiber->thread);
    if (_setjmp(scheduler_jump)) return;
    if (fiber->started) _longjmp(fiber->jump, 1);
    fiber->started = true;
    getcontext(&fiber->first);
    fiber->first.uc_stack.ss_sp = fiber->stack + PAGE;
    fiber->first.uc_stack.ss_size = STACK - PAGE;
    fiber->first.uc_link = nullptr;
    makecontext(&fiber->first, fiber_main, 0);
    setcontext(&fiber->first);
}

// After a failure the fibers are in the middle of threads that will never go on.
static void abandon_fibers() {
    idle.clear();
    for (Fiber* each : fibers) {
        each->started = false;
        each->thread = nullptr;
        idle.push_back(each);
    }
}

// ---- Waiting ----------------------------------------------------------------------------------------------------------

extern "C" {
unsigned emulator_lane() {
    return now.thread->number % WARP;
}

void emulator_barrier(int line) {
    now.thread->state = AT_BARRIER;
    now.thread->line = line;
    to_scheduler();
}

uint64_t emulator_collective(int what, unsigned mask, uint64_t value, int source, int line) {
    Thread* thread = now.thread;
    if (!(mask >> thread->number % WARP & 1))
        emulator_fail("line %d: lane %u calls a warp primitive with mask %08x, which leaves it out (%s)", line,
                      thread->number % WARP, mask, position(thread).c_str());
    thread->what = what, thread->mask = mask, thread->value = value, thread->source = source;
    thread->line = line;
    thread->state = AT_COLLECTIVE;
    to_scheduler();
    return thread->result;
}
}

static uint64_t random_number() {
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

static void arrange(std::vector<unsigned>& numbers) {
    if (thread_order == 1) std::reverse(numbers.begin(), numbers.end());
    if (thread_order == 2)
        for (size_t i = numbers.size(); i > 1; i--) std::swap(numbers[i - 1], numbers[random_number() % i]);
}

// The exchange of the lanes of one warp that wait in the same place with the same mask.
static void exchange(unsigned first, unsigned mask, int what) {
    uint64_t bits = 0;
    for (unsigned lane = 0; lane < WARP; lane++)
        if (mask >> lane & 1) bits |= (threads[first + lane].value & 1) << lane;
    for (unsigned lane = 0; lane < WARP; lane++) {
        if (!(mask >> lane & 1)) continue;
        Thread& thread = threads[first + lane];
        if (what == BALLOT) {
            thread.result = bits;
        } else if (what == SHUFFLE) {
            bool there = thread.source >= 0 && mask >> thread.source & 1;  // else undefined on a GPU
            thread.result = there ? threads[first + thread.source].value : uint64_t(POISON) << 32 | POISON;
        }
    }
    check_collective(first / WARP, mask, what);
}

// Which threads may go on: all of them from a barrier, groups of lanes from exchanges of their warps.
static void release(std::vector<unsigned>& ready) {
    ready.clear();
    unsigned waiting = 0;
    for (const Thread& thread : threads) waiting += thread.state == AT_BARRIER;
    if (waiting == now.threads) {
        for (const Thread& thread : threads) {
            if (thread.line != threads[0].line)
                emulator_fail("divergent barrier: threads of one block wait in __syncthreads() of lines %d and %d (%s)",
                              threads[0].line, thread.line, position(&thread).c_str());
            ready.push_back(thread.number);
        }
        now.epoch++;
        return;
    }
    for (unsigned first = 0; first < now.threads; first += WARP) {
        unsigned lanes = std::min(WARP, now.threads - first), there = lanes == WARP ? ~0u : (1u << lanes) - 1, seen = 0;
        for (unsigned lane = 0; lane < lanes; lane++) {
            const Thread& thread = threads[first + lane];
            if (thread.state != AT_COLLECTIVE || seen >> lane & 1) continue;
            unsigned wanted = thread.mask & there, here = 0;
            for (unsigned other = 0; other < lanes; other++) {
                const Thread& mate = threads[first + other];
                if (wanted >> other & 1 && mate.state == AT_COLLECTIVE && mate.mask == thread.mask && mate.line == thread.line &&
                    mate.what == thread.what)
                    here |= 1u << other;
            }
            if (here != wanted) continue;
            seen |= here;
            exchange(first, here, thread.what);
            for (unsigned other = 0; other < lanes; other++)
                if (here >> other & 1) ready.push_back(first + other);
        }
    }
}

static void report_deadlock() {
    unsigned barrier = 0, collective = 0;
    int barrier_line = 0, collective_line = 0;
    const Thread* one = nullptr;
    for (const Thread& thread : threads) {
        if (thread.state == AT_BARRIER) barrier++, barrier_line = thread.line, one = &thread;
        if (thread.state == AT_COLLECTIVE) collective++, collective_line = thread.line, one = &thread;
    }
    std::string where;
    if (barrier) where += std::to_string(barrier) + " wait in __syncthreads() of line " + std::to_string(barrier_line) + ", ";
    if (collective)
        where += std::to_string(collective) + " in a warp primitive of line " + std::to_string(collective_line) +
                 " for lanes of its mask that do not come, ";
    emulator_fail("divergent barrier: of %u threads %s%u have returned (e.g. %s)", now.threads, where.c_str(), returned,
                  position(one).c_str());
}

static void run_block() {
    static std::vector<unsigned> ready;
    next_thread = returned = 0;
    now.epoch = 0;
    for (Thread& thread : threads) thread.state = NOT_STARTED;
    while (next_thread < now.threads) resume(idle_fiber());
    while (returned < now.threads) {
        release(ready);
        if (ready.empty()) report_deadlock();
        arrange(ready);
        for (unsigned number : ready) resume(threads[number].fiber);
    }
}

static void run_grid() {
    const Index &grid = emulator_here.grid_size, &size = emulator_here.block_size;
    threads.resize(now.threads);
    order.resize(now.threads);
    for (unsigned i = 0; i < now.threads; i++) {
        threads[i] = Thread{};
        threads[i].number = order[i] = i;
        threads[i].index = {i % size.x, i / size.x % size.y, i / (size.x * size.y)};
    }
    arrange(order);
    uint64_t blocks = uint64_t(grid.x) * grid.y * grid.z;
    for (uint64_t i = 0; i < blocks; i++) {
        uint64_t block = now.block = thread_order == 1 ? blocks - 1 - i : i;
        now.block_number++;
        emulator_here.block = {unsigned(block % grid.x), unsigned(block / grid.x % grid.y), unsigned(block / grid.x / grid.y)};
        poison_shared_memory();
        start_block_checks();
        run_block();
    }
}

// ---- Launching --------------------------------------------------------------------------------------------------------

static struct sigaction before[NSIG];

// A wild access becomes an error while a kernel runs; at any other time it is for whoever was asked before.
static void on_signal(int number, siginfo_t* info, void*) {
    if (!launched) {
        sigaction(number, &before[number], nullptr);  // and the instruction comes again
        return;
    }
    uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
    uintptr_t stack = fiber ? reinterpret_cast<uintptr_t>(fiber->stack) : 0;
    std::string where = position(now.thread);
    if (number == SIGFPE) emulator_fail("integer division by zero or of the least number by -1 (%s)", where.c_str());
    if (info->si_code == SI_KERNEL)
        emulator_fail("misaligned: 16 bytes at an address that is no multiple of 16 (%s)", where.c_str());
    if (address >= stack && address < stack + PAGE) emulator_fail("stack overflow (%s)", where.c_str());
    emulator_fail("access to address %#zx, which is no memory (%s)", size_t(address), where.c_str());
}

static void listen_to_signals() {
    static thread_local bool has_stack = false;
    static bool listening = false;
    if (!has_stack) {
        has_stack = true;
        stack_t alternative{};
        alternative.ss_size = 64 * 1024;
        alternative.ss_sp = new char[alternative.ss_size];
        sigaltstack(&alternative, nullptr);
    }
    if (!listening) {
        listening = true;
        struct sigaction action{};
        action.sa_sigaction = on_signal;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        for (int number : {SIGSEGV, SIGBUS, SIGFPE}) sigaction(number, &action, &before[number]);
    }
}

static std::string check_limits(const Kernel* kernel, const Index& grid, const Index& block, size_t dynamic_size) {
    char text[256] = "";
    uint64_t count = uint64_t(block.x) * block.y * block.z;
    if (!grid.x || !grid.y || !grid.z || !count)
        snprintf(text, sizeof text, "grid (%u, %u, %u) of blocks (%u, %u, %u) is empty", grid.x, grid.y, grid.z, block.x, block.y,
                 block.z);
    else if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
        snprintf(text, sizeof text, "grid (%u, %u, %u) exceeds (2147483647, 65535, 65535)", grid.x, grid.y, grid.z);
    else if (count > MAX_THREADS || block.z > 64)
        snprintf(text, sizeof text, "block (%u, %u, %u) exceeds %u threads or 64 in z", block.x, block.y, block.z, MAX_THREADS);
    else if (count > uint64_t(kernel->max_threads))
        snprintf(text, sizeof text, "block (%u, %u, %u) exceeds __launch_bounds__(%d)", block.x, block.y, block.z,
                 kernel->max_threads);
    else if (dynamic_size > SHARED_LIMIT)
        snprintf(text, sizeof text, "%zu bytes of dynamic shared memory exceed %zu", dynamic_size, SHARED_LIMIT);
    return text;
}

extern "C" const char* emulator_launch(const Kernel* kernel, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                       unsigned bz, size_t dynamic_size, const char* arguments, int device) {
    emulator_here.grid_size = {gx, gy, gz};
    emulator_here.block_size = {bx, by, bz};
    message = check_limits(kernel, emulator_here.grid_size, emulator_here.block_size, dynamic_size);
    if (message.empty()) message = check_pointers(kernel, arguments, device);
    if (!message.empty()) return message.c_str();
    now.kernel = kernel, now.arguments = arguments, now.device = device;
    now.threads = bx * by * bz;
    now.dynamic_size = dynamic_size, now.shared_size = 0;
    now.number++;
    listen_to_signals();
    launched = true;
    if (!_setjmp(escape)) {
        start_shared_memory();
        start_checks(uint64_t(gx) * gy * gz);
        run_grid();
    } else {
        abandon_fibers();
    }
    launched = false;
    std::string guards = check_guards(kernel, arguments);
    if (message.empty()) message = guards;
    return message.empty() ? nullptr : message.c_str();
}
extern "C" size_t emulator_shared_size() {
    return now.shared_size;
}
}  // namespace emulator
