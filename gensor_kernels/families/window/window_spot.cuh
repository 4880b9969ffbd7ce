// Where a thread of the window family works, and how it reads x.
#pragma once
#include "epilogue.cuh"
#include "unrolled.cuh"

constexpr int CHANNELS = A_VECTOR / (int)sizeof(IN_TYPE); // of a thread
constexpr int CHANNEL_THREADS = BLOCK_C / CHANNELS, COLUMN_THREADS = BLOCK_W / THREAD_W,
              ROW_THREADS = BLOCK_H / THREAD_H;
constexpr int PLACES = CHANNEL_THREADS * COLUMN_THREADS * ROW_THREADS;
constexpr int THREADS = SPLIT * PLACES;
constexpr int OUTPUTS = THREAD_H * THREAD_W * CHANNELS; // of a thread: rows, columns, channels

enum { MULTIPLY, AVERAGE, MAXIMUM };

// A thread's first output. `inside`: there is such a channel of such an image; rows and columns may lie beyond y.
struct Spot {
    i32 image, row, column, channel;
    bool inside;
};

DEVICE u32 tiles(i32 extent, int block) {
    return ((u32)extent + (u32)block - 1) / (u32)block;
}

DEVICE void cover_tile(const Sliding &sliding, i32 row, i32 column, bool edge_c) {
    const bool edge_h = row + BLOCK_H > sliding.output[0], edge_w = column + BLOCK_W > sliding.output[1];
    if (edge_c)
        cover("edge_c");
    if (edge_h)
        cover("edge_h");
    if (edge_w)
        cover("edge_w");
    if (!edge_c && !edge_h && !edge_w)
        cover("full_tile");
}

// Block number -> tile: what is innermost in memory varies fastest, so that blocks that run together share the rows
// and columns between their tiles in the L2 cache.
DEVICE Spot spot_of(const Sliding &sliding, int place) {
    const u32 across = tiles(sliding.output[1], BLOCK_W), down = tiles(sliding.output[0], BLOCK_H);
    u32 block = (u32)block_index(); // run-time divisions cost twenty instructions each: none is done twice
    Spot spot;
#if CHANNELS_LAST
    const u32 deep = tiles(sliding.channels, BLOCK_C);
    const u32 tile = block / deep;
    const i32 first = (i32)(block - tile * deep) * BLOCK_C;
    const u32 row_of_tiles = tile / across, image = row_of_tiles / down;
    const int column = place / CHANNEL_THREADS % COLUMN_THREADS, row = place / (CHANNEL_THREADS * COLUMN_THREADS);
    spot.channel = first + place % CHANNEL_THREADS * CHANNELS;
    spot.inside = within(spot.channel, sliding.channels);
    spot.image = (i32)image;
    const bool edge_c = first + BLOCK_C > sliding.channels;
#else
    const u32 tile = block, row_of_tiles = tile / across, image = row_of_tiles / down;
    const i32 first = (i32)image * BLOCK_C;
    const i32 plane = first + place / (COLUMN_THREADS * ROW_THREADS);
    const int column = place % COLUMN_THREADS, row = place / COLUMN_THREADS % ROW_THREADS;
    spot.image = (i32)((u32)plane / (u32)sliding.channels);
    spot.channel = plane - spot.image * sliding.channels;
    spot.inside = within(spot.image, sliding.images);
    const bool edge_c = (i64)first + BLOCK_C > (i64)sliding.images * sliding.channels;
#endif
    spot.column = (i32)(tile - row_of_tiles * across) * BLOCK_W;
    spot.row = (i32)(row_of_tiles - image * down) * BLOCK_H;
    cover_tile(sliding, spot.row, spot.column, edge_c);
    spot.column += column * THREAD_W, spot.row += row * THREAD_H;
    return spot;
}

// ---- cells: CHANNELS elements of x at one position

using Cell = Vec<A_VECTOR>;

// The bits of the least value of a type, repeated to a register.
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

// Padding is zero, or the least value under a maximum.
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

DEVICE ACC_TYPE initial() {
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
    return (i32)((u32)a * (u32)b + (u32)sum); // wraps around instead of being undefined
}

// Joins two partial results.
DEVICE ACC_TYPE combine(ACC_TYPE a, ACC_TYPE b) {
    if constexpr (OPERATION == MAXIMUM)
        return max_(a, b);
    else
        return a + b;
}
