// From the sums of a warpgroup to C by tensor copies (STORE_COPIES 1). A warp writes finished outputs to shared memory
// as boxes of 16 rows by 128 bytes, with the swizzle of tensor copies. It has two boxes: it writes one while a copy
// stores the other, and multiplies the next tile while copies store the last boxes of a tile. Copies store nothing past
// the edges of C. Columns after a row's last whole box also pass through one, which they leave by stores of 16 bytes.
// Only the operands of the epilogue are read by narrow accesses.
#pragma once
#include "warp_outputs.cuh"
#include "tma_tiles.cuh"

constexpr int OUT_BYTES = (int)sizeof(OUT_TYPE), BOX_COLUMNS = 128 / OUT_BYTES, BOX_BYTES = 16 * 128;
// Batches of a row of sums and of a box.
constexpr int ROW_BATCHES = divide_up(COLUMNS / 8, BATCH_FRAGMENTS), BOX_BATCHES = BOX_COLUMNS / 8 / BATCH_FRAGMENTS;
// Columns of a row after its whole boxes; boxes of a row, the last of which may hold the rest.
enum : int { REST = COLUMNS % BOX_COLUMNS, ROW_BOXES = (COLUMNS + BOX_COLUMNS - 1) / BOX_COLUMNS };
static_assert(BOX_BATCHES * BATCH_FRAGMENTS * 8 == BOX_COLUMNS, "A box is whole batches.");
// Half a warp at a time stores pairs of 8 bytes. Its four rows use two pairs of chunks, so that even and odd rows would
// conflict in their banks; therefore odd rows store fragment j ^ TURNED where even rows store fragment j.
constexpr int TURNED = OUT_BYTES == 4 ? 2 : 0;
static_assert(!TURNED || BATCH_FRAGMENTS == 4, "Fragments change places within a batch.");

// Waits until copies have read the box that this warp writes next. The copy of the other box may still run, except at
// the start of a tile.
DEVICE void wait_for_box(bool first, bool elected) {
    if (elected) {
        if (first)
            store_tensor_wait<0>();
        else
            store_tensor_wait<1>();
    }
    warp_barrier();
}

// Two adjacent 16-bit outputs.
template <class Out>
DEVICE u32 packed_pair(const Params &params, ACC_TYPE low, ACC_TYPE high) {
    if constexpr (same_type<ACC_TYPE, float>)
        return pack_pair(low, high, Out{});
    Vec<4> pair = Vec<4>::zero();
    pair.set(0, finished<Out>(params, low)), pair.set(1, finished<Out>(params, high));
    return pair.word[0];
}

// Stores four fragments of 16-bit outputs to a box, from fragment `first` on. A matrix is 8 rows of a fragment.
template <class Out>
DEVICE void fill_half_box(const Params &params, sptr<u8> box, int first, const ACC_TYPE (&values)[16]) {
    const int lane = thread_index() & 31, row = lane & 7;
    const sptr<u8> line = box + ((lane >> 3 & 1) * 1024 + row * 128);
    UNROLL for (int j = 0; j < 4; j += 2) {
        u32 matrices[4];
        UNROLL for (int m = 0; m < 4; ++m) {
            matrices[m] = packed_pair<Out>(params, values[4 * j + 2 * m], values[4 * j + 2 * m + 1]);
        }
        store_matrix(line + ((first + j) * 16 ^ (lane >> 4 ^ row) * 16), matrices);
    }
}

// Two adjacent outputs. Without OPERATIONS they are sums that no operation has changed.
template <bool OPERATIONS>
DEVICE Vec<2 * OUT_BYTES> output_pair(const Params &params, ACC_TYPE low, ACC_TYPE high) {
    const ACC_TYPE pair[2] = {low, high};
    if constexpr (OPERATIONS)
        return finished<OUT_TYPE, 2>(params, pair);
    else
        return converted<OUT_TYPE, 2>(pair);
}

// Stores fragments of 8 columns each to a box, from fragment `first` on.
template <bool OPERATIONS, int COUNT>
DEVICE void fill_box(const Params &params, sptr<u8> box, int first, const ACC_TYPE (&values)[COUNT]) {
    if constexpr (OUT_BYTES == 2)
        return fill_half_box<OUT_TYPE>(params, box, first, values);
    const int lane = thread_index() & 31, row = lane >> 2, turn = row & 1 ? TURNED : 0;
    const sptr<u8> line = box + row * 128;
    UNROLL for (int j = 0; j < COUNT / 4; ++j) UNROLL for (int half = 0; half < 2; ++half) {
        const ACC_TYPE *own = values + (4 * j + 2 * half), *other = values + (4 * (j ^ TURNED) + 2 * half);
        const int byte = ((first + j) ^ turn) * 8 * OUT_BYTES + (lane & 3) * 2 * OUT_BYTES;
        store_shared(line + (half * 1024 + (byte ^ row * 16)),
                     output_pair<OPERATIONS>(params, turn ? other[0] : own[0], turn ? other[1] : own[1]));
    }
}

