// Which tiles of C a block computes: one, or with PERSISTENT every grid_size()-th from its own number on. The ring goes
// on from tile to tile, so tiles of A and B are on their way while results leave. The blocks of a cluster have tiles
// side by side, which are counted as one; what lies past the edges of C is computed from zeros, and not stored. With
// STREAM it walks shares of tiles.
#pragma once
#include "wgmma_requests.cuh"
#if PARTS > 1
#include "wgmma_settle.cuh"
#endif
#include "wgmma_store.cuh"
#include "wgmma_stream.cuh"

DEVICE Tile tile_of(const MappedParams &params, u32 number) {
    Tile tile = decode_tile<BLOCK_M * CLUSTER_M, COLUMNS * CLUSTER_N>(params, BLOCK_K, number);
    if constexpr (CLUSTER_M > 1)
        tile.row += rank_in_cluster() * BLOCK_M;
    if constexpr (CLUSTER_N > 1)
        tile.column += rank_in_cluster() * COLUMNS;
    return tile;
}

// act(tile, how many came before) for each of the block's tiles.
template <class Act>
DEVICE void walk_tiles(const MappedParams &params, Act act) {
    const u32 first = (u32)block_index() / PEERS;
#if PERSISTENT
    const u32 count = RAGGED_ROWS ? (u32)params.tiles_m * (u32)params.tiles_n : tile_count(params);
    int before = 0;
    ROLLED for (u32 number = first; within(number, count); number += (u32)grid_size() / PEERS) {
        if (before)
            cover("next_tile");
        act(tile_of(params, number), before++);
    }
#else
    act(tile_of(params, first), 0);
#endif
}

#if STREAM
DEVICE void produce_tiles(const MappedParams &params) {
    if (!elect_one())
        return;
    Turn turn;
    each_tile<false>(params, [&](const Tile &tile, const TileShare &) { produce(params, tile, turn, true); });
}

DEVICE void multiply_tiles(const MappedParams &params, int group) {
    const int row = group * 64 * TILES_M;
    Turn turn;
    each_tile<false>(params, [&](const Tile &tile, const TileShare &share) {
        Sums sums = {};
        consume(sums, steps_of(params, tile).count, row, turn, StepScales(params, tile, row));
        if (joined_by_warp(params, share, sums))
            finish_group(params, tile, row, sums);
    });
    leave_boxes();
}

#else
// One thread requests the steps of all tiles.
DEVICE void produce_tiles(const MappedParams &params) {
    const bool requests = elect_one();
    if (!RAGGED_ROWS && !requests)
        return;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int) { produce(params, tile, turn, requests); });
}

// A warpgroup multiplies its rows of every tile, or ALTERNATING all rows of every CONSUMERS-th one: then the results of
// one leave while another multiplies.
DEVICE void multiply_tiles(const MappedParams &params, int group) {
    const int row = ALTERNATING ? 0 : group * 64 * TILES_M;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int before) {
        const int steps = steps_of(params, tile).count;
        if (ALTERNATING && before % CONSUMERS != group) {
            cover("another_group");
            turn.skip(steps);
            return;
        }
        if constexpr (ALTERNATING)
            mbarrier_wait(turn_of(group), (u32)(before / CONSUMERS & 1) ^ (group == 0));
        prefetch_tile(params, tile, row);
        Sums sums = {};
        consume(sums, steps, row, turn, StepScales(params, tile, row));
#if PARTS > 1
        settle_parts(params, tile, row, sums);
#endif
        leave_ring();
        gate_sums(params, tile, sums);
        finish_group(params, tile, row, sums);
    });
    leave_boxes();
}
#endif
