// Which boxes of A and B the steps of a tile take: those of plain matrices, or with A_WINDOW or B_WINDOW pixels of an
// image, each moved by one tap of a filter, and what the filters hold of that tap. A tap has whole steps: behind its
// last channel copies bring zeros of both.
#pragma once
#include "shared_rows.cuh"
#include "wgmma_ring.cuh"

// A tile's part of k.
struct Steps {
    i32 first, count;
};

#if A_WINDOW || B_WINDOW
constexpr bool PIXELS_ARE_ROWS = A_WINDOW != WINDOW_NONE;

#if PARTS > 1
// The window of an image as it is copied, channels last: along an axis with one tap, what outputs read
// (divided_image.cuh).
DEVICE Window copied_window(const Params &params) {
    Window window = params.window;
    // Behind two digits of k there are rows of the filter, or channels where these came first.
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
#else
DEVICE decltype(auto) copied_window(const Params &params) {
    return window_of(params);
}
#endif

template <bool OF_A>
struct Roles {
    using Image = TileA;
    using Filters = TileB;
};
template <>
struct Roles<false> {
    using Image = TileB;
    using Filters = TileA;
};
using ImageTile = Roles<PIXELS_ARE_ROWS>::Image;
using FilterTile = Roles<PIXELS_ARE_ROWS>::Filters;
// Where they lie in a buffer, and how many blocks have the same pixels.
constexpr int IMAGE_AT = PIXELS_ARE_ROWS ? 0 : TileA::BYTES, FILTERS_AT = PIXELS_ARE_ROWS ? TileA::BYTES : 0;
constexpr int SHARING = PIXELS_ARE_ROWS ? CLUSTER_N : CLUSTER_M;

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

struct Requests {
    const MappedParams &params;
    decltype(copied_window(params)) window; // in Params, or made from what is there
    i32 pixel[4];                           // channel; column, row and image of the first pixel under the first tap
    i32 moved[2];                           // columns and rows from there to the tap of this step
    i32 filters[5];                         // in the order of their map's axes: channel and filter, tap, group
    i32 column;                             // of the tap

    static constexpr int CHANNEL = FilterTile::K_CONTIGUOUS ? 0 : 1;

    MEMBER Requests(const MappedParams &given, const Tile &tile, i32 first)
        : params(given), window(copied_window(given)) {
        const i32 tap = first / steps_per_tap(window), channel = first % steps_per_tap(window) * BLOCK_K;
        const i32 pixels = PIXELS_ARE_ROWS ? tile.row : tile.column, own = PIXELS_ARE_ROWS ? tile.column : tile.row;
        const Digits at = Digits::of(pixels + ImageTile::fetched(), window.rows);
        column = tap % window.ks[0];
        // As columns, pixels are those of one batch entry: of one image, and group.
        pixel[0] = channel, pixel[3] = at.outer + (PIXELS_ARE_ROWS ? 0 : tile.entry);
        pixel[1] = at.inner * window.step[1] - window.pad[1], pixel[2] = at.middle * window.step[0] - window.pad[0];
        moved[0] = column * window.dilation[1], moved[1] = tap / window.ks[0] * window.dilation[0];
        filters[CHANNEL] = channel, filters[1 - CHANNEL] = own, filters[2] = tap;
        filters[3] = PIXELS_ARE_ROWS ? 0 : tile.batch.index[2], filters[4] = 0;
        filters[1] += FilterTile::fetched();
    }

    MEMBER void request(sptr<u8> slot, sptr<u64> full) {
        if (pixel[0] + BLOCK_K > window.ks[1])
            cover("partial_tap");
        // The parts of a pixel, or of a filter's tap, lie one behind the other, each padded to whole steps.
        const i32 apart = PARTS > 1 ? steps_per_tap(window) * BLOCK_K : UNIT;
        const TensorMap &image_map = PIXELS_ARE_ROWS ? params.a_map : params.b_map;
        const TensorMap &filter_map = PIXELS_ARE_ROWS ? params.b_map : params.a_map;
        UNROLL for (int box = 0; box < ImageTile::BOXES; ++box) {
            const sptr<u8> to = slot + (IMAGE_AT + box * ImageTile::BOX_BYTES + ImageTile::fetched() * 128);
            if constexpr (SHARING > 1)
                copy_pixels(to, image_map, pixel, moved, full, ALL_PEERS);
            else
                copy_pixels(to, image_map, pixel, moved, full);
            pixel[0] += apart;
        }
        pixel[0] += BLOCK_K - ImageTile::BOXES * apart;
        FilterTile::request(slot + FILTERS_AT, filter_map, filters, full, apart);
        if (!within(pixel[0], window.ks[1]))
            next_tap();
    }

    MEMBER void next_tap() {
        pixel[0] = filters[CHANNEL] = 0;
        ++filters[2], ++column, moved[0] += window.dilation[1];
        if (!within(column, window.ks[0])) {
            cover("next_filter_row");
            column = moved[0] = 0;
            moved[1] += window.dilation[0];
        }
    }
};

#else
DEVICE Steps steps_of(const Params &, const Tile &tile) {
    if (RAGGED_ROWS && tile.row == tile.end)
        return Steps{0, 0}; // a spare tile
    return Steps{tile.k_begin / BLOCK_K, divide_up(at_least_none(tile.k_end - tile.k_begin), BLOCK_K)};
}

// Where the first tile of an operand lies: along the unit stride, across it, and in the batch, where an axis whose
// stride is 0 has one entry only.
DEVICE void first_box(i32 (&at)[5], bool k_contiguous, i32 first, i32 k, const Batch &batch, const i64 (&stride)[3]) {
    at[0] = k_contiguous ? k : first;
    at[1] = k_contiguous ? first : k;
    UNROLL for (int i = 0; i < 3; ++i) at[2 + i] = stride[2 - i] == 0 ? 0 : batch.index[2 - i];
}

// The same tile of the gate and of the other matrix, side by side: each one's share of every box, or its own boxes.
DEVICE void request_both(sptr<u8> tile, const TensorMap &gate, const TensorMap &other, i32 (&at)[5], sptr<u64> full) {
    constexpr int BOXES = TileB::K_CONTIGUOUS ? TileB::BOXES : TileB::BOXES / 2;
    constexpr int BEHIND = TileB::K_CONTIGUOUS ? COLUMNS * 128 : BOXES * TileB::BOX_BYTES;
    UNROLL for (int box = 0; box < BOXES; ++box) {
        copy_tensor(tile + box * TileB::BOX_BYTES, gate, at, full);
        copy_tensor(tile + (box * TileB::BOX_BYTES + BEHIND), other, at, full);
        at[0] += UNIT;
    }
    at[0] -= BOXES * UNIT;
    at[TileB::K_CONTIGUOUS ? 0 : 1] += BLOCK_K;
}

struct Requests {
    const MappedParams &params;
    i32 a_at[5], b_at[5];

    MEMBER Requests(const MappedParams &given, const Tile &tile, i32) : params(given) {
        first_box(a_at, TileA::K_CONTIGUOUS, tile.row, tile.k_begin, tile.batch, params.a_batch);
        first_box(b_at, TileB::K_CONTIGUOUS, tile.column, tile.k_begin, tile.batch, params.b_batch);
        a_at[1] += TileA::fetched(), b_at[1] += TileB::fetched();
    }
    MEMBER void request(sptr<u8> slot, sptr<u64> full) {
        // The parts of an operand lie one behind the other along k, each padded to whole steps.
        const i32 apart = PARTS > 1 ? divide_up(params.k, BLOCK_K) * BLOCK_K : UNIT;
        TileA::request(slot, params.a_map, a_at, full, apart);
#if GATE
        request_both(slot + TileA::BYTES, params.b_map, params.other_map, b_at, full);
#else
        TileB::request(slot + TileA::BYTES, params.b_map, b_at, full, apart);
#endif
    }
};
#endif

// The elected thread requests every step's tiles as buffers become free. Where groups have different rows, the others
// of its warp are there to find the tile's group.
DEVICE void produce(const MappedParams &params, const Tile &tile, Turn &turn, bool requests_tiles) {
    if (!requests_tiles)
        return;
    const Steps steps = steps_of(params, tile);
    Requests requests(params, tile, steps.first);
    for (int step = 0; within(step, steps.count); ++step) {
        if (step >= STAGES)
            cover("refill");
        mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
        mbarrier_expect(full(turn.slot), SLOT_BYTES);
        requests.request(tiles(turn.slot), full(turn.slot));
        turn.next();
    }
}
