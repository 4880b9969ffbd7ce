// Stores a thread's accumulators to C or to the workspace.
#pragma once
#include "norm.cuh"
#include "simt_math.cuh"
#include "unrolled.cuh"

constexpr int GROUP_M = THREAD_M / VTHREAD_M, GROUP_N = THREAD_N / VTHREAD_N;
constexpr int THREAD_ROWS = BLOCK_M / THREAD_M; // threads along M
// Adjacent columns of one thread that an access may take if its size in bytes allows it.
constexpr int ADJACENT = power_of_two_in(GROUP_N);
// Rows of a thread whose epilogue runs at once: few, because the epilogue's operands need registers next to the
// accumulators, but enough for several loads at a time where the accumulators leave room.
constexpr int ROOM = (THREAD_M * THREAD_N * int(sizeof(ACC_TYPE)) >= 256 ? 8 : 16) / (sizeof(ACC_TYPE) > 8 ? 2 : 1);
constexpr int STORE_ROWS = 4 * THREAD_N <= ROOM && THREAD_M % 4 == 0   ? 4
                           : 2 * THREAD_N <= ROOM && THREAD_M % 2 == 0 ? 2
                                                                       : 1;
constexpr int STORE_COUNT = STORE_ROWS * THREAD_N;

// The row (column) of C of a thread's row i (column j), where `row` and `column` are those of its first output.
DEVICE i32 output_row(i32 row, int i) {
    return row + i / GROUP_M * (BLOCK_M / VTHREAD_M) + i % GROUP_M;
}
DEVICE i32 output_column(i32 column, int j) {
    return column + j / GROUP_N * (BLOCK_N / VTHREAD_N) + j % GROUP_N;
}

// A thread's own outputs in groups of WIDTH columns, from its row `first` on.
template <int WIDTH>
struct OwnPlaces {
    i32 row, column, first;
    MEMBER Place operator()(int group) const {
        return Place{output_row(row, first + group / (THREAD_N / WIDTH)),
                     output_column(column, group % (THREAD_N / WIDTH) * WIDTH), true};
    }
};

// Stores a thread's sums to C or to the workspace. The loops are unrolled, since rows have only two distances. `to`
// points to the first output of the block's tile; from there, C has `rows` and `columns`. Strides are in elements.
template <class Out, int WIDTH>
DEVICE void store_rows(gptr<Out> to, i64 row_stride, i64 column_stride, i32 rows, i32 columns, const ThreadPlace &place,
                       const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    constexpr int GROUPS = THREAD_N / WIDTH, JUMP = BLOCK_M / VTHREAD_M - GROUP_M + 1;
    to = to + (place.row * row_stride + place.column * column_stride);
    bool inside[GROUPS];
    UNROLL for (int g = 0; g < GROUPS; ++g) inside[g] = within(output_column(place.column, g * WIDTH), columns);
    UNROLL for (int i = 0; i < THREAD_M; ++i) {
        if (i > 0)
            to = to + (i % GROUP_M == 0 ? JUMP * row_stride : row_stride);
        const bool row_inside = within(output_row(place.row, i), rows);
        UNROLL for (int g = 0; g < GROUPS; ++g)
            store_global(to + output_column(0, g * WIDTH) * column_stride,
                         converted<Out, WIDTH>(&sums[i * THREAD_N + g * WIDTH]), row_inside && inside[g]);
    }
}

DEVICE void store_sums_as_partials(const Params &params, const Tile &tile, const ThreadPlace &place,
                                   const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    constexpr int WIDTH = minimum(ADJACENT, 16 / int(sizeof(ACC_TYPE)));
    store_rows<ACC_TYPE, WIDTH>(workspace_row(params, tile.part, tile.entry, tile.row) + tile.column,
                                workspace_columns(params.n), 1, params.m - tile.row, params.n - tile.column, place,
                                sums);
}

