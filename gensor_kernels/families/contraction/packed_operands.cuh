// The operands of the tensor-core family: in place, or in the workspace, where contraction_pack stores them after the
// partial sums of a split: the image, then the filters, each aligned to 16 bytes. Filters with one tap whose channels
// are whole accesses already have the packed layout, and are read in place.
#pragma once
#include "contraction.cuh"
#include "widen.cuh"

#if PACKED
constexpr u32 PACK_THREADS = 256, PACK_ITEMS = 4; // threads per block, accesses per thread
constexpr int ELEMENT_BYTES = (int)sizeof(IN_TYPE);
constexpr int IMAGE_VECTOR = IMAGE_IS_A ? A_VECTOR : B_VECTOR, FILTER_VECTOR = IMAGE_IS_A ? B_VECTOR : A_VECTOR;

DEVICE gptr<IN_TYPE> packed_image(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<IN_TYPE>();
}

DEVICE gptr<IN_TYPE> packed_filters(const Params &params, const Packed &packed) {
    constexpr i64 WIDE = 16 / ELEMENT_BYTES;
    const i64 elements = (i64)params.batch * packed.images * packed.image_elements();
    return packed_image(params) + (elements + WIDE - 1) / WIDE * WIDE;
}

// The end of both, aligned to 16 bytes: a stream's flags follow (stream_k.cuh).
DEVICE gptr<u8> after_operands(const Params &params) {
    const Packed packed(params);
    constexpr i64 WIDE = 16 / ELEMENT_BYTES;
    const i64 filters = (i64)params.batch_inner[1] * (IMAGE_IS_A ? params.n : params.m) * packed.taps * packed.padded;
    return (packed_filters(params, packed) + (filters + WIDE - 1) / WIDE * WIDE).as<u8>();
}

DEVICE bool filters_in_place(const Packed &packed) {
    return FILTERS_ALIGNED && packed.taps == 1 && packed.padded == packed.channels;
}

// The stride of filters, in elements.
DEVICE i64 filter_stride(const Params &params) {
    if (filters_in_place(Packed(params)))
        return IMAGE_IS_A ? params.b_n : params.a_m;
    return depth_of(params).all;
}

