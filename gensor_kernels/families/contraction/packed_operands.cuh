// The operands of the tensor-core family: in place, or in the workspace, where contraction_pack stores them after the
// partial sums of a split: the image, then the filters, each aligned to 16 bytes. Filters with one tap whose channels
// are whole accesses already have the packed layout, and are read in place.
#pragma once
#include "contraction.cuh"
#include "widen.cuh"

#if PACKED
constexpr u32 PACK_THREADS = 256, PACK_ITEMS = 4; // threads per block, accesses per thread
constexpr int ELEMENT_BYTES = (int)sizeof(IN_TYPE);
constexpr i32 CHUNK = 16 / ELEMENT_BYTES; // elements of a turned tile's chunk
constexpr u32 TILE_CHUNKS = 8, TILE_LINES = PACK_THREADS * PACK_ITEMS / TILE_CHUNKS; // 128 bytes of 128 lines

#include "turned_tile.cuh"

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

// Channels of a source that become a line of the copy, zeros where it has none.
struct Line {
    gptr<IN_TYPE> from;
    bool exists;
};

// Accesses of one image. Neighbouring threads take adjacent elements of the source: columns or channels.
struct ImageAccesses {
    static constexpr i32 EACH = IMAGE_VECTOR / ELEMENT_BYTES;
    static constexpr bool TURNED = !PACKED_LAST && IMAGE_VECTOR == 16; // lines are adjacent in the source
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
    MEMBER u32 lines() const { return pixels; }
    MEMBER i64 element_stride() const { return channel; }
    MEMBER Line line(const Packed &, u32 pixel) const {
        const i32 row = (i32)(pixel / columns) * step[0] - pad[0], column = (i32)(pixel % columns) * step[1] - pad[1];
        // An index before the image is a large number when unsigned.
        const bool inside = within((u32)row, (u32)extent[0]) && within((u32)column, (u32)extent[1]);
        return Line{from + (row * stride[0] + column * stride[1]), inside};
    }
    MEMBER gptr<IN_TYPE> copy(const Packed &packed, u32 pixel) const { return to + pixel * (i64)packed.padded; }
    MEMBER void pack(const Packed &packed, u32 item) const {
        const u32 pixel = PACKED_LAST ? item / chunks : item % pixels;
        const i64 first = (i64)(PACKED_LAST ? item % chunks : item / pixels) * EACH;
        const Line source = line(packed, pixel);
        pack_channels<IMAGE_VECTOR>(source.from + first * channel, channel,
                                    source.exists ? packed.channels - (i32)first : 0, copy(packed, pixel) + first,
                                    within(item, pixels * chunks));
    }
};

// Accesses of a group's filters. Neighbouring threads take adjacent filters, channels or taps of the source.
struct FilterAccesses {
    static constexpr i32 EACH = FILTER_VECTOR / ELEMENT_BYTES;
    static constexpr bool BY_CHANNEL = PACKED_LAST && !FILTERS_LAST;
    static constexpr bool TURNED = !BY_CHANNEL && FILTER_VECTOR == 16;
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
    MEMBER i64 element_stride() const { return k_step * (PACKED_LAST ? 1 : (i64)taps); }
    // Lines are numbered in the order of the source: by filter and tap, or by tap and filter.
    MEMBER u32 lines() const { return filters * taps; }
    MEMBER u32 filter_of(u32 number) const { return FILTERS_LAST ? number % filters : number / taps; }
    MEMBER u32 tap_of(u32 number) const { return FILTERS_LAST ? number / filters : number % taps; }
    MEMBER Line line(const Packed &packed, u32 number) const {
        const i64 k = PACKED_LAST ? tap_of(number) * (i64)packed.channels : (i64)tap_of(number);
        return Line{from + (filter_of(number) * filter_step + k * k_step), true};
    }
    MEMBER gptr<IN_TYPE> copy(const Packed &packed, u32 number) const {
        const u32 place = FILTERS_LAST ? filter_of(number) * taps + tap_of(number) : number;
        return to + place * (i64)packed.padded;
    }
    MEMBER void pack(const Packed &packed, u32 item) const {
        const u32 inner = FILTERS_LAST ? filters : BY_CHANNEL ? chunks : taps, rest = item / inner;
        const u32 middle = BY_CHANNEL ? taps : chunks, last = rest / middle;
        const u32 number = BY_CHANNEL ? rest : last * inner + item % inner;
        const i64 channel = (i64)(BY_CHANNEL ? item % inner : rest % middle) * EACH;
        pack_channels<FILTER_VECTOR>(line(packed, number).from + channel * element_stride(), element_stride(),
                                     packed.channels - (i32)channel, copy(packed, number) + channel,
                                     within(item, filters * taps * chunks));
    }
};

