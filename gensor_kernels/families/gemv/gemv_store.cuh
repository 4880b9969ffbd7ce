// Adds the sums of threads that share outputs, and stores the block's outputs to C or to the workspace.
#pragma once
#include "gemv_math.cuh"

// Threads whose sums are added through shared memory; warps with W_COLUMNS 0, after shuffles.
constexpr int PARTS = W_COLUMNS ? THREADS_K : THREADS_K > 32 ? THREADS_K / 32 : 1;
constexpr int BANKS = 128 / WORD; // words of one pass over all banks
// Words between a thread's pieces of columns. Threads that store to C read several, from different banks.
constexpr int PITCH = THREADS_L * PIECE + (PIECES > 1 ? BANKS / PIECES : 0);
// Words between two parts. Threads of several parts that write at once use different banks.
DEVICE constexpr int part_pitch(int round) {
    const int words = round * PIECES * PITCH, wanted = THREADS_L * PIECE;
    return words + (wanted < BANKS ? (wanted + BANKS - words % BANKS) % BANKS : 0);
}
// Entries of the small axis per round of additions.
constexpr int ROUND = !W_COLUMNS || PARTS * part_pitch(SMALL) * WORD <= 32768 ? SMALL : 1;

constexpr int C_WIDTH = C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1; // columns per store to C
constexpr int WIDTH = minimum(minimum(C_WIDTH, SPLIT ? WORDS_AT_ONCE : C_WIDTH), WEIGHTS ? ROUND & -ROUND : C_WIDTH);
constexpr int GROUPS = ROUND * LONG / WIDTH; // stores of a round

// Sums of rows have 16 bytes of padding after every pass, where threads read more than 16 adjacent bytes of them: such
// threads begin in different banks.
constexpr int ROW_PAD = !W_COLUMNS && !WEIGHTS && WIDTH * WORD > 16 ? 16 / WORD : 0;
DEVICE int row_word(int word) {
    return word + word / BANKS * ROW_PAD;
}

// Index in shared memory of one part's sum of an output. Rows: [part][group of threads][small][row], padded.
DEVICE int scratch_word(int part, int s, int entry) {
    const int thread = entry / ENTRIES, e = entry % ENTRIES;
    if (W_COLUMNS)
        return part * part_pitch(ROUND) + (s * PIECES + e / PIECE) * PITCH + thread * PIECE + e % PIECE;
    return row_word((part * THREADS_L + thread) * COUNT + s * ROWS + e);
}

// ---- sums of the lanes of a warp. Where their number is even, two lanes exchange halves, and each keeps one.

DEVICE constexpr int share_of(int count, int lanes) {
    return lanes == 1 ? count : share_of(count % 2 == 0 ? count / 2 : count, lanes / 2);
}

// A lane's share of the sums: its first sum, and `copies`, which is 0 in one of the lanes with the same share.
struct Share {
    int first, copies;
};

template <class T>
DEVICE T from_lane(T value, int mask) {
    if constexpr (is_complex<T>)
        return T{shuffle_xor(value.re, mask), shuffle_xor(value.im, mask)};
    else
        return shuffle_xor(value, mask);
}

// Adds the first SUMS sums of LANES lanes. Each lane keeps its share of the results.
template <int SUMS, int LANES>
DEVICE void reduce_lanes(ACC_TYPE (&sums)[COUNT], Share &share) {
    if constexpr (LANES > 1) {
        constexpr int MASK = LANES / 2, HALF = SUMS / 2;
        const bool upper = (thread_index() & MASK) != 0;
        if constexpr (SUMS % 2 == 0) {
            UNROLL for (int i = 0; i < HALF; ++i) {
                const ACC_TYPE kept = upper ? sums[i + HALF] : sums[i], given = upper ? sums[i] : sums[i + HALF];
                sums[i] = kept + from_lane(given, MASK);
            }
            share.first += upper ? HALF : 0;
            reduce_lanes<HALF, MASK>(sums, share);
        } else {
            UNROLL for (int i = 0; i < SUMS; ++i) sums[i] = sums[i] + from_lane(sums[i], MASK);
            share.copies |= thread_index() & MASK;
            reduce_lanes<SUMS, MASK>(sums, share);
        }
    }
}

