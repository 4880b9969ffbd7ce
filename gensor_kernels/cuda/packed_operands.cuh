// Where the tensor-core family finds its operands: in place, or in the workspace, where contraction_pack puts them.
// They lie behind the partial sums of a split: the image, then the filters, from 16-byte boundaries on.
#pragma once
#include "contraction.cuh"

#if PACKED
constexpr int PACK_THREADS = 256;
constexpr int ELEMENT_BYTES = (int)sizeof(IN_TYPE);
constexpr int IMAGE_VECTOR = IMAGE_IS_A ? A_VECTOR : B_VECTOR, FILTER_VECTOR = IMAGE_IS_A ? B_VECTOR : A_VECTOR;

DEVICE gptr<IN_TYPE> packed_image(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<IN_TYPE>();
}

DEVICE gptr<IN_TYPE> packed_filters(const Params &params, const Packed &packed) {
    constexpr i64 WIDE = 16 / ELEMENT_BYTES;
    const i64 elements = (i64)params.batch * packed.images * packed.plane(params.window);
    return packed_image(params) + (elements + WIDE - 1) / WIDE * WIDE;
}

// Elements from filter to filter.
DEVICE i64 filter_stride(const Params &params) {
    return depth_of(params).all;
}

// Where the image of a batch entry begins, or the filters of its group.
template <bool IMAGE>
DEVICE gptr<IN_TYPE> operand_entry(const Params &params, const Tile &tile) {
    const Packed packed(params);
    if constexpr (IMAGE) {
        return packed_image(params) + tile.entry * packed.images * packed.plane(params.window);
    } else {
        const i64 filters = IMAGE_IS_A ? params.n : params.m;
        return packed_filters(params, packed) + tile.batch.index[2] * filters * filter_stride(params);
    }
}
DEVICE gptr<IN_TYPE> entry_of_a(const Params &params, const Tile &tile) {
    return operand_entry<IMAGE_IS_A>(params, tile);
}
DEVICE gptr<IN_TYPE> entry_of_b(const Params &params, const Tile &tile) {
    return operand_entry<!IMAGE_IS_A>(params, tile);
}
DEVICE i64 stride_of_a(const Params &params) {
    return filter_stride(params);
}
DEVICE i64 stride_of_b(const Params &params) {
    return filter_stride(params);
}

// Stores one access of adjacent channels, `left` of which there are; the others become zeros.
template <int BYTES>
DEVICE void pack_channels(gptr<IN_TYPE> from, i64 stride, i32 left, gptr<IN_TYPE> to, bool mine) {
    Vec<BYTES> channels = Vec<BYTES>::zero();
    UNROLL for (int i = 0; i < BYTES / ELEMENT_BYTES; ++i) {
        const Vec<ELEMENT_BYTES> one = load_global<ELEMENT_BYTES>(from + i * stride, mine && within(i, left));
        channels.set(i, one.template get<IN_TYPE>(0));
    }
    store_global(to, channels, mine);
}

// Neighbouring threads take what lies side by side in the source: columns, or channels.
DEVICE void pack_image(const Params &params, const Packed &packed, u32 plane, u32 item) {
    constexpr i32 EACH = IMAGE_VECTOR / ELEMENT_BYTES;
    const Window &window = params.window;
    const u32 chunks = (u32)(packed.padded / EACH), pixels = (u32)window.extent[0] * (u32)window.extent[1];
    const u32 pixel = PACKED_LAST ? item / chunks : item % pixels, chunk = PACKED_LAST ? item % chunks : item / pixels;
    const i64 row = pixel / (u32)window.extent[1], column = pixel % (u32)window.extent[1];
    const u32 entry = plane / (u32)packed.images, image = plane % (u32)packed.images;
    const Batch batch = split_batch(params, (i32)entry);
    const i64 first = IMAGE_IS_A ? batch_offset(params.a_batch, batch) : batch_offset(params.b_batch, batch);
    const i64 down = IMAGE_IS_A ? params.a_m : params.b_k, right = IMAGE_IS_A ? params.a_k : params.b_n;
    const i64 channel = window.k_stride[PACKED_LAST ? 2 : 0], place = (i64)chunk * EACH;
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(IMAGE_IS_A ? params.a : params.b) +
                               (first + image * window.row_stride[0] + row * down + column * right + place * channel);
    const gptr<IN_TYPE> to = packed_image(params) + (plane * packed.plane(window) + pixel * (i64)packed.padded + place);
    pack_channels<IMAGE_VECTOR>(from, channel, packed.channels - (i32)place, to, within(item, pixels * chunks));
    cover("packed_image");
}

