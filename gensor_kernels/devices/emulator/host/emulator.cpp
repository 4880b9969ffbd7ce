// Faults, threads and launches.
#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <time.h>
#include <sys/mman.h>
#include "scheduler.h"
#include "tensor.h"
#include "warpgroup.h"
#include "tensor_products.h"
#include "blocks.h"

namespace emulator {

Machine machine;
Thread *current;
static Branch *branches;

static double seconds() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}

// ---- faults: the text is written to the report, and the run ends

static void record_fault(Fault kind, const char *format, va_list arguments) {
    Report &report = *machine.report;
    report.fault = kind, report.block = current->block->index, report.thread = current->index;
    vsnprintf(report.message, sizeof report.message, format, arguments);
}

// A fault outside of all threads, where there is no stack to switch from.
__attribute__((format(printf, 2, 3))) static void fault_outside(Fault kind, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record_fault(kind, format, arguments);
    va_end(arguments);
}

void fault(Fault kind, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    record_fault(kind, format, arguments);
    va_end(arguments);
    switch_stack(&current->stack_pointer, machine.main_stack);
    abort(); // no switch returns to a thread that faulted
}

void check_time() {
    if (seconds() > machine.deadline)
        fault(TIMEOUT, "stopped after %.0f seconds", machine.request->seconds);
}

