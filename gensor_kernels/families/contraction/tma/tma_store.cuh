// From the sums of a warpgroup to C, or to the split-K workspace. A warp has 16 of every 64 rows. As in
// mma_epilogue.cuh, it computes outputs in small batches, in rolled loops, so that the code has the epilogue once; or
// without a loop where no operation changes the sums.
#pragma once
#include "unrolled.cuh"
#include "warp_outputs.cuh"
#include "tma_prefetch.cuh"
#include "tma_tiles.cuh"

// Slabs of the staged epilogue, and boxes of stores by copies, use the memory of the ring after the last product. With
// PERSISTENT they follow the ring.
constexpr int SLABS = RING + (PERSISTENT ? STAGES * SLOT_BYTES : 0);

// Waits until all warps have read the ring, before slabs replace it. No block may leave a cluster before the copies and
// arrivals of the other block have reached it.
DEVICE void sync_before_slabs() {
    if constexpr (CLUSTER && !PERSISTENT)
        cluster_barrier();
    else if constexpr ((EPILOGUE_STAGED || STORE_COPIES) && !PERSISTENT)
        barrier();
}
DEVICE void sync_before_exit() {
    if constexpr (CLUSTER && PERSISTENT)
        cluster_barrier();
}

// Returns whether a compile-time list of operations reads no operand and has no curve.
DEVICE constexpr bool few_operations(u32 codes) {
    return codes == 0 ||
           (!takes_operand((i32)(codes & 31)) && !is_curve((i32)(codes & 31)) && few_operations(codes >> 5));
}
constexpr bool FEW_OPERATIONS = EPILOGUE_CODES && few_operations(EPILOGUE_CODES);
enum : bool { NO_OPERATIONS = EPILOGUE_CODES == EPILOGUE_NONE && !GATE }; // copies then need few registers

constexpr int PIECES = COLUMNS / WARP_N; // pieces of a row of sums, with FRAGMENTS_N fragments each

// Copies batch i of the sums to `values`. A batch has BATCH_FRAGMENTS fragments, a row of sums BATCHES batches, the
// last of which may end with zeros.
DEVICE ACC_TYPE sum_or_zero(const TileSums &sums, int at) {
    return at < BLOCK_N / 2 ? sums[at] : ACC_TYPE(0);
}
template <int BATCHES, int COUNT>
DEVICE void take_batch(const Sums &sums, int i, ACC_TYPE (&values)[COUNT]) {
    at_constant<TILES_M * BATCHES>(i, [&](int at) {
        UNROLL for (int v = 0; v < COUNT; ++v) values[v] = sum_or_zero(sums[at / BATCHES], at % BATCHES * COUNT + v);
    });
}

// Replaces the sums of the gate by outputs. The second half of a thread's sums belongs to the other matrix.
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

// Prefetches the epilogue's operands for a warp's rows, from row `row` of the block's tile on, into the L2.
DEVICE void prefetch_tile(const Params &params, const Tile &tile, int row) {
    if constexpr (!SPLIT)
        prefetch_operands<2, TILES_M, COLUMNS>(params, tile, row + tile.row + (thread_index() >> 5 & 3) * 16,
                                               tile.column);
}

// Prefetches the epilogue's operands for the batch after batch i into the L1; `row` is the first row of the sums in C.
template <int BATCHES>
DEVICE void prefetch_next(const Params &params, const Tile &tile, int row, int i) {
    constexpr int WIDE = BATCH_FRAGMENTS * 8;
    if (!SPLIT && i + 1 < TILES_M * BATCHES)
        prefetch_operands<1, 1, WIDE>(params, tile, row + (i + 1) / BATCHES * 64,
                                      tile.column + (i + 1) % BATCHES * WIDE);
}

// Waits until copies have read the shared memory of this warp, before the warp exits.
DEVICE void wait_for_stores() {
    if (STORE_COPIES && elect_one())
        store_tensor_wait<0>();
}

#if STORE_COPIES
#include "tma_boxes.cuh"
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
