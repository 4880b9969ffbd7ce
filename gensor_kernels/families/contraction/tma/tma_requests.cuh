// Which boxes of A and B the steps of a tile need: boxes of matrices, or with A_WINDOW or B_WINDOW the pixels of an
// image under one tap of a filter, and the filters' elements of that tap. A tap has whole steps: after its last channel
// copies read zeros of both operands.
#pragma once
#include "shared_rows.cuh"
#include "tma_tiles.cuh"

// The first column of a tile that this block requests: each block of a pair requests half of the columns, or with GATE
// all columns of one matrix.
DEVICE i32 first_own_column() {
    return PAIR && !GATE ? rank_in_cluster() * (BLOCK_N / 2) : 0;
}

// A tile's part of k.
struct Steps {
    i32 first, count;
};

#if A_WINDOW || B_WINDOW
template <bool FIRST, class A, class B>
struct Conditional {
    using Type = A;
};
template <class A, class B>
struct Conditional<false, A, B> {
    using Type = B;
};

constexpr bool PIXELS_ARE_ROWS = A_WINDOW != WINDOW_NONE;
using ImageTile = Conditional<PIXELS_ARE_ROWS, TileA, TileB>::Type;
using FilterTile = Conditional<PIXELS_ARE_ROWS, TileB, TileA>::Type;
// Where both tiles begin in a buffer, and how many blocks need the same pixels.
constexpr int IMAGE_AT = PIXELS_ARE_ROWS ? 0 : TileA::BYTES, FILTERS_AT = PIXELS_ARE_ROWS ? TileA::BYTES : 0;
constexpr int SHARING = PIXELS_ARE_ROWS ? CLUSTER_N : CLUSTER_M;

// The window of an image as copies read it, channels last. With PARTS, along an axis with one tap, the image consists
// of what outputs read (divided_image.cuh).
DEVICE decltype(auto) copied_window(const Params &params) {
    if constexpr (PARTS == 1) {
        return window_of(params);
    } else {
        Window window = params.window;
        // The outermost digit of k: rows of the filter, or channels where these come first.
        const i32 outer = params.k / (window.ks[0] * window.ks[1]);
        const i32 taps[2] = {PIXELS_ARE_ROWS ? outer : window.ks[0], window.ks[PIXELS_ARE_ROWS ? 0 : 1]};
        window.ks[1] = PIXELS_ARE_ROWS ? window.ks[1] : outer > 0 ? outer : 1;
        window.ks[0] = taps[1];
        if (taps[0] == 1)
            cover("one_row");
        if (taps[1] == 1)
            cover("one_column");
        UNROLL for (int i = 0; i < 2; ++i) {
            if (taps[i] == 1)
                window.extent[i] = window.rows[i], window.step[i] = 1, window.pad[i] = 0;
        }
        return window;
    }
}

DEVICE i32 steps_per_tap(const Window &window) {
    return divide_up(window.ks[1], BLOCK_K);
}

DEVICE Steps steps_of(const Params &params, const Tile &tile) {
    // Without channels the digit that counts them is 1, and k is 0.
    const Window &window = copied_window(params);
    const i32 all = depth_of(params).all / window.ks[1] * steps_per_tap(window);
    const i32 part = divide_up(all, params.split), first = tile.part * part;
    return Steps{first, at_least_none(minimum(part, all - first))};
}

// The coordinates of the boxes of the next step.
struct Requests {
    const MappedParams &params;
    decltype(copied_window(params)) window; // a reference into Params, or a window made from it
    i32 pixel[4];                           // channel, column, row and image of the first pixel under the first tap
    i32 tap_offset[2];                      // columns and rows from there to the pixel under this step's tap
    i32 filters[5];                         // in the order of their map's axes: channel and filter, tap, group
    i32 column;                             // of the tap

    static constexpr int CHANNEL = FilterTile::K_CONTIGUOUS ? 0 : 1;

    MEMBER Requests(const MappedParams &given, const Tile &tile, i32 first)
        : params(given), window(copied_window(given)) {
        const i32 tap = first / steps_per_tap(window), channel = first % steps_per_tap(window) * BLOCK_K;
        const i32 own_column = tile.column + first_own_column();
        const i32 pixels = PIXELS_ARE_ROWS ? tile.row : own_column;
        const i32 filter = PIXELS_ARE_ROWS ? own_column : tile.row;
        const Digits at = Digits::of(pixels + ImageTile::first_fetched_row(), window.rows);
        column = tap % window.ks[0];
        // Pixels that are columns belong to one batch entry: one group of an image, or with ALL_IMAGES of all images.
        const i32 images = ALL_IMAGES ? params.n / (window.rows[0] * window.rows[1]) : 1;
        pixel[0] = channel, pixel[3] = at.outer + (PIXELS_ARE_ROWS ? 0 : tile.entry * images);
        pixel[1] = at.inner * window.step[1] - window.pad[1], pixel[2] = at.middle * window.step[0] - window.pad[0];
        tap_offset[0] = column * window.dilation[1], tap_offset[1] = tap / window.ks[0] * window.dilation[0];
        filters[CHANNEL] = channel, filters[1 - CHANNEL] = filter, filters[2] = tap;
        filters[3] = PIXELS_ARE_ROWS ? 0 : tile.batch.index[2], filters[4] = 0;
        filters[1] += FilterTile::first_fetched_row();
    }

