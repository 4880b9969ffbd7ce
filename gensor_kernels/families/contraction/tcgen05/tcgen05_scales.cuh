// Scales of block-scaled operands (MXFP8, MXFP4, NVFP4) on their way to tensor memory. ROW_SCALES of them belong to a
// row of 32 bytes of k. Rows of scales are whole words of four.
//
// Two warps in turn load a sector of scales of each entry, a row of A or a column of B, which is enough for some steps.
// Each stores them to a buffer of shared memory, where tensor_copy_scales finds a word of 128 entries as 32 rows of 16
// bytes: entry r is word r / 32 of row r % 32. The thread that issues products copies the words of a step to the
// columns of tensor memory after the sums. In a pair each block has the scales of its rows of A, and those of all
// columns of B.
#pragma once
#include "blackwell_scales.cuh"
#include "tcgen05_pairs.cuh"

// Words of an entry in a step and in a sector; steps of a sector; bytes of a word of 128 entries, with which lanes with
// different words store to different banks; groups of 128 columns of B; bytes of a buffer.
constexpr int WORDS = BLOCK_K / 128 * ROW_SCALES, SECTOR_WORDS = 8, SECTOR_STEPS = SECTOR_WORDS / WORDS;
constexpr int WORD_BYTES = 512 + 16, GROUP_BYTES = SECTOR_WORDS * WORD_BYTES;
constexpr int GROUPS_B = divide_up(BLOCK_N, 128), SECTORS_BYTES = divide_up((1 + GROUPS_B) * GROUP_BYTES, ATOM) * ATOM;
constexpr int SECTORS_AT = SLABS + (EPILOGUE_STAGED ? 256 * WARP_N : STORE_COPIES ? 16384 : 0);

// A buffer: A's sectors, then those of each group of B. Its mbarriers are the last ones before the ring.
DEVICE sptr<u8> sectors(int buffer) {
    return shared_base() + (SECTORS_AT + buffer * SECTORS_BYTES);
}
DEVICE sptr<u64> scales_full(int buffer) {
    return shared_base().as<u64>() + (RING / 8 - 4 + buffer);
}
DEVICE sptr<u64> scales_empty(int buffer) {
    return shared_base().as<u64>() + (RING / 8 - 2 + buffer);
}

struct SectorTurn {
    int buffer = 0;
    u32 parity = 0;
    MEMBER void next() { buffer ^= 1, parity ^= (u32)(buffer == 0); }
};

// The scales of a tile's entries. A lane copies word `lane % SECTOR_WORDS` of the sectors of some.
template <int ENTRIES>
struct ScaleRows {
    static constexpr int GROUPS = divide_up(ENTRIES, 128), LINES = 32 / SECTOR_WORDS, PASSES = 32 / LINES;

    gptr<u8> source; // the lane's first word
    i64 apart;       // bytes between entries
    int entries, words;
    Vec<16> held[GROUPS][PASSES];

    MEMBER ScaleRows(const Params &params, const Tile &tile, u64 scales, i64 apart, int first, int extent)
        : apart(apart) {
        const int entry = first + own_line(), word = tile.k_begin / 128 * ROW_SCALES + own_word();
        source = gptr<u8>(scales) + (entry * apart + word * 4);
        entries = extent - entry, words = divide_up(params.k * ROW_SCALES, 128) - word;
    }
    static MEMBER int own_line() { return (thread_index() & 31) / SECTOR_WORDS; }
    static MEMBER int own_word() { return thread_index() % SECTOR_WORDS; }

