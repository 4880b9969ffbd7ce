// The ring of shared buffers between the warp that requests tiles and the warpgroups that multiply them.
//
// Shared memory: at 0 the mbarriers, full and empty ones in turns for each buffer, then one for each warpgroup; from
// RING on STAGES buffers, each a tile of A and behind it one of B. A tile is boxes of 128 bytes to a row: rows of M or
// N, a box per 64 elements of k, where the operand is K-contiguous; else rows of k, a box per 64 rows of A or columns
// of B. With GATE the columns of B are COLUMNS of the gate, then as many of the other matrix. With PARTS 3 a tile has a
// box for each part of its elements.
#pragma once
#include "contraction.cuh"
#include "hopper_ring.cuh"

// Params, and what the host encodes for each launch (programs/core/tensor_maps.py).
struct MappedParams : Params {
    TensorMap a_map, b_map;
#if GATE
    TensorMap other_map; // of the matrix behind the gate
#endif
#if STORE_COPIES
    TensorMap c_map;
#endif
};
static_assert(sizeof(MappedParams) == 896 + 128 * (2 + (GATE != 0) + STORE_COPIES),
              "MappedParams is Params and a map per operand.");

DEVICE void prefetch_maps(const MappedParams &params) {
    prefetch_map(params.a_map), prefetch_map(params.b_map);
#if GATE
    prefetch_map(params.other_map);
#endif
#if STORE_COPIES
    prefetch_map(params.c_map);
#endif
}

constexpr int ELEMENT = (int)sizeof(A_STORED), UNIT = 128 / ELEMENT; // elements to a row of a box
constexpr int K_STEP = 32 / ELEMENT;                                 // of k in one product
constexpr int ATOM = 1024;                                           // bytes of eight rows: the swizzle repeats
// Sums of 8-bit floats, which have 14 bits, are added to float ones after every step; those of parts more often.
constexpr bool PROMOTED = is_eight_bit_float<A_STORED>, SHORT_SUMS = PROMOTED || PARTS > 1;

// Blocks of a cluster, side by side along m or n, and those a copy for all of them goes to.
constexpr int CLUSTER_M = CLUSTER == 1 ? 2 : 1, CLUSTER_N = CLUSTER == 2 ? 2 : 1, PEERS = CLUSTER_M * CLUSTER_N;
constexpr u32 ALL_PEERS = (1 << PEERS) - 1;

DEVICE int rank_in_cluster() {
    return (int)((u32)block_index() % PEERS);
}

// FETCHERS blocks have the same tile: each fetches its share of every box's rows, for all of them.
template <int EXTENT, int LAYOUT, int FETCHERS>
struct BoxedTile {
    static constexpr bool K_CONTIGUOUS = LAYOUT == 0;
    static constexpr int ROWS = K_CONTIGUOUS ? EXTENT : BLOCK_K;
    static constexpr int BOXES = (K_CONTIGUOUS ? BLOCK_K : EXTENT) / UNIT * PARTS;
    static constexpr int BOX_BYTES = ROWS * 128, BYTES = BOXES * BOX_BYTES;

    // The descriptor of the rows of M or N from `first` on, and the bytes from there to k elements of k further on.
    static MEMBER u64 descriptor(sptr<u8> tile, int first) {
        if constexpr (K_CONTIGUOUS)
            return matrix_descriptor(tile + first * 128, 16, ATOM);
        else
            return matrix_descriptor(tile + first / UNIT * BOX_BYTES, BOX_BYTES, ATOM);
    }
    static MEMBER constexpr int along(int k) {
        return K_CONTIGUOUS ? k / UNIT * BOX_BYTES + k % UNIT * ELEMENT : k * 128;
    }
    static constexpr int NEXT_ROWS = K_CONTIGUOUS ? 64 * 128 : 64 / UNIT * BOX_BYTES; // bytes to the 64 rows behind

    // The first row that this block fetches.
    static MEMBER int fetched() { return FETCHERS > 1 ? rank_in_cluster() * (ROWS / FETCHERS) : 0; }

    // `at` is (first, k) and the batch entry, in the order of the map's axes, of this block's share; from box to box it
    // is `apart` further.
    static MEMBER void request(sptr<u8> tile, const TensorMap &map, i32 (&at)[5], sptr<u64> full, i32 apart = UNIT) {
        tile = tile + fetched() * 128;
        UNROLL for (int box = 0; box < BOXES; ++box) {
            if constexpr (FETCHERS > 1)
                copy_tensor(tile + box * BOX_BYTES, map, at, full, ALL_PEERS);
            else
                copy_tensor(tile + box * BOX_BYTES, map, at, full);
            at[0] += apart;
        }
        at[0] -= BOXES * apart;
        at[K_CONTIGUOUS ? 0 : 1] += BLOCK_K;
    }
};

using TileA = BoxedTile<BLOCK_M, A_LAYOUT, CLUSTER_N>;
using TileB = BoxedTile<BLOCK_N, B_LAYOUT, CLUSTER_M>;
constexpr int RING = ATOM, SLOT_BYTES = TileA::BYTES + TileB::BYTES;
// Warps that read a buffer.
constexpr int READING_WARPS = ALTERNATING ? 4 : 4 * CONSUMERS;

