// Barriers in shared memory (PTX ISA 9.7.13.15, "mbarrier"), and the state of shared memory that asynchronous copies
// use.
#pragma once
#include "machine.h"
#include "order.h"

// Eight bytes of shared memory: the last write by the generic proxy, and the asynchronous operations that use them.
enum Use : u8 { ARRIVING = 1, LEAVING = 2, OBJECT = 4 };
constexpr u16 COPY = 0xffff; // a copy wrote it last; its phase ended at that tick
struct Granule {
    u32 tick = 0;
    u16 writer = 0;
    u16 readers : 13 = 0; // products in flight
    u16 uses : 3 = 0;
};
struct Mbarrier {
    u32 address, expected, pending;
    s64 bytes; // that copies have not yet written in this phase
    u64 phase;
    u32 initialiser, tick;
    u64 observed = 0; // phases whose end a wait has seen
};
struct Map;
// A copy whose bytes an mbarrier of this block counts, from its issue until a thread has waited for its phase.
struct Arrival {
    Bulk bulk;
    Thread *issuer;
    Block *target; // of a pair, the mbarrier may be the other block's, which has this Arrival
    const Map *map;
    u32 to, mbarrier, bytes;
    u64 phase;
    bool delivered;
    u32 operation; // in order.h
};
// A thread's copy out of shared memory, until the thread has waited for it.
struct Departure {
    Bulk bulk;
    Thread *issuer;
    const Map *map;
    u32 bytes, group;
    bool waited, written; // its reads, in global memory
    std::vector<u8> box;
    u32 reads, writes; // operations in order.h
};
// An arrival of another block's thread, or of a commit by it, until a thread of this block has seen its phase end. A
// thread's commits, which are numbered, arrive in a block in their order.
struct Visit {
    const Thread *thread;
    u32 mbarrier, tick;
    u64 phase;
    u32 commit = 0;
};
struct Traffic {
    std::vector<Mbarrier> mbarriers;
    std::vector<Arrival> arrivals;
    std::vector<Departure> departures;
    std::vector<Visit> visits;
    std::vector<Granule> granules;
    std::vector<u32> registers;              // of a thread of each warp
    std::vector<std::vector<u32>> exchanges; // the sites of each warp's setmaxnreg
    u32 free_registers = 0;
    std::shared_ptr<struct TensorMemory> tensor = nullptr; // from its first use
};

