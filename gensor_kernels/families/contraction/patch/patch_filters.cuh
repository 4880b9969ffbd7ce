// Copies the filters of a block in their own layout, [filter][channel][tap], then arranges them as
// [tap][plane][filter][16 bytes of channels], from which ldmatrix reads fragments.
#pragma once
#include "patch_tile.cuh"

constexpr i32 MERGED_GROUPS = MERGED > 0 ? MERGED : 1;

// With MERGED: the words (four bytes of channels) of a step that belong to the group of a filter. The block-diagonal
// matrix holds the filter there and zeros elsewhere.
struct Diagonal {
    i32 first;   // the tile's first filter
    i32 filters; // of a group
    i32 words;   // of a group's channels

    MEMBER Diagonal(const Params &params, const Patch &patch, const Tile &tile) {
        first = tile.row, filters = params.m / MERGED_GROUPS;
        words = params.k / (MERGED_GROUPS * patch.taps) * ELEMENT / 4;
    }
    // The index of a step's word in the group of a filter of the tile. Words of other groups have negative indices or
    // indices of `words` or more.
    MEMBER i32 word_of_group(i32 filter, i32 word) const {
        return word - (i32)((u32)(first + filter) / (u32)filters) * words;
    }
};

// Copies a thread's pieces of a step, of A_VECTOR bytes; a thread's pieces are THREADS apart.
struct FilterCopy {
    static constexpr int PIECE = A_VECTOR / ELEMENT;
    gptr<IN_TYPE> source; // the tile's first filter, at the step's first k
    i64 filter;           // elements from filter to filter
    i32 filters, left;    // filters left from the tile's first one on; k left from the step's first k on
    i32 row, piece;       // this thread's first filter, and the piece of it
    i32 filter_pieces;    // pieces of a filter
    i32 advance[2];       // from one of a thread's pieces to the next, in filters and pieces
    i32 pitch, depth;

    MEMBER FilterCopy(const Params &params, const Patch &patch, const Tile &tile)
        : filter(params.a_m), filters(tile.end - tile.row), left((tile.k_end - tile.k_begin) / MERGED_GROUPS),
          pitch(patch.pitch()), depth(BLOCK_K * patch.taps) {
        source =
            gptr<IN_TYPE>(params.a) + (batch_offset(params.a_batch, tile.batch) + tile.row * filter + tile.k_begin);
        filter_pieces = (MERGED > 0 && left > 0 ? left : depth) / PIECE;
        row = thread_index() / filter_pieces, piece = thread_index() % filter_pieces;
        advance[0] = THREADS / filter_pieces, advance[1] = THREADS % filter_pieces;
    }
    // Starts the copies of a step and advances to the next step.
    MEMBER void copy(sptr<u8> stage) {
        i32 p = piece;
        ROLLED for (i32 r = row; within(r, BLOCK_M); r += advance[0]) {
            copy_async<A_VECTOR>(stage + (r * pitch + p * A_VECTOR), source + (r * filter + p * PIECE),
                                 within(r, filters) && within(p * PIECE, left));
            p += advance[1];
            const bool carry = !within(p, filter_pieces);
            p -= carry ? filter_pieces : 0;
            r += carry ? 1 : 0;
        }
        source = source + depth;
        left -= depth;
    }
};

// The selector of byte_permute that replaces element `to` by element `from` of the other word.
DEVICE constexpr u32 select_element(int from, int to) {
    return ELEMENT == 1 ? (0x3210u & ~(15u << (4 * to & 31))) | (u32)(4 + from) << (4 * to & 31)
                        : (0x3210u & ~(255u << (8 * to & 31))) | (u32)(0x54 + 0x22 * from) << (8 * to & 31);
}