// Adds the sums of lanes, and writes the results.
DEVICE void write_rows(const Spot &spot, ACC_TYPE (&sums)[COUNT], sptr<ACC_TYPE> scratch) {
    constexpr int LANES = minimum(THREADS_K, 32), SHARE = share_of(COUNT, LANES);
    Share share = {0, 0};
    reduce_lanes<COUNT, LANES>(sums, share);
    if (!within(share.copies, 1))
        return;
    const int first = (spot.lane / 32 * THREADS_L + spot.group) * COUNT + share.first;
    constexpr int EACH = minimum(SHARE & -SHARE, WORDS_AT_ONCE);
    UNROLL for (int i = 0; i < SHARE; i += EACH) {
        Vec<EACH * WORD> words = Vec<EACH * WORD>::zero();
        UNROLL for (int w = 0; w < EACH; ++w) words.set(w, sums[i + w]);
        store_shared(scratch + row_word(first + i), words);
    }
}

// Writes the sums of the first ROUND entries of the small axis.
DEVICE void write_columns(const Spot &spot, const ACC_TYPE (&sums)[COUNT], sptr<ACC_TYPE> scratch) {
    UNROLL for (int i = 0; i < ROUND * ENTRIES; i += PIECE) {
        Vec<PIECE * WORD> words = Vec<PIECE * WORD>::zero();
        UNROLL for (int w = 0; w < PIECE; ++w) words.set(w, sums[i + w]);
        const int entry = spot.group * ENTRIES + i % ENTRIES;
        store_shared(scratch + scratch_word(spot.lane, i / ENTRIES, entry), words);
    }
}

// Adds all parts of WIDTH adjacent outputs in order.
DEVICE void read_sums(sptr<ACC_TYPE> scratch, int s, int entry, ACC_TYPE (&values)[WIDTH]) {
    constexpr int ADJACENT = WEIGHTS ? 1 : W_COLUMNS ? PIECE : minimum(ROWS, WORDS_AT_ONCE);
    constexpr int EACH = minimum(WIDTH, ADJACENT);
    UNROLL_BY_4 for (int part = 0; part < PARTS; ++part) {
        UNROLL for (int i = 0; i < WIDTH; i += EACH) {
            const int at = WEIGHTS ? scratch_word(part, s + i, entry) : scratch_word(part, s, entry + i);
            const Vec<EACH * WORD> words = load_shared<EACH * WORD>(scratch + at);
            UNROLL for (int w = 0; w < EACH; ++w) values[i + w] = values[i + w] + words.template get<ACC_TYPE>(w);
        }
    }
}

struct OutputPlace {
    Place at;
    MEMBER Place operator()(int) const { return at; }
};

// Stores the outputs of a round, distributed along the rows of C. `first` is its first entry of the small axis.
DEVICE void store_round(const Params &params, const Tile &tile, int first, sptr<ACC_TYPE> scratch) {
    constexpr int IN_ROW = (WEIGHTS ? ROUND : LONG) / WIDTH;
    ROLLED for (int group = thread_index(); within(group, GROUPS); group += THREADS) {
        const int row = group / IN_ROW, column = group % IN_ROW * WIDTH;
        ACC_TYPE values[WIDTH] = {};
        read_sums(scratch, WEIGHTS ? column : row, WEIGHTS ? row : column, values);
        const OutputPlace place = {
            Place{tile.row + row + (WEIGHTS ? 0 : first), tile.column + column + (WEIGHTS ? first : 0), true}};
        if constexpr (SPLIT)
            store_partials<WIDTH>(params, tile, values, place);
        else
            finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, tile.batch, values, place);
    }
}

DEVICE void store_sums(const Params &params, const Tile &tile, const Spot &spot, ACC_TYPE (&sums)[COUNT]) {
    const sptr<ACC_TYPE> scratch = shared_base().as<ACC_TYPE>();
    ROLLED for (int first = 0; first < SMALL; first += ROUND) {
        barrier(); // x, or the round before, has been read
        if constexpr (W_COLUMNS)
            write_columns(spot, sums, scratch);
        else
            write_rows(spot, sums, scratch);
        barrier();
        store_round(params, tile, first, scratch);
        rotate<ROUND * ENTRIES>(sums);
    }
}