namespace {
constexpr u32 MOST_COUNT = (1 << 20) - 1; // of arrivals, and of expected or surplus bytes (9.7.13.15.2)
u32 ticks = 0;                            // of the clock that all threads share

u32 own_address(const Thread &t, u64 address) {
    if (address >> RANK_SHIFT)
        fault("out_of_bounds", "%#llx is an address in the cluster, not in thread %u's block",
              (unsigned long long)address, t.index);
    return (u32)address;
}
// The block, and the address in it, of an address in the cluster's window.
Block &block_of(const Thread &t, u64 &address) {
    const u64 rank = address >> RANK_SHIFT;
    if (!rank)
        return *t.block;
    address &= (1u << RANK_SHIFT) - 1;
    if (rank > t.block->launch->cluster)
        fault("out_of_bounds", "block %llu of a cluster of %u", (unsigned long long)rank - 1, t.block->launch->cluster);
    Block &block = t.block->first[rank - 1];
    if (block.ended)
        fault("ended", "thread %u of block %u reaches the shared memory of block %u, which has ended", t.index,
              t.block->index, block.index);
    return block;
}

// ---- Granules

template <class Act>
void each_granule(Block &block, u64 address, u32 bytes, Act act) {
    const u64 first = (address - SHARED_BASE) / 8, last = (address - SHARED_BASE + bytes - 1) / 8;
    for (u64 i = first; bytes && i <= last; i++)
        act(block.traffic->granules[i]);
}
void use(Block &block, u64 address, u32 bytes, Use what) {
    each_granule(block, address, bytes, [&](Granule &g) { g.uses |= what; });
}
void finish_use(Block &block, u64 address, u32 bytes, Use what) {
    each_granule(block, address, bytes, [&](Granule &g) { g.uses &= (u16)~what; });
}
[[noreturn]] void in_use(const Block &block, u64 address, u32 uses, const char *by) {
    fault("in_flight", "%s shared memory of block %u at %#llx, %s", by, block.index, (unsigned long long)address,
          uses & OBJECT     ? "which is an mbarrier"
          : uses & ARRIVING ? "where a copy arrives that nobody has waited for"
          : uses            ? "which a copy still reads"
                            : "which a product in flight reads");
}
// Only threads that have waited for a copy's phase, or that a barrier orders after such threads, may read its data.
void seen(const Thread &t, u64 address, const Granule &g, const char *by) {
    if (t.order.acquired <= g.tick)
        fault("unordered", "%s shared memory at %#llx that a copy brought: thread %u has not waited for it", by,
              (unsigned long long)address, t.index);
}
// The asynchronous proxy reads or writes bytes: writes of the generic proxy there must be ordered before, and fenced.
void proxied(const Thread &t, Block &block, u64 address, u32 bytes, u8 excluded, const char *by) {
    each_granule(block, address, bytes, [&](const Granule &g) {
        if (g.uses & excluded)
            in_use(block, address, g.uses & excluded, by);
        if (excluded & LEAVING && g.readers)
            in_use(block, address, 0, by);
        if (!g.tick)
            return;
        if (g.writer == COPY)
            return seen(t, address, g, by);
        const Thread &writer = block.threads[g.writer];
        if (&writer != &t && writer.order.synced <= g.tick)
            fault("unordered", "%s shared memory at %#llx that thread %u wrote, without a barrier behind it", by,
                  (unsigned long long)address, writer.index);
        if (writer.order.fenced <= g.tick && t.order.fenced <= g.tick)
            fault("unfenced", "%s shared memory at %#llx that thread %u wrote, without fence.proxy.async behind it", by,
                  (unsigned long long)address, writer.index);
    });
}

// ---- mbarriers

Mbarrier *found_mbarrier(Block &block, u64 address) {
    for (Mbarrier &each : block.traffic->mbarriers)
        if (each.address == address)
            return &each;
    return nullptr;
}
// The mbarrier that a thread uses, or that a copy signals.
Mbarrier &mbarrier_at(const Thread &t, Block &block, u64 address, bool by_copy) {
    aligned_to(address, 8, "shared");
    shared_of(block, address, 8);
    Mbarrier *const found = found_mbarrier(block, address);
    if (!found)
        fault("mbarrier", "nobody initialised an mbarrier at %#llx of block %u", (unsigned long long)address,
              block.index);
    const Order &made = block.threads[found->initialiser].order;
    const bool remote = &block != t.block, own = !remote && t.index == found->initialiser;
    if (!own && (remote ? made.clustered : made.synced) <= found->tick)
        fault("mbarrier",
              "thread %u of block %u uses the mbarrier at %#llx, without a barrier behind its initialisation", t.index,
              t.block->index, (unsigned long long)address);
    const u32 visible = std::max(made.published, by_copy && !remote ? std::max(made.fenced, t.order.fenced) : 0);
    if ((remote || by_copy) && visible <= found->tick)
        fault("mbarrier", "%s the mbarrier at %#llx of block %u, without fence.mbarrier_init behind its initialisation",
              by_copy ? "a copy uses" : "another block uses", (unsigned long long)address, block.index);
    return *found;
}
u64 key_of(const Block &block, const Mbarrier &m, u64 phase, Edge edge = Edge::MBARRIER) {
    return key_of(edge, block.resident, m.address, phase);
}
// A thread has seen the end of the previous phase: arrivals in that phase are ordered before its next operations; those
// of other blocks entirely where it waited with the scope of the cluster, as they arrived.
void acquire_phase(const Thread &t, const Block &block, const Mbarrier &m, bool wide) {
    if (!t.causality || !m.phase)
        return;
    t.causality->acquire(t.slot, key_of(block, m, m.phase - 1));
    if (wide)
        t.causality->acquire(t.slot, key_of(block, m, m.phase - 1, Edge::FROM_OTHERS));
}
// A thread has seen the end of a phase: data of the phase's copies can be read.
void observed(Block &block, Mbarrier &m) {
    m.observed = m.phase;
    std::vector<Arrival> &arrivals = block.traffic->arrivals;
    size_t left = 0;
    for (const Arrival &each : arrivals)
        if (each.mbarrier == m.address && each.phase < m.phase && each.delivered)
            finish_use(*each.target, each.to, each.bytes, ARRIVING);
        else
            arrivals[left++] = each;
    arrivals.resize(left, Arrival{});
    std::vector<Visit> &visits = block.traffic->visits;
    const auto over = [&](const Visit &each) { return each.mbarrier == m.address && each.phase < m.phase; };
    for (const Visit &seen : std::vector<Visit>(visits))
        if (seen.commit && over(seen))
            std::erase_if(visits, [&](const Visit &each) {
                return each.thread == seen.thread && each.commit && each.commit < seen.commit;
            });
    std::erase_if(visits, over);
}
// Begin the next phase if this one is complete; threads that wait for it continue.
void settle(Block &block, Mbarrier &m) {
    if (!m.pending && m.bytes < 0)
        fault("transaction", "copies brought %lld bytes more than the mbarrier at %#x of block %u expects",
              (long long)-m.bytes, m.address, block.index);
    if (m.pending || m.bytes)
        return;
    for (const Arrival &each : block.traffic->arrivals)
        if (each.mbarrier == m.address && each.phase == m.phase && !each.delivered)
            fault("transaction",
                  "a phase of the mbarrier at %#x of block %u ends while a copy of %u bytes is in flight", m.address,
                  block.index, each.bytes);
    ++ticks;
    for (const Arrival &each : block.traffic->arrivals)
        if (each.mbarrier == m.address && each.phase == m.phase)
            each_granule(*each.target, each.to, each.bytes, [&](Granule &g) { g.tick = ticks, g.writer = COPY; });
    m.phase++, m.pending = m.expected;
    if (Causality *causality = block.threads->causality; causality && m.phase > 1)
        for (Edge edge : {Edge::MBARRIER, Edge::FROM_OTHERS})
            causality->forget(key_of(block, m, m.phase - 2, edge)); // too late to wait for
    for (u32 i = 0; i < block.launch->threads; i++)
        if (Thread &t = block.threads[i]; t.stop == PHASE && t.awaited == m.address) {
            t.stop = READY, t.flag = true, t.order.acquired = ++ticks;
            observed(block, m);
            if (t.acquires)
                acquire_phase(t, block, m, t.wide);
        }
}
void check_arrivals(const Block &block, const Mbarrier &m, u32 count) {
    if (!count || count > m.pending)
        fault("mbarrier", "%u arrivals at the mbarrier at %#x of block %u, which expects %u more in this phase", count,
              m.address, block.index, m.pending);
    if (m.observed < m.phase) // 9.7.13.15.4
        fault("mbarrier", "an arrival at the mbarrier at %#x of block %u, whose last phase no wait has found over",
              m.address, block.index);
}
void count_bytes(Block &block, Mbarrier &m, s64 bytes) {
    m.bytes += bytes;
    if (m.bytes > MOST_COUNT || m.bytes < -(s64)MOST_COUNT)
        fault("transaction", "the mbarrier at %#x of block %u counts %lld bytes", m.address, block.index,
              (long long)m.bytes);
}
} // namespace

