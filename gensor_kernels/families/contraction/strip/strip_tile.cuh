// The outputs that a block of the strip family computes, and the lines of the image that they read.
#pragma once
#include "contraction.cuh"
#include "shared_rows.cuh"
#include "unrolled.cuh"

constexpr int BLOCK_P = PIXEL_ROWS ? BLOCK_M : BLOCK_N, BLOCK_F = PIXEL_ROWS ? BLOCK_N : BLOCK_M;
constexpr int WARP_P = PIXEL_ROWS ? WARP_M : WARP_N, WARP_F = PIXEL_ROWS ? WARP_N : WARP_M;
constexpr int ELEMENT = (int)sizeof(IN_TYPE), EIGHT = 8; // elements in 16 bytes
constexpr int WINDOW_ROWS = LINES / PLANES;
constexpr int K_STEPS = divide_up(LINES * OCTETS, 2);

// Outputs per store, and the number of fragments that share a store: each adds 2 adjacent columns of a lane.
constexpr int WIDTH = C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1, TOGETHER = WIDTH > 1 ? WIDTH / 2 : 1;

// Whether outputs are rows of fragments, and the fragments of a warp, of 16 rows and 8 columns each.
constexpr bool OUTPUTS_DOWN = PIXEL_ROWS || WIDTH == 1;
constexpr int FRAGMENTS_M = (OUTPUTS_DOWN ? WARP_P : WARP_F) / 16, FRAGMENTS_N = (OUTPUTS_DOWN ? WARP_F : WARP_P) / 8;

// Maps a column of fragment number `fragment` to its column of C, and a column of C to its column of all fragments.
DEVICE constexpr int column_of(int fragment, int column) {
    return fragment / TOGETHER * (8 * TOGETHER) + column / 2 * (2 * TOGETHER) + fragment % TOGETHER * 2 + column % 2;
}
DEVICE constexpr int fragment_column_of(int column) {
    const int in_run = column % (2 * TOGETHER), run = column % (8 * TOGETHER) / (2 * TOGETHER);
    return column / (8 * TOGETHER) * (8 * TOGETHER) + in_run / 2 * 8 + run * 2 + in_run % 2;
}

// Sizes and strides that are the same for all blocks.
struct Strip {
    gptr<IN_TYPE> source;
    i64 image, row, plane;  // strides of the image, in elements
    i32 wide, tall;         // outputs of a tile, along w and h
    i32 runs, bands;        // tiles of an image's output, along w and h
    i32 pixel_tiles, tiles; // tiles of all images; the same times the tiles of filters
    i32 unit;               // elements of a line from column to column
    i32 segment, lead;      // elements of a segment; positions before it, 0 or 1
    i32 across, down;       // from output to output: in elements of a line, and in lines
    i32 elements;           // elements of a line in the image
    i32 lines, pitch;       // lines of a tile, and bytes from one to the next
    i32 access;             // bytes that can be copied at once

    MEMBER explicit Strip(const Params &params) {
        const Window &window = params.window;
        source = gptr<IN_TYPE>(PIXEL_ROWS ? params.a : params.b);
        image = window.row_stride[0], row = PIXEL_ROWS ? params.a_m : params.b_k;
        plane = CHANNELS_LAST ? 0 : window.k_stride[0];
        wide = minimum(window.rows[1], BLOCK_P), runs = divide_up(window.rows[1], wide);
        // As many rows as fit, distributed evenly over the tiles.
        tall = divide_up(window.rows[0], divide_up(window.rows[0], BLOCK_P / wide));
        bands = divide_up(window.rows[0], tall);
        const i32 images = PIXEL_ROWS ? params.m / (window.rows[0] * window.rows[1]) : params.batch;
        pixel_tiles = images * bands * runs;
        tiles = pixel_tiles * divide_up(PIXEL_ROWS ? params.n : params.m, BLOCK_F);
        unit = CHANNELS_LAST ? window.ks[1] : 1;
        segment = (CHANNELS_LAST ? window.ks[0] : window.ks[1]) * unit, lead = window.pad[1] * unit & 1;
        across = window.step[1] * unit, down = window.step[0] * PLANES;
        elements = window.extent[1] * unit;
        lines = (tall - 1) * down + LINES;
        pitch = divide_up(EIGHT - 1 + (wide - 1) * across + OCTETS * EIGHT, EIGHT) * 16;
        const u64 alignment = source.address | (u64)((image | row | plane | elements) * ELEMENT);
        access = alignment % 16 == 0 ? 16 : alignment % 8 == 0 ? 8 : alignment % 4 == 0 ? 4 : ELEMENT;
    }
    MEMBER i32 bytes() const { return lines * pitch; }
};

struct StripTile {
    Tile tile;          // only its row and column of C and its batch entry are set
    i32 end;            // end of its outputs, in rows or columns of C
    i32 filter, image;  // the first filter, the image
    i32 first, element; // row of the image of the first line, and element at which lines begin; may be negative
    i32 slack;          // bytes from the beginning of a line to the first output's segment
};

DEVICE StripTile strip_tile(const Params &params, const Strip &strip, i32 number) {
    const Window &window = params.window;
    const i32 image_tiles = strip.bands * strip.runs, inner = number % strip.pixel_tiles;
    const i32 h = inner % image_tiles / strip.runs * strip.tall, w = inner % image_tiles % strip.runs * strip.wide;
    const i32 tall = minimum(strip.tall, window.rows[0] - h), wide = minimum(strip.wide, window.rows[1] - w);
    if (strip.runs > 1)
        cover("runs");
    else
        cover("bands");
    if (tall * wide < strip.tall * strip.wide)
        cover("cut");
    StripTile own = {};
    own.image = inner / image_tiles;
    own.filter = number / strip.pixel_tiles * BLOCK_F;
    i32 output = h * window.rows[1] + w;
    if constexpr (PIXEL_ROWS) {
        output += own.image * (window.rows[0] * window.rows[1]);
        own.tile.row = output, own.tile.column = own.filter;
        own.tile.batch = split_batch(params, 0);
    } else {
        own.tile.row = own.filter, own.tile.column = output;
        own.tile.batch = split_batch(params, own.image);
    }
    own.end = output + tall * wide;
    own.first = h * window.step[0] - window.pad[0];
    const i32 begin = w * strip.across - window.pad[1] * strip.unit - strip.lead;
    own.element = begin & ~(EIGHT - 1);
    own.slack = (begin - own.element) * ELEMENT;
    return own;
}
