// Copies of operands that a launch in front of the product writes into the workspace, behind the partial sums of a
// split: A, then B, [batch entry][line][element], lines of whole accesses of 16 bytes, along k where A_LAYOUT
// (B_LAYOUT) is 0. With PARTS 3 a line is that of every part, one behind the other, each of whole steps of the product.
// Batch axes that are broadcast have one entry. Of a convolution a line is what a pixel has, or a filter under
// one tap (divided_image.cuh).
#pragma once
#include "wgmma_ring.cuh"

constexpr u32 COPY_THREADS = 256, COPY_ITEMS = 4; // of a block, of a thread
constexpr i32 CHUNK = 16 / ELEMENT;               // elements of a store
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
    MEMBER u32 blocks() const {
        constexpr u32 OF_BLOCK = COPY_THREADS * COPY_ITEMS;
        return (chunks() * (u32)count + OF_BLOCK - 1) / OF_BLOCK;
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

// One chunk of a line. Neighbouring threads take what lies side by side in the source.
template <class Writer, int PIECE, bool TURNED, class Source, class T, class To>
DEVICE void copy_chunk(const Source &lines, gptr<T> from, gptr<To> to, u32 item) {
    constexpr i32 EACH = PIECE / (i32)sizeof(T);
    const u32 inner = TURNED ? (u32)lines.count : lines.chunks();
    const u32 line = TURNED ? item % inner : item / inner, chunk = TURNED ? item / inner : item % inner;
    const bool mine = within(item, lines.chunks() * (u32)lines.count);
    const i32 first = (i32)chunk * CHUNK;
    const gptr<T> source = from + (lines.begin(line) + first * (TURNED ? lines.step : 1));
    const bool exists = mine && lines.exists(line);
    T elements[CHUNK];
    UNROLL for (i32 i = 0; i < CHUNK; i += EACH) {
        const bool inside = exists && within(first + i, lines.length);
        const Vec<PIECE> piece = load_global<PIECE>(source + i * (TURNED ? lines.step : 1), inside);
        UNROLL for (i32 j = 0; j < EACH; ++j) elements[i + j] = piece.template get<T>(j);
    }
    Writer::write(to + (line * lines.pitch() + first), elements, lines.padded(), mine);
}

// A block's share of an operand. Entries that repeat another one, along an axis of stride 0, are not copied again.
template <class Writer, int PIECE, bool TURNED, class Source, class T, class To>
DEVICE void copy_block(const Params &params, const Source &lines, gptr<T> from, gptr<To> to, const i64 (&stride)[3],
                       u32 block) {
    const Batch batch = split_batch(params, (i32)(block / lines.blocks()));
    i64 number = 0;
    UNROLL for (int axis = 0; axis < 3; ++axis) {
        if (stride[axis] != 0)
            number = number * (axis ? params.batch_inner[axis - 1] : 1) + batch.index[axis];
        else if (batch.index[axis] > 0) {
            cover("repeated");
            return;
        }
    }
    UNROLL for (u32 i = 0; i < COPY_ITEMS; ++i) copy_chunk<Writer, PIECE, TURNED>(
        lines, from + batch_offset(stride, batch), to + number * lines.elements(),
        ((block % lines.blocks()) * COPY_ITEMS + i) * COPY_THREADS + (u32)thread_index());
}

// The launch: blocks of COPY_THREADS threads with COPY_ITEMS chunks each, ceil(chunks of a batch entry / 1024) per
// entry of A, then of B. Elements are read as OfA and OfB; Writer::write(to, elements of a chunk, from part to part,
// whether there is a chunk) writes them.
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
    const u32 of_a = entries(params) * a.blocks();
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