void grid_dependency_wait() {
    current->launched = true;
}
// If all threads of a launch wait, it ends after the previous launch, and a later launch need only wait for its end.
static void check_launched_at_end() {
    if (!current->launched)
        fault(RACE, "the thread ends without having waited for the launch in front");
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

// A thread that has ended no longer counts at barriers.
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
        check_async_end(block);
        check_tensor_end(block);
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
    check_stack();
    check_stores_end();
    check_launched_at_end();
    Thread *me = current;
    Block &block = *me->block;
    leave(block);
    leave_cluster(block);
    void *next_stack = machine.main_stack;
    if (!block.done) {
        Thread *next = pick_or_deliver();
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
    thread.launched = !machine.request->dependent;
    thread.copies.clear(), thread.groups.clear();
    thread.stores.clear(), thread.store_groups.clear(), thread.unfenced.clear(), thread.ordered.clear();
    memcpy(thread.stack = base, &STACK_CANARY, sizeof STACK_CANARY);
    // Stacks a power of two apart would all use the same lines of the cache: shift each a little.
    thread.stack_pointer = prepare_stack(base + 64, STACK_BYTES - 64 * (1 + t % 61) - 64, thread_main);
}

static void start_block(Block &block, int index) {
    const Request &request = *machine.request;
    char *stacks = machine.stacks + (&block - machine.blocks.data()) * request.block * STACK_BYTES;
    ++count(BLOCKS);
    block.index = index, block.alive = request.block, block.at_barrier = 0, block.epoch = 1, block.done = false;
    block.vote = block.voted = false;
    block.threads.resize(request.block);
    block.warps.resize((request.block + WARP - 1) / WARP);
    block.arena.assign(request.shared_bytes + 2 * SHARED_BASE, 0xff); // NaN: makes a read before a write visible
    block.shared = (unsigned char *)(((uintptr_t)block.arena.data() + SHARED_BASE - 1) & ~(uintptr_t)(SHARED_BASE - 1));
    if (request.races)
        clear_shadow(block.shadow, request.shared_bytes);
    block.async = Async{};
    block.known.clear();
    block.ready_warps = 0;
    for (size_t w = 0; w < block.warps.size(); ++w) {
        Warp &warp = block.warps[w];
        int lanes = request.block - (int)w * WARP;
        warp.members = warp.alive = warp.ready = lanes >= WARP ? ALL_LANES : (1u << lanes) - 1;
        warp.arrived = warp.epoch = 0, warp.apart = false;
        block.ready_warps |= 1u << w;
    }
    for (int t = 0; t < request.block; ++t)
        start_thread(block, t, stacks + t * STACK_BYTES);
}

// Runs the resident blocks until all blocks of the request are done or one has faulted.
static void run_blocks() {
    const Request &request = *machine.request;
    int next = 0;
    for (Block &block : machine.blocks)
        start_block(block, request.blocks[next++]);
    current = nullptr;
    while (Thread *thread = pick_or_deliver()) {
        current = thread;
        switch_stack(&machine.main_stack, thread->stack_pointer);
        if (machine.report->fault)
            return;
        current = nullptr;
        // The blocks of a cluster start together.
        for (size_t first = 0; first < machine.blocks.size(); first += request.cluster) {
            Block *const begin = &machine.blocks[first];
            Block *const end =
                begin + (machine.blocks.size() - first < (size_t)request.cluster ? machine.blocks.size() - first
                                                                                 : request.cluster);
            if (!std::all_of(begin, end, [](const Block &block) { return block.done; }))
                continue;
            for (Block *block = begin; block != end; ++block) {
                block->done = false;
                if (next < request.block_count)
                    start_block(*block, request.blocks[next++]);
            }
        }
    }
    for (Block &block : machine.blocks)
        if (block.alive) {
            char text[800];
            current = &block.threads[0];
            const Fault kind = describe_deadlock(block, text);
            return fault_outside(kind, NOBODY_GOES_ON, text);
        }
}

static bool buffers_overlap(const Request &request) {
    for (int i = 0; i < request.buffer_count; ++i)
        for (int j = 0; j < i; ++j) {
            const Buffer &a = request.buffers[i], &b = request.buffers[j];
            if (a.begin < b.begin + b.bytes && b.begin < a.begin + a.bytes)
                return true;
        }
    return false;
}

static void prepare_machine(const Request &request, Report &report) {
    memset(&report, 0, sizeof report);
    machine.request = &request, machine.report = &report;
    machine.random = request.seed * 0x9e3779b97f4a7c15ull + 0x1234567ull;
    machine.overlap = buffers_overlap(request);
    machine.ticks = 0, machine.tensor_blocks = 0, machine.deadline = seconds() + request.seconds;
    machine.written.assign(request.buffer_count, {});
    machine.sectors.resize(request.buffer_count);
    for (int i = 0; i < request.buffer_count; ++i)
        if (request.races && request.buffers[i].writable) {
            machine.written[i].assign(request.buffers[i].bytes / 32 + 3, 0);
            if (!request.dependent || machine.sectors[i].size() != machine.written[i].size())
                machine.sectors[i].assign(machine.written[i].size(), 0);
        }
    int resident = request.resident < request.block_count ? request.resident : request.block_count;
    machine.blocks.resize(resident);
    machine.flags.clear(), machine.clusters.clear();
    machine.storers.assign(request.buffer_count, {});
    for (int i = 0; i < request.buffer_count; ++i)
        if (resident > 1 && request.races && request.buffers[i].writable)
            machine.storers[i].resize(request.buffers[i].bytes / 4 + 9);
    for (Branch *branch = branches; branch; branch = branch->next)
        branch->count = 0;
}

// Sectors that a dependent launch after this one may find in a cache.
static void note_sectors() {
    for (size_t i = 0; i < machine.sectors.size(); ++i)
        for (size_t sector = 0; sector < machine.written[i].size(); ++sector) {
            u8 &state = machine.sectors[i][sector];
            state = state & STALE || (state & LOADED && machine.written[i][sector]) ? STALE : 0;
        }
}

} // namespace emulator

#define EXPORT extern "C" __attribute__((visibility("default")))

// Runs the blocks of one launch. Returns 0, the kind of fault, or -1 if there is no memory for the stacks.
EXPORT int emulator_run(const emulator::Request *request, emulator::Report *report) {
    using namespace emulator;
    prepare_machine(*request, *report);
    if (machine.blocks.empty())
        return 0;
    size_t bytes = STACK_BYTES * (request->block * machine.blocks.size() + 1);
    void *stacks = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED)
        return -1;
    machine.stacks = (char *)stacks + STACK_BYTES; // an overflow of the first stack writes to the extra one
    run_blocks();
    note_sectors();
    munmap(stacks, bytes);
    machine.blocks.clear(), machine.written.clear(), machine.storers.clear(), machine.flags.clear();
    current = nullptr;
    return report->fault;
}

EXPORT int emulator_counters() {
    return emulator::COUNTERS;
}

// The branches that the last run passed: the name and count of number i, or null after the last.
EXPORT const char *emulator_branch(int i, unsigned long long *count) {
    for (emulator::Branch *branch = emulator::branches; branch; branch = branch->next)
        if (i-- == 0) {
            *count = branch->count;
            return branch->name;
        }
    return nullptr;
}
