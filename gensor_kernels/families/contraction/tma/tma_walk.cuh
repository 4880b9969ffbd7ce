// The tiles of C that a block computes, and the thread that requests the tiles of A and B of every step.
#pragma once
#include "stream_k.cuh"
#include "tma_requests.cuh"

// Calls act(tile, number of tiles before it, share of the tile) for each of the block's tiles: one, or with PERSISTENT
// every grid_size()-th from the block's number on. The blocks of a cluster have adjacent tiles, which count as one.
template <class Act>
DEVICE void walk_tiles(const MappedParams &params, Act act) {
#if STREAM
    each_tile<false>(params, [&](const Tile &tile, const TileShare &share) { act(tile, 0, share); });
#else
    const auto tile_of = [&](u32 number) {
        Tile tile = decode_tile<BLOCK_M * CLUSTER_M, COLUMNS * CLUSTER_N>(params, BLOCK_K, number);
        if constexpr (CLUSTER_M > 1)
            tile.row += rank_in_cluster() * BLOCK_M;
        if constexpr (CLUSTER_N > 1)
            tile.column += rank_in_cluster() * COLUMNS;
        return tile;
    };
    const u32 first = (u32)block_index() / PEERS;
    if constexpr (PERSISTENT) {
        const u32 count = RAGGED_ROWS ? (u32)params.tiles_m * (u32)params.tiles_n : tile_count(params);
        int before = 0;
        ROLLED for (u32 number = first; within(number, count); number += (u32)grid_size() / PEERS) {
            if (before)
                cover("next_tile");
            act(tile_of(number), before++, TileShare{});
        }
    } else {
        act(tile_of(first), 0, TileShare{});
    }
#endif
}

// One thread requests the tiles of every step as buffers become free. With RAGGED_ROWS all lanes of its warp search for
// the group of a tile. Copies of a pair report to the mbarriers of its first block.
DEVICE void produce_tiles(const MappedParams &params) {
    const bool elected = elect_one();
    if (!RAGGED_ROWS && !elected)
        return;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        if (!elected)
            return;
        const Steps steps = steps_of(params, tile);
        Requests requests(params, tile, steps.first);
        for (int step = 0; within(step, steps.count); ++step) {
            if (step >= STAGES)
                cover("refill");
            mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
            if (!PAIR || rank_in_cluster() == 0)
                mbarrier_expect(full(turn.slot), SLOT_BYTES * (PAIR ? 2 : 1));
            requests.request(tiles(turn.slot), full(turn.slot));
            turn.next();
        }
    });
}