// Neighbouring threads take what lies side by side in the source: filters, channels or taps.
DEVICE void pack_filters(const Params &params, const Packed &packed, u32 group, u32 item) {
    constexpr i32 EACH = FILTER_VECTOR / ELEMENT_BYTES;
    const u32 filters = (u32)(IMAGE_IS_A ? params.n : params.m), taps = (u32)packed.taps;
    const u32 chunks = (u32)(packed.padded / EACH), inner = FILTERS_LAST ? filters : PACKED_LAST ? chunks : taps;
    const u32 rest = item / inner, middle = PACKED_LAST && !FILTERS_LAST ? taps : chunks;
    const u32 digit[3] = {item % inner, rest % middle, rest / middle};
    const u32 filter = digit[FILTERS_LAST ? 0 : 2], chunk = digit[PACKED_LAST && !FILTERS_LAST ? 0 : 1];
    const u32 tap = digit[FILTERS_LAST ? 2 : PACKED_LAST ? 1 : 0];
    const i64 channel = chunk * (i64)EACH, k_stride = IMAGE_IS_A ? params.b_k : params.a_k;
    const i64 k = PACKED_LAST ? tap * (i64)packed.channels + channel : channel * taps + tap;
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(IMAGE_IS_A ? params.b : params.a) +
                               (group * (IMAGE_IS_A ? params.b_batch[2] : params.a_batch[2]) +
                                filter * (IMAGE_IS_A ? params.b_n : params.a_m) + k * k_stride);
    const i64 line = (i64)group * filters + filter;
    const gptr<IN_TYPE> to =
        packed_filters(params, packed) + ((line * taps + tap) * (i64)packed.padded + channel);
    pack_channels<FILTER_VECTOR>(from, k_stride * (PACKED_LAST ? 1 : packed.taps), packed.channels - (i32)channel, to,
                                 within(item, filters * taps * chunks));
    cover("packed_filters");
}

// Grid: blocks of 256 threads, each with one access; first those of every image, then those of every group's filters:
// ceil(rows * columns * padded channels / elements of an access / 256) per image, likewise per group. No shared memory.
KERNEL(contraction_pack, Params, PACK_THREADS, 0) {
    const Packed packed(params);
    if (packed.channels == 0) {
        cover("no_channels");
        return;
    }
    const Window &window = params.window;
    const u32 filters = (u32)(IMAGE_IS_A ? params.n : params.m);
    const u32 pixels = (u32)window.extent[0] * (u32)window.extent[1], bytes = (u32)(packed.padded * ELEMENT_BYTES);
    const u32 planes = (u32)params.batch * (u32)packed.images, threads = PACK_THREADS;
    const u32 of_plane = (pixels * (bytes / IMAGE_VECTOR) + threads - 1) / threads;
    const u32 of_group = (filters * (u32)packed.taps * (bytes / FILTER_VECTOR) + threads - 1) / threads;
    const u32 block = (u32)block_index(), thread = (u32)thread_index();
    if (within(block, planes * of_plane)) {
        pack_image(params, packed, block / of_plane, block % of_plane * threads + thread);
    } else {
        const u32 other = block - planes * of_plane;
        pack_filters(params, packed, other / of_group, other % of_group * threads + thread);
    }
}
#else
DEVICE gptr<A_STORED> entry_of_a(const Params &params, const Tile &tile) {
    return gptr<A_STORED>(params.a) + batch_offset(params.a_batch, tile.batch);
}
DEVICE gptr<B_STORED> entry_of_b(const Params &params, const Tile &tile) {
    return gptr<B_STORED>(params.b) + batch_offset(params.b_batch, tile.batch);
}
DEVICE i64 stride_of_a(const Params &params) {
    return params.a_m;
}
DEVICE i64 stride_of_b(const Params &params) {
    return params.b_n;
}
#endif
