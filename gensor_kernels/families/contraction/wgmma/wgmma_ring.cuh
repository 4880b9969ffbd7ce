// The ring of shared buffers between the thread that requests tiles and the warpgroups that multiply them. After the
// full and empty mbarriers there is one for each warpgroup.
#pragma once
#include "tma_tiles.cuh"

constexpr int READING_WARPS = ALTERNATING ? 4 : 4 * CONSUMERS; // warps that read a buffer

// The mbarrier that reports that a warpgroup may multiply its next tile, where warpgroups take turns. A warpgroup waits
// for phases of a buffer by their parity: it must not begin before all phases of the earlier tiles are over.
DEVICE sptr<u64> turn_of(int group) {
    return shared_base().as<u64>() + (2 * STAGES + group);
}

// Initializes the mbarriers, in one thread. The barrier of the block, or of its cluster, must follow. A buffer counts
// as empty once the warps of all blocks of the cluster have released theirs: a block's copies write to all of these.
DEVICE void make_ring() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), READING_WARPS * PEERS);
    }
    if constexpr (ALTERNATING) {
        UNROLL for (int group = 0; group < CONSUMERS; ++group) mbarrier_init(turn_of(group), READING_WARPS);
    }
    mbarrier_fence();
}

// One lane of each warp releases a buffer; in a cluster one lane for each block.
DEVICE void release(int slot) {
    const int lane = thread_index() & 31;
    if constexpr (CLUSTER) {
        if (lane < PEERS)
            mbarrier_arrive_at(empty(slot), lane);
    } else if (lane == 0) {
        mbarrier_arrive(empty(slot));
    }
}

DEVICE void hold(Sums &sums) {
    UNROLL for (int i = 0; i < TILES_M; ++i) wgmma_hold(sums[i]);
}

// One product of tile i. With KEPT 0 it replaces the sums.
template <int KEPT>
DEVICE void multiply(TileSums &sums, u64 a, u64 b, int i, int k) {
    wgmma<!TileA::K_CONTIGUOUS, !TileB::K_CONTIGUOUS, KEPT>(sums, further(a, TileA::k_offset(k) + i * TileA::NEXT_ROWS),
                                                            further(b, TileB::k_offset(k)), A_STORED{}, B_STORED{});
}

// Issues the products of a step as one group, and does not wait for them.
DEVICE void multiply_step(Sums &sums, u64 a, u64 b) {
    hold(sums);
    wgmma_fence();
    UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) UNROLL for (int i = 0; i < TILES_M; ++i)
        multiply<1>(sums[i], a, b, i, k);
    wgmma_commit();
}

// Forms short sums of a tile of 64 rows: begin() issues the products. Other warpgroups multiply during the wait.
template <class Begin>
DEVICE void form_short_sums(TileSums &products, Begin begin) {
    wgmma_hold(products);
    wgmma_fence();
    begin();
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(products);
}