DEVICE void store_box(const MappedParams &params, const Tile &tile, sptr<u8> box, int row, int column, bool elected) {
    proxy_fence();
    warp_barrier();
    if (elected) {
        const i32 at[5] = {column, row, tile.batch.index[2], tile.batch.index[1], tile.batch.index[0]};
        store_tensor(params.map[MAP_C], box, at);
        store_tensor_commit();
    }
}

// Stores the first COUNT columns of a box to (row, column) of C. Eight lanes store the same 16 bytes of eight rows,
// whose chunks are in different banks.
template <int COUNT>
DEVICE void store_rest(const Params &params, const Tile &tile, sptr<u8> box, int row, int column, bool elected) {
    constexpr int VALUES = 16 / OUT_BYTES, CHUNKS = COUNT / VALUES;
    cover("rest_of_row");
    warp_barrier();
    const int lane = thread_index() & 31, of_eight = lane & 7;
    const gptr<OUT_TYPE> c = gptr<OUT_TYPE>(params.c) + (batch_offset(params.c_batch, tile.batch) + column);
    UNROLL for (int first = 0; first < 2 * CHUNKS; first += 4) {
        const int group = first + (lane >> 3), chunk = group % CHUNKS, line = group / CHUNKS * 8 + of_eight;
        if (first + 4 <= 2 * CHUNKS || within(group, 2 * CHUNKS)) {
            const Vec<16> outputs = load_shared<16>(box + (line * 128 + (chunk ^ of_eight) * 16));
            store_global(c + ((row + line) * params.c_m + chunk * VALUES), outputs,
                         within(row + line, params.m) && within(column + chunk * VALUES, params.n));
        }
    }
    if (elected)
        store_tensor_commit(); // a group without copies: waits count a group for each box
}

// The two boxes of a warp, which has 16 rows of each tile of sums.
struct WarpBoxes {
    const MappedParams &params;
    const Tile &tile;
    sptr<u8> first; // the first box
    int row;        // the first row in C
    bool elected;   // this lane starts the copies

    MEMBER WarpBoxes(const MappedParams &params, const Tile &tile, int row_of_group, bool elected)
        : params(params), tile(tile), elected(elected) {
        const int warp = warp_uniform(thread_index() >> 5);
        first = shared_base() + (SLABS + (warp - 4) * 2 * BOX_BYTES);
        row = row_of_group + tile.row + (warp & 3) * 16;
    }
    // Writes batch i of the sums to a box, through the epilogue or, without OPERATIONS, unchanged.
    template <bool OPERATIONS>
    MEMBER void finish(int i, ACC_TYPE (&values)[BATCH_FRAGMENTS * 4]) const {
        const int top = row + i / ROW_BATCHES * 64, left = tile.column + i % ROW_BATCHES * BATCH_FRAGMENTS * 8;
        if constexpr (OPERATIONS)
            run_steps<0, OUT_TYPE, WIDTH>(params, tile.batch, values, DirectPlacement{top, left});
        const int in_row = i % ROW_BATCHES, part = REST ? in_row % BOX_BATCHES : i % BOX_BATCHES;
        const int number = REST ? i / ROW_BATCHES * ROW_BOXES + in_row / BOX_BATCHES : i / BOX_BATCHES;
        const sptr<u8> box = first + number % 2 * BOX_BYTES;
        if (part == 0)
            wait_for_box(i == 0, elected);
        fill_box<OPERATIONS>(params, box, part * BATCH_FRAGMENTS, values);
        if constexpr (REST != 0) {
            if (in_row / BOX_BATCHES == ROW_BOXES - 1) {
                if (in_row == ROW_BATCHES - 1)
                    store_rest<REST>(params, tile, box, top, left - part * BATCH_FRAGMENTS * 8, elected);
                return;
            }
        }
        if (part == BOX_BATCHES - 1)
            store_box(params, tile, box, top, left - part * BATCH_FRAGMENTS * 8, elected);
    }
};

DEVICE void finish_group(const MappedParams &params, const Tile &tile, int row, const Sums &sums) {
    const WarpBoxes boxes(params, tile, row, elect_one());
    ACC_TYPE values[BATCH_FRAGMENTS * 4];
    // A short epilogue is unrolled: then indices of sums are constants.
    if (FEW_OPERATIONS || (!EPILOGUE_CODES && params.steps == 0)) {
        UNROLL for (int i = 0; i < TILES_M * ROW_BATCHES; ++i) {
            UNROLL for (int v = 0; v < BATCH_FRAGMENTS * 4; ++v) values[v] =
                sum_or_zero(sums[i / ROW_BATCHES], i % ROW_BATCHES * BATCH_FRAGMENTS * 4 + v);
            boxes.template finish<FEW_OPERATIONS && EPILOGUE_CODES != EPILOGUE_NONE>(i, values);
        }
    } else {
        ROLLED for (int i = 0; i < TILES_M * ROW_BATCHES; ++i) {
            take_batch<ROW_BATCHES>(sums, i, values);
            prefetch_next<ROW_BATCHES>(params, tile, boxes.row, i);
            boxes.template finish<true>(i, values);
        }
    }
}
