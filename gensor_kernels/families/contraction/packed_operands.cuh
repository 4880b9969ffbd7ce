// Where the tensor-core family finds its operands: in place, or in the workspace, where contraction_pack puts them.
// They lie behind the partial sums of a split: the image, then the filters, from 16-byte boundaries on. Filters of one
// tap whose channels are whole accesses lie as packed ones would: they stay where they are.
#pragma once
#include "contraction.cuh"
#include "widen.cuh"

#if PACKED
constexpr u32 PACK_THREADS = 256, PACK_ITEMS = 4; // of a block, of a thread
constexpr int ELEMENT_BYTES = (int)sizeof(IN_TYPE);
constexpr int IMAGE_VECTOR = IMAGE_IS_A ? A_VECTOR : B_VECTOR, FILTER_VECTOR = IMAGE_IS_A ? B_VECTOR : A_VECTOR;

DEVICE gptr<IN_TYPE> packed_image(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<IN_TYPE>();
}

DEVICE gptr<IN_TYPE> packed_filters(const Params &params, const Packed &packed) {
    constexpr i64 WIDE = 16 / ELEMENT_BYTES;
    const i64 elements = (i64)params.batch * packed.images * packed.plane();
    return packed_image(params) + (elements + WIDE - 1) / WIDE * WIDE;
}

// The end of both, at a 16-byte boundary: where a stream's flags begin (stream_k.cuh).
DEVICE gptr<u8> behind_operands(const Params &params) {
    const Packed packed(params);
    constexpr i64 WIDE = 16 / ELEMENT_BYTES;
    const i64 filters = (i64)params.batch_inner[1] * (IMAGE_IS_A ? params.n : params.m) * packed.taps * packed.padded;
    return (packed_filters(params, packed) + (filters + WIDE - 1) / WIDE * WIDE).as<u8>();
}

DEVICE bool filters_stay(const Packed &packed) {
    return FILTERS_ALIGNED && packed.taps == 1 && packed.padded == packed.channels;
}

// Elements from filter to filter.
DEVICE i64 filter_stride(const Params &params) {
    if (filters_stay(Packed(params)))
        return IMAGE_IS_A ? params.b_n : params.a_m;
    return depth_of(params).all;
}

// Where the image of a batch entry begins, or the filters of its group.
template <bool IMAGE>
DEVICE gptr<IN_TYPE> operand_entry(const Params &params, const Tile &tile) {
    const Packed packed(params);
    if constexpr (IMAGE) {
        return packed_image(params) + tile.entry * packed.images * packed.plane();
    } else if (filters_stay(packed)) {
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

// The accesses of one image: neighbouring threads take what lies side by side in the source, columns or channels.
struct ImageAccesses {
    static constexpr i32 EACH = IMAGE_VECTOR / ELEMENT_BYTES;
    gptr<IN_TYPE> from, to; // its first channel, before and after
    u32 chunks, pixels, wide;
    i64 stride[2], channel; // of the source
    i32 step[2], pad[2], extent[2];

    MEMBER ImageAccesses(const Params &params, const Packed &packed, u32 plane) {
        const Window &window = params.window;
        const u32 entry = plane / (u32)packed.images, image = plane % (u32)packed.images;
        const Batch batch = split_batch(params, (i32)entry);
        const i64 first = IMAGE_IS_A ? batch_offset(params.a_batch, batch) : batch_offset(params.b_batch, batch);
        from = gptr<IN_TYPE>(IMAGE_IS_A ? params.a : params.b) + (first + image * window.row_stride[0]);
        to = packed_image(params) + plane * packed.plane();
        wide = (u32)packed.extent[1], pixels = (u32)packed.extent[0] * wide, chunks = (u32)(packed.padded / EACH);
        stride[0] = IMAGE_IS_A ? params.a_m : params.b_k, stride[1] = IMAGE_IS_A ? params.a_k : params.b_n;
        channel = window.k_stride[PACKED_LAST ? 2 : 0];
        UNROLL for (int i = 0; i < 2; ++i) {
            step[i] = packed.thin[i] ? window.step[i] : 1, pad[i] = packed.thin[i] ? window.pad[i] : 0;
            extent[i] = window.extent[i];
        }
    }
    MEMBER void pack(const Packed &packed, u32 item) const {
        const u32 pixel = PACKED_LAST ? item / chunks : item % pixels;
        const i32 row = (i32)(pixel / wide) * step[0] - pad[0], column = (i32)(pixel % wide) * step[1] - pad[1];
        const i64 place = (i64)(PACKED_LAST ? item % chunks : item / pixels) * EACH;
        // An index in front of the image is a large number when unsigned.
        const bool inside = within((u32)row, (u32)extent[0]) && within((u32)column, (u32)extent[1]);
        pack_channels<IMAGE_VECTOR>(from + (row * stride[0] + column * stride[1] + place * channel), channel,
                                    inside ? packed.channels - (i32)place : 0,
                                    to + (pixel * (i64)packed.padded + place), within(item, pixels * chunks));
    }
};

// Accesses to a group's filters, likewise: filters, channels or taps.
struct FilterAccesses {
    static constexpr i32 EACH = FILTER_VECTOR / ELEMENT_BYTES;
    static constexpr bool BY_CHANNEL = PACKED_LAST && !FILTERS_LAST;
    gptr<IN_TYPE> from, to; // its first filter, before and after
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

// Grid: blocks of 256 threads with four accesses each; first those of every image, then those of every group's filters:
// ceil(rows * columns * padded channels / elements of an access / 1024) per image, likewise per group, though its
// filters may stay where they are: whether they do is the kernel's class's to say, not the call's. No shared memory.
KERNEL(contraction_pack, Params, PACK_THREADS, 0) {
    launch_dependents();
    const Packed packed(params);
    if (packed.channels == 0) {
        cover("no_channels");
        return;
    }
    constexpr u32 OF_BLOCK = PACK_THREADS * PACK_ITEMS;
    const u32 filters = (u32)(IMAGE_IS_A ? params.n : params.m), block = (u32)block_index();
    const u32 pixels = (u32)packed.extent[0] * (u32)packed.extent[1], bytes = (u32)(packed.padded * ELEMENT_BYTES);
    const u32 of_plane = (pixels * (bytes / IMAGE_VECTOR) + OF_BLOCK - 1) / OF_BLOCK;
    const u32 of_group = (filters * (u32)packed.taps * (bytes / FILTER_VECTOR) + OF_BLOCK - 1) / OF_BLOCK;
    const u32 of_images = (u32)params.batch * (u32)packed.images * of_plane;
    if (packed.thin[0])
        cover("one_row");
    if (packed.thin[1])
        cover("one_column");
    if (within(block, of_images)) {
        pack_block(ImageAccesses(params, packed, block / of_plane), packed, block % of_plane);
        cover("packed_image");
    } else if (filters_stay(packed)) {
        cover("filters_stay");
    } else {
        const u32 other = block - of_images;
        pack_block(FilterAccesses(params, packed, other / of_group), packed, other % of_group);
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