// Transposes four bytes of channels of a filter with COUNT taps: COUNT words [channel][tap] become a word per tap,
// stored PLANES * BLOCK_M * 16 bytes apart.
template <int COUNT>
DEVICE void arrange_taps(sptr<u8> from, sptr<u8> to) {
    u32 word[COUNT];
    UNROLL for (int w = 0; w < COUNT; ++w) word[w] = load_shared<4>(from + w * 4).template get<u32>(0);
    UNROLL for (int tap = 0; tap < COUNT; ++tap) {
        Vec<4> channels = Vec<4>::zero();
        UNROLL for (int c = 0; c < 4 / ELEMENT; ++c) {
            const int at = (c * COUNT + tap) * ELEMENT;
            channels.word[0] = byte_permute(channels.word[0], word[at / 4], select_element(at % 4 / ELEMENT, c));
        }
        store_shared(to + tap * (PLANES * BLOCK_M * 16), channels);
    }
}

// The same for any number of taps. Each pass reads a word of taps of every channel, from any byte offset.
DEVICE void arrange_taps(i32 count, sptr<u8> from, sptr<u8> to) {
    constexpr i32 GROUP = 4 / ELEMENT; // channels, and taps, of a word
    const i32 last = 4 * (count - 1);
    u32 word[GROUP];
    UNROLL for (int c = 0; c < GROUP; ++c) word[c] =
        load_shared<4>(from + (c * count * ELEMENT & ~3)).template get<u32>(0);
    ROLLED for (i32 tap = 0; within(tap, count); tap += GROUP) {
        u32 taps[GROUP];
        UNROLL for (int c = 0; c < GROUP; ++c) {
            const i32 first = (c * count + tap) * ELEMENT;
            // The last word is read again instead of the word after it, whose taps are not used.
            const u32 next = load_shared<4>(from + minimum((first & ~3) + 4, last)).template get<u32>(0);
            taps[c] = byte_permute(word[c], next, 0x3210u + 0x1111u * (first & 3));
            word[c] = next;
        }
        UNROLL for (int i = 0; i < GROUP; ++i) {
            Vec<4> channels = Vec<4>::zero();
            UNROLL for (int c = 0; c < GROUP; ++c) channels.word[0] =
                byte_permute(channels.word[0], taps[c], select_element(i, c));
            if (within(tap + i, count))
                store_shared(to, channels);
            to = to + PLANES * BLOCK_M * 16;
        }
    }
}

// Arranges a step's filters. Each access of a warp covers 4 words of 8 filters: reads and writes have no bank conflicts
// for an odd number of taps.
DEVICE void arrange_filters(const Patch &patch, const Diagonal &diagonal, sptr<u8> copied, sptr<u8> arranged) {
    ROLLED for (i32 item = thread_index(); within(item, PLANES * BLOCK_M * 4); item += THREADS) {
        const i32 filter = item / 4 % BLOCK_M;
        i32 word = item / (4 * BLOCK_M) * 4 + item % 4;
        if constexpr (MERGED > 0) {
            word = diagonal.word_of_group(filter, word);
            if (!within((u32)word, (u32)diagonal.words)) {
                cover("other_group");
                const i32 count = TAPS > 0 ? TAPS : patch.taps;
                UNROLL_BY_4 for (i32 tap = 0; within(tap, count); ++tap)
                    store_shared(arranged + (item * 4 + tap * (PLANES * BLOCK_M * 16)), Vec<4>::zero());
                continue;
            }
        }
        const sptr<u8> from = copied + (filter * patch.pitch() + word * 4 * patch.taps);
        if constexpr (TAPS > 0)
            arrange_taps<TAPS>(from, arranged + item * 4);
        else
            arrange_taps(patch.taps, from, arranged + item * 4);
    }
}

// Fragments of 16 filters x 32 bytes of channels under one tap.
struct FilterFragments {
    i32 base; // this lane's byte offset under the first tap

    MEMBER explicit FilterFragments(int row) {
        const int lane = thread_index() & 31;
        base = ((lane >> 4) * BLOCK_M + row + (lane & 15)) * 16;
    }
    MEMBER void load(u32 (&fragment)[4], sptr<u8> tap, int i, int k) const {
        load_matrix<4, false>(fragment, tap + (base + (2 * k * BLOCK_M + 16 * i) * 16));
    }
};
