// The barrier of a cluster. To each of its blocks it is a barrier of the block, too.
#pragma once
#include "mbarrier.h"

namespace emulator {

static int cluster_of(const Block &block) {
    return block.index / machine.request->cluster;
}

static void release_cluster(int number) {
    std::vector<Block *> blocks;
    for (Block &block : machine.blocks)
        if (block.alive && cluster_of(block) == number)
            blocks.push_back(&block);
    Clocks all = nothing_known(*blocks[0]);
    for (const Block *block : blocks)
        gather(*block, all);
    for (Block *block : blocks) {
        ++block->epoch;
        for (Warp &warp : block->warps)
            count_conflicts(warp), warp.epoch = 0;
        tell(*block, all);
    }
    std::vector<Thread *> waiting;
    waiting.swap(machine.clusters[number].waiting);
    for (Thread *thread : waiting)
        set_ready(*thread->block, thread->warp(), 1u << thread->lane());
}

// All threads of the cluster that have not left are there.
static bool complete(const ClusterMeeting &meeting) {
    const Request &request = *machine.request;
    return !meeting.waiting.empty() && (int)meeting.waiting.size() + meeting.left == request.cluster * request.block;
}

void cluster_barrier(const char *file, int line) {
    check_stack();
    if (machine.request->cluster < 2)
        invalid("the barrier of a cluster in a launch without clusters", file, line);
    ClusterMeeting &meeting = machine.clusters[cluster_of(*current->block)];
    meeting.waiting.push_back(current);
    if (!complete(meeting))
        return wait_at(CLUSTER_BARRIER, {file, line});
    ++count(BARRIERS);
    release_cluster(cluster_of(*current->block));
}

static void leave_cluster(const Block &block) {
    ClusterMeeting &meeting = machine.clusters[cluster_of(block)];
    ++meeting.left;
    if (complete(meeting))
        release_cluster(cluster_of(block));
}

} // namespace emulator