// The image of a batch entry, or the filters of its group.
template <bool IMAGE>
DEVICE gptr<IN_TYPE> operand_entry(const Params &params, const Tile &tile) {
    const Packed packed(params);
    if constexpr (IMAGE) {
        return packed_image(params) + tile.entry * packed.images * packed.image_elements();
    } else if (filters_in_place(packed)) {
        return gptr<IN_TYPE>(IMAGE_IS_A ? params.b : params.a) +
               batch_offset(IMAGE_IS_A ? params.b_batch : params.a_batch, tile.batch);
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

// Stores one access of adjacent channels: `left` channels of the source, then zeros.
template <int BYTES>
DEVICE void pack_channels(gptr<IN_TYPE> from, i64 stride, i32 left, gptr<IN_TYPE> to, bool mine) {
    Vec<BYTES> channels = Vec<BYTES>::zero();
    UNROLL for (int i = 0; i < BYTES / ELEMENT_BYTES; ++i) {
        const Vec<ELEMENT_BYTES> one = load_global<ELEMENT_BYTES>(from + i * stride, mine && within(i, left));
        channels.set(i, one.template get<IN_TYPE>(0));
    }
    store_global(to, channels, mine);
}

// Accesses of one image. Neighbouring threads take adjacent elements of the source: columns or channels.
struct ImageAccesses {
    static constexpr i32 EACH = IMAGE_VECTOR / ELEMENT_BYTES;
    gptr<IN_TYPE> from, to; // the first channel in the source, and in the workspace
    u32 chunks, pixels, columns;
    i64 stride[2], channel; // of the source
    i32 step[2], pad[2], extent[2];

    MEMBER ImageAccesses(const Params &params, const Packed &packed, u32 index) {
        const Window &window = params.window;
        const u32 entry = index / (u32)packed.images, image = index % (u32)packed.images;
        const Batch batch = split_batch(params, (i32)entry);
        const i64 first = IMAGE_IS_A ? batch_offset(params.a_batch, batch) : batch_offset(params.b_batch, batch);
        from = gptr<IN_TYPE>(IMAGE_IS_A ? params.a : params.b) + (first + image * window.row_stride[0]);
        to = packed_image(params) + index * packed.image_elements();
        columns = (u32)packed.extent[1], pixels = (u32)packed.extent[0] * columns, chunks = (u32)(packed.padded / EACH);
        stride[0] = IMAGE_IS_A ? params.a_m : params.b_k, stride[1] = IMAGE_IS_A ? params.a_k : params.b_n;
        channel = window.k_stride[PACKED_LAST ? 2 : 0];
        UNROLL for (int i = 0; i < 2; ++i) {
            step[i] = packed.one_tap[i] ? window.step[i] : 1, pad[i] = packed.one_tap[i] ? window.pad[i] : 0;
            extent[i] = window.extent[i];
        }
    }
    MEMBER void pack(const Packed &packed, u32 item) const {
        const u32 pixel = PACKED_LAST ? item / chunks : item % pixels;
        const i32 row = (i32)(pixel / columns) * step[0] - pad[0], column = (i32)(pixel % columns) * step[1] - pad[1];
        const i64 first = (i64)(PACKED_LAST ? item % chunks : item / pixels) * EACH;
        // An index before the image is a large number when unsigned.
        const bool inside = within((u32)row, (u32)extent[0]) && within((u32)column, (u32)extent[1]);
        pack_channels<IMAGE_VECTOR>(from + (row * stride[0] + column * stride[1] + first * channel), channel,
                                    inside ? packed.channels - (i32)first : 0,
                                    to + (pixel * (i64)packed.padded + first), within(item, pixels * chunks));
    }
};

// Accesses of a group's filters. Neighbouring threads take adjacent filters, channels or taps of the source.
struct FilterAccesses {
    static constexpr i32 EACH = FILTER_VECTOR / ELEMENT_BYTES;
    static constexpr bool BY_CHANNEL = PACKED_LAST && !FILTERS_LAST;
    gptr<IN_TYPE> from, to; // the first filter in the source, and in the workspace
    u32 chunks, filters, taps;
    i64 filter_step, k_step; // strides of the source

    MEMBER FilterAccesses(const Params &params, const Packed &packed, u32 group) {
        chunks = (u32)(packed.padded / EACH), taps = (u32)packed.taps;
        filters = (u32)(IMAGE_IS_A ? params.n : params.m);
        filter_step = IMAGE_IS_A ? params.b_n : params.a_m, k_step = IMAGE_IS_A ? params.b_k : params.a_k;
        from = gptr<IN_TYPE>(IMAGE_IS_A ? params.b : params.a) +
               group * (IMAGE_IS_A ? params.b_batch[2] : params.a_batch[2]);
        to = packed_filters(params, packed) + group * ((i64)filters * taps * packed.padded);
    }
    MEMBER void pack(const Packed &packed, u32 item) const {
        const u32 inner = FILTERS_LAST ? filters : BY_CHANNEL ? chunks : taps, rest = item / inner;
        const u32 middle = BY_CHANNEL ? taps : chunks;
        const u32 digit[3] = {item % inner, rest % middle, rest / middle};
        const u32 filter = digit[FILTERS_LAST ? 0 : 2], tap = digit[FILTERS_LAST ? 2 : BY_CHANNEL ? 1 : 0];
        const i64 channel = (i64)digit[BY_CHANNEL ? 0 : 1] * EACH;
        const i64 k = PACKED_LAST ? tap * (i64)packed.channels + channel : channel * taps + tap;
        pack_channels<FILTER_VECTOR>(from + (filter * filter_step + k * k_step), k_step * (PACKED_LAST ? 1 : (i64)taps),
                                     packed.channels - (i32)channel,
                                     to + (((i64)filter * taps + tap) * packed.padded + channel),
                                     within(item, filters * taps * chunks));
    }
};

template <class Accesses>
DEVICE void pack_block(const Accesses &accesses, const Packed &packed, u32 block) {
    UNROLL for (int i = 0; i < PACK_ITEMS; ++i)
        accesses.pack(packed, (block * PACK_ITEMS + i) * PACK_THREADS + (u32)thread_index());
}

// Grid: blocks of 256 threads with four accesses each, first for every image, then for every group's filters:
// ceil(rows * columns * padded channels / elements of an access / 1024) blocks per image, and the same per group with
// filters * taps instead of pixels. The grid has these blocks also where filters are read in place.
KERNEL(contraction_pack, Params, PACK_THREADS, 0) {
    launch_dependents();
    const Packed packed(params);
    if (packed.channels == 0) {
        cover("no_channels");
        return;
    }
    constexpr u32 BLOCK_ACCESSES = PACK_THREADS * PACK_ITEMS;
    const u32 filters = (u32)(IMAGE_IS_A ? params.n : params.m), block = (u32)block_index();
    const u32 pixels = (u32)packed.extent[0] * (u32)packed.extent[1], bytes = (u32)(packed.padded * ELEMENT_BYTES);
    const u32 per_image = (pixels * (bytes / IMAGE_VECTOR) + BLOCK_ACCESSES - 1) / BLOCK_ACCESSES;
    const u32 per_group = (filters * (u32)packed.taps * (bytes / FILTER_VECTOR) + BLOCK_ACCESSES - 1) / BLOCK_ACCESSES;
    const u32 image_blocks = (u32)params.batch * (u32)packed.images * per_image;
    if (packed.one_tap[0])
        cover("one_row");
    if (packed.one_tap[1])
        cover("one_column");
    if (within(block, image_blocks)) {
        pack_block(ImageAccesses(params, packed, block / per_image), packed, block % per_image);
        cover("packed_image");
    } else if (filters_in_place(packed)) {
        cover("filters_stay");
    } else {
        const u32 filter_block = block - image_blocks;
        pack_block(FilterAccesses(params, packed, filter_block / per_group), packed, filter_block % per_group);
        cover("packed_filters");
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