    MEMBER void next() { source = source + SECTOR_WORDS * 4, words -= SECTOR_WORDS; }
    // Loads sectors; words past an edge are zeros.
    MEMBER void load() {
        const bool left = within(0, words);
        UNROLL for (int g = 0; g < GROUPS; ++g) UNROLL for (int i = 0; i < PASSES; ++i)
            UNROLL for (int quarter = 0; quarter < 4; ++quarter) {
            const int at = g * 128 + quarter * 32 + i * LINES;
            const bool inside = at < ENTRIES && left && within(at, entries);
            held[g][i].word[quarter] = load_global<4>(source + at * apart, inside).word[0];
        }
    }
    MEMBER void store(sptr<u8> to) const {
        UNROLL for (int g = 0; g < GROUPS; ++g) UNROLL for (int i = 0; i < PASSES; ++i)
            store_shared(to + (g * GROUP_BYTES + own_word() * WORD_BYTES + (own_line() + i * LINES) * 16), held[g][i]);
    }
};

// A copying warp's arrival in the block that issues the products.
DEVICE void arrive_with_scales(int buffer) {
    if constexpr (PAIR)
        mbarrier_arrive_in_pair(scales_full(buffer), first_of_pair());
    else
        mbarrier_arrive(scales_full(buffer));
}
DEVICE void wait_for_scales(const SectorTurn &turn) {
    if constexpr (PAIR)
        mbarrier_wait_in_pair(scales_full(turn.buffer), turn.parity);
    else
        mbarrier_wait(scales_full(turn.buffer), turn.parity);
}

// Copies the scales of all tiles, a warp those of every other sector, to a buffer of this warp. It loads the next ones
// before it waits until products have read the buffer.
DEVICE void copy_scales(const MappedParams &params) {
    const int own = thread_index() >> 5 & 1;
    SectorTurn turn;
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        ScaleRows<BLOCK_M> a(params, tile, params.groups.zeros, params.groups.zero_n, tile.row, params.m);
        ScaleRows<BLOCK_N> b(params, tile, params.d, params.d_n, tile.column, params.n);
        const int count = divide_up(steps_of(params, tile).count, SECTOR_STEPS);
        for (int i = 0; within(i, count); ++i) {
            if (turn.buffer == own) {
                cover("group");
                a.load(), b.load();
                mbarrier_wait(scales_empty(own), turn.parity ^ 1);
                a.store(sectors(own));
                b.store(sectors(own) + GROUP_BYTES);
                proxy_fence();
                warp_barrier();
                if ((thread_index() & 31) == 0)
                    arrive_with_scales(own);
            }
            a.next(), b.next(), turn.next();
        }
    });
}

// Tensor memory: columns of the scales of a step, from `first` on: for each word four columns of A's rows, then for
// each word those of B's columns.
constexpr int SCALE_COLUMNS = WORDS * 4 * (1 + GROUPS_B);
struct ScaleColumns {
    const u32 first;
    const u64 scales = scales_descriptor(sectors(0));
    SectorTurn turn;
    int step = 0; // of the sector

    MEMBER u32 of_a(int word) const { return first + (u32)(word * 4); }
    MEMBER u32 of_b(int word) const { return first + (u32)((WORDS + word * GROUPS_B) * 4); }
    MEMBER void begin_step() const {
        if (step == 0)
            wait_for_scales(turn);
    }
    // Copies the scales of a step, by the thread that issues its products.
    template <int BLOCKS>
    MEMBER void copy() const {
        const u64 from = further(scales, turn.buffer * SECTORS_BYTES + step * WORDS * WORD_BYTES);
        UNROLL for (int word = 0; word < WORDS; ++word) {
            tensor_copy_scales<BLOCKS>(of_a(word), further(from, word * WORD_BYTES));
            UNROLL for (int g = 0; g < GROUPS_B; ++g) tensor_copy_scales<BLOCKS>(
                of_b(word) + (u32)(g * 4), further(from, (1 + g) * GROUP_BYTES + word * WORD_BYTES));
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
    // Gives a buffer back after its last step.
    template <int BLOCKS>
    MEMBER void end_step(bool last_of_tile) {
        if (++step == SECTOR_STEPS || last_of_tile) {
            umma_commit<BLOCKS>(scales_empty(turn.buffer), blocks_of_pair());
            turn.next(), step = 0;
        }
    }
};
