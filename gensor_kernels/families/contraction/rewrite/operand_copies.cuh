// Copies of operands that a launch in front of the product writes into the workspace, behind the partial sums of a
// split: A, then B, [batch entry][line][element], lines of whole accesses of 16 bytes, along k where A_LAYOUT
// (B_LAYOUT) is 0. With PARTS 3 a line is that of every part, one behind the other, each of whole steps of the product.
// Batch axes that are broadcast have one entry. Of a convolution a line is what a pixel has, or a filter under
// one tap (divided_image.cuh).
#pragma once
#include "wgmma_ring.cuh"

constexpr u32 COPY_THREADS = 256, COPY_ITEMS = 4; // threads of a block, chunks of a thread
constexpr u32 TILE_LINES = 64, TILE_CHUNKS = COPY_THREADS * COPY_ITEMS / TILE_LINES; // a block's tile where TURNED
constexpr i32 CHUNK = 16 / ELEMENT;                                                  // elements of a store
constexpr i32 WHOLE = PARTS > 1 ? BLOCK_K : CHUNK;

// One batch entry of an operand: `count` lines of `length` elements, which lie `step` and `across` apart.
struct Lines {
    i64 step, across;
    i32 length, count;

    // Where a line begins, and whether it lies in the operand.
    MEMBER i64 begin(u32 line) const { return line * across; }
    MEMBER bool exists(u32) const { return true; }

    MEMBER i64 padded() const { return ((i64)length + WHOLE - 1) / WHOLE * WHOLE; }
    MEMBER i64 pitch() const { return padded() * PARTS; }
    MEMBER u32 chunks() const { return (u32)(padded() / CHUNK); }
    // Tiles side by side.
    MEMBER u32 tiles_across() const { return ((u32)count + TILE_LINES - 1) / TILE_LINES; }
    template <bool TURNED>
    MEMBER u32 blocks() const {
        constexpr u32 OF_BLOCK = COPY_THREADS * COPY_ITEMS;
        return TURNED ? tiles_across() * ((chunks() + TILE_CHUNKS - 1) / TILE_CHUNKS)
                      : (chunks() * (u32)count + OF_BLOCK - 1) / OF_BLOCK;
    }
    MEMBER i64 elements() const { return pitch() * count; }
};

// Batch entries that are copied one by one: those of a convolution are images, all of which are lines of one.
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

// Where the copies begin.
DEVICE gptr<u8> copies(const Params &params) {
    const i64 lines = SPLIT ? (i64)params.split * params.batch * params.m : 0;
    return (gptr<ACC_TYPE>(params.workspace) + lines * workspace_columns(params.n)).as<u8>();
}

// One chunk of a line. Neighbouring threads take neighbouring chunks.
template <class Writer, int PIECE, class Source, class T, class To>
DEVICE void copy_chunk(const Source &lines, gptr<T> from, gptr<To> to, u32 item) {
    constexpr i32 EACH = PIECE / (i32)sizeof(T);
    const u32 line = item / lines.chunks(), chunk = item % lines.chunks();
    const bool mine = within(item, lines.chunks() * (u32)lines.count);
    const i32 first = (i32)chunk * CHUNK;
    const gptr<T> source = from + (lines.begin(line) + first);
    const bool exists = mine && lines.exists(line);
    T elements[CHUNK];
    UNROLL for (i32 i = 0; i < CHUNK; i += EACH) {
        const Vec<PIECE> piece = load_global<PIECE>(source + i, exists && within(first + i, lines.length));
        UNROLL for (i32 j = 0; j < EACH; ++j) elements[i + j] = piece.template get<T>(j);
    }
    Writer::write(to + (line * lines.pitch() + first), elements, lines.padded(), mine);
}

// A tile of chunks in shared memory, line by line: of a line the first BYTES of all chunks, then the rest of all
// chunks. Within each 128 bytes chunks change places by the line's number: eight lanes with 16 bytes each reach all
// banks, whether they have neighbouring lines or neighbouring chunks.
template <class T>
struct TurnedTile {
    static constexpr int OF_CHUNK = CHUNK * (int)sizeof(T), BYTES = OF_CHUNK < 16 ? OF_CHUNK : 16;
    static constexpr int ACCESSES = OF_CHUNK / BYTES, EACH = BYTES / (int)sizeof(T);

