// A launch before the product copies operands into the workspace, after the partial sums of a split: A, then B, as
// [batch entry][line][element]. Lines are along k where A_LAYOUT (B_LAYOUT) is 0, and whole accesses of 16 bytes. With
// PARTS 3 a line contains all parts, one after the other, each padded to whole steps of the product. Broadcast batch
// axes have one entry. A line of a convolution is the channels of a pixel, or of one tap of a filter
// (divided_image.cuh).
#pragma once
#include "tma_tiles.cuh"

constexpr u32 COPY_THREADS = 256, COPY_ITEMS = 4; // threads per block, chunks per thread
enum : u32 { BLOCK_CHUNKS = COPY_THREADS * COPY_ITEMS };
constexpr u32 TILE_LINES = 64, TILE_CHUNKS = BLOCK_CHUNKS / TILE_LINES; // a block's tile if TURNED
constexpr i32 CHUNK = 16 / ELEMENT;                                     // elements per store
constexpr i32 WHOLE = PARTS > 1 ? BLOCK_K : CHUNK;                      // lines are padded to a multiple of it

// Lines of a block's tile if TURNED: eight accesses of `piece` bytes read neighbouring lines.
DEVICE constexpr u32 lines_of_tile(int piece) {
    const u32 lines = (u32)(8 * piece / ELEMENT);
    return lines > TILE_LINES ? lines : TILE_LINES;
}

#include "turned_tile.cuh"

// One batch entry of an operand: `count` lines of `length` elements, and the strides of elements and lines.
struct Lines {
    i64 element_stride, line_stride;
    i32 length, count;

    // The offset of a line, and whether the operand has it.
    MEMBER i64 begin(u32 line) const { return line * line_stride; }
    MEMBER bool exists(u32) const { return true; }

    MEMBER i64 padded() const { return ((i64)length + WHOLE - 1) / WHOLE * WHOLE; }
    MEMBER i64 pitch() const { return padded() * PARTS; }
    MEMBER u32 chunks() const { return (u32)(padded() / CHUNK); }
    // Tiles of so many lines.
    MEMBER u32 line_tiles(u32 lines = TILE_LINES) const { return ((u32)count + lines - 1) / lines; }
    template <bool TURNED, int PIECE>
    MEMBER u32 blocks() const {
        constexpr u32 LINES = lines_of_tile(PIECE), CHUNKS = BLOCK_CHUNKS / LINES;
        return TURNED ? line_tiles(LINES) * ((chunks() + CHUNKS - 1) / CHUNKS)
                      : (chunks() * (u32)count + BLOCK_CHUNKS - 1) / BLOCK_CHUNKS;
    }
    MEMBER i64 elements() const { return pitch() * count; }
};

// Batch entries that are copied separately; the images of a convolution are lines of a single entry.
#if A_WINDOW || B_WINDOW
#include "divided_image.cuh"
DEVICE u32 entries(const Params &) {
    return 1;
}
#else
DEVICE u32 entries(const Params &params) {
    return (u32)params.batch;
}
DEVICE Lines lines_of_a(const Params &params) {
    return A_LAYOUT ? Lines{params.a_m, params.a_k, params.m, params.k}
                    : Lines{params.a_k, params.a_m, params.k, params.m};
}
DEVICE Lines lines_of_b(const Params &params) {
    return B_LAYOUT ? Lines{params.b_n, params.b_k, params.n, params.k}
                    : Lines{params.b_k, params.b_n, params.k, params.n};
}
#endif

// The start of the copies.
DEVICE gptr<u8> first_copy(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<u8>();
}

// One chunk of a line. Neighbouring threads take neighbouring chunks.
template <class Writer, int PIECE, class Source, class T, class To>
DEVICE void copy_chunk(const Source &lines, gptr<T> from, gptr<To> to, u32 item) {
    constexpr i32 PIECE_ELEMENTS = PIECE / (i32)sizeof(T);
    const u32 line = item / lines.chunks(), chunk = item % lines.chunks();
    const bool inside = within(item, lines.chunks() * (u32)lines.count);
    const i32 first = (i32)chunk * CHUNK;
    const gptr<T> source = from + (lines.begin(line) + first);
    const bool exists = inside && lines.exists(line);
    T elements[CHUNK];
    UNROLL for (i32 i = 0; i < CHUNK; i += PIECE_ELEMENTS) {
        const Vec<PIECE> piece = load_global<PIECE>(source + i, exists && within(first + i, lines.length));
        UNROLL for (i32 j = 0; j < PIECE_ELEMENTS; ++j) elements[i + j] = piece.template get<T>(j);
    }
    Writer::write(to + (line * lines.pitch() + first), elements, lines.padded(), inside);
}