#if GATE
// Combines both sums of every output in outputs[0], one row of a thread at a time.
DEVICE void gate_outputs(const Params &params, const Tile &tile, const ThreadPlace &place,
                         ACC_TYPE (&outputs)[MATRICES][THREAD_M * THREAD_N]) {
    const i32 first = tile.column + place.column;
    ROLLED for (int i = 0; i < THREAD_M; ++i) {
        ACC_TYPE rows[MATRICES][THREAD_N];
        UNROLL for (int x = 0; x < MATRICES; ++x) UNROLL for (int j = 0; j < THREAD_N; ++j) rows[x][j] = outputs[x][j];
        apply_gate(params, rows[0], rows[1], [&](int j) { return output_column(first, j); });
        UNROLL for (int j = 0; j < THREAD_N; ++j) outputs[0][j] = rows[0][j];
        UNROLL for (int x = 0; x < MATRICES; ++x) rotate<THREAD_N>(outputs[x]);
    }
}
#endif

#if NORM && !SPLIT
// Stores a thread's sums in the tile in shared memory whose rows are normalised.
DEVICE void keep_sums(const ThreadPlace &place, const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    const sptr<ACC_TYPE> tile = shared_base().as<ACC_TYPE>();
    UNROLL for (int i = 0; i < THREAD_M; ++i) {
        UNROLL for (int j = 0; j < THREAD_N; ++j) {
            Vec<NORM_WORD> word;
            word.set(0, sums[i * THREAD_N + j]);
            store_shared(tile + (output_row(place.row, i) * NORM_ROW + output_column(place.column, j)), word);
        }
    }
}
#endif

constexpr bool UNCHANGED = EPILOGUE_CODES == EPILOGUE_NONE || EPILOGUE_CODES == 0;
constexpr int DIRECT_WIDTH = C_UNIT ? minimum(ADJACENT, C_VECTOR / int(sizeof(OUT_TYPE))) : 1;

// Stores outputs that no operation of the epilogue changes.
DEVICE void store_unchanged(const Params &params, const Tile &tile, const ThreadPlace &place,
                            const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    cover("unchanged");
    const i64 column_stride = C_UNIT ? 1 : params.c_n;
    const gptr<OUT_TYPE> c = gptr<OUT_TYPE>(params.c) + (batch_offset(params.c_batch, tile.batch) +
                                                         tile.row * params.c_m + tile.column * column_stride);
    store_rows<OUT_TYPE, DIRECT_WIDTH>(c, params.c_m, column_stride, tile.end - tile.row, params.n - tile.column, place,
                                       sums);
}

// Copies a thread's sums of the rows from `first` on. Loops over rows are not unrolled, so that the code contains the
// epilogue once and its addresses take few registers.
DEVICE void take_rows(const ACC_TYPE (&sums)[THREAD_M * THREAD_N], int first, ACC_TYPE (&values)[STORE_COUNT]) {
    at_constant<THREAD_M / STORE_ROWS>(first / STORE_ROWS, [&](int round) {
        UNROLL for (int i = 0; i < STORE_COUNT; ++i) values[i] = sums[round * STORE_COUNT + i];
    });
}

// Stores outputs directly from registers.
DEVICE void store_direct(const Params &params, const Tile &tile, const ThreadPlace &place,
                         const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    constexpr int WIDTH = DIRECT_WIDTH;
    if constexpr (UNCHANGED) {
        if (EPILOGUE_CODES != 0 || params.steps == 0)
            return store_unchanged(params, tile, place, sums);
    }
    OwnPlaces<WIDTH> at = {tile.row + place.row, tile.column + place.column, 0};
    ROLLED for (; at.first < THREAD_M; at.first += STORE_ROWS) {
        ACC_TYPE values[STORE_COUNT];
        take_rows(sums, at.first, values);
        finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, tile.batch, values, in_rows(tile, at));
    }
}

// ---- Staged stores: threads exchange STORE_ROWS rows each through slabs in shared memory, so that every store to C
// has its full width and warps write along rows.

constexpr int SLAB_ROWS = STORE_ROWS * THREAD_ROWS;
constexpr int SLAB_BYTES = (SLAB_ROWS * BLOCK_N * int(sizeof(ACC_TYPE)) + 127) / 128 * 128;
constexpr int SLAB_WIDTH = C_UNIT ? C_VECTOR / int(sizeof(OUT_TYPE)) : 1; // columns per store to C
constexpr int SLAB_GROUPS = SLAB_ROWS * BLOCK_N / SLAB_WIDTH;
constexpr int SLAB_PIECES = (SLAB_GROUPS + THREADS - 1) / THREADS; // stores per thread

