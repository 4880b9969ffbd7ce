// Clusters of blocks, the exchange of registers, and arrivals at barriers (PTX ISA 9.7.13.4, 9.7.13.1, 9.7.19.5).
#pragma once
#include "mbarrier.h"
#include "order.h"

// mapa: the address, in the cluster's window, of the same offset in another block.
u64 mapped_address(const Thread &t, u64 address, u32 rank) {
    own_address(t, address);
    if (rank >= t.block->launch->cluster)
        fault("out_of_bounds", "mapa to block %u of a cluster of %u", rank, t.block->launch->cluster);
    return (u64)(rank + 1) << RANK_SHIFT | address;
}
void arrive_at_cluster(Thread &t, bool releases) {
    if (t.arrivals != t.waits)
        fault("invalid", "thread %u arrives at the barrier of its cluster again, without a wait", t.index);
    t.arrivals++;
    if (t.causality && releases)
        t.causality->release(t.slot, key_of(Edge::CLUSTER, t.block->first->resident, 0, t.arrivals));
    t.order.clustered = t.order.synced = ++ticks;
}
void await_cluster(Thread &t) {
    if (t.arrivals == t.waits)
        fault("invalid", "thread %u waits at the barrier of its cluster, where it has not arrived", t.index);
    t.waits++;
}
// bar.arrive: counts a thread, which continues.
void arrive_at_barrier(Thread &t, u32 barrier, u32 count) {
    if (barrier > 15 || !count || count % 32)
        fault("invalid", "an arrival at barrier %u of %u threads", barrier, count);
    t.order.synced = ++ticks;
    if (t.causality)
        t.causality->release(t.slot, key_of(Edge::BARRIER, t.block->resident, barrier, 0));
    if (++t.block->arrived[barrier] > count)
        fault("invalid", "%u threads at barrier %u of %u", t.block->arrived[barrier], barrier, count);
}

namespace {
constexpr u32 WARPGROUP = 4; // warps

// setmaxnreg of a warp; false while its block has too few free registers.
bool exchange_registers(Thread *warp, const Site &site, u32 entry_registers) {
    Block &block = *warp->block;
    Traffic &traffic = *block.traffic;
    const u32 number = warp->index / 32, wanted = (u32)warp->in[0], group = number / WARPGROUP * WARPGROUP;
    const bool takes = site.detail[0];
    u32 &own = traffic.registers[number];
    if (!entry_registers)
        fault("registers", "%s in a kernel whose launch bounds give no number of registers", site.text);
    if (group + WARPGROUP > block.launch->threads / 32)
        fault("registers", "%s by a part of a warpgroup", site.text);
    if (wanted < 24 || wanted > 256 || wanted % 8)
        fault("registers", "%s: 24 to 256 in steps of 8", site.text);
    if (takes ? wanted < own : wanted > own)
        fault("registers", "%s by threads that have %u", site.text, own);
    if (takes && (wanted - own) * 32 > traffic.free_registers)
        return false;
    std::vector<u32> &done = traffic.exchanges[number];
    done.push_back(warp->site);
    for (u32 other = group; other < group + WARPGROUP; other++)
        if (const auto &theirs = traffic.exchanges[other]; theirs.size() >= done.size())
            if (theirs[done.size() - 1] != warp->site)
                fault("registers", "%s by a part of a warpgroup, whose warp %u executes another one", site.text, other);
    traffic.free_registers += (own - wanted) * 32; // modulo 2^32
    own = wanted;
    return true;
}
void check_exchanges(const Block &block) {
    const auto &exchanges = block.traffic->exchanges;
    for (size_t warp = 0; warp < exchanges.size(); warp++)
        if (exchanges[warp].size() != exchanges[warp / WARPGROUP * WARPGROUP].size())
            fault("registers", "setmaxnreg by a part of a warpgroup of block %u", block.index);
}
} // namespace
