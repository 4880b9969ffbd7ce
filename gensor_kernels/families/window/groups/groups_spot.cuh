// The groups of a call, and the assignment of outputs to threads.
#pragma once
#include "unrolled.cuh"
#include "window_tile.cuh"

constexpr int CHANNELS = A_VECTOR / (int)sizeof(IN_TYPE); // of x per load
constexpr int FILTER_THREADS = BLOCK_C / THREAD_C, COLUMN_THREADS = BLOCK_W / THREAD_W,
              ROW_THREADS = BLOCK_H / THREAD_H;
constexpr int THREADS = FILTER_THREADS * COLUMN_THREADS * ROW_THREADS;
constexpr int OUTPUTS = THREAD_W * THREAD_C; // of a row of a thread

// Both implicit products of a convolution (operators/windows/conv_product.py) describe the same call: images are the
// operand A where channels are last, else B, with their strides along rows and columns.
struct Call {
    i32 groups, filters, channels, depth; // filters, channels and elements of a filter, of one group
    i32 tiles;                            // tiles of filters of one group
    i32 window[2];
    gptr<IN_TYPE> filter;
    i64 group_stride, filter_stride, stride; // elements between groups, filters, elements of a filter

    MEMBER explicit Call(const Params &params) {
        const Window &w = params.window;
        groups = params.batch_inner[1], depth = params.k, filters = CHANNELS_LAST ? params.n : params.m;
        window[1] = w.ks[CHANNELS_LAST ? 0 : 1];
        if (CHANNELS_LAST) {
            channels = depth > 0 ? w.ks[1] : 0;
            window[0] = (i32)((u32)depth / (u32)(w.ks[0] * w.ks[1]));
        } else {
            window[0] = w.ks[0];
            channels = (i32)((u32)depth / (u32)(w.ks[0] * w.ks[1]));
        }
        tiles = (i32)((u32)(filters + THREAD_C - 1) / THREAD_C);
        filter = gptr<IN_TYPE>(CHANNELS_LAST ? params.b : params.a);
        group_stride = CHANNELS_LAST ? params.b_batch[2] : params.a_batch[2];
        filter_stride = CHANNELS_LAST ? params.b_n : params.a_m;
        stride = CHANNELS_LAST ? params.b_k : params.a_k;
    }
    // Number of an element of a filter: channels vary fastest where they are last, else slowest.
    MEMBER i32 element(i32 channel, i32 r, i32 s) const {
        return CHANNELS_LAST ? (r * window[1] + s) * channels + channel : (channel * window[0] + r) * window[1] + s;
    }
};

// A tile of filters: its group, and its first filter there.
struct Tile {
    i32 group, filter;
    bool inside;
    MEMBER Tile(const Call &call, i32 number) {
        group = (i32)((u32)number / (u32)call.tiles);
        filter = (number - group * call.tiles) * THREAD_C;
        inside = within(group, call.groups);
    }
};

// A thread's first output. Its row and column may be past the end of y.
struct Spot {
    i32 image, row, column;
    i32 first; // the block's first tile of filters
    int lane;  // the number of the thread's tile in the block
    Tile tile;
};

// Finds the tile of the block and the outputs of a thread in it. Tiles of filters vary fastest among blocks: blocks
// that run together read the same lines where channels are last, and share channels of x elsewhere.
DEVICE Spot find_spot(const Params &params, const Call &call) {
    const i32 *output = params.window.rows;
    const u32 tiles_w = tiles(output[1], BLOCK_W), tiles_h = tiles(output[0], BLOCK_H);
    const u32 tiles_c = tiles(call.groups * call.tiles, FILTER_THREADS), block = (u32)block_index();
    // A run-time division costs twenty instructions: remainders are computed from quotients.
    const u32 tile = block / tiles_c, row_of_tiles = tile / tiles_w, image = row_of_tiles / tiles_h;
    const i32 first = (i32)(block - tile * tiles_c) * FILTER_THREADS;
    const i32 column = (i32)(tile - row_of_tiles * tiles_w) * BLOCK_W,
              row = (i32)(row_of_tiles - image * tiles_h) * BLOCK_H;
    cover_tile(params.window.rows, row, column, first + FILTER_THREADS > call.groups * call.tiles);
    constexpr int PIXEL_THREADS = COLUMN_THREADS * ROW_THREADS;
    const int lane = CHANNELS_LAST ? thread_index() % FILTER_THREADS : thread_index() / PIXEL_THREADS;
    const int pixel = CHANNELS_LAST ? thread_index() / FILTER_THREADS : thread_index() % PIXEL_THREADS;
    return Spot{(i32)image, row + pixel / COLUMN_THREADS, column + pixel % COLUMN_THREADS * THREAD_W, first,
                lane,       Tile(call, first + lane)};
}