    static MEMBER sptr<u8> place(u32 line, u32 chunk, int access) {
        const u32 at = ((u32)access * TILE_CHUNKS + chunk) ^ line % (128 / BYTES);
        return shared_base() + (int)((line * (TILE_CHUNKS * ACCESSES) + at) * BYTES);
    }
    static MEMBER void put(u32 line, u32 chunk, const T (&elements)[CHUNK]) {
        UNROLL for (int access = 0; access < ACCESSES; ++access) {
            Vec<BYTES> packed = Vec<BYTES>::zero();
            UNROLL for (int i = 0; i < EACH; ++i) packed.set(i, elements[access * EACH + i]);
            store_shared(place(line, chunk, access), packed);
        }
    }
    static MEMBER void get(u32 line, u32 chunk, T (&elements)[CHUNK]) {
        UNROLL for (int access = 0; access < ACCESSES; ++access) {
            const Vec<BYTES> packed = load_shared<BYTES>(place(line, chunk, access));
            UNROLL for (int i = 0; i < EACH; ++i) elements[access * EACH + i] = packed.template get<T>(i);
        }
    }
};

// A tile of a turned operand. Neighbouring threads load from neighbouring lines, which lie side by side in the source,
// and store neighbouring chunks of a line: without the detour through shared memory each store would fill half a
// sector.
template <class Writer, class Source, class T, class To>
DEVICE void turn_tile(const Source &lines, gptr<T> from, gptr<To> to, u32 tile) {
    const u32 thread = (u32)thread_index(), across = lines.tiles_across();
    const u32 first_line = tile % across * TILE_LINES, first_chunk = tile / across * TILE_CHUNKS;
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
                elements[i][j] = load_global<(int)sizeof(T)>(source + element * lines.step, inside).template get<T>(0);
            }
        }
        UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i)
            TurnedTile<T>::put(at, thread / TILE_LINES + i * (COPY_THREADS / TILE_LINES), elements[i]);
    }
    barrier();
    UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) {
        const u32 item = i * COPY_THREADS + thread, line = item / TILE_CHUNKS, chunk = item % TILE_CHUNKS;
        const bool mine = within(first_line + line, (u32)lines.count) && within(first_chunk + chunk, lines.chunks());
        T elements[CHUNK];
        TurnedTile<T>::get(line, chunk, elements);
        Writer::write(to + ((first_line + line) * lines.pitch() + (i64)(first_chunk + chunk) * CHUNK), elements,
                      lines.padded(), mine);
    }
}

// A block's share of an operand. Entries that repeat another one, along an axis of stride 0, are not copied again.
template <class Writer, int PIECE, bool TURNED, class Source, class T, class To>
DEVICE void copy_block(const Params &params, const Source &lines, gptr<T> from, gptr<To> to, const i64 (&stride)[3],
                       u32 block) {
    const u32 of_entry = lines.template blocks<TURNED>();
    const Batch batch = split_batch(params, (i32)(block / of_entry));
    i64 number = 0;
    UNROLL for (int axis = 0; axis < 3; ++axis) {
        if (stride[axis] != 0)
            number = number * (axis ? params.batch_inner[axis - 1] : 1) + batch.index[axis];
        else if (batch.index[axis] > 0) {
            cover("repeated");
            return;
        }
    }
    const gptr<T> source = from + batch_offset(stride, batch);
    const gptr<To> copy = to + number * lines.elements();
    if constexpr (TURNED)
        turn_tile<Writer>(lines, source, copy, block % of_entry);
    else
        UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) copy_chunk<Writer, PIECE>(
            lines, source, copy, (block % of_entry * COPY_ITEMS + i) * COPY_THREADS + (u32)thread_index());
}

// The launch: blocks of COPY_THREADS threads with COPY_ITEMS chunks each, ceil(chunks of a batch entry / 1024) per
// entry of A, then of B; where TURNED, ceil(lines / 64) * ceil(chunks of a line / 16), and 1024 chunks of the source's
// elements in shared memory. Elements are read as OfA and OfB; Writer::write(to, elements of a chunk, from part to
// part, whether there is a chunk) writes them.
template <class Writer, class OfA, class OfB>
DEVICE void copy_operands(const Params &params) {
    if (params.k == 0) {
        cover("nothing_to_copy");
        return;
    }
    [[maybe_unused]] u32 block = (u32)block_index();
    [[maybe_unused]] gptr<u8> to = copies(params);
#if A_PIECE
    const auto a = lines_of_a(params);
    const u32 of_a = entries(params) * a.template blocks<A_TURNED>();
    if (within(block, of_a)) {
        cover("copied_a");
        copy_block<Writer, A_PIECE, A_TURNED>(params, a, gptr<OfA>(params.a), to.as<A_STORED>(), params.a_batch, block);
        return;
    }
    block -= of_a, to = to + entries(params) * a.elements() * ELEMENT;
#endif
#if B_PIECE
    cover("copied_b");
    copy_block<Writer, B_PIECE, B_TURNED>(params, lines_of_b(params), gptr<OfB>(params.b), to.as<B_STORED>(),
                                          params.b_batch, block);
#endif
}
