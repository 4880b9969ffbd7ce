// Attention over sequences of different lengths: the rows and keys of a block's sequence, and keys in pages.
//
// The ends of the sequences are in device memory (int32), so the host launches enough blocks for any ends, and each
// block finds its own sequence (ragged.cuh). Rows after the last end belong to no sequence: they see no key and become
// zeros. Ends, lengths and page counts out of range may make results wrong, but no address leaves an operand.
#pragma once

// Number of keys in Params, or of the block's sequence.
DEVICE i32 keys_of([[maybe_unused]] const Params &params, [[maybe_unused]] const Work &work) {
    return KEYS_IN ? work.keys : params.k;
}
// End of the keys that a query sees. They begin at query + first_diagonal.
DEVICE i32 visible(const Params &params, [[maybe_unused]] const Work &work, i32 query) {
#if KEYS_IN
    return minimum(work.keys, query + (params.attention.diagonal + work.place));
#else
    return minimum(params.k, query + params.attention.diagonal);
#endif
}
DEVICE i32 first_diagonal(const Params &params, [[maybe_unused]] const Work &work) {
    return params.attention.first_diagonal + (KEYS_IN ? work.place : 0);
}

#if RAGGED
DEVICE i32 first_query_of(const Params &params, i32 sequence) {
    const Attention &own = params.attention;
    return minimum(rows_before(gptr<i32>(own.query_ends), 1, own.sequences, sequence), params.m);
}

// Finds the sequence of the block and its first row there. A surplus block has no rows. The last rows of a sequence
// come first: where attention is causal they see most.
DEVICE void decode_rows(const Params &params, Work &work, i32 tile) {
    const i32 group = params.batch_inner[1], each = rows_of_block(params);
    const GroupRows own = find_group(params.attention.sequences, params.m * group, each, tile,
                                     [&](i32 sequence) { return first_query_of(params, sequence) * group; });
    work.sequence = own.group;
    work.first_query = first_query_of(params, own.group);
    const i32 first = work.first_query * group;
    work.rows = own.row == own.end ? 0 : own.end - first;
    work.row = (work.rows - 1) / each * each - (own.row - first);
    if (work.rows == 0)
        cover("spare");
    else if (own.group == params.attention.sequences)
        cover("rest");
}
#endif

#if KEYS_IN
// The keys of the block's sequence.
DEVICE void decode_sequence(const Params &params, Work &work) {
    const Attention &own = params.attention;
    const i32 group = params.batch_inner[1];
    if (!RAGGED)
        work.sequence = work.batch.index[0];
    const bool listed = within(work.sequence, own.sequences);
    const gptr<i32> ends = gptr<i32>(own.key_ends);
    i32 end;
    if (KEYS_IN == KEYS_PACKED) {
        work.first_key = rows_before(ends, 1, own.sequences, work.sequence); // no keys after the end
        end = listed ? minimum(rows_before(ends, 1, own.sequences, work.sequence + 1), params.k) : 0;
    } else {
        work.first_key = 0;
        end = minimum(load_global<4>(ends + work.sequence, listed).get<i32>(0), params.k);
    }
    work.keys = end > work.first_key ? end - work.first_key : 0;
    work.place = own.upper_left ? 0 : work.keys - work.rows / group;
}
#endif

// Address of the first key of the block's entry in K or V.
DEVICE gptr<IN_TYPE> entry_of(u64 operand, const i64 (&batch)[3], const Work &work, [[maybe_unused]] i64 key_step) {
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(operand) + batch_offset(batch, work.batch);
#if KEYS_IN == 1
    return from + work.first_key * key_step;
#else
    return from;
#endif
}

#if KEYS_IN == 2
// Copies tiles of keys in pages. A thread loads the page numbers of its keys one step ahead.
template <class Shape>
struct PagedCopy : TileCopy<Shape> {
    gptr<u8> first;          // this thread's first byte in key 0 of page 0
    gptr<i32> table;         // the page numbers of the sequence
    i32 page_step, key_step; // bytes; the host ensures that they fit 32 bits, so that a product is one instruction
    i64 column_step;
    i32 key, keys; // this thread's first key of the next step; end of the keys that the block reads
    i32 page[Shape::PASSES];

    MEMBER PagedCopy(const Params &params, const Work &work, u64 operand, const i64 (&batch)[3], i64 step, i64 key_step)
        : TileCopy<Shape>(params, work.batch, gptr<IN_TYPE>(operand), 0, params.n, step, 0, work.key_end, key_step),
          first((gptr<IN_TYPE>(operand) +
                 (work.batch.index[1] * batch[1] + this->own_column() * (Shape::UNIT ? 1 : step)))
                    .template as<u8>()),
          table(gptr<i32>(params.attention.table) + work.sequence * params.attention.table_row),
          page_step((i32)(batch[0] * ELEMENT)), key_step((i32)(key_step * ELEMENT)),
          column_step(Shape::PACE * (Shape::UNIT ? 1 : step)), key(work.key_begin + this->own_line()),
          keys(work.key_end) {
        find_pages(params);
    }

    MEMBER void find_pages(const Params &params) {
        UNROLL for (int pass = 0; pass < Shape::PASSES; ++pass) {
            const i32 own = key + pass * Shape::LINES;
            const bool inside = within(own, keys);
            const i32 found = load_global<4>(table + (own >> params.attention.page_shift), inside).get<i32>(0);
            page[pass] = inside ? found : -1;
        }
    }

    // Like TileCopy::for_each. Pages outside of K and V and rows after the last key are zeros.
    template <class Move>
    MEMBER void for_each(const Params &params, const Move &move) {
        const i32 in_page = (1 << params.attention.page_shift) - 1;
        UNROLL for (int pass = 0; pass < Shape::PASSES; ++pass) {
            const i32 own = key + pass * Shape::LINES;
            const bool there = within((u32)page[pass], (u32)params.attention.pages);
            const gptr<u8> from = first + (i64)page[pass] * page_step + (i64)(own & in_page) * key_step;
            const gptr<IN_TYPE> row = from.template as<IN_TYPE>();
            UNROLL for (int column = 0; column < Shape::COLUMNS; ++column)
                move(pass, column, row + column * column_step, there && (this->inside >> column & 1));
        }
        key += BLOCK_K;
        find_pages(params);
    }
    MEMBER void copy(const Params &params, int, sptr<u8> tile) {
        for_each(params, [&](int pass, int column, gptr<IN_TYPE> from, bool predicate) {
            if (this->in_tile(pass))
                copy_async<Shape::VECTOR>(tile + this->place(pass, column), from, predicate);
        });
    }
    MEMBER void load(const Params &params, int) {
        for_each(params, [&](int pass, int column, gptr<IN_TYPE> from, bool predicate) {
            this->staged[pass * Shape::COLUMNS + column] = load_global<Shape::VECTOR>(from, predicate);
        });
    }
};
#endif
