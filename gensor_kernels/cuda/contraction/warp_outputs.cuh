// A warp's accumulators of 16 rows on their way out, in small batches: where each output lies, and where it goes, to C
// or to the split-K workspace. Accumulators lie as those of mma.sync: FRAGMENTS_N fragments of 8 columns in a row.
#pragma once
#include "contraction.cuh"
#include "mma_slab.cuh"

// Outputs of a lane that are worked on together. More would spill, since the accumulators are still there; fewer make
// less code, but leave narrow loads of operands with little to overlap.
constexpr int BATCH_VALUES = sizeof(ACC_TYPE) > 8 ? 4 : EPILOGUE_STAGED && (WIDTH == 4 || WIDTH == 8) ? 8 : 16;

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

template <int COUNT, class Placement>
DEVICE void finish_batch(const Params &params, const Tile &tile, ACC_TYPE (&values)[COUNT], const Placement &place) {
    if constexpr (SPLIT)
        store_partials<WIDTH>(params, tile, values, place);
    else
        finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, tile.batch, values, in_rows(tile, place));
}
