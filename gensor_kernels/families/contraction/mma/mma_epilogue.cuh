// Stores a warp's accumulators to C or to the split-K workspace.
//
// A rolled loop finishes a small batch of outputs at a time, so that the code contains the epilogue once and the other
// accumulators stay in registers. Staged: each warp moves 16 rows through its slab of shared memory, so that every lane
// stores 16 bytes at once. Direct: a lane stores the pairs of adjacent columns that its accumulators hold.
#pragma once
#include "mma_pipeline.cuh"
#include "norm.cuh"
#include "warp_outputs.cuh"

#if GATE
// Combines the accumulators of both matrices in those of the first. A rolled loop takes one row of fragments at a time,
// so that the code contains the curve once per column.
DEVICE void gate_warp(const Params &params, int column, Accumulators (&accumulators)[MATRICES]) {
    constexpr int ROW = FRAGMENTS_N * 4;
    const int first = column + (thread_index() & 3) * 2;
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        ACC_TYPE rows[MATRICES][ROW];
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) {
            if (f == i) {
                UNROLL for (int v = 0; v < ROW; ++v) UNROLL for (int x = 0; x < MATRICES; ++x) rows[x][v] =
                    accumulators[x][f][v / 4][v % 4];
            }
        }
        apply_gate(params, rows[0], rows[1], [&](int v) { return first + v / 4 * 8 + (v & 1); });
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) {
            if (f == i) {
                UNROLL for (int v = 0; v < ROW; ++v) accumulators[0][f][v / 4][v % 4] = rows[0][v];
            }
        }
    }
}
#endif

#if NORM && !SPLIT
// Stores a warp's part of the tile whose rows are normalised.
DEVICE void keep_sums(int row, int column, const Accumulators &accumulators) {
    const int lane = thread_index() & 31;
    const sptr<ACC_TYPE> own =
        shared_base().as<ACC_TYPE>() + ((row + (lane >> 2)) * NORM_ROW + column + (lane & 3) * 2);
    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
        UNROLL for (int half = 0; half < 2; ++half) {
            Vec<2 * NORM_WORD> pair;
            pair.set(0, accumulators[i][j][2 * half]);
            pair.set(1, accumulators[i][j][2 * half + 1]);
            store_shared(own + ((i * 16 + half * 8) * NORM_ROW + j * 8), pair);
        }
    }
}
#endif

#if EPILOGUE_STAGED
DEVICE void finish_warp(const Params &params, const Tile &tile, int row, int column,
                        const ACC_TYPE (&accumulators)[FRAGMENTS_M][FRAGMENTS_N][4]) {
    const sptr<u8> slab = shared_base() + (thread_index() >> 5) * SLAB_BYTES;
    if constexpr (UNCHANGED) {
        if (unchanged(params))
            return store_unchanged(params, tile.batch, slab, accumulators, row, column, tile.end, params.n);
    }
    const Slab<ACC_TYPE> own(slab);
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) // a constant index keeps the accumulators in registers
            if (f == i) own.store(accumulators[f]);
        warp_barrier();
        ROLLED for (int g = 0; g < LANE_GROUPS; g += BATCH_GROUPS) {
            const StagedPlacement place = {row + i * 16, column, (thread_index() & 31) + 32 * g};
            ACC_TYPE values[BATCH_GROUPS * WIDTH] = {};
            UNROLL for (int b = 0; b < BATCH_GROUPS; ++b) if (place.valid(b))
                load_slab_group(slab, place.group + 32 * b, values + b * WIDTH);
            finish_batch(params, tile, values, place);
        }
        warp_barrier();
    }
}

#else
DEVICE void finish_warp(const Params &params, const Tile &tile, int row, int column,
                        const ACC_TYPE (&accumulators)[FRAGMENTS_M][FRAGMENTS_N][4]) {
    constexpr int BATCHES = FRAGMENTS_N / BATCH_FRAGMENTS;
    ROLLED for (int i = 0; i < FRAGMENTS_M * BATCHES; ++i) {
        ACC_TYPE values[BATCH_FRAGMENTS * 4];
        UNROLL for (int f = 0; f < FRAGMENTS_M * BATCHES; ++f) {
            if (f == i) {
                UNROLL for (int v = 0; v < BATCH_FRAGMENTS * 4; ++v) values[v] =
                    accumulators[f / BATCHES][f % BATCHES * BATCH_FRAGMENTS + v / 4][v % 4];
            }
        }
        const DirectPlacement place = {row + i / BATCHES * 16, column + i % BATCHES * BATCH_FRAGMENTS * 8};
        finish_batch(params, tile, values, place);
    }
}
#endif