// The address of word `index` of a slab. Chunks of 16 bytes are swizzled within each 128, so that lanes that access 1,
// 2 or 4 adjacent chunks each have no bank conflict.
DEVICE sptr<ACC_TYPE> slab_word(sptr<ACC_TYPE> slab, int index) {
    const u32 byte = (u32)index * (u32)sizeof(ACC_TYPE);
    return sptr<ACC_TYPE>(slab.address + (byte ^ (byte >> 7 & 7) << 4));
}

// The places of a thread's groups of SLAB_WIDTH columns, which are assigned to threads along the rows of a slab.
struct SlabPlaces {
    i32 row, column, first; // of the tile; the index of the threads' first row in the slab
    MEMBER Place operator()(int piece) const {
        const int group = thread_index() + piece * THREADS, slab_row = group / (BLOCK_N / SLAB_WIDTH);
        const i32 thread_row = row + slab_row % THREAD_ROWS * GROUP_M;
        const bool valid = SLAB_GROUPS % THREADS == 0 || within(group, SLAB_GROUPS);
        return Place{output_row(thread_row, first + slab_row / THREAD_ROWS),
                     column + group % (BLOCK_N / SLAB_WIDTH) * SLAB_WIDTH, valid};
    }
};

DEVICE void write_slab(sptr<ACC_TYPE> slab, const ThreadPlace &place, const ACC_TYPE (&sums)[STORE_COUNT]) {
    constexpr int WIDTH = minimum(ADJACENT, 16 / int(sizeof(ACC_TYPE)));
    UNROLL for (int i = 0; i < STORE_COUNT; i += WIDTH) {
        Vec<WIDTH *int(sizeof(ACC_TYPE))> words;
        UNROLL for (int w = 0; w < WIDTH; ++w) words.set(w, sums[i + w]);
        const int row = i / THREAD_N * THREAD_ROWS + place.row / GROUP_M;
        store_shared(slab_word(slab, row * BLOCK_N + output_column(place.column, i % THREAD_N)), words);
    }
}

DEVICE void read_slab(sptr<ACC_TYPE> slab, ACC_TYPE (&values)[SLAB_PIECES * SLAB_WIDTH]) {
    constexpr int WIDTH = minimum(SLAB_WIDTH, 16 / int(sizeof(ACC_TYPE)));
    UNROLL for (int p = 0; p < SLAB_PIECES; ++p) {
        const int group = thread_index() + p * THREADS;
        if (SLAB_GROUPS % THREADS != 0 && !within(group, SLAB_GROUPS))
            continue;
        UNROLL for (int i = 0; i < SLAB_WIDTH; i += WIDTH) {
            const auto words = load_shared<WIDTH *int(sizeof(ACC_TYPE))>(slab_word(slab, group * SLAB_WIDTH + i));
            UNROLL for (int w = 0; w < WIDTH; ++w) values[p * SLAB_WIDTH + i + w] = words.template get<ACC_TYPE>(w);
        }
    }
}

// The slabs reuse the shared memory of the tiles, after the main loop's last barrier. Two slabs alternate, so one
// barrier per slab also protects a slab until all threads have read it.
DEVICE void store_staged(const Params &params, const Tile &tile, const ThreadPlace &place,
                         const ACC_TYPE (&sums)[THREAD_M * THREAD_N]) {
    sptr<ACC_TYPE> slab = shared_base().as<ACC_TYPE>(), other = sptr<ACC_TYPE>(slab.address + SLAB_BYTES);
    SlabPlaces at = {tile.row, tile.column, 0};
    ROLLED for (; at.first < THREAD_M; at.first += STORE_ROWS) {
        ACC_TYPE own[STORE_COUNT];
        take_rows(sums, at.first, own);
        write_slab(slab, place, own);
        barrier();
        ACC_TYPE values[SLAB_PIECES * SLAB_WIDTH] = {};
        read_slab(slab, values);
        finish_outputs<OUT_TYPE, SLAB_WIDTH, C_UNIT>(params, tile.batch, values, in_rows(tile, at));
        const sptr<ACC_TYPE> read = slab;
        slab = other;
        other = read;
    }
}
