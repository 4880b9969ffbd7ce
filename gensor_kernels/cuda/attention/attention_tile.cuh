// Attention: which part of the problem a block has, and how Q, K and V get into shared memory.
//
// Shared memory holds the block's rows of Q, then a ring of 2 * STAGES tiles of BLOCK_K keys, of K and of V in turn.
// All of them are rows of HEAD elements, swizzled alike; what lies past the head's size or past the keys is zero.
#pragma once
#include "epilogue.cuh"
#include "mma_fragments.cuh"
#include "ragged.cuh"
#include "unrolled.cuh"

using KeyTile = OperandTile<HEAD, 1, K_UNIT, WINDOW_NONE, K_VECTOR>;
using ValueTile = OperandTile<HEAD, 1, V_UNIT, WINDOW_NONE, V_VECTOR>;
constexpr int TILE_BYTES = KeyTile::BYTES, SLOTS = 2 * STAGES, AHEAD = SLOTS - 1,
              QUERY_BYTES = BLOCK_Q * HEAD * ELEMENT;

// Rows of Q and K as the first product reads them: along the head.
struct HeadRows {
    static constexpr bool K_CONTIGUOUS = true;
    using Rows = KeyTile::Rows;
};

// The part of the output that one block computes: BLOCK_Q rows of a batch entry and a head of K and V, over one part
// of the keys. Rows are (query, query head of the group that shares this head), the latter being the inner digit:
// neighbouring rows see nearly the same keys, and a decoding step of many heads fills the rows of a fragment.
struct Work {
    i32 row, rows;          // its first row; the entry's rows
    i32 entry, part;        // number of (batch entry, head of K and V), and of the part of the keys
    i32 key_begin, key_end; // keys of this part that some row of the block sees
    i32 seen;               // every row of the block sees the keys below,
    i32 seen_from;          // and under a window those from here on
    Batch batch;
    // Of sequences of different lengths (attention_sequence.cuh).
    i32 first_query, first_key; // where its rows lie in Q, and its keys in K and V
    i32 keys;                   // how many it has
    i32 place;                  // of the key that belongs to query 0
    i32 sequence;
};

#include "attention_sequence.cuh"

DEVICE void cover_work(const Work &work, bool skipped) {
    if (work.row + BLOCK_Q > work.rows)
        cover("edge_q");
    else
        cover("full_q");
    if (skipped)
        cover("skipped");
}

// The block's part of the keys that its queries see, `first` to `last`. Steps start at multiples of BLOCK_K.
DEVICE void decode_keys(const Params &params, Work &work, i32 first, i32 last) {
    const i32 all = visible(params, work, last);
    work.seen = visible(params, work, first);
#if SLIDING
    // Parts are those of the keys that the block sees: a window may be shorter than a part of all keys.
    const i32 from = first + first_diagonal(params, work), begin = from > 0 ? from / BLOCK_K * BLOCK_K : 0;
    const i32 steps = all > begin ? divide_up(all - begin, BLOCK_K) : 0;
    const i32 part = divide_up(steps, params.split) * BLOCK_K;
    work.seen_from = last + first_diagonal(params, work);
    work.key_begin = begin + work.part * part;
    work.key_end = minimum(work.key_begin + part, all);
    cover_work(work, all < keys_of(params, work));
    if (begin > 0)
        cover("skipped_window");
#else
    work.key_begin = work.part * params.k_per_split;
    const i32 end = work.key_begin + params.k_per_split;
    work.key_end = minimum(end, all);
    cover_work(work, work.key_end < end && work.key_end < params.k);
#endif
}

// Block number -> work: entries outermost, then the parts, then the tiles of rows. The last rows come first: where
// attention is causal they see most.
DEVICE Work decode_work(const Params &params) {
    const u32 tiles = (u32)params.tiles_m, block = (u32)block_index(), outer = block / tiles;
    const i32 group = params.batch_inner[1];
    Work work;
    work.entry = (i32)(outer / (u32)params.split);
    work.part = (i32)(outer % (u32)params.split);
    work.batch = Batch{{work.entry / params.batch_inner[0], work.entry % params.batch_inner[0], 0}};
    work.rows = params.m * group;
    work.row = (i32)(tiles - 1 - block % tiles) * BLOCK_Q;
#if RAGGED
    decode_rows(params, work, (i32)(block % tiles));
    if (work.rows == 0)
        return work;
#endif
#if KEYS_IN
    decode_sequence(params, work);
#endif
    decode_keys(params, work, work.row / group, (minimum(work.row + BLOCK_Q, work.rows) - 1) / group);
    return work;
}

