// Stores a warp's accumulators of 16 rows, in small batches, to C or to the split-K workspace. Accumulators have the
// layout of mma.sync: FRAGMENTS_N fragments of 8 columns per row.
#pragma once
#include "contraction.cuh"
#include "mma_slab.cuh"

// Outputs of a lane that are processed together. More would spill, because the accumulators still need their registers.
// Fewer result in less code, but narrow loads of operands then overlap less.
constexpr int BATCH_VALUES = sizeof(ACC_TYPE) > 8 ? 4 : EPILOGUE_STAGED && (WIDTH == 4 || WIDTH == 8) ? 8 : 16;

DEVICE constexpr int largest_divisor(int number, int limit) {
    return limit <= 1 ? 1 : number % limit == 0 ? limit : largest_divisor(number, limit - 1);
}

// Staged: a batch is BATCH_GROUPS groups of a lane.
constexpr int BATCH_GROUPS = largest_divisor(LANE_GROUPS, BATCH_VALUES / WIDTH);

struct StagedPlacement {
    int row, column, group; // of the first of the 16 rows; this lane's first group
    MEMBER bool valid(int g) const { return SLAB_GROUPS % 32 == 0 || within(group + 32 * g, SLAB_GROUPS); }
    MEMBER Place operator()(int g) const {
        const int at = group + 32 * g;
        return Place{row + at / ROW_GROUPS, column + at % ROW_GROUPS * WIDTH, valid(g)};
    }
};

// Direct: a batch is the accumulators of BATCH_FRAGMENTS fragments; value 4 * fragment + 2 * (row half) + column.
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

// If the epilogue has no operations, outputs are converted before they are written to the slab. It then has room for
// several rows of fragments at once, and the code is unrolled. Kernels of packed images have registers for one of both
// variants: this one if the lack of operations is known at compile time, otherwise that of sums.
constexpr bool UNCHANGED = EPILOGUE_STAGED == 1 && !SPLIT &&
                           (EPILOGUE_CODES == EPILOGUE_NONE || (EPILOGUE_CODES == 0 && !PACKED)) &&
                           WARP_N * (int)sizeof(OUT_TYPE) % 16 == 0;

DEVICE bool unchanged(const Params &params) {
    return UNCHANGED && (EPILOGUE_CODES != 0 || params.steps == 0);
}

// Copies a lane's groups of outputs from a slab to C.
struct UnchangedGroups {
    static constexpr int BYTES = WIDTH * (int)sizeof(OUT_TYPE), TOGETHER = minimum(8, 64 / BYTES * 2);
    static constexpr bool WHOLE_ROWS = 32 % ROW_GROUPS == 0; // a lane keeps its column
    using Rows = Slab<OUT_TYPE>::Rows;
    const Params &params;
    sptr<u8> slab;
    gptr<OUT_TYPE> c; // the first output of the warp's tile; with ALL_IMAGES, of its rows
    i64 row_stride, column_stride;
    i32 rows, columns; // of C from the warp's tile on; with WHOLE_ROWS from the lane's first output on
    i32 first;         // the warp's first column

    MEMBER int row_of(int g) const { return ((thread_index() & 31) + 32 * g) / ROW_GROUPS; }
    MEMBER int column_of(int g) const { return ((thread_index() & 31) + 32 * g) % ROW_GROUPS * WIDTH; }

    // Returns the number of elements from `c` to a column of the warp's tile.
    MEMBER i64 to_own(int column) const {
        return to_column(params, ALL_IMAGES ? first + column : column, column_stride, params.c_batch[1]);
    }

    // Returns the address of the lane's first output. With WHOLE_ROWS, all its outputs are a constant distance apart
    // and are compared with the same number of rows.
    MEMBER gptr<OUT_TYPE> begin() {
        if (WHOLE_ROWS)
            rows = rows - row_of(0), columns = columns - column_of(0);
        return c + (row_of(0) * row_stride + to_own(column_of(0)));
    }

    // Moves the first COUNT rows of the slab to the rows from `first` on. `to` is the lane's next address in C.
    template <int COUNT>
    MEMBER void move(int first, gptr<OUT_TYPE> &to) const {
        constexpr int GROUPS = COUNT * ROW_GROUPS, STEPS = divide_up(GROUPS, 32);
        UNROLL for (int start = 0; start < STEPS; start += TOGETHER) {
            Vec<BYTES> outputs[TOGETHER];
            UNROLL for (int i = 0; i < TOGETHER; ++i) if (in_slab(start + i, GROUPS)) outputs[i] = load_shared<BYTES>(
                slab + Rows::offset(row_of(start + i), column_of(start + i) * (int)sizeof(OUT_TYPE)));
            UNROLL for (int i = 0; i < TOGETHER; ++i) if (in_slab(start + i, GROUPS)) {
                const int row = first + (WHOLE_ROWS ? (start + i) * (32 / ROW_GROUPS) : row_of(start + i));
                const int column = WHOLE_ROWS ? 0 : column_of(start + i);
                if (!WHOLE_ROWS)
                    to = c + (row * row_stride + to_own(column));
                store_global(to, outputs[i], within(row, rows) && within(column, columns));
                to = to + 32 / ROW_GROUPS * row_stride;
            }
        }
    }
    static MEMBER bool in_slab(int g, int groups) {
        return (g + 1) * 32 <= groups || within((thread_index() & 31) + 32 * g, groups);
    }
};

// Stores a warp's TILES rows of fragments at (row, column) of C, whose edges are `rows` and `columns`.
template <int TILES>
DEVICE void store_unchanged(const Params &params, const Batch &batch, sptr<u8> slab,
                            const ACC_TYPE (&sums)[TILES][FRAGMENTS_N][4], i32 row, i32 column, i32 rows, i32 columns) {
    constexpr int BANDS = SLAB_WORD / (int)sizeof(OUT_TYPE);
    cover("unchanged");
    const Slab<OUT_TYPE> own(slab);
    const i64 column_stride = C_UNIT ? 1 : params.c_n;
    const gptr<OUT_TYPE> c = gptr<OUT_TYPE>(params.c) + (batch_offset(params.c_batch, batch) + row * params.c_m +
                                                         (ALL_IMAGES ? 0 : column * column_stride));
    UnchangedGroups groups = {params, slab, c, params.c_m, column_stride, rows - row, columns - column, column};
    gptr<OUT_TYPE> to = groups.begin();
    constexpr int LAST = TILES % BANDS == 0 ? BANDS : TILES % BANDS; // rows of fragments that come last
    UNROLL for (int first = 0; first < TILES; first += BANDS) {
        if (first > 0)
            warp_barrier();
        UNROLL for (int i = 0; i < BANDS; ++i) if (first + i < TILES) own.store(sums[first + i], i);
        warp_barrier();
        if (first + BANDS < TILES)
            groups.move<BANDS * 16>(first * 16, to);
        else
            groups.move<LAST * 16>(first * 16, to);
    }
}
