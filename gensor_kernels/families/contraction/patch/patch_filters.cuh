// The filters of a block: copied as they are, [filter][channel][tap], then arranged as [tap][plane][filter][16 bytes of
// channels], from which ldmatrix reads fragments.
#pragma once
#include "patch_tile.cuh"

constexpr i32 MERGED_GROUPS = MERGED > 0 ? MERGED : 1;

// With MERGED: which words, of four bytes of channels, of a step belong to the group of a filter. A filter multiplies
// those, and all others by zero.
struct Diagonal {
    i32 first;   // the tile's first filter
    i32 filters; // of a group
    i32 words;   // of a group's channels

    MEMBER Diagonal(const Params &params, const Patch &patch, const Tile &tile) {
        first = tile.row, filters = params.m / MERGED_GROUPS;
        words = params.k / (MERGED_GROUPS * patch.taps) * ELEMENT / 4;
    }
    // The number of a step's word among those of the group of a filter of the tile: below 0 or `words` and above for
    // words of other groups.
    MEMBER i32 word_of_group(i32 filter, i32 word) const {
        return word - (i32)((u32)(first + filter) / (u32)filters) * words;
    }
};

// A thread's pieces of a step: A_VECTOR bytes each, THREADS apart through all filters.
struct FilterCopy {
    static constexpr int PIECE = A_VECTOR / ELEMENT;
    gptr<IN_TYPE> source; // the tile's first filter, at the step's first k
    i64 filter;           // elements from filter to filter
    i32 filters, left;    // filters from the tile's first one on; of each, k from the step's first one on
    i32 row, piece;       // this thread's first: filter, and piece of it
    i32 along;            // pieces of a filter
    i32 pace[2];          // from piece to piece, in filters and pieces
    i32 pitch, depth;

    MEMBER FilterCopy(const Params &params, const Patch &patch, const Tile &tile)
        : filter(params.a_m), filters(tile.end - tile.row), left((tile.k_end - tile.k_begin) / MERGED_GROUPS),
          pitch(patch.pitch()), depth(BLOCK_K * patch.taps) {
        source =
            gptr<IN_TYPE>(params.a) + (batch_offset(params.a_batch, tile.batch) + tile.row * filter + tile.k_begin);
        along = (MERGED > 0 && left > 0 ? left : depth) / PIECE;
        row = thread_index() / along, piece = thread_index() % along;
        pace[0] = THREADS / along, pace[1] = THREADS % along;
    }
    // Starts the copies of a step, and goes on to the next.
    MEMBER void copy(sptr<u8> stage) {
        i32 p = piece;
        ROLLED for (i32 r = row; within(r, BLOCK_M); r += pace[0]) {
            copy_async<A_VECTOR>(stage + (r * pitch + p * A_VECTOR), source + (r * filter + p * PIECE),
                                 within(r, filters) && within(p * PIECE, left));
            p += pace[1];
            const bool carry = !within(p, along);
            p -= carry ? along : 0;
            r += carry ? 1 : 0;
        }
        source = source + depth;
        left -= depth;
    }
};

// The selector of byte_permute that puts element `from` of the other word in the place of element `to`.
DEVICE constexpr u32 in_place(int from, int to) {
    return ELEMENT == 1 ? (0x3210u & ~(15u << (4 * to & 31))) | (u32)(4 + from) << (4 * to & 31)
                        : (0x3210u & ~(255u << (8 * to & 31))) | (u32)(0x54 + 0x22 * from) << (8 * to & 31);
}

// Four bytes of channels of one filter, [channel][tap], are as many words as it has taps: they become a word for each
// tap, PLANES * BLOCK_M * 16 bytes apart.
template <int COUNT>
DEVICE void arrange_all(sptr<u8> from, sptr<u8> to) {
    u32 word[COUNT];
    UNROLL for (int w = 0; w < COUNT; ++w) word[w] = load_shared<4>(from + w * 4).template get<u32>(0);
    UNROLL for (int tap = 0; tap < COUNT; ++tap) {
        Vec<4> channels = Vec<4>::zero();
        UNROLL for (int c = 0; c < 4 / ELEMENT; ++c) {
            const int at = (c * COUNT + tap) * ELEMENT;
            channels.word[0] = byte_permute(channels.word[0], word[at / 4], in_place(at % 4 / ELEMENT, c));
        }
        store_shared(to + tap * (PLANES * BLOCK_M * 16), channels);
    }
}

// Arranges any number of taps: those of a channel are read in a row, whatever byte they begin at, and a group of
// them at a time.
DEVICE void arrange_any(i32 count, sptr<u8> from, sptr<u8> to) {
    constexpr i32 GROUP = 4 / ELEMENT; // channels, and taps, of a word
    const i32 last = 4 * (count - 1);
    u32 word[GROUP];
    UNROLL for (int c = 0; c < GROUP; ++c) word[c] =
        load_shared<4>(from + (c * count * ELEMENT & ~3)).template get<u32>(0);
    ROLLED for (i32 tap = 0; within(tap, count); tap += GROUP) {
        u32 taps[GROUP];
        UNROLL for (int c = 0; c < GROUP; ++c) {
            const i32 first = (c * count + tap) * ELEMENT;
            // Behind the last word there is nothing to read, and nothing that is needed.
            const u32 behind = load_shared<4>(from + minimum((first & ~3) + 4, last)).template get<u32>(0);
            taps[c] = byte_permute(word[c], behind, 0x3210u + 0x1111u * (first & 3));
            word[c] = behind;
        }
        UNROLL for (int i = 0; i < GROUP; ++i) {
            Vec<4> channels = Vec<4>::zero();
            UNROLL for (int c = 0; c < GROUP; ++c) channels.word[0] =
                byte_permute(channels.word[0], taps[c], in_place(i, c));
            if (within(tap + i, count))
                store_shared(to, channels);
            to = to + PLANES * BLOCK_M * 16;
        }
    }
}

// Arranges a step's filters. A warp's access is of 8 filters and 4 words of each: neither way is there a bank conflict
// for an odd number of taps.
DEVICE void arrange_filters(const Patch &patch, const Diagonal &diagonal, sptr<u8> copied, sptr<u8> arranged) {
    ROLLED for (i32 item = thread_index(); within(item, PLANES * BLOCK_M * 4); item += THREADS) {
        const i32 filter = item / 4 % BLOCK_M;
        i32 four = item / (4 * BLOCK_M) * 4 + item % 4;
        if constexpr (MERGED > 0) {
            four = diagonal.word_of_group(filter, four);
            if (!within((u32)four, (u32)diagonal.words)) {
                cover("other_group");
                const i32 count = TAPS > 0 ? TAPS : patch.taps;
                UNROLL_BY_4 for (i32 tap = 0; within(tap, count); ++tap)
                    store_shared(arranged + (item * 4 + tap * (PLANES * BLOCK_M * 16)), Vec<4>::zero());
                continue;
            }
        }
        const sptr<u8> from = copied + (filter * patch.pitch() + four * 4 * patch.taps);
        if constexpr (TAPS > 0)
            arrange_all<TAPS>(from, arranged + item * 4);
        else
            arrange_any(patch.taps, from, arranged + item * 4);
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