void touched(const Thread &t, u64 address, u32 bytes, bool write) {
    Block &block = *t.block;
    each_granule(block, address, bytes, [&](Granule &g) {
        if (g.uses & (write ? ARRIVING | LEAVING | OBJECT : ARRIVING | OBJECT))
            in_use(block, address, g.uses, write ? "a thread writes to" : "a thread reads");
        if (write && g.readers)
            in_use(block, address, 0, "a thread writes to");
        if (g.writer == COPY)
            seen(t, address, g, write ? "a thread writes to" : "a thread reads");
        if (write)
            g.tick = ++ticks, g.writer = (u16)t.index;
    });
}

void mbarrier_init(Thread &t, u64 address, u32 count) {
    aligned_to(address, 8, "shared");
    address = own_address(t, address);
    shared_of(*t.block, address, 8);
    if (!count || count > MOST_COUNT)
        fault("mbarrier", "mbarrier.init of %u arrivals", count);
    each_granule(*t.block, address, 8, [&](Granule &g) {
        if (g.uses)
            in_use(*t.block, address, g.uses, "mbarrier.init of");
        g.uses = OBJECT;
    });
    t.block->traffic->mbarriers.push_back({(u32)address, count, count, 0, 0, t.index, ++ticks});
}
void mbarrier_invalidate(Thread &t, u64 address) {
    Mbarrier &m = mbarrier_at(t, *t.block, own_address(t, address), false);
    for (const Arrival &each : t.block->traffic->arrivals)
        if (each.mbarrier == m.address)
            fault("mbarrier", "mbarrier.inval at %#x, which a copy in flight uses", m.address);
    finish_use(*t.block, m.address, 8, OBJECT);
    m = t.block->traffic->mbarriers.back();
    t.block->traffic->mbarriers.pop_back();
}
u64 mbarrier_arrive(Thread &t, u64 address, u32 count, u32 bytes, bool drop, bool in_cluster, bool releases,
                    bool wide) {
    Block &block = in_cluster ? block_of(t, address) : *t.block;
    Mbarrier &m = mbarrier_at(t, block, own_address(t, address), false);
    check_arrivals(block, m, count);
    t.order.synced = ++ticks;
    const u64 phase = m.phase;
    const bool remote = &block != t.block;
    if (remote)
        block.traffic->visits.push_back({&t, m.address, ticks, phase});
    if (t.causality && releases)
        t.causality->release(t.slot, key_of(block, m, phase), remote);
    if (t.causality && releases && remote && wide)
        t.causality->release(t.slot, key_of(block, m, phase, Edge::FROM_OTHERS));
    count_bytes(block, m, bytes); // before the arrival
    m.pending -= count;
    if (drop)
        m.expected -= count;
    settle(block, m);
    return phase;
}
void mbarrier_expect(Thread &t, u64 address, s64 bytes, bool in_cluster) {
    Block &block = in_cluster ? block_of(t, address) : *t.block;
    Mbarrier &m = mbarrier_at(t, block, own_address(t, address), false);
    count_bytes(block, m, bytes);
    settle(block, m);
}
bool mbarrier_over(Thread &t, u64 address, u64 phase, bool parity, bool acquires, bool wide) {
    Mbarrier &m = mbarrier_at(t, *t.block, own_address(t, address), false);
    if (parity && phase > 1)
        fault("mbarrier", "a wait for the phase of parity %llu", (unsigned long long)phase);
    if (!parity && (phase > m.phase || phase + 1 < m.phase))
        fault("mbarrier", "a wait for a phase that is neither this nor the one before"); // 9.7.13.15.16
    const bool over = parity ? (m.phase & 1) != phase : m.phase > phase;
    if (over)
        observed(*t.block, m), t.order.acquired = ++ticks;
    if (over && acquires)
        acquire_phase(t, *t.block, m, wide);
    return over;
}
// try_wait: the thread may be suspended, or get the result that the phase is not over, as it does once with late
// copies.
void mbarrier_wait(Thread &t, u64 address, u64 phase, bool parity, bool acquires, bool wide) {
    t.flag = mbarrier_over(t, address, phase, parity, acquires, wide);
    t.acquires = acquires, t.wide = wide;
    if (t.flag)
        return;
    t.refused = t.block->launch->late && !t.refused;
    if (!t.refused)
        t.stop = PHASE, t.awaited = address;
}
void fence_proxy(Thread &t) {
    t.order.fenced = ++ticks;
    if (t.causality)
        t.causality->proxy_fence(t.slot);
}
void fence_mbarriers(Thread &t) {
    t.order.published = ++ticks;
}
