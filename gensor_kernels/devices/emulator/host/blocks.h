// Order among blocks: flags, and the barrier of a cluster.
#pragma once
#include "mbarrier.h"

namespace emulator {

// ---- flags
//
// Flags in global memory, by which blocks that run at the same time wait for one another. Stores of a thread
// before it gives a flag, and of its warp or block before their last barrier, are seen by the thread that takes it, and
// by its warp or block after their next barrier (memory.h: sees). Other blocks do not see them: no kernel here relies
// on that.

// Flags are stored to repeatedly: their bytes are checked for bounds, not for races.
static u64 &flag_word(u64 address, Site site) {
    check_launched(site);
    if (address % 8)
        fault(MISALIGNED, "the flag at %s line %d lies at address %#llx", site.file, site.line, address);
    for (int i = 0; i < machine.request->buffer_count; ++i) {
        const Buffer &buffer = machine.request->buffers[i];
        if (buffer.writable && address >= buffer.begin && address + 8 <= buffer.begin + buffer.bytes)
            return *(u64 *)(buffer.host + (address - buffer.begin));
    }
    report_outside(address, 8, true, site);
}

void give_flag(u64 address, u64 value, Site site) {
    tick();
    u64 &word = flag_word(address, site);
    Flag &flag = machine.flags[address];
    if (flag.given)
        fault(INVALID, "the flag at %s line %d is given again before it is taken", site.file, site.line);
    word = value;
    flag.given = true, flag.block = current->block->index;
    flag.known = Known{current->index, 0, now(), 0, ++machine.ticks};
    wake(flag.waiting);
}

void take_flag(u64 address, u64 value, Site site) {
    tick();
    u64 &word = flag_word(address, site);
    Flag &flag = machine.flags[address];
    // CUDA promises no order of blocks: the block that gives the flag may start only after this one has ended.
    if (machine.request->resident < machine.request->grid)
        fault(DEADLOCK, "%s line %d waits for a flag in a launch whose blocks are not resident together", site.file,
              site.line);
    while (word != value) {
        flag.waiting.push_back(current);
        wait_at(FLAG_WAIT, site);
    }
    word = 0;
    if (!flag.given)
        return; // the memory already had this value: no thread gave it
    flag.given = false;
    flag.known.taker = current->index, flag.known.taken = now();
    current->block->known[{flag.block, current->warp()}] = flag.known;
}

// ---- clusters
//
// The barrier of a cluster. It is also a barrier of each of its blocks.

static int cluster_of(const Block &block) {
    return block.index / machine.request->cluster;
}

// The arrivals release all earlier accesses; or, if relaxed, none, and warps only see fenced mbarriers.
static void order_blocks(const std::vector<Block *> &blocks, bool relaxed) {
    Clocks all = nothing_known(*blocks[0]);
    for (const Block *block : blocks) {
        if (!relaxed)
            gather(*block, all);
        for (const MBarrier &each : block->async.barriers)
            all[each.owner] = each.fenced && each.made > all[each.owner] ? each.made : all[each.owner];
    }
    for (Block *block : blocks) {
        block->epoch += !relaxed;
        for (Warp &warp : block->warps)
            count_conflicts(warp), warp.epoch = relaxed ? warp.epoch : 0, warp.apart = !relaxed;
        if (!relaxed)
            tell(*block, all);
        for (WarpAsync &warp : block->async.warps)
            join(warp.known, all);
    }
}

static void release_cluster(int number) {
    std::vector<Block *> blocks;
    for (Block &block : machine.blocks)
        if (block.alive && cluster_of(block) == number)
            blocks.push_back(&block);
    order_blocks(blocks, machine.clusters[number].relaxed);
    wake(machine.clusters[number].waiting);
}

// Called when all threads of the cluster that have not ended have arrived.
static bool complete(const ClusterMeeting &meeting) {
    const Request &request = *machine.request;
    return !meeting.waiting.empty() && (int)meeting.waiting.size() + meeting.left == request.cluster * request.block;
}

static void meet_in_cluster(bool relaxed, Site site) {
    check_stack();
    if (machine.request->cluster < 2)
        invalid("the barrier of a cluster in a launch without clusters", site);
    ClusterMeeting &meeting = machine.clusters[cluster_of(*current->block)];
    meeting.relaxed = relaxed || (meeting.relaxed && !meeting.waiting.empty());
    meeting.waiting.push_back(current);
    if (!complete(meeting))
        return wait_at(CLUSTER_BARRIER, site);
    ++count(BARRIERS);
    release_cluster(cluster_of(*current->block));
}

void cluster_barrier(Site site) {
    meet_in_cluster(false, site);
}
void cluster_begin(Site site) {
    meet_in_cluster(true, site);
}

static void leave_cluster(const Block &block) {
    ClusterMeeting &meeting = machine.clusters[cluster_of(block)];
    ++meeting.left;
    if (complete(meeting))
        release_cluster(cluster_of(block));
}

} // namespace emulator
