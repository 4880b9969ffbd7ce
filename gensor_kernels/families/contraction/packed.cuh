// The layout of a convolution's operands that a first launch packs into the workspace (packed_operands.cuh). Channels
// are innermost and padded with zeros: the image is [batch entry][image][row][column][channel], the filters are
// [group][filter][tap][channel]. Along an axis with one tap, the packed image has only the rows (columns) that outputs
// read, including zeros of the padding.
//
// PACKED is the layout of the image before it is packed (WindowKind); 0: operands are not packed, but read in place.
#pragma once
#include "window_walk.cuh"

// The extent of k, and of one part of a split.
struct Depth {
    i32 all, part;
};

#if PACKED
constexpr bool PACKED_LAST = PACKED == WINDOW_CHANNELS_LAST || PACKED == WINDOW_TRANSPOSED_LAST;
constexpr bool PACKED_DIVIDED = PACKED == WINDOW_TRANSPOSED_LAST || PACKED == WINDOW_TRANSPOSED_FIRST;
constexpr bool IMAGE_IS_A = A_WINDOW != WINDOW_NONE;

// Channels of a group with padding: whole accesses of 16 bytes, or a single one of 4 or 8.
DEVICE i32 padded_channels(i32 channels) {
    constexpr i32 SIZE = (i32)sizeof(IN_TYPE), WIDE = 16 / SIZE;
    const i32 bytes = channels * SIZE;
    return channels == 0 ? 0 : bytes <= 4 ? 4 / SIZE : bytes <= 8 ? 8 / SIZE : (channels + WIDE - 1) / WIDE * WIDE;
}

struct Packed {
    i32 channels, padded; // per group, without and with padding
    i32 taps;             // per filter
    i32 images;           // per batch entry
    bool one_tap[2];      // along h and w
    i32 extent[2];        // of an image

    MEMBER explicit Packed(const Params &params) {
        const Window &window = params.window;
        // Without channels the extent of k that counts them is 1.
        const i32 inner = PACKED_LAST ? window.ks[1] : window.ks[0] * window.ks[1], outer = params.k / inner;
        channels = PACKED_LAST ? (params.k > 0 ? inner : 0) : outer;
        taps = PACKED_LAST ? outer : inner;
        padded = padded_channels(channels);
        images = (IMAGE_IS_A ? params.m : params.n) / (window.rows[0] * window.rows[1]);
        const i32 across = window.ks[PACKED_LAST ? 0 : 1];
        one_tap[0] = !PACKED_DIVIDED && taps == across, one_tap[1] = !PACKED_DIVIDED && across == 1;
        UNROLL for (int i = 0; i < 2; ++i) extent[i] = one_tap[i] ? window.rows[i] : window.extent[i];
    }
    MEMBER i64 image_elements() const { return (i64)extent[0] * extent[1] * padded; }
};

DEVICE Depth depth_of(const Params &params) {
    const Packed packed(params);
    const i32 depth = packed.taps * packed.padded, steps = (depth + BLOCK_K - 1) / BLOCK_K;
    if constexpr (STREAM)
        return Depth{depth, depth};
    return Depth{depth, (i32)(((u32)steps + (u32)params.split - 1) / (u32)params.split) * BLOCK_K};
}

// The window of the packed image.
DEVICE Window window_of(const Params &params) {
    const Packed packed(params);
    Window window = params.window;
    const i64 stride[2] = {packed.extent[1] * (i64)packed.padded, packed.padded};
    window.row_stride[0] = packed.image_elements();
    window.k_stride[2] = 1, window.shift = 0;
    UNROLL for (int i = 0; i < 2; ++i) {
        window.extent[i] = packed.extent[i];
        window.step[i] = packed.one_tap[i] ? 1 : window.step[i], window.pad[i] = packed.one_tap[i] ? 0 : window.pad[i];
        window.row_stride[1 + i] = window.step[i] * stride[i];
        window.k_stride[i] = PACKED_DIVIDED ? 0 : window.dilation[i] * stride[i];
        window.shift += PACKED_DIVIDED ? 0 : window.pad[i] * stride[i];
    }
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