    MEMBER void request(sptr<u8> slot, sptr<u64> full) {
        if (pixel[0] + BLOCK_K > window.ks[1])
            cover("partial_tap");
        // The parts of a pixel, or of a filter's tap, follow one another, each padded to whole steps.
        const i32 box_step = PARTS > 1 ? steps_per_tap(window) * BLOCK_K : UNIT;
        const TensorMap &image_map = params.map[PIXELS_ARE_ROWS ? MAP_A : MAP_B];
        const TensorMap &filter_map = params.map[PIXELS_ARE_ROWS ? MAP_B : MAP_A];
        UNROLL for (int box = 0; box < ImageTile::BOXES; ++box) {
            const sptr<u8> to = slot + (IMAGE_AT + box * ImageTile::BOX_BYTES + ImageTile::first_fetched_row() * 128);
#if PAIR
            copy_pixels_of_pair(to, image_map, pixel, tap_offset, full);
#else
            if constexpr (SHARING > 1)
                copy_pixels(to, image_map, pixel, tap_offset, full, ALL_PEERS);
            else
                copy_pixels(to, image_map, pixel, tap_offset, full);
#endif
            pixel[0] += box_step;
        }
        pixel[0] += BLOCK_K - ImageTile::BOXES * box_step;
        FilterTile::request(slot + FILTERS_AT, filter_map, filters, full, box_step);
        if (!within(pixel[0], window.ks[1]))
            next_tap();
    }

    MEMBER void next_tap() {
        pixel[0] = 0, filters[CHANNEL] = FilterTile::K_CONTIGUOUS ? 0 : FilterTile::first_fetched_row();
        ++filters[2], ++column, tap_offset[0] += window.dilation[1];
        if (!within(column, window.ks[0])) {
            cover("next_filter_row");
            column = tap_offset[0] = 0;
            tap_offset[1] += window.dilation[0];
        }
    }
};

#else
DEVICE Steps steps_of(const Params &, const Tile &tile) {
    if (RAGGED_ROWS && tile.row == tile.end)
        return Steps{0, 0}; // a spare tile
    return Steps{tile.k_begin / BLOCK_K, divide_up(at_least_none(tile.k_end - tile.k_begin), BLOCK_K)};
}

// Requests the same tile of the gate and of the other matrix: each has one half of every box, or one half of the boxes.
DEVICE void request_gate(sptr<u8> tile, const TensorMap &gate, const TensorMap &other, i32 (&at)[5], sptr<u64> full) {
    constexpr int BOXES = TileB::K_CONTIGUOUS ? TileB::BOXES : TileB::BOXES / 2;
    constexpr int TO_OTHER = TileB::K_CONTIGUOUS ? COLUMNS * 128 : BOXES * TileB::BOX_BYTES;
    UNROLL for (int box = 0; box < BOXES; ++box) {
        copy_tensor(tile + box * TileB::BOX_BYTES, gate, at, full);
        copy_tensor(tile + (box * TileB::BOX_BYTES + TO_OTHER), other, at, full);
        at[0] += UNIT;
    }
    at[0] -= BOXES * UNIT;
    at[TileB::K_CONTIGUOUS ? 0 : 1] += BLOCK_K;
}

// The coordinates of the boxes of the next step, in the order of the maps' axes.
struct Requests {
    const MappedParams &params;
    i32 a_at[5], b_at[5];

    MEMBER Requests(const MappedParams &given, const Tile &tile, i32) : params(given) {
        const i32 column = tile.column + first_own_column();
        locate_tile(a_at, TileA::K_CONTIGUOUS, tile.row, tile.k_begin, tile.batch, params.a_batch);
        locate_tile(b_at, TileB::K_CONTIGUOUS, column, tile.k_begin, tile.batch, params.b_batch);
        a_at[1] += TileA::first_fetched_row(), b_at[1] += TileB::first_fetched_row();
    }
    MEMBER void request(sptr<u8> slot, sptr<u64> full) {
        // The parts of an operand follow one another along k, each padded to whole steps.
        const i32 box_step = PARTS > 1 ? divide_up(params.k, BLOCK_K) * BLOCK_K : UNIT;
        TileA::request(slot, params.map[MAP_A], a_at, full, box_step);
        if constexpr (PAIR)
            TileB::request(slot + TileA::BYTES, params.map[GATE ? MAP_B + rank_in_cluster() : MAP_B], b_at, full,
                           box_step);
        else if constexpr (GATE)
            request_gate(slot + TileA::BYTES, params.map[MAP_B], params.map[MAP_B + 1], b_at, full);
        else
            TileB::request(slot + TileA::BYTES, params.map[MAP_B], b_at, full, box_step);
    }
};
#endif
