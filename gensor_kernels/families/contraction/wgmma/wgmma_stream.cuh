// Stream-K on warpgroups (stream_k.cuh, STREAM 1): blocks walk their shares of tiles as others walk tiles, and the ring
// goes on from share to share. The threads that request tiles run ahead of those that multiply, so there is no barrier
// of the block on the way: each warp passes its own sums on, and has a flag of its own.
//
// Workspace: 16 bytes per block of the grid, unused; the sums of a block, with room for those of all its threads; then
// 8 bytes per warp of each block, its flag.
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

// Whether this warp finishes its rows of the tile, with the sums of the other blocks added; else it leaves its own.
DEVICE bool joined_by_warp(const Params &params, const TileShare &share, Sums &sums) {
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
#endif
