// From a warp's accumulators to C or to the split-K workspace.
//
// Outputs leave in small batches, in rolled loops, so that the epilogue is in the code once and the accumulators that
// wait stay in their registers. Staged: each warp moves 16 rows through a slab of shared memory of its own, so that
// every lane gets whole 16-byte stores. Direct: the pairs of columns an accumulator holds are stored as they are.
#pragma once
#include "mma_pipeline.cuh"
#include "mma_slab.cuh"
#include "norm.cuh"

// Outputs of a lane that are worked on together. More would spill, since the accumulators are still there; fewer make
// less code, but leave narrow loads of operands with little to overlap.
constexpr int BATCH_VALUES = EPILOGUE_STAGED && (WIDTH == 4 || WIDTH == 8) ? 8 : 16;

DEVICE constexpr int largest_divisor(int of, int limit) {
    return limit <= 1 ? 1 : of % limit == 0 ? limit : largest_divisor(of, limit - 1);
}

// Staged: BATCH_GROUPS of a lane's groups at a time.
constexpr int BATCH_GROUPS = largest_divisor(LANE_GROUPS, BATCH_VALUES / WIDTH);

struct StagedPlacement {
    int row, column, group; // of the 16 rows; this lane's first group
    MEMBER bool valid(int g) const { return SLAB_GROUPS % 32 == 0 || within(group + 32 * g, SLAB_GROUPS); }
    MEMBER Place operator()(int g) const {
        const int at = group + 32 * g;
        return Place{row + at / ROW_GROUPS, column + at % ROW_GROUPS * WIDTH, valid(g)};
    }
};

// Direct: the accumulators of BATCH_FRAGMENTS fragments at a time; value 4 * j + 2 * (row half) + column.
constexpr int BATCH_FRAGMENTS = largest_divisor(FRAGMENTS_N, BATCH_VALUES / 4);

struct DirectPlacement {
    int row, column; // of the first fragment
    MEMBER Place operator()(int g) const {
        const int lane = thread_index() & 31, value = g * WIDTH;
        return Place{row + (lane >> 2) + (value & 2) * 4, column + (value >> 2) * 8 + (lane & 3) * 2 + (value & 1),
                     true};
    }
};

#if GATE
// Both accumulators of every output become one, in the first. Rows of fragments take turns in a rolled loop, so that
// the curve is in the code once per column.
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
// A warp's share of the tile whose rows are normalised.
DEVICE void keep_sums(int row, int column, const Accumulators &accumulators) {
    const int lane = thread_index() & 31;
    const sptr<ACC_TYPE> own =
        shared_base().as<ACC_TYPE>() + ((row + (lane >> 2)) * NORM_ROW + column + (lane & 3) * 2);
    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
        UNROLL for (int half = 0; half < 2; ++half) {
            Vec<8> pair;
            pair.set(0, accumulators[i][j][2 * half]);
            pair.set(1, accumulators[i][j][2 * half + 1]);
            store_shared(own + ((i * 16 + half * 8) * NORM_ROW + j * 8), pair);
        }
    }
}
#endif

template <int COUNT, class Placement>
DEVICE void finish_batch(const Params &params, const Tile &tile, ACC_TYPE (&values)[COUNT], const Placement &place) {
    if constexpr (SPLIT)
        store_partials<WIDTH>(params, tile, values, place);
    else
        finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, tile.batch, values, in_rows(tile, place));
}

#if EPILOGUE_STAGED
DEVICE void finish_warp(const Params &params, const Tile &tile, int row, int column, const Accumulators &accumulators) {
    const sptr<u8> slab = shared_base() + (thread_index() >> 5) * SLAB_BYTES;
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) // a constant index keeps the accumulators in registers
            if (f == i) store_slab(slab, accumulators[f]);
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
DEVICE void finish_warp(const Params &params, const Tile &tile, int row, int column, const Accumulators &accumulators) {
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