// The word of line j of the pieces of one element each: their elements of this line.
template <int BYTES, u32 COUNT>
DEVICE Vec<4> word_of_line(const Vec<BYTES> (&pieces)[COUNT], u32 j) {
    Vec<4> result;
    if constexpr (COUNT == 1) {
        result.word[0] = pieces[0].word[j];
    } else {
        // Four bytes of a column: pairs of rows first, which two neighbouring lines share.
        const u32 pair = j % 4 < 2 ? 0x5140 : 0x7362, half = j % 2 ? 0x7632 : 0x5410, w = j / 4;
        result.word[0] = byte_permute(byte_permute(pieces[0].word[w], pieces[1].word[w], pair),
                                      byte_permute(pieces[2].word[w], pieces[3].word[w], pair), half);
    }
    return result;
}

// Copies a tile of an operand with adjacent lines, through shared memory. Neighbouring threads load from neighbouring
// lines, and store neighbouring chunks of a line.
template <class Writer, class Source, class T, class To>
DEVICE void transpose_tile(const Source &lines, gptr<T> from, gptr<To> to, u32 tile) {
    const u32 thread = (u32)thread_index(), line_tiles = lines.line_tiles();
    const u32 first_line = tile % line_tiles * TILE_LINES, first_chunk = tile / line_tiles * TILE_CHUNKS;
    {
        const u32 at = thread % TILE_LINES, line = first_line + at;
        const bool exists = within(line, (u32)lines.count) && lines.exists(line);
        const gptr<T> source = from + lines.begin(line);
        T elements[COPY_ITEMS][CHUNK];
        UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) {
            const u32 chunk = first_chunk + thread / TILE_LINES + i * (COPY_THREADS / TILE_LINES);
            UNROLL for (i32 j = 0; j < CHUNK; ++j) {
                const i32 element = (i32)chunk * CHUNK + j;
                const bool inside = exists && within(element, lines.length);
                elements[i][j] =
                    load_global<(int)sizeof(T)>(source + element * lines.element_stride, inside).template get<T>(0);
            }
        }
        UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i)
            TurnedTile<T>::store(at, thread / TILE_LINES + i * (COPY_THREADS / TILE_LINES), elements[i]);
    }
    barrier();
    UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) {
        const u32 item = i * COPY_THREADS + thread, line = item / TILE_CHUNKS, chunk = item % TILE_CHUNKS;
        const bool inside = within(first_line + line, (u32)lines.count) && within(first_chunk + chunk, lines.chunks());
        T elements[CHUNK];
        TurnedTile<T>::load(line, chunk, elements);
        Writer::write(to + ((first_line + line) * lines.pitch() + (i64)(first_chunk + chunk) * CHUNK), elements,
                      lines.padded(), inside);
    }
}

