// mbarriers, and what they order: tensor copies (tensor.h), warpgroup products and the exchange of registers
// (warpgroup.h), as kernels for sm_90a use them. What moves data by itself (the copies' and the products' side of
// shared memory, the "asynchronous proxy") is ordered by nothing but mbarriers and waits, so it has a race detector of
// its own, exact per 1024-byte atom: an atom remembers the copy that filled it (a phase of an mbarrier) and what each
// warp reads of it. A warp may read it once it has waited for that phase; a copy may overwrite it once every product
// that reads it has been waited for, and the copying warp has learnt so by way of an mbarrier or the block's barrier
// (vector clocks, one entry per warp).
#pragma once
#include "scheduler.h"

namespace emulator {

constexpr u32 ATOM = 1024; // bytes of shared memory over which a 128-byte swizzle repeats

[[noreturn]] static void invalid(const char *what, const char *file, int line) {
    fault(INVALID, "%s at %s line %d", what, file, line);
}

// ---- clocks

static Async &async_state() {
    return current->block->async;
}
static WarpAsync &warp_async() {
    return async_state().warps[current->warp()];
}

static void join(Clocks &into, const Clocks &from) {
    for (size_t w = 0; w < into.size(); ++w)
        into[w] = from[w] > into[w] ? from[w] : into[w];
}

// The block's barrier: every warp knows all that any warp knew.
static void join_all(Block &block) {
    if (block.async.barriers.empty())
        return;
    Clocks all(block.warps.size(), 0);
    std::vector<u32> seen(block.async.barriers.size(), 0);
    for (WarpAsync &warp : block.async.warps) {
        join(all, warp.known);
        for (size_t b = 0; b < warp.seen.size(); ++b)
            seen[b] = warp.seen[b] > seen[b] ? warp.seen[b] : seen[b];
    }
    for (size_t w = 0; w < block.async.warps.size(); ++w) {
        block.async.warps[w].known = all, block.async.warps[w].seen = seen;
        ++block.async.warps[w].known[w];
    }
}

// ---- mbarriers

static MBarrier &find_mbarrier(u32 address, bool shared_use, const char *file, int line) {
    Async &async = async_state();
    for (MBarrier &each : async.barriers)
        if (each.address == address) {
            if (shared_use && (!each.fenced || warp_async().known[each.owner] < each.made))
                fault(RACE,
                      "the use at %s line %d of the mbarrier at shared byte %u is not ordered with its "
                      "initialisation at line %d",
                      file, line, address - SHARED_BASE, each.line);
            return each;
        }
    fault(INVALID, "%s line %d uses shared byte %d as an mbarrier, which it is not", file, line,
          (int)(address - SHARED_BASE));
}

void mbarrier_init(u32 address, int arrivals, const char *file, int line) {
    check_shared(address, 8, file, line);
    Async &async = async_state();
    Block &block = *current->block;
    if (async.warps.empty()) {
        async.warps.resize(block.warps.size());
        async.atoms.resize((machine.request->shared_bytes + ATOM - 1) / ATOM);
        for (size_t w = 0; w < async.warps.size(); ++w) {
            async.warps[w].known.assign(block.warps.size(), 0);
            async.warps[w].known[w] = 1;
        }
    }
    if (arrivals < 1)
        invalid("an mbarrier that nothing arrives at", file, line);
    for (MBarrier &each : async.barriers)
        if (each.address == address)
            invalid("a second initialisation of an mbarrier", file, line);
    MBarrier made;
    made.address = address, made.arrivals = made.pending = arrivals, made.line = line;
    made.owner = current->warp(), made.made = warp_async().known[current->warp()];
    made.gathered.assign(block.warps.size(), 0), made.published = made.gathered;
    async.barriers.push_back(made);
    for (WarpAsync &warp : async.warps)
        warp.seen.push_back(0);
}

void mbarrier_fence() {
    for (MBarrier &each : async_state().barriers)
        if (each.owner == current->warp())
            each.fenced = true;
}

// The phase ends when all have arrived and all bytes that were announced have come.
static void settle(MBarrier &barrier, const char *file, int line) {
    if (barrier.pending < 0)
        invalid("more arrivals at an mbarrier than it was made for", file, line);
    if (barrier.pending || barrier.bytes)
        return;
    barrier.pending = barrier.arrivals, ++barrier.phase;
    barrier.published = barrier.gathered;
    barrier.gathered.assign(barrier.gathered.size(), 0);
    for (Thread *thread : barrier.waiting)
        set_ready(*thread->block, thread->warp(), 1u << thread->lane());
    barrier.waiting.clear();
}

static void arrive(MBarrier &barrier, const char *file, int line) {
    WarpAsync &own = warp_async();
    join(barrier.gathered, own.known);
    ++own.known[current->warp()];
    --barrier.pending;
    settle(barrier, file, line);
}

void mbarrier_arrive(u32 address, const char *file, int line) {
    tick();
    arrive(find_mbarrier(address, true, file, line), file, line);
}

void mbarrier_expect(u32 address, int bytes, const char *file, int line) {
    tick();
    MBarrier &barrier = find_mbarrier(address, true, file, line);
    barrier.bytes += bytes;
    arrive(barrier, file, line);
}

void mbarrier_wait(u32 address, u32 parity, const char *file, int line) {
    tick();
    if (parity > 1)
        invalid("a parity that is neither 0 nor 1", file, line);
    find_mbarrier(address, true, file, line);
    size_t index = 0;
    while (async_state().barriers[index].address != address)
        ++index;
    while ((async_state().barriers[index].phase & 1) == parity) {
        async_state().barriers[index].waiting.push_back(current);
        wait_at(MBARRIER_WAIT, {file, line});
    }
    const MBarrier &barrier = async_state().barriers[index];
    WarpAsync &own = warp_async();
    join(own.known, barrier.published);
    own.seen[index] = barrier.phase;
    ++count(MBARRIER_WAITS);
}

} // namespace emulator
