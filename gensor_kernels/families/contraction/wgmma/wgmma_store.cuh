// From the sums of a warpgroup to C or to the split-K workspace. A warp holds 16 of every 64 rows; as in
// mma_epilogue.cuh, outputs leave in small batches, in rolled loops, so that the epilogue is in the code once, or,
// where no operation changes them, without a loop.
#pragma once
#include "unrolled.cuh"
#include "warp_outputs.cuh"
#include "wgmma_prefetch.cuh"
#include "wgmma_ring.cuh"

// The slabs of the staged epilogue lie where the ring was, when no warp multiplies any more; those of a block that goes
// on to other tiles behind it.
constexpr int SLABS = RING + (PERSISTENT ? STAGES * SLOT_BYTES : 0);

// Slabs are written where the ring was once nobody reads that any more. Nobody may leave a cluster whom copies or
// arrivals of the others still have to reach.
DEVICE void leave_ring() {
#if CLUSTER && !PERSISTENT
    cluster_barrier();
#elif (EPILOGUE_STAGED || STORE_COPIES) && !PERSISTENT
    barrier();
#endif
}
DEVICE void leave_cluster() {
#if CLUSTER && PERSISTENT
    cluster_barrier();
#endif
}

// Whether a compile-time list of operations reads no operand and has no curve.
DEVICE constexpr bool few_operations(u32 codes) {
    return codes == 0 ||
           (!takes_operand((i32)(codes & 31)) && !is_curve((i32)(codes & 31)) && few_operations(codes >> 5));
}
constexpr bool FEW_OPERATIONS = EPILOGUE_CODES && few_operations(EPILOGUE_CODES);

constexpr int PIECES = COLUMNS / WARP_N; // of a row of sums, each FRAGMENTS_N fragments

// Number i of the batches of BATCH_FRAGMENTS fragments, BATCHES to a row of sums.
template <int BATCHES, int COUNT>
DEVICE void take_batch(const Sums &sums, int i, ACC_TYPE (&values)[COUNT]) {
    at_constant<TILES_M * BATCHES>(i, [&](int at) {
        UNROLL for (int v = 0; v < COUNT; ++v) values[v] = sums[at / BATCHES][at % BATCHES * COUNT + v];
    });
}

// Sums of the gate become outputs: those of the other matrix are the second half of a thread's.
DEVICE void gate_sums([[maybe_unused]] const Params &params, [[maybe_unused]] const Tile &tile,
                      [[maybe_unused]] Sums &sums) {
#if GATE
    constexpr int HALF = COLUMNS / 2, BATCH = 8;
    const int column = tile.column + (thread_index() & 3) * 2;
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int first = 0; first < HALF; first += BATCH) {
        ACC_TYPE gate[BATCH], other[BATCH];
        UNROLL for (int v = 0; v < BATCH; ++v) gate[v] = sums[i][first + v], other[v] = sums[i][HALF + first + v];
        apply_gate(params, gate, other, [&](int v) { return column + (first + v) / 4 * 8 + (v & 1); });
        UNROLL for (int v = 0; v < BATCH; ++v) sums[i][first + v] = gate[v];
    }
#endif
}

// Requests the epilogue operands of a warp's rows, from `row` of the block's tile on: they reach the L2 while the tile
// is multiplied.
DEVICE void prefetch_tile(const Params &params, const Tile &tile, int row) {
    if constexpr (!SPLIT)
        prefetch_operands<2, TILES_M, COLUMNS>(params, tile, row + tile.row + (thread_index() >> 5 & 3) * 16,
                                               tile.column);
}

// The batch behind number i, BATCHES to a row of sums, whose first row is `row` of C.
template <int BATCHES>
DEVICE void prefetch_next(const Params &params, const Tile &tile, int row, int i) {
    constexpr int WIDE = BATCH_FRAGMENTS * 8;
    if (!SPLIT && i + 1 < TILES_M * BATCHES)
        prefetch_operands<1, 1, WIDE>(params, tile, row + (i + 1) / BATCHES * 64,
                                      tile.column + (i + 1) % BATCHES * WIDE);
}

// Before a warp leaves: its shared memory must stay until copies have read it.
DEVICE void leave_boxes() {
    if (STORE_COPIES && elect_one())
        store_tensor_wait<0>();
}

#if STORE_COPIES
#include "wgmma_boxes.cuh"
#elif EPILOGUE_STAGED
DEVICE void take_piece(const TileSums &sums, int piece, ACC_TYPE (&fragments)[FRAGMENTS_N][4]) {
    UNROLL for (int f = 0; f < FRAGMENTS_N; ++f) UNROLL for (int v = 0; v < 4; ++v) fragments[f][v] =
        sums[(piece * FRAGMENTS_N + f) * 4 + v];
}
DEVICE void store_piece(sptr<u8> slab, const TileSums &sums, int piece) {
    ACC_TYPE fragments[FRAGMENTS_N][4];
    take_piece(sums, piece, fragments);
    store_slab(slab, fragments);
}

DEVICE void finish_group(const MappedParams &params, const Tile &tile, int row, const Sums &sums) {
    const int warp = thread_index() >> 5;
    const sptr<u8> slab = shared_base() + (SLABS + (warp - 4) * SLAB_BYTES);
    row += tile.row + (warp & 3) * 16;
    if constexpr (UNCHANGED) {
        if (unchanged(params)) {
            UNROLL for (int i = 0; i < TILES_M * PIECES; ++i) {
                ACC_TYPE fragments[1][FRAGMENTS_N][4];
                take_piece(sums[i / PIECES], i % PIECES, fragments[0]);
                store_unchanged(params, tile.batch, slab, fragments, row + i / PIECES * 64,
                                tile.column + i % PIECES * WARP_N, tile.end, params.n);
                warp_barrier();
            }
            return;
        }
    }
    ROLLED for (int i = 0; i < TILES_M * PIECES; ++i) {
        UNROLL for (int f = 0; f < TILES_M * PIECES; ++f) // a constant index keeps the sums in registers
            if (f == i) store_piece(slab, sums[f / PIECES], f % PIECES);
        warp_barrier();
        ROLLED for (int g = 0; g < LANE_GROUPS; g += BATCH_GROUPS) {
            const StagedPlacement place = {row + i / PIECES * 64, tile.column + i % PIECES * WARP_N,
                                           (thread_index() & 31) + 32 * g};
            ACC_TYPE values[BATCH_GROUPS * WIDTH] = {};
            UNROLL for (int b = 0; b < BATCH_GROUPS; ++b) if (place.valid(b))
                load_slab_group(slab, place.group + 32 * b, values + b * WIDTH);
            finish_batch(params, tile, values, place);
        }
        warp_barrier();
    }
}

#else
DEVICE void finish_group(const MappedParams &params, const Tile &tile, int row, const Sums &sums) {
    constexpr int BATCHES = COLUMNS / 8 / BATCH_FRAGMENTS, COUNT = BATCH_FRAGMENTS * 4;
    row += tile.row + (thread_index() >> 5 & 3) * 16;
    ROLLED for (int i = 0; i < TILES_M * BATCHES; ++i) {
        ACC_TYPE values[COUNT];
        take_batch<BATCHES>(sums, i, values);
        prefetch_next<BATCHES>(params, tile, row, i);
        const DirectPlacement place = {row + i / BATCHES * 64, tile.column + i % BATCHES * BATCH_FRAGMENTS * 8};
        finish_batch(params, tile, values, place);
    }
}
#endif
