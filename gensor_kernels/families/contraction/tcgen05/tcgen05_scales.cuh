// Scales of block-scaled operands (MXFP8, MXFP4, NVFP4) on their way to tensor memory. ROW_SCALES of them belong to a
// row of 32 bytes of k. Rows of scales are whole words of four.
//
// Two warps, each for every other buffer, copy the scales of a step from global to shared memory, where
// tensor_copy_scales finds a word of 128 entries, rows of A or columns of B, as 32 rows of 16 bytes: entry r is word r
// / 32 of row r % 32. The thread that issues products copies them to the columns of tensor memory after the sums. In a
// pair each block has the scales of its rows of A, and those of all columns of B.
#pragma once
#include "blackwell_scales.cuh"
#include "tma_walk.cuh"

// Words of an entry in a step; bytes of a word of 128 entries, so that lanes with different words store to different
// banks; groups of 128 columns of B.
constexpr int WORDS = BLOCK_K / 128 * ROW_SCALES, WORD_BYTES = 512 + (WORDS > 1 ? 128 / WORDS : 0);
constexpr int GROUPS_B = divide_up(BLOCK_N, 128);
constexpr int SCALES_BYTES = divide_up((1 + GROUPS_B) * WORDS * WORD_BYTES, ATOM) * ATOM;
constexpr int SCALES_AT = SLABS + (EPILOGUE_STAGED ? 256 * WARP_N : STORE_COPIES ? 16384 : 0);

// The scales of a step, after those of A the ones of B.
DEVICE sptr<u8> scales_of_step(int slot) {
    return shared_base() + (SCALES_AT + slot * SCALES_BYTES);
}

// The scales of a tile's entries, of which a lane copies every word number `lane % WORDS` of some.
template <int ENTRIES>
struct ScaleRows {
    static constexpr int GROUPS = divide_up(ENTRIES, 128), LINES = 32 / WORDS;

    gptr<u8> source; // the lane's first word of the step
    i64 apart;       // bytes between entries
    int entries, words;
    Vec<16> held[GROUPS][WORDS];

    MEMBER ScaleRows(const Params &params, const Tile &tile, u64 scales, i64 apart, int first, int extent)
        : apart(apart) {
        const int entry = first + own_line(), word = tile.k_begin / 128 * ROW_SCALES + own_word();
        source = gptr<u8>(scales) + (entry * apart + word * 4);
        entries = extent - entry, words = divide_up(params.k * ROW_SCALES, 128) - word;
    }
    static MEMBER int own_line() { return (thread_index() & 31) / WORDS; }
    static MEMBER int own_word() { return (thread_index() & 31) % WORDS; }

    MEMBER void next() { source = source + WORDS * 4, words -= WORDS; }
    // Loads a step's words; those past an edge are zeros.
    MEMBER void load() {
        const bool left = within(0, words);
        UNROLL for (int g = 0; g < GROUPS; ++g) UNROLL for (int i = 0; i < WORDS; ++i)
            UNROLL for (int quarter = 0; quarter < 4; ++quarter) {
            const int at = g * 128 + quarter * 32 + i * LINES;
            const bool inside = at < ENTRIES && left && within(at, entries);
            held[g][i].word[quarter] = load_global<4>(source + at * apart, inside).word[0];
        }
    }
    MEMBER void store(sptr<u8> to) const {
        UNROLL for (int g = 0; g < GROUPS; ++g) UNROLL for (int i = 0; i < WORDS; ++i)
            store_shared(to + ((g * WORDS + own_word()) * WORD_BYTES + (own_line() + i * LINES) * 16), held[g][i]);
    }
};

// A copying warp's arrival in the block that issues the products.
DEVICE void arrive_with_scales(sptr<u64> full) {
    if constexpr (PAIR)
        mbarrier_arrive_in_pair(full);
    else
        mbarrier_arrive(full);
}

// Waits until the tiles and the scales of a buffer have arrived.
DEVICE void wait_with_scales(sptr<u64> full, u32 parity) {
    if constexpr (PAIR)
        mbarrier_wait_in_pair(full, parity);
    else
        mbarrier_wait(full, parity);
}

// Copies the scales of every step as buffers become free. A warp loads those of its next step as soon as it has stored
// the ones before, and always stores to the same buffers.
DEVICE void copy_scales(const MappedParams &params) {
    const int own = thread_index() >> 5 & 1;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        ScaleRows<BLOCK_M> a(params, tile, params.groups.zeros, params.groups.zero_n, tile.row, params.m);
        ScaleRows<BLOCK_N> b(params, tile, params.d, params.d_n, tile.column, params.n);
        const int steps = steps_of(params, tile).count;
        for (int step = 0; within(step, steps); ++step) {
            if ((turn.slot & 1) == own) {
                cover("group");
                a.load(), b.load();
                mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
                a.store(scales_of_step(turn.slot));
                b.store(scales_of_step(turn.slot) + WORDS * WORD_BYTES);
                proxy_fence();
                warp_barrier();
                if ((thread_index() & 31) == 0)
                    arrive_with_scales(full(turn.slot));
            }
            turn.next(), a.next(), b.next();
        }
    });
}

// Tensor memory: columns of all scales of a step, from `first` on: for each word four columns of A's rows, then for
// each word those of B's columns.
constexpr int SCALE_COLUMNS = WORDS * 4 * (1 + GROUPS_B);
struct ScaleColumns {
    const u32 first;
    const u64 scales = scales_descriptor(scales_of_step(0));

    MEMBER u32 of_a(int word) const { return first + (u32)(word * 4); }
    MEMBER u32 of_b(int word) const { return first + (u32)((WORDS + word * GROUPS_B) * 4); }
    // Copies the scales of a step, by the thread that issues its products.
    template <int BLOCKS>
    MEMBER void copy(int slot) const {
        const u64 from = further(scales, slot * SCALES_BYTES);
        UNROLL for (int word = 0; word < WORDS; ++word) {
            tensor_copy_scales<BLOCKS>(of_a(word), further(from, word * WORD_BYTES));
            UNROLL for (int g = 0; g < GROUPS_B; ++g) tensor_copy_scales<BLOCKS>(
                of_b(word) + (u32)(g * 4), further(from, ((1 + g) * WORDS + word) * WORD_BYTES));
        }
    }
    // d = kept * d + A * B over the 32 bytes of k from byte k of the step on.
    template <int BLOCKS>
    MEMBER void multiply(u32 d, u64 a, u64 b, int k, bool kept) const {
        const int word = k / 32 * ROW_SCALES / 4, byte = k / 32 * ROW_SCALES % 4;
        const u32 instruction = scaled_descriptor<ROW_SCALES>(BLOCK_M * BLOCKS, BLOCK_N, byte, byte,
                                                              same_type<A_STORED, e5m2_t>, same_type<B_STORED, e5m2_t>);
        umma_scaled<BLOCKS, ROW_SCALES>(d, a, b, instruction, of_a(word), of_b(word), kept);
    }
};
