// The scheduler: rendezvous of warps and blocks, and the order in which waiting threads continue.
#pragma once
#include "stack.h"
#include "matrix.h"

namespace emulator {

static const char *operation_name(Operation operation) {
    static const char *names[] = {
        "running",    "barrier",   "warp_barrier",    "load_matrix",  "store_matrix",
        "mma",        "shuffle",   "mbarrier_wait",   "wgmma",        "a fence, commit or wait of wgmma",
        "setmaxnreg", "take_flag", "cluster_barrier", "tensor_alloc", "tensor_free",
        "tensor_load"};
    return names[operation];
}

// The fault of a block in which no thread can continue: lanes of one warp wait at different places (divergent), or
// threads wait for lanes that have ended or for flags that no thread gives (deadlock).
static Fault describe_deadlock(const Block &block, char (&text)[800]) {
    size_t length = 0;
    text[0] = 0;
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
    return divergent ? DIVERGENT : DEADLOCK;
}

constexpr char NOBODY_GOES_ON[] = "no thread can go on:%s";
[[noreturn]] static void report_deadlock(const Block &block) {
    char text[800];
    const Fault kind = describe_deadlock(block, text);
    fault(kind, NOBODY_GOES_ON, text);
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

static u32 pick_random_bit(u32 mask) {
    for (u32 skip = (u64)next_random() * __builtin_popcount(mask) >> 32; skip; --skip)
        mask &= mask - 1;
    return __builtin_ctz(mask);
}

static Thread *pick_in(Block &block, u32 warp, u32 lane) {
    u32 mask = block.ready_warps, next;
    if (!mask)
        return nullptr;
    switch (machine.request->order) {
    case FORWARD:
        next = pick_bit(mask, warp);
        return &block.threads[next * WARP + pick_bit(block.warps[next].ready, next == warp ? lane : 0)];
    case REVERSE:
        next = pick_bit_down(mask, warp);
        return &block.threads[next * WARP + pick_bit_down(block.warps[next].ready, next == warp ? lane : WARP - 1)];
    default: // mostly another lane of this warp: the more warps are in between, the more of them are halfway
        if (!(mask >> warp & 1) || (next_random() & 15) == 0)
            warp = pick_random_bit(mask);
        return &block.threads[warp * WARP + pick_random_bit(block.warps[warp].ready)];
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

static bool complete_one();

// The next thread. Where none can continue, copies in flight and committed products first complete.
static Thread *pick_or_deliver() {
    Thread *next = pick();
    while (!next && complete_one())
        next = pick();
    return next;
}

static inline __attribute__((always_inline)) void switch_to(Thread *thread) {
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

// Lets threads that wait continue.
static void wake(std::vector<Thread *> &waiting) {
    for (Thread *thread : waiting)
        set_ready(*thread->block, thread->warp(), 1u << thread->lane());
    waiting.clear();
}

static inline __attribute__((always_inline)) void wait_at(Operation operation, Site site) {
    Block &block = *current->block;
    Warp &warp = current_warp();
    current->waiting = operation, current->site = site;
    warp.ready &= ~(1u << current->lane());
    if (!warp.ready)
        block.ready_warps &= ~(1u << current->warp());
    Thread *next;
    // The common case, the next lane of this warp, without the general search.
    if (u32 later = machine.request->order == FORWARD ? warp.ready & (ALL_LANES << current->lane()) : 0)
        next = current - current->lane() + __builtin_ctz(later);
    else if (!(next = pick_or_deliver()))
        report_deadlock(block);
    switch_to(next);
    current->waiting = NONE;
}

// ---- rendezvous of a warp: the last lane to arrive acts for all

// True if this lane is the last; then the caller acts and calls release_warp.
static inline __attribute__((always_inline)) bool meet(Operation operation, Site site, u32 needed) {
    Warp &warp = current_warp();
    if (warp.arrived && (warp.operation != operation || warp.site != site))
        fault(DIVERGENT, "lane %d is at %s line %d while other lanes of its warp are at %s line %d", current->lane(),
              operation_name(operation), site.line, operation_name(warp.operation), warp.site.line);
    if (warp.apart && operation >= TENSOR_ALLOC)
        fault(DIVERGENT, "%s at %s line %d by lanes that have left the barrier of their cluster one by one",
              operation_name(operation), site.file, site.line);
    warp.operation = operation, warp.site = site;
    warp.arrived |= 1u << current->lane();
    if (warp.arrived == needed) {
        warp.apart = false;
        return true;
    }
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
    ++warp.epoch;
}

void warp_barrier(Site site) {
    if (meet(WARP_BARRIER, site, current_warp().alive)) {
        finish_warp_barrier(current_warp());
        release_warp();
    }
}

void load_matrix(u32 *registers, int count, bool transposed, u32 address, Site site) {
    tick();
    Warp &warp = current_warp();
    warp.d[current->lane()] = registers, warp.word[current->lane()] = address;
    if (meet(LOAD_MATRIX, site, ALL_LANES)) {
        load_matrix_warp(warp, count, transposed, site);
        release_warp();
    }
}

// Stores each row to the address that its lane gave.
void store_matrix(u32 address, const u32 *registers, Site site) {
    Warp &warp = current_warp();
    u32 row[4];
    warp.a[current->lane()] = registers, warp.d[current->lane()] = row;
    if (meet(STORE_MATRIX, site, ALL_LANES)) {
        for (int lane = 0; lane < WARP; ++lane)
            for (int j = 0; j < 4; ++j)
                ((u32 *)warp.d[lane])[j] = warp.a[lane % 8 * 4 + j][lane / 8];
        release_warp();
    }
    store_shared(address, row, 16, site);
}

void multiply_matrix(MatrixShape shape, void *d, const u32 *a, const u32 *b, Site site) {
    Warp &warp = current_warp();
    int lane = current->lane();
    warp.d[lane] = d, warp.a[lane] = a, warp.b[lane] = b;
    if (meet(MULTIPLY_MATRIX, site, ALL_LANES)) {
        multiply_warp(warp, shape);
        release_warp();
    }
}

void multiply_scaled(ScaledProduct product, float *d, const u32 *a, const u32 *b, u32 scales_a, u32 scales_b,
                     Site site) {
    Warp &warp = current_warp();
    const int lane = current->lane();
    warp.d[lane] = d, warp.a[lane] = a, warp.b[lane] = b, warp.word[lane] = (u64)scales_b << 32 | scales_a;
    if (meet(MULTIPLY_MATRIX, site, ALL_LANES)) {
        multiply_scaled_warp(warp, product, site);
        release_warp();
    }
}

u64 shuffle_xor(u64 value, int mask, Site site) {
    Warp &warp = current_warp();
    int lane = current->lane();
    u64 result;
    warp.word[lane] = value, warp.d[lane] = &result;
    if (mask < 0 || mask >= WARP)
        fault(INVALID, "shuffle_xor with mask %d at %s line %d", mask, site.file, site.line);
    if (meet(SHUFFLE, site, ALL_LANES)) {
        for (int i = 0; i < WARP; ++i)
            *(u64 *)warp.d[i] = warp.word[i ^ mask];
        ++count(SHUFFLES);
        release_warp();
    }
    return result;
}

// The shuffle returns the first lane's value: every lane must have the same value.
int warp_uniform(int value, Site site) {
    Warp &warp = current_warp();
    warp.word[current->lane()] = (u64)value;
    if (meet(SHUFFLE, site, ALL_LANES)) {
        for (int i = 1; i < WARP; ++i)
            if (warp.word[i] != warp.word[0])
                fault(INVALID, "a warp_uniform value that differs from lane to lane at %s line %d", site.file,
                      site.line);
        ++count(SHUFFLES);
        release_warp();
    }
    return value;
}

// The PTX ISA leaves open which lane elect.sync elects: the same lane every time for the same lanes.
static int leader() {
    const Request &request = *machine.request;
    return request.order == FORWARD ? 0 : request.order == REVERSE ? WARP - 1 : (int)(request.seed % WARP);
}

bool elect_one(Site site) {
    if (meet(SHUFFLE, site, ALL_LANES))
        release_warp();
    return current->lane() == leader();
}

// ---- the block's barrier

static void join_all(Block &block);

static void release_block(Block &block) {
    ++count(BARRIERS);
    ++block.epoch;
    block.at_barrier = 0;
    block.voted = block.vote, block.vote = false;
    join_all(block);
    for (size_t w = 0; w < block.warps.size(); ++w) {
        Warp &warp = block.warps[w];
        count_conflicts(warp);
        warp.epoch = 0;
        set_ready(block, (int)w, warp.alive);
    }
}

static void check_stack() {
    if (memcmp(current->stack, &STACK_CANARY, sizeof STACK_CANARY))
        fault(STACK, "the thread overflowed its stack of %zu bytes", STACK_BYTES);
}

void barrier(Site site) {
    check_stack();
    Block &block = *current->block;
    // CUDA allows a barrier in conditional code only where the condition is the same for the whole block.
    if (block.at_barrier && block.barrier_site != site)
        fault(DIVERGENT, "the thread is at the barrier of line %d while others are at that of line %d", site.line,
              block.barrier_site.line);
    block.barrier_site = site;
    if (++block.at_barrier != block.alive)
        return wait_at(BARRIER, site);
    release_block(block);
    u32 last = machine.request->order == REVERSE ? WARP - 1 : 0; // warps continue in order, not from the current one
    switch_to(pick_in(block, last, last));
}

bool barrier_any(bool value, Site site) {
    Block &block = *current->block;
    block.vote |= value;
    barrier(site);
    return block.voted;
}

} // namespace emulator