// The same for lines that are adjacent in memory, PIECE bytes at a time. A warp has 8 pieces of adjacent lines by the
// 16 bytes of a chunk: a lane loads a piece for each element of a word, four bytes of a line, and forms the words of
// its lines. Chunks are swizzled by the number of the piece, so that a warp's store, of four words of eight lines,
// reaches all banks, and so do eight loads of neighbouring chunks.
template <class Writer, int PIECE, class T, class To>
DEVICE void turn_tile(const Lines &lines, gptr<T> from, gptr<To> to, u32 tile) {
    static_assert(sizeof(T) == sizeof(To) && (sizeof(T) == 4 || (sizeof(T) == 1 && PIECE >= 4)), "Words are turned.");
    constexpr u32 LINES = PIECE / sizeof(T), IN_WORD = 4 / sizeof(T), TILE = lines_of_tile(PIECE);
    constexpr u32 CHUNKS = BLOCK_CHUNKS / TILE, PATCHES = 16 / LINES;
    const u32 thread = (u32)thread_index(), lane = thread & 31, line_tiles = lines.line_tiles(TILE);
    const u32 first_line = tile % line_tiles * TILE, first_chunk = tile / line_tiles * CHUNKS;
    const auto place = [&](u32 line, u32 chunk) {
        return shared_base() + (int)((line * CHUNKS + (chunk ^ line / LINES % 8)) * 16);
    };
    Vec<PIECE> pieces[PATCHES][IN_WORD];
    UNROLL for (u32 i = 0; i < PATCHES; ++i) {
        const u32 patch = thread / 32 + i * (COPY_THREADS / 32);
        const u32 line = first_line + (patch / CHUNKS * 8 + lane % 8) * LINES;
        const i32 element = (i32)((first_chunk + patch % CHUNKS) * CHUNK + lane / 8 * IN_WORD);
        const gptr<T> source = from + (element * lines.element_stride + line);
        UNROLL for (u32 j = 0; j < IN_WORD; ++j) {
            const bool inside = within(line, (u32)lines.count) && within(element + (i32)j, lines.length);
            pieces[i][j] = load_global<PIECE>(source + j * lines.element_stride, inside);
        }
    }
    UNROLL for (u32 i = 0; i < PATCHES; ++i) {
        const u32 patch = thread / 32 + i * (COPY_THREADS / 32), chunk = patch % CHUNKS;
        const sptr<u8> words = place((patch / CHUNKS * 8 + lane % 8) * LINES, chunk) + (int)(lane / 8 * 4);
        UNROLL for (u32 j = 0; j < LINES; ++j) store_shared(words + (int)(j * CHUNKS * 16), word_of_line(pieces[i], j));
    }
    barrier();
    UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) {
        const u32 item = i * COPY_THREADS + thread, line = item / CHUNKS, chunk = item % CHUNKS;
        const bool inside = within(first_line + line, (u32)lines.count) && within(first_chunk + chunk, lines.chunks());
        const Vec<16> packed = load_shared<16>(place(line, chunk));
        T elements[CHUNK];
        UNROLL for (i32 j = 0; j < CHUNK; ++j) elements[j] = packed.template get<T>(j);
        Writer::write(to + ((first_line + line) * lines.pitch() + (i64)(first_chunk + chunk) * CHUNK), elements,
                      lines.padded(), inside);
    }
}

// Copies a block's share of an operand. Along a batch axis of stride 0 only the first entry is copied.
template <class Writer, int PIECE, bool TURNED, class Source, class T, class To>
DEVICE void copy_block(const Params &params, const Source &lines, gptr<T> from, gptr<To> to, const i64 (&stride)[3],
                       u32 block) {
    const u32 entry_blocks = lines.template blocks<TURNED, PIECE>();
    const Batch batch = split_batch(params, (i32)(block / entry_blocks));
    i64 entry = 0;
    UNROLL for (int axis = 0; axis < 3; ++axis) {
        if (stride[axis] != 0)
            entry = entry * (axis ? params.batch_inner[axis - 1] : 1) + batch.index[axis];
        else if (batch.index[axis] > 0) {
            cover("repeated");
            return;
        }
    }
    const gptr<T> source = from + batch_offset(stride, batch);
    const gptr<To> copy = to + entry * lines.elements();
    if constexpr (TURNED && PIECE > (int)sizeof(T))
        turn_tile<Writer, PIECE>(lines, source, copy, block % entry_blocks);
    else if constexpr (TURNED)
        transpose_tile<Writer>(lines, source, copy, block % entry_blocks);
    else
        UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) copy_chunk<Writer, PIECE>(
            lines, source, copy, (block % entry_blocks * COPY_ITEMS + i) * COPY_THREADS + (u32)thread_index());
}

// The copying launch: ceil(chunks of a batch entry / 1024) blocks per entry of A, then of B; for a TURNED operand,
// ceil(lines / L) * ceil(chunks of a line / (1024 / L)) blocks, L = lines_of_tile, with 1024 chunks of the source's
// type in shared memory.
// Elements are read as SourceA and SourceB; Writer::write(to, elements of a chunk, stride of parts, whether the chunk
// exists) stores them.
template <class Writer, class SourceA, class SourceB>
DEVICE void copy_operands(const Params &params) {
    if (params.k == 0) {
        cover("nothing_to_copy");
        return;
    }
    u32 block = (u32)block_index();
    gptr<u8> to = first_copy(params);
    if constexpr (A_PIECE) {
        const auto a = lines_of_a(params);
        const u32 blocks = entries(params) * a.template blocks<A_TURNED, A_PIECE>();
        if (within(block, blocks)) {
            cover("copied_a");
            copy_block<Writer, A_PIECE, A_TURNED>(params, a, gptr<SourceA>(params.a), to.as<A_STORED>(), params.a_batch,
                                                  block);
            return;
        }
        block -= blocks, to = to + entries(params) * a.elements() * ELEMENT;
    }
    if constexpr (B_PIECE) {
        cover("copied_b");
        copy_block<Writer, B_PIECE, B_TURNED>(params, lines_of_b(params), gptr<SourceB>(params.b), to.as<B_STORED>(),
                                              params.b_batch, block);
    }
}
