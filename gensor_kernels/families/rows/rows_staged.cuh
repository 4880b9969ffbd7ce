// Rows of a few elements in shared memory (STAGED): a block copies its rows there together, and each thread then folds
// STAGED of them alone. Mapped rows replace x in place, and are copied to C together.
//
// Bytes are counted from the 16-byte boundary at or before the block's first element, so that adjacent rows are copied
// in whole, aligned vectors wherever x begins.
#pragma once
#include "rows_source.cuh"

#if STAGED
enum { ELEMENT = sizeof(IN_TYPE), BLOCK_ROWS = STAGED * THREADS };

// The rows of a block: their number, and the bytes of their elements.
struct Stage {
    i32 first, rows; // of x, which is one batch entry
    i32 begin, end;
};

DEVICE u64 address_of_row(u64 array, const Params &params, i32 line) {
    return array + (u64)((i64)line * params.k * ELEMENT);
}

DEVICE Stage find_stage(const Params &params) {
    Stage stage;
    stage.first = block_index() * BLOCK_ROWS;
    stage.rows = minimum((i32)BLOCK_ROWS, params.m - stage.first);
    stage.begin = (i32)(address_of_row(params.a, params, stage.first) & 15);
    stage.end = stage.begin + stage.rows * params.k * ELEMENT;
    return stage;
}

// Copies an element from x, or to C.
template <bool IN>
DEVICE void copy_element(u64 address, i32 byte) {
    if constexpr (IN)
        store_shared(shared_base() + byte, load_global<ELEMENT>(gptr<u8>(address), true));
    else
        store_global(gptr<u8>(address), load_shared<ELEMENT>(shared_base() + byte), true);
}

// Copies rows that follow one another in memory, vector by vector, and the elements before and after whole vectors one
// by one.
template <bool IN>
DEVICE void copy_adjacent(const Stage &stage, u64 first) {
    constexpr int AT_ONCE = IN ? 4 : 1, STRIDE = THREADS * 16, PER = 16 / ELEMENT;
    const u64 base = first - stage.begin;
    const i32 whole = (stage.begin + 15) / 16 * 16, rest = stage.end / 16 * 16;
    ROLLED for (i32 at = whole + thread_index() * 16; within(at, rest); at += AT_ONCE * STRIDE) {
        if constexpr (IN) {
            Vec<16> v[AT_ONCE];
            UNROLL for (int i = 0; i < AT_ONCE; ++i) v[i] =
                load_global<16>(gptr<u8>(base + at) + i * STRIDE, within(at + i * STRIDE, rest));
            UNROLL for (int i = 0; i < AT_ONCE; ++i) {
                if (within(at + i * STRIDE, rest))
                    store_shared(shared_base() + (at + i * STRIDE), v[i]);
            }
        } else {
            store_global(gptr<u8>(base + at), load_shared<16>(shared_base() + at), true);
        }
    }
    // PER threads for each end.
    const bool head = within(thread_index(), PER);
    const i32 byte = (head ? 0 : rest) + thread_index() % PER * ELEMENT;
    const i32 low = head ? stage.begin : whole, high = head ? minimum(whole, stage.end) : stage.end;
    if (within(thread_index(), 2 * PER) && !within(byte, low) && within(byte, high)) {
        cover("staged_edge");
        copy_element<IN>(base + byte, byte);
    }
}

// Copies rows at any distance from each other, neighbouring elements by neighbouring threads.
template <bool IN>
DEVICE void copy_apart(const Params &params, const Stage &stage) {
    cover("rows_apart");
    if (!within(stage.begin, stage.end))
        return; // no elements: k is zero
    const i32 k = params.k, pace = THREADS / k, rest = THREADS % k;
    i32 row = thread_index() / k, column = thread_index() % k;
    ROLLED for (i32 byte = stage.begin + thread_index() * ELEMENT; within(byte, stage.end); byte += THREADS * ELEMENT) {
        const i64 offset =
            IN ? (stage.first + row) * params.a_m + column : (stage.first + row) * params.c_m + column * params.c_n;
        copy_element<IN>((IN ? params.a : params.c) + (u64)(offset * ELEMENT), byte);
        row += pace, column += rest;
        if (!within(column, k))
            row += 1, column -= k;
    }
}

template <bool IN>
DEVICE void copy_rows(const Params &params, const Stage &stage) {
    const u64 first = address_of_row(IN ? params.a : params.c, params, stage.first);
    const bool adjacent = (IN ? params.a_m : params.c_m) == params.k && (IN || C_UNIT);
    if (adjacent && (i32)(first & 15) == stage.begin)
        copy_adjacent<IN>(stage, first);
    else
        copy_apart<IN>(params, stage);
}

// Row number `row` of those that the block has staged.
DEVICE Spot find_staged_spot(const Params &params, const Stage &stage, i32 row) {
    Spot spot;
    spot.batch = Batch{};
    spot.row = spot.line = stage.first + row;
    spot.column = spot.lane = spot.begin = spot.part = 0;
    spot.end = params.k;
    spot.inside = true;
    spot.staged = shared_base() + (stage.begin + row * params.k * ELEMENT);
    return spot;
}
#endif
