// The ring of contraction_weights_wgmma: shared buffers between the thread that requests tiles of A and of quantised
// weights, and the warpgroups that multiply them.
//
// Layout of shared memory: the mbarriers at 0, STAGES buffers at RING, and then a slab for each multiplying warp. A
// buffer is a tile of A followed by a tile of weights. Tiles are boxes with rows of 128 bytes in the swizzle of tensor
// copies: A has a box per 128 bytes of k; quantised weights have one box, since 128 bytes of them are a step of k, and
// FLOATS, whose rows are those of k, have one per 32 columns.
#pragma once
#include "contraction.cuh"
#include "hopper_ring.cuh"
#include "shared_rows.cuh"

// Params, and the tensor maps that the host encodes for each launch (programs/core/tensor_maps.py).
struct MappedParams : Params {
    TensorMap a_map, b_map;
};
static_assert(sizeof(MappedParams) == 896 + 128 * 2, "MappedParams is Params and a map per operand.");

constexpr bool FLOATS = SCALED == 0;
constexpr int UNIT = 128 / (int)sizeof(IN_TYPE), ATOM = 1024; // elements of A in a row of a box; the swizzle's period
constexpr int A_BOX = BLOCK_M * 128, WEIGHTS = BLOCK_K / UNIT * A_BOX; // bytes of a box of A, and of a tile of A
constexpr int RING = ATOM, SLOT_BYTES = WEIGHTS + BLOCK_N * 128;
constexpr int FLOAT_BOX = BLOCK_K * 128;            // bytes of a box of floats
using WeightRows = SharedRows<SWIZZLE_MATRIX, 128>; // permutes chunks as tensor copies do

DEVICE sptr<u8> tiles(int slot) {
    return shared_base() + (RING + slot * SLOT_BYTES);
}

// One thread initialises the mbarriers. A barrier of the block must follow.
DEVICE void make_ring() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), 4 * CONSUMERS);
    }
    mbarrier_fence();
}

// One lane of each warp releases a buffer after the loads of all lanes.
DEVICE void release(int slot) {
    warp_barrier();
    if ((thread_index() & 31) == 0)
        mbarrier_arrive(empty(slot));
}

DEVICE int steps_of(const Tile &tile) {
    return divide_up(at_least_none(tile.k_end - tile.k_begin), BLOCK_K);
}

// The elected thread of a warp requests every step's tiles as buffers become free. Past the end of k, copies fill A
// with zeros, and the weights are finite numbers.
DEVICE void produce(const MappedParams &params, const Tile &tile) {
    if (!elect_one())
        return;
    i32 a_at[5] = {tile.k_begin, tile.row, 0, 0, 0};
    i32 b_at[5] = {tile.k_begin / per_unit<B_STORED>, tile.column, 0, 0, 0};
    if constexpr (FLOATS) {
        locate_tile(a_at, true, tile.row, tile.k_begin, tile.batch, params.a_batch);
        locate_tile(b_at, false, tile.column, tile.k_begin, tile.batch, params.b_batch);
    }
    Turn turn;
    const int steps = steps_of(tile);
    for (int step = 0; within(step, steps); ++step) {
        if (step >= STAGES)
            cover("refill");
        mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
        mbarrier_expect(full(turn.slot), SLOT_BYTES);
        const sptr<u8> slot = tiles(turn.slot);
        UNROLL for (int box = 0; box < BLOCK_K / UNIT; ++box) {
            copy_tensor(slot + box * A_BOX, params.a_map, a_at, full(turn.slot));
            a_at[0] += UNIT;
        }
        if constexpr (FLOATS) {
            UNROLL for (int box = 0; box < BLOCK_N / UNIT; ++box) {
                copy_tensor(slot + (WEIGHTS + box * FLOAT_BOX), params.b_map, b_at, full(turn.slot));
                b_at[0] += UNIT;
            }
            b_at[0] -= BLOCK_N, b_at[1] += BLOCK_K;
        } else {
            copy_tensor(slot + WEIGHTS, params.b_map, b_at, full(turn.slot));
            b_at[0] += 128;
        }
        turn.next();
    }
}
