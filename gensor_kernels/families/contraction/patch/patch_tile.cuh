// The outputs that a block of the patch family computes, and the pixels of the image that they read.
#pragma once
#include "contraction.cuh"
#include "shared_rows.cuh"

constexpr int ELEMENT = (int)sizeof(IN_TYPE);
constexpr int PLANES = BLOCK_K * ELEMENT / 16, EACH = 16 / ELEMENT; // planes of EACH channels: 16 bytes

// Sizes that are the same for all blocks. Pairs are along h and w. Along an axis with one tap, the patch leaves out the
// pixels that no output reads.
struct Patch {
    i32 tall, wide;   // outputs of a tile, along h and w; RUN may be wider than a row of the output
    i32 runs;         // tiles in a row of the output
    i32 taps, across; // taps of a filter, and of one of its rows
    i32 step[2];      // positions of the patch from output to output
    i32 gap[2];       // pixels of the image from position to position
    i32 apart[2];     // positions from tap to tap
    i32 extent[2];    // positions of the patch

    MEMBER explicit Patch(const Params &params) {
        const Window &window = params.window;
        wide = RUN > 0 ? RUN : minimum(window.rows[1], BLOCK_N), runs = divide_up(window.rows[1], wide);
        // As many rows as fit, distributed evenly over the tiles.
        tall = divide_up(window.rows[0], divide_up(window.rows[0], BLOCK_N / wide));
        taps = TAPS > 0 ? TAPS : window.ks[0] * window.ks[1], across = window.ks[1];
        UNROLL for (int i = 0; i < 2; ++i) {
            const bool one = window.ks[i] == 1;
            step[i] = one ? 1 : window.step[i], gap[i] = one ? window.step[i] : 1, apart[i] = window.dilation[i];
            extent[i] = ((i == 0 ? tall : wide) - 1) * step[i] + (window.ks[i] - 1) * apart[i] + 1;
        }
    }
    MEMBER i32 pixels() const { return extent[0] * extent[1]; }
    MEMBER i32 image_bytes() const { return PLANES * 16 * pixels(); }
    // Bytes from filter to filter: an odd number of 16-byte chunks, so that neighbours use different banks.
    MEMBER i32 pitch() const { return PLANES * 16 * taps + 16; }
    // Bytes of the copied filters, and of copied and arranged filters; one or two stages of the image follow them.
    MEMBER i32 copied_bytes() const { return BLOCK_M * pitch(); }
    MEMBER i32 filter_bytes() const { return copied_bytes() + BLOCK_M * PLANES * 16 * taps; }
};

struct PatchTile {
    Tile tile;
    i32 tall, wide; // its outputs inside C, along h and w
    i32 row;        // columns of C from row to row of the output
    i32 origin[2];  // row and column of the image at its first position; they may be negative
};

DEVICE PatchTile patch_tile(const Params &params, const Patch &patch, const Tile &tile) {
    const Window &window = params.window;
    PatchTile own;
    own.tile = tile;
    const i32 number = own.tile.column / BLOCK_N;
    const i32 h = number / patch.runs * patch.tall, w = number % patch.runs * patch.wide;
    own.tall = minimum(patch.tall, window.rows[0] - h), own.wide = minimum(patch.wide, window.rows[1] - w);
    own.row = window.rows[1];
    if (patch.runs > 1)
        cover("runs");
    else
        cover("bands");
    if (own.tall * own.wide < patch.tall * patch.wide)
        cover("cut");
    own.tile.column = h * window.rows[1] + w;
    own.origin[0] = h * window.step[0] - window.pad[0], own.origin[1] = w * window.step[1] - window.pad[1];
    return own;
}
