// The barrier of a cluster. It is also a barrier of each of its blocks.
#pragma once
#include "mbarrier.h"

namespace emulator {

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
            count_conflicts(warp), warp.epoch = relaxed ? warp.epoch : 0;
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
