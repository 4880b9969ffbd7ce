// Assigns outputs to threads; cells of x and how they are combined.
#pragma once
#include "unrolled.cuh"
#include "window_tile.cuh"

constexpr int CHANNELS = A_VECTOR / (int)sizeof(IN_TYPE); // of a thread
constexpr int CHANNEL_THREADS = BLOCK_C / CHANNELS, COLUMN_THREADS = BLOCK_W / THREAD_W,
              ROW_THREADS = BLOCK_H / THREAD_H;
constexpr int PLACES = CHANNEL_THREADS * COLUMN_THREADS * ROW_THREADS;
constexpr int THREADS = SPLIT * PLACES;
constexpr int OUTPUTS = THREAD_H * THREAD_W * CHANNELS; // of a thread: rows, columns, channels

enum { MULTIPLY, AVERAGE, MAXIMUM };

// A thread's first output. `inside`: its channel and image exist. Its row and column may be past the end of y.
struct Spot {
    i32 image, row, column, channel;
    bool inside;
};

// Finds the tile of the block and the outputs of a thread in it. The innermost axis in memory varies fastest among
// blocks, so blocks that run together share rows and columns of x in the L2 cache.
DEVICE Spot find_spot(const Sliding &sliding, int place) {
    const u32 tiles_w = tiles(sliding.output[1], BLOCK_W), tiles_h = tiles(sliding.output[0], BLOCK_H);
    const u32 block = (u32)block_index(), tiles_c = CHANNELS_LAST ? tiles(sliding.channels, BLOCK_C) : 1;
    // A run-time division costs twenty instructions: remainders are computed from quotients.
    const u32 tile = block / tiles_c;
    const i32 first_c = (i32)(block - tile * tiles_c) * BLOCK_C;
    const u32 row_of_tiles = tile / tiles_w, image = row_of_tiles / tiles_h;
    Spot spot;
    int column, row;
    bool edge_c;
    if constexpr (CHANNELS_LAST) {
        column = place / CHANNEL_THREADS % COLUMN_THREADS, row = place / (CHANNEL_THREADS * COLUMN_THREADS);
        spot.channel = first_c + place % CHANNEL_THREADS * CHANNELS;
        spot.inside = within(spot.channel, sliding.channels);
        spot.image = (i32)image;
        edge_c = first_c + BLOCK_C > sliding.channels;
    } else {
        const i32 first = (i32)image * BLOCK_C, plane = first + place / (COLUMN_THREADS * ROW_THREADS);
        column = place % COLUMN_THREADS, row = place / COLUMN_THREADS % ROW_THREADS;
        spot.image = (i32)((u32)plane / (u32)sliding.channels);
        spot.channel = plane - spot.image * sliding.channels;
        spot.inside = within(spot.image, sliding.images);
        edge_c = (i64)first + BLOCK_C > (i64)sliding.images * sliding.channels;
    }
    spot.column = (i32)(tile - row_of_tiles * tiles_w) * BLOCK_W;
    spot.row = (i32)(row_of_tiles - image * tiles_h) * BLOCK_H;
    cover_tile(sliding.output, spot.row, spot.column, edge_c);
    spot.column += column * THREAD_W, spot.row += row * THREAD_H;
    return spot;
}

// ---- cells: CHANNELS elements of x at one position

using Cell = Vec<A_VECTOR>;

// Register number `word` of a vector of T whose elements are all the least value of T.
template <class T>
DEVICE u32 lowest_word(int word) {
    if constexpr (same_type<T, half_t>)
        return 0xfc00fc00u;
    else if constexpr (same_type<T, bfloat16_t>)
        return 0xff80ff80u;
    else if constexpr (same_type<T, float>)
        return 0xff800000u;
    else if constexpr (same_type<T, double>)
        return word % 2 ? 0xfff00000u : 0u;
    else
        return 0x80808080u;
}

// Loads a cell. Padding is zero, or the least value where the operation is a maximum.
DEVICE Cell load_cell(gptr<IN_TYPE> from, bool inside) {
    Cell cell = load_global<A_VECTOR>(from, inside);
    if (OPERATION == MAXIMUM)
        UNROLL for (int i = 0; i < Cell::WORDS; ++i) cell.word[i] = inside ? cell.word[i] : lowest_word<IN_TYPE>(i);
    return cell;
}

DEVICE gptr<IN_TYPE> plane_of(const Params &params, const Spot &spot) {
    const i64 channel = CHANNELS_LAST ? spot.channel : spot.channel * params.sliding.channel;
    return gptr<IN_TYPE>(params.a) + (spot.image * params.sliding.image + channel);
}

DEVICE i64 column_stride(const Sliding &sliding) {
    return CHANNELS_LAST ? sliding.column : 1;
}

// First row and column of x under the thread's outputs.
struct Corner {
    i32 row, column;
};
DEVICE Corner corner_of(const Sliding &sliding, i32 row, i32 column, i32 step_h, i32 step_w) {
    return Corner{row * step_h - sliding.pad[0], column * step_w - sliding.pad[1]};
}

#if WINDOW
constexpr int WINDOW_R = WINDOW / 1000, WINDOW_S = WINDOW / 100 % 10;
constexpr int STEP_H = WINDOW / 10 % 10, STEP_W = WINDOW % 10;
#endif

// ---- the reduction

// The result of no cells.
DEVICE ACC_TYPE initial_value() {
    if constexpr (OPERATION != MAXIMUM) {
        return ACC_TYPE(0);
    } else {
        Cell cell;
        UNROLL for (int i = 0; i < Cell::WORDS; ++i) cell.word[i] = lowest_word<IN_TYPE>(i);
        return convert<ACC_TYPE>(cell.get<IN_TYPE>(0));
    }
}

DEVICE i32 max_(i32 a, i32 b) {
    return a < b ? b : a;
}
DEVICE float multiply_add(float a, float b, float sum) {
    return fma_(a, b, sum);
}
DEVICE double multiply_add(double a, double b, double sum) {
    return fma_(a, b, sum);
}
DEVICE i32 multiply_add(i32 a, i32 b, i32 sum) {
    return (i32)((u32)a * (u32)b + (u32)sum); // signed overflow would be undefined
}

// Joins two partial results.
DEVICE ACC_TYPE combine(ACC_TYPE a, ACC_TYPE b) {
    if constexpr (OPERATION == MAXIMUM)
        return max_(a, b);
    else
        return a + b;
}
