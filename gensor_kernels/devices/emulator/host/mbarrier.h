// mbarriers, and what they order: tensor copies (tensor.h), warpgroup products and the exchange of registers
// (warpgroup.h), as kernels for sm_90a use them. Asynchronous data movement (the copies' and the products' side of
// shared memory, the "asynchronous proxy") is ordered by nothing but mbarriers and waits, so it has its own race
// detector, exact per 1024-byte atom: an atom records the copy that filled it (a phase of an mbarrier), and the reads
// and stores of each warp. A warp may read it once it has waited for that phase. A product may read data that threads
// stored over a copy or where there is none, and a copy may overwrite an atom, once the threads have fenced, every
// product that reads it has been waited for, and an mbarrier or the block's barrier orders the warp after this (vector
// clocks, one entry per warp of the cluster). Each warp has a second entry there: how many of its products in tensor
// memory are known to be complete (tensor_products.h).
#pragma once
#include "scheduler.h"

namespace emulator {

constexpr u32 ATOM = 1024;                // bytes of shared memory over which a 128-byte swizzle repeats
constexpr int MOST_COUNT = (1 << 20) - 1; // of arrivals, and of expected or surplus bytes (PTX ISA 9.7.13.15.2)

[[noreturn]] static void invalid(const char *what, Site site) {
    fault(INVALID, "%s at %s line %d", what, site.file, site.line);
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

// A warp's index in clocks, which have an entry for every warp of the cluster.
static int place_of(const Block &block, int warp) {
    return block.index % machine.request->cluster * (int)block.warps.size() + warp;
}
static int own_place() {
    return place_of(*current->block, current->warp());
}
// The number of warps of the cluster; entries of products follow those of warps.
static int places(const Block &block) {
    return (int)block.warps.size() * machine.request->cluster;
}

// A barrier of the block releases a warp's accesses. An arrival releases the accesses of its thread and, after an
// instruction that orders the warp's shared memory, those of its warp; a narrow one not its stores.
static void release_accesses(Block &block, int warp, bool by_barrier, bool narrow = false) {
    WarpAsync &own = block.async.warps[warp];
    const int place = place_of(block, warp);
    std::vector<Accesses> kept;
    for (const Accesses &each : own.accesses) {
        Atom &atom = block.async.atoms[each.atom];
        if (by_barrier || (!(narrow && each.stores) && (each.time < now() || each.lanes == 1u << current->lane())))
            (each.stores ? atom.wrote : atom.read)[place] = own.known[place];
        else
            kept.push_back(each);
    }
    own.accesses = kept;
}

static void note_move(Block &block, const TensorMove &move, int place, u32 time) {
    for (u32 i = move.column; i < move.column + move.columns; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        (move.stores ? column.stored : column.read)[place] = time;
    }
}

// The same for loads and stores of tensor memory that have been waited for and fenced.
static void release_moves(Block &block, int warp, bool by_barrier) {
    WarpAsync &own = block.async.warps[warp];
    const int place = place_of(block, warp);
    std::vector<TensorMove> kept;
    for (TensorMove &each : own.moves) {
        if (by_barrier || (!each.unfenced && each.time < now()))
            each.unreleased &= each.unfenced;
        else
            each.unreleased &= each.unfenced | ~(1u << current->lane());
        if (each.unreleased)
            kept.push_back(each);
        else
            note_move(block, each, place, own.known[place]);
    }
    for (const TensorMove &each : kept)
        note_move(block, each, place, UNRELEASED);
    own.moves.swap(kept);
}

// Lanes of the current warp access an atom.
static void note_access(const Atom &atom, bool stores, u32 lanes) {
    std::vector<Accesses> &own = warp_async().accesses;
    const u32 index = (u32)(&atom - async_state().atoms.data());
    for (Accesses &each : own)
        if (each.atom == index && each.time == now() && each.stores == stores) {
            each.lanes |= lanes;
            return;
        }
    own.push_back({index, now(), lanes, stores});
}

// Whether the current warp has seen all accesses in these clocks of an atom.
static bool all_known(const Clocks &clocks) {
    const Clocks &known = warp_async().known;
    for (size_t w = 0; w < clocks.size(); ++w)
        if (clocks[w] > known[w])
            return false;
    return true;
}

// The union of the clocks of a block's warps.
static void gather(const Block &block, Clocks &all) {
    for (const WarpAsync &warp : block.async.warps)
        join(all, warp.known);
}

// Every warp of a block receives the clocks in `all`, and the phases that any warp of the block has seen.
static void tell(Block &block, const Clocks &all) {
    std::vector<u32> seen(block.async.barriers.size(), 0);
    for (const WarpAsync &warp : block.async.warps)
        for (size_t b = 0; b < warp.seen.size(); ++b)
            seen[b] = warp.seen[b] > seen[b] ? warp.seen[b] : seen[b];
    for (size_t w = 0; w < block.async.warps.size(); ++w) {
        release_accesses(block, (int)w, true), release_moves(block, (int)w, true);
        block.async.warps[w].known = all, block.async.warps[w].seen = seen;
        ++block.async.warps[w].known[place_of(block, (int)w)];
    }
}

static Clocks nothing_known(const Block &block) {
    return Clocks(2 * places(block), 0);
}

// The block's barrier.
static void join_all(Block &block) {
    if (block.async.warps.empty())
        return;
    Clocks all = nothing_known(block);
    gather(block, all);
    tell(block, all);
}

// ---- mbarriers

static MBarrier &find_mbarrier(Async &async, u32 address, Site site) {
    for (MBarrier &each : async.barriers)
        if (each.address == address) {
            if (!each.fenced || warp_async().known[each.owner] < each.made)
                fault(RACE,
                      "the use at %s line %d of the mbarrier at shared byte %u is not ordered with its "
                      "initialisation at line %d",
                      site.file, site.line, address - SHARED_BASE, each.line);
            return each;
        }
    fault(INVALID, "%s line %d uses shared byte %d as an mbarrier, which it is not", site.file, site.line,
          (int)(address - SHARED_BASE));
}

// Before the block's first asynchronous operation.
static void prepare_async(Block &block) {
    Async &async = block.async;
    if (!async.warps.empty())
        return;
    async.warps.resize(block.warps.size());
    async.atoms.resize((machine.request->shared_bytes + ATOM - 1) / ATOM);
    for (size_t w = 0; w < async.warps.size(); ++w) {
        async.warps[w].known = nothing_known(block);
        async.warps[w].known[place_of(block, (int)w)] = 1;
    }
}

void mbarrier_init(u32 address, int arrivals, Site site) {
    check_shared(address, 8, site);
    Async &async = async_state();
    Block &block = *current->block;
    prepare_async(block);
    if (arrivals < 1)
        invalid("an mbarrier that nothing arrives at", site);
    if (arrivals > MOST_COUNT)
        invalid("an mbarrier of more than 2^20 - 1 arrivals", site);
    for (MBarrier &each : async.barriers)
        if (each.address == address)
            invalid("a second initialisation of an mbarrier", site);
    MBarrier made;
    made.address = address, made.arrivals = made.pending = arrivals, made.line = site.line;
    made.owner = own_place(), made.made = warp_async().known[own_place()];
    made.gathered = made.published = nothing_known(block);
    async.barriers.push_back(made);
    ++async.atoms[(address - SHARED_BASE) / ATOM].barriers;
    for (WarpAsync &warp : async.warps)
        warp.seen.push_back(0);
}

void mbarrier_fence() {
    for (MBarrier &each : async_state().barriers)
        if (each.owner == own_place())
            each.fenced = true;
}

// Announced bytes; less than 0 where copies completed before the announcement.
static void announce(MBarrier &barrier, long long bytes, Site site) {
    barrier.bytes += bytes;
    if (barrier.bytes > MOST_COUNT || barrier.bytes < -MOST_COUNT)
        invalid("more than 2^20 - 1 bytes in a phase of an mbarrier", site);
}

// The phase ends when all threads have arrived and all announced bytes have been copied.
static void settle(MBarrier &barrier, Site site) {
    if (barrier.pending < 0)
        invalid("more arrivals at an mbarrier than it was made for", site);
    if (barrier.pending || barrier.bytes)
        return;
    barrier.pending = barrier.arrivals, ++barrier.phase;
    barrier.published = barrier.gathered;
    barrier.gathered.assign(barrier.gathered.size(), 0);
    barrier.published_wide = barrier.gathered_wide, barrier.gathered_wide = false;
    wake(barrier.waiting);
}

static void count_arrival(MBarrier &barrier, Site site) {
    // PTX ISA 9.7.13.15.4: a wait for a phase has returned before any thread arrives in the next phase.
    if (barrier.observed < barrier.phase)
        invalid("an arrival at an mbarrier whose last phase nobody has waited for", site);
    --barrier.pending;
    settle(barrier, site);
}

static void arrive(MBarrier &barrier, Site site, bool narrow = false) {
    WarpAsync &own = warp_async();
    release_accesses(*current->block, current->warp(), false, narrow);
    release_moves(*current->block, current->warp(), false);
    join(barrier.gathered, own.known);
    ++own.known[own_place()];
    count_arrival(barrier, site);
}

void mbarrier_arrive(u32 address, Site site) {
    tick();
    arrive(find_mbarrier(async_state(), address, site), site);
}

// A block of a block's cluster, whose shared memory exists.
static Block &peer(const Block &of, int rank, Site site) {
    const int size = machine.request->cluster, wanted = of.index / size * size + rank;
    if (rank < 0 || rank >= size)
        invalid("a block that the cluster does not have", site);
    for (Block &block : machine.blocks)
        if (block.index == wanted && block.alive)
            return block;
    fault(RACE, "%s line %d reaches for the shared memory of block %d, which is not there", site.file, site.line,
          wanted);
}

static int rank_of(const Block &block) {
    return block.index % machine.request->cluster;
}

// Instructions of tensor memory: all of a launch are of one block, or of a pair. A cluster has whole pairs.
static void use_blocks(int blocks, Site site) {
    if (machine.tensor_blocks && machine.tensor_blocks != blocks)
        invalid("instructions of tensor memory of one block and of pairs in one kernel", site);
    if (blocks == 2 && machine.request->cluster % 2)
        invalid("an instruction of a pair of blocks in a cluster without pairs", site);
    machine.tensor_blocks = blocks;
}

void mbarrier_arrive_at(u32 address, int block, bool narrow, Site site) {
    tick();
    Block &there = peer(*current->block, block, site);
    const bool remote = &there != current->block;
    MBarrier &barrier = find_mbarrier(there.async, address, site);
    barrier.gathered_wide |= remote && !narrow;
    arrive(barrier, site, narrow && remote);
}

void mbarrier_expect(u32 address, int bytes, Site site) {
    tick();
    MBarrier &barrier = find_mbarrier(async_state(), address, site);
    announce(barrier, bytes, site);
    arrive(barrier, site);
}

// A thread has waited for all phases of this mbarrier but the current one.
static void see_commits(std::vector<CommitArrival> &unseen, const MBarrier &barrier) {
    const std::vector<CommitArrival> before = unseen;
    const auto over = [&](const CommitArrival &each) {
        return each.barrier == barrier.address && each.phase < barrier.phase;
    };
    unseen.clear();
    for (const CommitArrival &each : before) {
        bool left = !over(each);
        for (const CommitArrival &later : before)
            left = left && !(over(later) && later.block == each.block && later.thread == each.thread &&
                             later.number > each.number);
        if (left)
            unseen.push_back(each);
    }
}

void mbarrier_wait(u32 address, u32 parity, bool wide, Site site) {
    tick();
    if (parity > 1)
        invalid("a parity that is neither 0 nor 1", site);
    find_mbarrier(async_state(), address, site);
    size_t index = 0;
    while (async_state().barriers[index].address != address)
        ++index;
    while ((async_state().barriers[index].phase & 1) == parity) {
        async_state().barriers[index].waiting.push_back(current);
        wait_at(MBARRIER_WAIT, site);
    }
    MBarrier &barrier = async_state().barriers[index];
    if (barrier.published_wide && !wide)
        fault(RACE,
              "the wait at %s line %d, with the scope of its block, for what another block releases to the cluster",
              site.file, site.line);
    WarpAsync &own = warp_async();
    join(own.known, barrier.published);
    own.seen[index] = barrier.observed = barrier.phase;
    if (!async_state().unseen.empty())
        see_commits(async_state().unseen, barrier);
    ++count(MBARRIER_WAITS);
}

} // namespace emulator
