// The scheduler: fibers, rendezvous, launches and faults.
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <new>
#include <time.h>
#include <sys/mman.h>
#include "stack.h"
#include "matrix.h"

namespace emulator {

Machine machine;
Thread *current;
static Branch *branches;

constexpr size_t STACK_BYTES = 128 << 10;
constexpr u64 STACK_CANARY = 0x57ac6e4d0f5ac4ull;

static double seconds() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// ---- faults: the text goes into the report, the run is abandoned

void fault(Fault kind, const char *format, ...) {
    Report &report = *machine.report;
    report.fault = kind, report.block = current->block->index, report.thread = current->index;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(report.message, sizeof report.message, format, arguments);
    va_end(arguments);
    switch_stack(&current->stack_pointer, machine.main_stack);
    abort(); // nobody switches back to a thread that faulted
}

void check_time() {
    if (seconds() > machine.deadline)
        fault(TIMEOUT, "stopped after %.0f seconds", machine.request->seconds);
}

static const char *operation_name(Operation operation) {
    static const char *names[] = {"running", "barrier", "warp_barrier", "load_matrix", "mma", "shuffle"};
    return names[operation];
}

// Nobody can go on: lanes of one warp wait at different places (divergent), or for lanes that have left (deadlock).
[[noreturn]] static void report_deadlock(const Block &block) {
    char text[800] = "";
    size_t length = 0;
    bool divergent = false;
    for (size_t w = 0; w < block.warps.size(); ++w) {
        const Warp &warp = block.warps[w];
        divergent = divergent || (warp.arrived && warp.arrived != warp.alive);
        const Thread *previous = nullptr;
        for (size_t t = w * WARP; t < block.threads.size() && t < (w + 1) * WARP && length < sizeof text; ++t) {
            const Thread &thread = block.threads[t];
            bool alive = warp.alive >> (t % WARP) & 1;
            if (!alive || (previous && previous->waiting == thread.waiting && !(previous->site != thread.site)))
                continue;
            length += snprintf(text + length, sizeof text - length, "%s thread %zu on at %s line %d", length ? "," : "",
                               t, operation_name(thread.waiting), thread.site.line);
            previous = &thread;
        }
    }
    fault(divergent ? DIVERGENT : DEADLOCK, "no thread can go on:%s", text);
}

// ---- the scheduler

static u32 pick_bit(u32 mask, u32 start) {
    u32 upper = mask & (ALL_LANES << (start & 31));
    return __builtin_ctz(upper ? upper : mask);
}
static u32 pick_bit_down(u32 mask, u32 start) {
    u32 lower = mask & (ALL_LANES >> (31 - (start & 31)));
    return 31 - __builtin_clz(lower ? lower : mask);
}

static Thread *pick_in(Block &block, u32 warp, u32 lane) {
    u32 mask = block.ready_warps;
    if (!mask)
        return nullptr;
    switch (machine.request->order) {
    case FORWARD:
        warp = pick_bit(mask, warp);
        return &block.threads[warp * WARP + pick_bit(block.warps[warp].ready, lane)];
    case REVERSE:
        warp = pick_bit_down(mask, warp);
        return &block.threads[warp * WARP + pick_bit_down(block.warps[warp].ready, lane)];
    default: // mostly another lane of this warp: the more warps are in between, the more of them are halfway
        if (!(mask >> warp & 1) || (next_random() & 7) == 0)
            warp = pick_bit(mask, next_random());
        return &block.threads[warp * WARP + pick_bit(block.warps[warp].ready, next_random())];
    }
}

static Thread *pick() {
    Block *here = current ? current->block : &machine.blocks[0];
    size_t count = machine.blocks.size(), first = here - machine.blocks.data();
    if (machine.request->order == RANDOM && count > 1)
        first = next_random() % count;
    for (size_t i = 0; i < count; ++i) {
        Block &block = machine.blocks[(first + i) % count];
        bool mine = current && &block == current->block;
        u32 last = machine.request->order == REVERSE ? ALL_LANES : 0;
        if (Thread *thread = pick_in(block, mine ? current->warp() : last & 31, mine ? current->lane() : last & 31))
            return thread;
    }
    return nullptr;
}

static void switch_to(Thread *thread) {
    Thread *from = current;
    if (thread == from)
        return;
    if ((++count(SWITCHES) & 0xfffff) == 0)
        check_time();
    current = thread;
    switch_stack(&from->stack_pointer, thread->stack_pointer);
}

void yield_now() {
    switch_to(pick());
}

static void set_ready(Block &block, int w, u32 lanes) {
    block.warps[w].ready |= lanes;
    if (lanes)
        block.ready_warps |= 1u << w;
}

static void wait_at(Operation operation, Site site) {
    Block &block = *current->block;
    Warp &warp = current_warp();
    current->waiting = operation, current->site = site;
    warp.ready &= ~(1u << current->lane());
    if (!warp.ready)
        block.ready_warps &= ~(1u << current->warp());
    Thread *next = pick();
    if (!next)
        report_deadlock(block);
    switch_to(next);
    current->waiting = NONE;
}

// ---- rendezvous of a warp: the last lane to arrive acts for all

// True if this lane is the last; then the caller acts and calls release_warp.
static bool meet(Operation operation, Site site, u32 needed) {
    Warp &warp = current_warp();
    if (warp.arrived && (warp.operation != operation || warp.site != site))
        fault(DIVERGENT, "lane %d is at %s line %d while other lanes of its warp are at %s line %d", current->lane(),
              operation_name(operation), site.line, operation_name(warp.operation), warp.site.line);
    warp.operation = operation, warp.site = site;
    warp.arrived |= 1u << current->lane();
    if (warp.arrived == needed)
        return true;
    wait_at(operation, site);
    return false;
}

static void release_warp() {
    Warp &warp = current_warp();
    count_conflicts(warp);
    set_ready(*current->block, current->warp(), warp.arrived);
    warp.arrived = 0;
}

static void finish_warp_barrier(Warp &warp) {
    ++count(WARP_BARRIERS);
    if (warp.epoch + 1 < 1u << WARP_EPOCH_BITS)
        ++warp.epoch;
}

void warp_barrier(const char *file, int line) {
    if (meet(WARP_BARRIER, {file, line}, current_warp().alive)) {
        finish_warp_barrier(current_warp());
        release_warp();
    }
}

void load_matrix(u32 *registers, int count, bool transposed, u32 address, const char *file, int line) {
    tick();
    Warp &warp = current_warp();
    warp.d[current->lane()] = registers, warp.word[current->lane()] = address;
    if (meet(LOAD_MATRIX, {file, line}, ALL_LANES)) {
        load_matrix_warp(warp, count, transposed, file, line);
        release_warp();
    }
}

void multiply_matrix(MatrixShape shape, void *d, const u32 *a, const u32 *b, const char *file, int line) {
    Warp &warp = current_warp();
    int lane = current->lane();
    warp.d[lane] = d, warp.a[lane] = a, warp.b[lane] = b;
    if (meet(MULTIPLY_MATRIX, {file, line}, ALL_LANES)) {
        multiply_warp(warp, shape);
        release_warp();
    }
}

u64 shuffle_xor(u64 value, int mask, const char *file, int line) {
    Warp &warp = current_warp();
    int lane = current->lane();
    u64 result;
    warp.word[lane] = value, warp.d[lane] = &result;
    if (mask < 0 || mask >= WARP)
        fault(INVALID, "shuffle_xor with mask %d at %s line %d", mask, file, line);
    if (meet(SHUFFLE, {file, line}, ALL_LANES)) {
        for (int i = 0; i < WARP; ++i)
            *(u64 *)warp.d[i] = warp.word[i ^ mask];
        ++count(SHUFFLES);
        release_warp();
    }
    return result;
}

// ---- the block's barrier

static void release_block(Block &block) {
    ++count(BARRIERS);
    ++block.epoch;
    block.at_barrier = 0;
    for (size_t w = 0; w < block.warps.size(); ++w) {
        Warp &warp = block.warps[w];
        count_conflicts(warp);
        warp.epoch = 0;
        set_ready(block, (int)w, warp.alive);
    }
}

void barrier(const char *file, int line) {
    Block &block = *current->block;
    // CUDA allows a barrier in conditional code only where the condition is the same for the whole block.
    if (block.at_barrier && block.barrier_site != Site{file, line})
        fault(DIVERGENT, "the thread is at the barrier of line %d while others are at that of line %d", line,
              block.barrier_site.line);
    block.barrier_site = Site{file, line};
    if (++block.at_barrier == block.alive)
        release_block(block);
    else
        wait_at(BARRIER, {file, line});
}

int thread_index() {
    return current->index;
}
int block_index() {
    return current->block->index;
}
int grid_size() {
    return machine.request->grid;
}
u32 shared_base() {
    return SHARED_BASE;
}
void link_branch(Branch *branch) {
    branch->linked = true, branch->next = branches, branches = branch;
}

// ---- threads and launches

// A thread that has left no longer counts at barriers.
static void leave(Block &block) {
    int w = current->warp();
    Warp &warp = block.warps[w];
    u32 bit = 1u << current->lane();
    warp.alive &= ~bit, warp.ready &= ~bit;
    if (!warp.ready)
        block.ready_warps &= ~(1u << w);
    if (--block.alive == 0) {
        for (Warp &each : block.warps)
            count_conflicts(each);
        block.done = true;
    } else if (block.at_barrier == block.alive) {
        release_block(block);
    } else if (warp.arrived && warp.operation == WARP_BARRIER && warp.arrived == warp.alive) {
        finish_warp_barrier(warp);
        release_warp();
    }
}

static void thread_main() {
    machine.request->entry(machine.request->params);
    Thread *me = current;
    Block &block = *me->block;
    leave(block);
    void *next_stack = machine.main_stack;
    if (!block.done) {
        Thread *next = pick();
        if (!next)
            report_deadlock(block);
        current = next, next_stack = next->stack_pointer;
    }
    switch_stack(&me->stack_pointer, next_stack);
    abort();
}

static void start_thread(Block &block, int t, char *base) {
    Thread &thread = block.threads[t];
    thread.block = &block, thread.index = t, thread.waiting = NONE, thread.site = Site{nullptr, 0};
    thread.copies.clear(), thread.groups.clear();
    memcpy(base, &STACK_CANARY, sizeof STACK_CANARY);
    // Stacks a power of two apart would all use the same lines of the cache: shift each a little.
    thread.stack_pointer = prepare_stack(base + 64, STACK_BYTES - 64 * (1 + t % 61) - 64, thread_main);
}

static void start_block(Block &block, int index) {
    const Request &request = *machine.request;
    char *stacks = machine.stacks + (&block - machine.blocks.data()) * request.block * STACK_BYTES;
    ++count(BLOCKS);
    block.index = index, block.alive = request.block, block.at_barrier = 0, block.epoch = 1, block.done = false;
    block.threads.resize(request.block);
    block.warps.resize((request.block + WARP - 1) / WARP);
    block.arena.assign(request.shared_bytes + 2 * SHARED_BASE, 0xff); // NaN: a read before a write shows
    block.shared = (unsigned char *)(((uintptr_t)block.arena.data() + SHARED_BASE - 1) & ~(uintptr_t)(SHARED_BASE - 1));
    if (request.races)
        clear_shadow(block.shadow, request.shared_bytes);
    block.ready_warps = 0;
    for (size_t w = 0; w < block.warps.size(); ++w) {
        Warp &warp = block.warps[w];
        int lanes = request.block - (int)w * WARP;
        warp.members = warp.alive = warp.ready = lanes >= WARP ? ALL_LANES : (1u << lanes) - 1;
        warp.arrived = warp.epoch = warp.access_count = 0;
        memset(warp.cursor, 0, sizeof warp.cursor), memset(warp.joined, 0, sizeof warp.joined);
        block.ready_warps |= 1u << w;
    }
    for (int t = 0; t < request.block; ++t)
        start_thread(block, t, stacks + t * STACK_BYTES);
}

static bool stacks_intact(const Block &block) {
    const char *stacks = machine.stacks + (&block - machine.blocks.data()) * block.threads.size() * STACK_BYTES;
    for (size_t t = 0; t < block.threads.size(); ++t)
        if (memcmp(stacks + t * STACK_BYTES, &STACK_CANARY, sizeof STACK_CANARY))
            return false;
    return true;
}

// Keeps the resident blocks going until all blocks of the request are done or one has faulted.
static void run_blocks() {
    const Request &request = *machine.request;
    int next = 0;
    for (Block &block : machine.blocks)
        start_block(block, request.blocks[next++]);
    current = nullptr;
    while (Thread *thread = pick()) {
        current = thread;
        switch_stack(&machine.main_stack, thread->stack_pointer);
        if (machine.report->fault)
            return;
        current = nullptr;
        for (Block &block : machine.blocks) {
            if (!block.done)
                continue;
            if (!stacks_intact(block)) {
                machine.report->fault = STACK, machine.report->block = block.index;
                snprintf(machine.report->message, sizeof machine.report->message, "a thread overflowed its stack");
                return;
            }
            block.done = false;
            if (next < request.block_count)
                start_block(block, request.blocks[next++]);
        }
    }
}

static void prepare_machine(const Request &request, Report &report) {
    memset(&report, 0, sizeof report);
    machine.request = &request, machine.report = &report;
    machine.random = request.seed * 0x9e3779b97f4a7c15ull + 0x1234567ull;
    machine.ticks = 0, machine.deadline = seconds() + request.seconds;
    machine.written.assign(request.buffer_count, {});
    for (int i = 0; i < request.buffer_count; ++i)
        if (request.races && request.buffers[i].writable)
            machine.written[i].assign(request.buffers[i].bytes / 32 + 3, 0);
    int resident = request.resident < request.block_count ? request.resident : request.block_count;
    machine.blocks.resize(resident);
    for (Branch *branch = branches; branch; branch = branch->next)
        branch->count = 0;
}

} // namespace emulator

#define EXPORT extern "C" __attribute__((visibility("default")))

// Runs the blocks of one launch. Returns 0, the kind of fault, or -1 if memory for the stacks cannot be had.
EXPORT int emulator_run(const emulator::Request *request, emulator::Report *report) {
    using namespace emulator;
    prepare_machine(*request, *report);
    if (machine.blocks.empty())
        return 0;
    size_t bytes = STACK_BYTES * request->block * machine.blocks.size();
    void *stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return -1;
    machine.stacks = (char *)stacks;
    run_blocks();
    munmap(stacks, bytes);
    machine.blocks.clear(), machine.written.clear();
    current = nullptr;
    return report->fault;
}

EXPORT int emulator_counters() {
    return emulator::COUNTERS;
}

// The branches passed in the last run: the i-th one's name and count, or null after the last.
EXPORT const char *emulator_branch(int i, unsigned long long *count) {
    for (emulator::Branch *branch = emulator::branches; branch; branch = branch->next)
        if (i-- == 0) {
            *count = branch->count;
            return branch->name;
        }
    return nullptr;
}
