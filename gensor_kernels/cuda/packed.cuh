// A convolution's operands as a first launch leaves them in the workspace (packed_operands.cuh): channels innermost and
// padded with zeros, the image [batch entry][image][row][column][channel], the filters [group][filter][tap][channel].
//
// PACKED says how the image lies in memory (WindowKind); 0: nothing is packed, and operands are read where they are.
#pragma once
#include "window_walk.cuh"

// Values of k: all, and those of one part of a split.
struct Depth {
    i32 all, part;
};

#if PACKED
constexpr bool PACKED_LAST = PACKED == WINDOW_CHANNELS_LAST || PACKED == WINDOW_TRANSPOSED_LAST;
constexpr bool IMAGE_IS_A = A_WINDOW != WINDOW_NONE;

// Channels of a group with their padding: whole accesses of 16 bytes, or a single one of 4 or 8.
DEVICE i32 padded_channels(i32 channels) {
    constexpr i32 SIZE = (i32)sizeof(IN_TYPE), WIDE = 16 / SIZE;
    const i32 bytes = channels * SIZE;
    return channels == 0 ? 0 : bytes <= 4 ? 4 / SIZE : bytes <= 8 ? 8 / SIZE : (channels + WIDE - 1) / WIDE * WIDE;
}

struct Packed {
    i32 channels, padded; // of a group
    i32 taps;             // of a filter
    i32 images;           // of a batch entry

    MEMBER explicit Packed(const Params &params) {
        const Window &window = params.window;
        // Without channels the digit that counts them is 1.
        const i32 inner = PACKED_LAST ? window.ks[1] : window.ks[0] * window.ks[1], outer = params.k / inner;
        channels = PACKED_LAST ? (params.k > 0 ? inner : 0) : outer;
        taps = PACKED_LAST ? outer : inner;
        padded = padded_channels(channels);
        images = IMAGE_IS_A ? params.m / (window.rows[0] * window.rows[1]) : 1;
    }
    MEMBER i64 plane(const Window &window) const { return (i64)window.extent[0] * window.extent[1] * padded; }
};

DEVICE Depth depth_of(const Params &params) {
    const Packed packed(params);
    const i32 depth = packed.taps * packed.padded, steps = (depth + BLOCK_K - 1) / BLOCK_K;
    return Depth{depth, (i32)(((u32)steps + (u32)params.split - 1) / (u32)params.split) * BLOCK_K};
}

// The window of the packed image.
DEVICE Window window_of(const Params &params) {
    const Packed packed(params);
    Window window = params.window;
    const bool divided = PACKED == WINDOW_TRANSPOSED_LAST || PACKED == WINDOW_TRANSPOSED_FIRST;
    const i64 column = packed.padded, row = window.extent[1] * column;
    window.row_stride[0] = packed.plane(window);
    window.row_stride[1] = window.step[0] * row, window.row_stride[2] = window.step[1] * column;
    window.k_stride[0] = divided ? 0 : window.dilation[0] * row;
    window.k_stride[1] = divided ? 0 : window.dilation[1] * column;
    window.k_stride[2] = 1;
    window.shift = divided ? 0 : window.pad[0] * row + window.pad[1] * column;
    window.ks[0] = params.window.ks[PACKED_LAST ? 0 : 1];
    window.ks[1] = packed.padded > 0 ? packed.padded : 1;
    return window;
}
#else
DEVICE Depth depth_of(const Params &params) {
    return Depth{params.k, params.k_per_split};
}
DEVICE const Window &window_of(const Params &params) {
    return params.window;
}
#endif