template <int VECTOR>
DEVICE void move_query(sptr<u8> to, gptr<IN_TYPE> from, bool inside) {
#if ASYNC
    if constexpr (VECTOR >= 4)
        return copy_async<VECTOR>(to, from, inside);
#endif
    store_shared(to, load_global<VECTOR>(from, inside));
}

// The block's rows of Q; asynchronous copies join the group that is committed next.
DEVICE void copy_queries(const Params &params, const Work &work) {
    constexpr int EACH = Q_VECTOR / ELEMENT, PIECES = HEAD / EACH, PASSES = BLOCK_Q * PIECES / THREADS;
    static_assert(PASSES * THREADS == BLOCK_Q * PIECES, "Threads share the pieces of Q evenly.");
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.a) + batch_offset(params.a_batch, work.batch)
#if RAGGED
                               + work.first_query * params.a_m
#endif
        ;
    const i32 group = params.batch_inner[1];
    UNROLL_BY_4 for (int pass = 0; pass < PASSES; ++pass) {
        const int piece = thread_index() + pass * THREADS, line = piece / PIECES, column = piece % PIECES * EACH,
                  row = work.row + line;
        const i64 place = row / group * params.a_m + row % group * params.a_batch[2];
        const bool inside = within(row, work.rows) && within(column, params.n);
        move_query<Q_VECTOR>(shared_base() + HeadRows::Rows::offset(line, column * ELEMENT),
                             from + (place + (Q_UNIT ? column : column * params.a_k)), inside);
    }
}

// Copying of K and V, tile by tile in turn. AHEAD tiles are on their way while one is multiplied.
struct Pipeline {
#if KEYS_IN == 2
    PagedCopy<KeyTile> keys;
    PagedCopy<ValueTile> values;
#else
    TileCopy<KeyTile> keys;
    TileCopy<ValueTile> values;
#endif
    int keys_left, values_left; // not yet asked for
    int write, read;            // byte offsets of the tile to fill next, and of the one received last

    MEMBER Pipeline(const Params &params, const Work &work)
#if KEYS_IN == 2
        : keys(params, work, params.b, params.b_batch, params.b_k, params.b_n),
          values(params, work, params.d, params.d_batch, params.d_n, params.d_m),
#else
        : keys(params, work.batch, entry_of(params.b, params.b_batch, work, params.b_n), 0, params.n, params.b_k,
               work.key_begin, work.key_end, params.b_n),
          values(params, work.batch, entry_of(params.d, params.d_batch, work, params.d_m), 0, params.n, params.d_n,
                 work.key_begin, work.key_end, params.d_m),
#endif
          keys_left(work.key_end - work.key_begin), values_left(keys_left), write(QUERY_BYTES),
          read(QUERY_BYTES + (SLOTS - 1) * TILE_BYTES) {
    }

    MEMBER void request_keys(const Params &params) { request(params, keys, keys_left); }
    MEMBER void request_values(const Params &params) { request(params, values, values_left); }

    // Makes the oldest tile asked for visible to the block, and the tile before it free.
    template <class Copy>
    MEMBER sptr<u8> receive(const Copy &copy) {
#if ASYNC
        copy_async_wait<AHEAD - 1>();
#else
        copy.store(shared_base() + write);
        write = next(write);
#endif
        barrier();
        read = next(read);
        return shared_base() + read;
    }

    // Asks for the next tile. Tiles past the end are all zeros.
    template <class Copy>
    MEMBER void request(const Params &params, Copy &copy, int &left) {
#if ASYNC
        copy.copy(params, left, shared_base() + write);
        copy_async_commit();
        write = next(write);
#else
        copy.load(params, left);
#endif
        left -= BLOCK_K;
    }
    static MEMBER int next(int offset) {
        return offset == QUERY_BYTES + (SLOTS - 1) * TILE_BYTES ? QUERY_BYTES : offset + TILE_BYTES;
    }
};
