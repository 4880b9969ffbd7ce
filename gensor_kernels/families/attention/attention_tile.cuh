// Attention: how Q, K and V are copied to shared memory.
//
// Shared memory holds the block's rows of Q, then a ring of 2 * STAGES tiles of BLOCK_K keys, alternately of K and V.
// All are rows of HEAD elements with one swizzle. Elements past the head's size and rows past the keys are zero.
#pragma once
#include "mma_fragments.cuh"
#include "unrolled.cuh"

#include "attention_work.cuh" // pages need the copies of tiles

using KeyTile = OperandTile<HEAD, 1, K_UNIT, WINDOW_NONE, K_VECTOR>;
using ValueTile = OperandTile<HEAD, 1, V_UNIT, WINDOW_NONE, V_VECTOR>;
constexpr int TILE_BYTES = KeyTile::BYTES, SLOTS = 2 * STAGES, AHEAD = SLOTS - 1,
              QUERY_BYTES = BLOCK_Q * HEAD * ELEMENT;

// The first product reads rows of Q and K along the head.
struct HeadRows {
    static constexpr bool K_CONTIGUOUS = true;
    using Rows = KeyTile::Rows;
};

template <int VECTOR>
DEVICE void move_query(sptr<u8> to, gptr<IN_TYPE> from, bool inside) {
    if constexpr (ASYNC && VECTOR >= 4)
        return copy_async<VECTOR>(to, from, inside);
    store_shared(to, load_global<VECTOR>(from, inside));
}

// The block's rows of Q; asynchronous copies join the group that is committed next.
DEVICE void copy_queries(const Params &params, const Work &work) {
    constexpr int EACH = Q_VECTOR / ELEMENT, PIECES = HEAD / EACH, PASSES = BLOCK_Q * PIECES / THREADS;
    static_assert(PASSES * THREADS == BLOCK_Q * PIECES, "Threads share the pieces of Q evenly.");
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.a) + batch_offset(params.a_batch, work.batch) +
                               (RAGGED ? work.first_query * params.a_m : 0);
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

// Copies tiles of K and V alternately. AHEAD tiles are in flight while one is multiplied.
struct Pipeline {
#if KEYS_IN == 2
    PagedCopy<KeyTile> keys;
    PagedCopy<ValueTile> values;
#else
    TileCopy<KeyTile> keys;
    TileCopy<ValueTile> values;
#endif
    int keys_left, values_left; // not yet requested
    int write, read;            // byte offsets of the tile to fill next, and of the tile received last

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

    // Makes the oldest requested tile visible to the block, and frees the tile before it.
    template <class Copy>
    MEMBER sptr<u8> receive(const Copy &copy) {
        if constexpr (ASYNC) {
            copy_async_wait<AHEAD - 1>();
        } else {
            copy.store(shared_base() + write);
            write = next(write);
        }
        barrier();
        read = next(read);
        return shared_base() + read;
    }

    // Requests the next tile. Tiles past the end are all zeros.
    template <class Copy>
    MEMBER void request(const Params &params, Copy &copy, int &left) {
        if constexpr (ASYNC) {
            copy.copy(params, left, shared_base() + write);
            copy_async_commit();
            write = next(write);
        } else {
            copy.load(params, left);
        }
        left -= BLOCK_K;
    }
    static MEMBER int next(int offset) {
        return offset == QUERY_BYTES + (SLOTS - 1) * TILE_BYTES ? QUERY_BYTES : offset + TILE_BYTES;
    }
};