// Says that a warpgroup may multiply its next tile, where they take turns. A warpgroup waits for phases of a buffer by
// their parity: it must not begin before all phases of the tiles before have come.
DEVICE sptr<u64> turn_of(int group) {
    return shared_base().as<u64>() + (2 * STAGES + group);
}
DEVICE sptr<u8> tiles(int slot) {
    return shared_base() + (RING + slot * SLOT_BYTES);
}

// One thread: makes the mbarriers. The barrier of the block, or of its cluster, must follow. A buffer is empty once all
// blocks whose copies fill it have it empty: a block's copies then find every other block's as well.
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

// Sums of a thread: TILES_M tiles of 64 rows by BLOCK_N columns per warpgroup.
typedef ACC_TYPE TileSums[BLOCK_N / 2];
typedef TileSums Sums[TILES_M];

DEVICE void hold(Sums &sums) {
    UNROLL for (int i = 0; i < TILES_M; ++i) wgmma_hold(sums[i]);
}

// One product of tile i: KEPT 0 begins its sums.
template <int KEPT>
DEVICE void multiply(TileSums &sums, u64 a, u64 b, int i, int k) {
    wgmma<!TileA::K_CONTIGUOUS, !TileB::K_CONTIGUOUS, KEPT>(sums, further(a, TileA::along(k) + i * TileA::NEXT_ROWS),
                                                            further(b, TileB::along(k)), A_STORED{}, B_STORED{});
}

// A step's products, one group that is on its way when this returns.
DEVICE void multiply_step(Sums &sums, u64 a, u64 b) {
    hold(sums);
    wgmma_fence();
    UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) UNROLL for (int i = 0; i < TILES_M; ++i)
        multiply<1>(sums[i], a, b, i, k);
    wgmma_commit();
}

// Short sums of a tile of 64 rows: begin() issues the products, which are waited for. The other warpgroups multiply
// meanwhile.
template <class Begin>
DEVICE void form_short_sums(TileSums &products, Begin begin) {
    wgmma_hold(products);
    wgmma_fence();
    begin();
    wgmma_commit();
    wgmma_wait<0>();
    wgmma_hold(products);
}

#include "wgmma_scales.cuh"

// A step's products, tile by tile in a short sum of each.
DEVICE void multiply_promoted(Sums &sums, TileSums &products, u64 a, u64 b, StepScales &scales) {
    scales.begin_step();
    UNROLL for (int i = 0; i < TILES_M; ++i) {
        form_short_sums(products, [&] {
            multiply<0>(products, a, b, i, 0);
            UNROLL for (int k = K_STEP; k < BLOCK_K; k += K_STEP) multiply<1>(products, a, b, i, k);
        });
        scales.add(sums[i], products, i);
    }
}

#if PARTS > 1
#include "wgmma_floats.cuh"
#endif

// One lane of each warp gives a buffer back, to each block of the cluster another one.
DEVICE void release(int slot) {
    const int lane = thread_index() & 31;
    if constexpr (CLUSTER) {
        if (lane < PEERS)
            mbarrier_arrive_at(empty(slot), lane);
    } else if (lane == 0) {
        mbarrier_arrive(empty(slot));
    }
}

// All that this warpgroup reads of its tile has come: the next one may begin.
DEVICE void pass_turn() {
    if (ALTERNATING && (thread_index() & 31) == 0)
        mbarrier_arrive(turn_of(thread_index() / 128 % CONSUMERS));
}

// A warpgroup multiplies every step's rows from `row` of the block's tile on. One step's products are on their way
// while the next ones are issued; only then is the buffer of the step before given back. Without a step nothing is
// waited for: where both ways met before a wait, the compiler would copy sums that are on their way, and serialise the
// products.
DEVICE void consume(Sums &sums, int steps, int row, Turn &turn, [[maybe_unused]] StepScales scales) {
    if (!within(0, steps)) {
        if constexpr (ALTERNATING)
            warp_barrier(); // no lane waits for this turn any more; with a step, products bring lanes together
        pass_turn();
        return;
    }
    const u64 a = TileA::descriptor(tiles(0), row), b = TileB::descriptor(tiles(0) + TileA::BYTES, 0);
    [[maybe_unused]] TileSums products = {};
    int before = 0, step = 0;
    do {
        if (step + 1 < steps)
            cover("steady");
        else
            cover("drain");
        mbarrier_wait(full(turn.slot), turn.parity);
        const u64 here = further(a, turn.slot * SLOT_BYTES), there = further(b, turn.slot * SLOT_BYTES);
        if constexpr (SHORT_SUMS) {
#if PARTS > 1
            multiply_parts(sums, products, here, there, scales);
#else
            multiply_promoted(sums, products, here, there, scales);
#endif
            release(turn.slot);
        } else {
            multiply_step(sums, here, there);
            wgmma_wait<1>();
            hold(sums);
            if (within(0, step))
                release(before);
        }
        before = turn.slot;
        turn.next();
    } while (within(++step, steps));
    pass_turn();
    if constexpr (!SHORT_SUMS) {
        wgmma_wait<0>();
        hold(sums);
        if constexpr (PERSISTENT)
            release(before);
    }
}
