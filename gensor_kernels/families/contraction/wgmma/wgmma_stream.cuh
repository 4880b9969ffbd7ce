// Stream-K on warpgroups (stream_k.cuh, STREAM 1): a block computes its shares of tiles one after the other, and the
// ring does not stop between shares. The thread that requests tiles runs ahead of those that multiply, so no barrier of
// the block may separate shares: each warp passes on its own sums, and has its own flag.
//
// Workspace: 16 unused bytes per block of the grid; the sums of all threads of each block; a flag of 8 bytes for each
// warp of each block.
#pragma once
#include "stream_k.cuh"
#include "wgmma_ring.cuh"

#if STREAM
constexpr int THREAD_SUMS = TILES_M * BLOCK_N / 2;
using StreamSums = KeptSums<THREAD_SUMS, THREADS>;

DEVICE gptr<u64> flag_of_warp(const Params &params, u32 block) {
    constexpr i64 OF_BLOCK = 16 + (i64)THREAD_SUMS * THREADS * (i64)sizeof(ACC_TYPE);
    const gptr<u8> flags = gptr<u8>(params.workspace) + (i64)grid_size() * OF_BLOCK;
    return flags.as<u64>() + ((i64)block * (THREADS / 32) + (thread_index() >> 5));
}

// Returns whether this warp finishes its rows of the tile: then the sums of other blocks have been added. Else the warp
// stores its own sums for another block.
DEVICE bool join_shares(const Params &params, const TileShare &share, Sums &sums) {
    const auto sum = [&](int i) -> ACC_TYPE & { return sums[i / (BLOCK_N / 2)][i % (BLOCK_N / 2)]; };
    const bool first_lane = (thread_index() & 31) == 0;
    if (share.own.last < share.stream.steps) {
        cover("stream_leave");
        StreamSums::store(params, sum);
        warp_barrier();
        if (first_lane)
            give_flag(flag_of_warp(params, (u32)block_index()), stream_mark(params));
        return false;
    }
    u32 block = (u32)block_index(), missing = share.own.first;
    while (within(0u, missing)) {
        cover("stream_join");
        const u32 had = share.stream.begin(block) - share.stream.begin(block - 1);
        --block;
        if (first_lane)
            take_flag(flag_of_warp(params, block), stream_mark(params));
        warp_barrier();
        StreamSums::add(params, block, sum);
        missing -= had < missing ? had : missing;
    }
    return true;
}
#else
DEVICE bool join_shares(const Params &, const TileShare &, const Sums &) {
    return true;
}
#endif
