// Clusters of two pairs (PAIRS 1 or 2). Pairs side by side along m need the same columns of B, pairs along n the same
// rows of A: a block and the one that has its place in the other pair each request one half of every box of that
// operand, and it is copied to both. A buffer is empty once the products of both pairs have read theirs.
#pragma once
#include "blackwell_clusters.cuh"
#include "stream_k.cuh"
#include "tma_requests.cuh"
#if PAIRS

constexpr int PAIRS_M = PAIRS == 1 ? 2 : 1, PAIRS_N = PAIRS == 2 ? 2 : 1;
constexpr u32 ALL_BLOCKS = 15;

// The number of this block's pair, and in the cluster of the first block of the pair.
DEVICE int own_pair() {
    return (int)((u32)block_index() / PEERS % 2);
}
DEVICE int first_of_pair() {
    return own_pair() * PEERS;
}
// Both blocks of this pair; both blocks that have this block's place in a pair.
DEVICE u32 blocks_of_pair() {
    return 3u << first_of_pair();
}
DEVICE u32 blocks_in_place() {
    return 5u << rank_in_cluster();
}

// As in tma_walk.cuh, for clusters: each pair has its rows or columns of a tile, which may be outside of C.
template <class Act>
DEVICE void walk_tiles(const MappedParams &params, Act act) {
    const u32 count = tile_count(params), apart = (u32)grid_size() / (2 * PEERS);
    int before = 0;
    ROLLED for (u32 number = (u32)block_index() / (2 * PEERS); within(number, count); number += apart) {
        if (before)
            cover("next_tile");
        Tile tile = decode_tile<BLOCK_M * PEERS * PAIRS_M, COLUMNS * PAIRS_N>(params, BLOCK_K, number);
        tile.row += ((PAIRS_M - 1) * first_of_pair() + rank_in_cluster()) * BLOCK_M;
        tile.column += (PAIRS_N - 1) * own_pair() * COLUMNS;
        act(tile, before++, TileShare{});
    }
}

// Requests this block's share of the boxes of a tile, or with SHARED one half of each for both pairs, and moves `at`,
// the coordinates of the share, to the next step.
template <class Boxed, bool SHARED>
struct PairedTile {
    static MEMBER int first_fetched_row() { return SHARED ? own_pair() * (Boxed::ROWS / 2) : 0; }
    static MEMBER void request(sptr<u8> tile, const TensorMap &map, i32 (&at)[5], sptr<u64> full, i32 box_step) {
        tile = tile + first_fetched_row() * 128;
        UNROLL for (int box = 0; box < Boxed::BOXES; ++box) {
            if constexpr (SHARED)
                copy_tensor_to_pairs(tile + box * Boxed::BOX_BYTES, map, at, full, first_of_pair(), blocks_in_place());
            else
                copy_tensor_of_pair(tile + box * Boxed::BOX_BYTES, map, at, full, first_of_pair());
            at[0] += box_step;
        }
        at[0] -= Boxed::BOXES * box_step;
        at[Boxed::K_CONTIGUOUS ? 0 : 1] += BLOCK_K;
    }
};
using PairedA = PairedTile<TileA, (PAIRS_N > 1)>;
using PairedB = PairedTile<TileB, (PAIRS_M > 1)>;

// As in tma_walk.cuh. The last arrivals at this block's empty buffers are waited for: those of the other pair could
// else come after the block has ended.
DEVICE void produce_tiles(const MappedParams &params) {
    if (!elect_one())
        return;
    const TensorMap &map_b = params.map[MAP_B + (GATE ? rank_in_cluster() : 0)];
    const i32 box_step = PARTS > 1 ? divide_up(params.k, BLOCK_K) * BLOCK_K : UNIT;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        const Steps steps = steps_of(params, tile);
        Requests at(params, tile, steps.first);
        at.a_at[1] += PairedA::first_fetched_row(), at.b_at[1] += PairedB::first_fetched_row();
        for (int step = 0; within(step, steps.count); ++step) {
            if (step >= STAGES)
                cover("refill");
            mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
            if (rank_in_cluster() == 0)
                mbarrier_expect(full(turn.slot), SLOT_BYTES * PEERS);
            PairedA::request(tiles(turn.slot), params.map[MAP_A], at.a_at, full(turn.slot), box_step);
            PairedB::request(tiles(turn.slot) + TileA::BYTES, map_b, at.b_at, full(turn.slot), box_step);
            turn.next();
        }
    });
    for (int slot = 0; within(slot, STAGES); ++slot) {
        mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
        turn.next();
    }
}
#else
#include "tma_walk.cuh"

constexpr u32 ALL_BLOCKS = 3;
DEVICE int first_of_pair() {
    return 0;
}
DEVICE u32 blocks_of_pair() {
    return ALL_BLOCKS;
}
#endif