// Copies a tile of lines through shared memory: the adjacent elements of many lines are read, and each line is written
// in whole sectors.
template <class Accesses>
DEVICE void turn_block(const Accesses &accesses, const Packed &packed, u32 block) {
    constexpr u32 APART = PACK_THREADS / TILE_LINES; // chunks from one of a thread's items to the next
    const u32 thread = (u32)thread_index(), lines = accesses.lines(), tiles = (lines + TILE_LINES - 1) / TILE_LINES;
    const u32 first_line = block % tiles * TILE_LINES, first_chunk = block / tiles * TILE_CHUNKS;
    const u32 at = thread % TILE_LINES, own_chunk = thread / TILE_LINES;
    if (first_chunk > 0)
        cover("further_chunks");
    const Line source = accesses.line(packed, first_line + at);
    const i32 first = (i32)(first_chunk + own_chunk) * CHUNK;
    const i32 left = within(first_line + at, lines) && source.exists ? packed.channels - first : 0;
    const i64 stride = accesses.element_stride();
    gptr<IN_TYPE> from = source.from + first * stride;
    IN_TYPE elements[PACK_ITEMS][CHUNK];
    UNROLL for (u32 i = 0; i < PACK_ITEMS; ++i) {
        UNROLL for (i32 e = 0; e < CHUNK; ++e) {
            const bool inside = within((i32)(i * APART) * CHUNK + e, left);
            elements[i][e] = load_global<ELEMENT_BYTES>(from, inside).template get<IN_TYPE>(0);
            from = from + stride;
        }
        from = from + (i64)(APART - 1) * CHUNK * stride;
    }
    UNROLL for (u32 i = 0; i < PACK_ITEMS; ++i) TurnedTile<IN_TYPE>::store(at, own_chunk + i * APART, elements[i]);
    barrier();
    UNROLL for (u32 i = 0; i < PACK_ITEMS; ++i) {
        const u32 item = i * PACK_THREADS + thread, line = item / TILE_CHUNKS, chunk = item % TILE_CHUNKS;
        const bool inside = within(first_line + line, lines) && within(first_chunk + chunk, accesses.chunks);
        store_global(accesses.copy(packed, first_line + line) + (i64)(first_chunk + chunk) * CHUNK,
                     load_shared<16>(TurnedTile<IN_TYPE>::place(line, chunk, 0)), inside);
    }
}

template <class Accesses>
DEVICE void pack_block(const Accesses &accesses, const Packed &packed, u32 block) {
    if constexpr (Accesses::TURNED) {
        turn_block(accesses, packed, block);
    } else {
        UNROLL for (int i = 0; i < PACK_ITEMS; ++i)
            accesses.pack(packed, (block * PACK_ITEMS + i) * PACK_THREADS + (u32)thread_index());
    }
}

// The blocks of an image with its pixels, or of a group with the lines of its filters.
template <class Accesses>
DEVICE u32 pack_blocks(u32 lines, u32 bytes) {
    constexpr u32 BLOCK_ACCESSES = PACK_THREADS * PACK_ITEMS, VECTOR = Accesses::EACH * ELEMENT_BYTES;
    const u32 chunks = bytes / VECTOR;
    return Accesses::TURNED ? (lines + TILE_LINES - 1) / TILE_LINES * ((chunks + TILE_CHUNKS - 1) / TILE_CHUNKS)
                            : (lines * chunks + BLOCK_ACCESSES - 1) / BLOCK_ACCESSES;
}

// Grid: blocks of 256 threads with four accesses each, first for every image, then for every group's filters:
// ceil(rows * columns * padded channels / elements of an access / 1024) blocks per image, and the same per group with
// filters * taps instead of pixels; of TURNED accesses, ceil(pixels / 128) * ceil(accesses of a pixel / 8), with 16 KiB
// of shared memory. The grid has these blocks also where filters are read in place.
KERNEL(contraction_pack, Params, PACK_THREADS, 0) {
    launch_dependents();
    const Packed packed(params);
    if (packed.channels == 0) {
        cover("no_channels");
        return;
    }
    const u32 filters = (u32)(IMAGE_IS_A ? params.n : params.m), block = (u32)block_index();
    const u32 pixels = (u32)packed.extent[0] * (u32)packed.extent[1], bytes = (u32)(packed.padded * ELEMENT_BYTES);
    const u32 per_image = pack_blocks<ImageAccesses>(pixels, bytes);
    const u32 per_group = pack_blocks<FilterAccesses>(filters * (u32)packed.taps, bytes);
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
