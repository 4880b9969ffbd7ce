// A warp's slab of shared memory, in which its accumulators are rearranged so that a lane stores 16 bytes of C at once.
//
// It uses SPLIT, ACC_TYPE, OUT_TYPE, C_UNIT, C_VECTOR, EPILOGUE_STAGED, WARP_N and FRAGMENTS_N (fragments of 8
// columns).
#pragma once
#include "epilogue.cuh"
#include "shared_rows.cuh"

// Outputs per store.
constexpr int PREFERRED_WIDTH = SPLIT ? 16 / (int)sizeof(ACC_TYPE) : C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1;
constexpr int WIDTH = EPILOGUE_STAGED ? PREFERRED_WIDTH : minimum(2, PREFERRED_WIDTH);

constexpr int SLAB_WORD = (int)sizeof(ACC_TYPE), SLAB_BYTES = 16 * WARP_N * SLAB_WORD;

// Rows of WARP_N elements of type T, and the addresses at which a lane writes the elements of 16 rows of fragments. A
// lane writes two adjacent words of at most 8 bytes at once, and words of 16 bytes one by one.
template <class T>
struct Slab {
    static constexpr int WORD = (int)sizeof(T), TOGETHER = minimum(2, 16 / WORD), FRAGMENT_BYTES = 8 * WORD;
    using Rows = SharedRows<WORD == 16 || WORD <= 2 ? SWIZZLE_MATRIX
                            : WORD == 8             ? SWIZZLE_QUADS
                                                    : SWIZZLE_WORDS,
                            WARP_N * WORD>;
    static constexpr int ALIKE = Rows::SPAN * 16 > FRAGMENT_BYTES ? Rows::SPAN * 16 / FRAGMENT_BYTES : 1;
    static constexpr int PERIOD = minimum(ALIKE, FRAGMENTS_N); // fragments after which offsets repeat
    static_assert(8 % Rows::PERIOD == 0, "Both halves of a fragment have one permutation.");
    sptr<u8> base[PERIOD][2 / TOGETHER];

    MEMBER explicit Slab(sptr<u8> slab) {
        const int lane = thread_index() & 31;
        UNROLL for (int j = 0; j < PERIOD; ++j) UNROLL for (int first = 0; first < 2; first += TOGETHER)
            base[j][first / TOGETHER] = slab + Rows::offset(lane >> 2, (j * 8 + (lane & 3) * 2 + first) * WORD);
    }
    // Stores rows of fragments, converted, as rows 16 * band to 16 * band + 15.
    template <class From>
    MEMBER void store(const From (&sums)[FRAGMENTS_N][4], int band = 0) const {
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
            UNROLL for (int half = 0; half < 2; ++half) {
                const int at = (band * 16 + half * 8) * Rows::ROW_BYTES + j / PERIOD * PERIOD * FRAGMENT_BYTES;
                UNROLL for (int first = 0; first < 2; first += TOGETHER) store_shared(
                    base[j % PERIOD][first / TOGETHER] + at, converted<T, TOGETHER>(&sums[j][2 * half + first]));
            }
        }
    }
};
using SlabRows = Slab<ACC_TYPE>::Rows;

// Staged: groups of WIDTH columns are distributed to the lanes row by row, LANE_GROUPS to each.
constexpr int ROW_GROUPS = WARP_N / WIDTH, SLAB_GROUPS = 16 * ROW_GROUPS;
constexpr int LANE_GROUPS = divide_up(SLAB_GROUPS, 32);

DEVICE void store_slab(sptr<u8> slab, const ACC_TYPE (&accumulators)[FRAGMENTS_N][4]) {
    Slab<ACC_TYPE>(slab).store(accumulators);
}

// Loads a lane's WIDTH values of a group, 16 bytes at a time. If they are 2 or 4 chunks, lanes start at different
// chunks (selected by `turn`), so that the 8 lanes of one shared-memory transaction use different banks.
DEVICE void load_slab_group(sptr<u8> slab, int group, ACC_TYPE *values) {
    constexpr int BYTES = minimum(16, WIDTH * SLAB_WORD), CHUNKS = WIDTH * SLAB_WORD / BYTES, EACH = BYTES / SLAB_WORD;
    const int row = group / ROW_GROUPS, byte = group % ROW_GROUPS * WIDTH * SLAB_WORD;
    const int turn = CHUNKS == 1 ? 0 : ((thread_index() & 7) / (8 / CHUNKS) ^ SlabRows::flip(row)) & (CHUNKS - 1);
    Vec<BYTES> loaded[CHUNKS];
    UNROLL for (int c = 0; c < CHUNKS; ++c) loaded[c] =
        load_shared<BYTES>(slab + SlabRows::offset(row, byte + (c ^ turn) * 16));
    UNROLL for (int bit = 1; bit < CHUNKS; bit *= 2) { // undo the turn: loaded[c] holds chunk c ^ turn
        UNROLL for (int c = 0; c < CHUNKS; ++c) {
            if ((c & bit) == 0) {
                const Vec<BYTES> low = loaded[c], high = loaded[c ^ bit];
                UNROLL for (int w = 0; w < BYTES / 4; ++w) {
                    loaded[c].word[w] = turn & bit ? high.word[w] : low.word[w];
                    loaded[c ^ bit].word[w] = turn & bit ? low.word[w] : high.word[w];
                }
            }
        }
    }
    UNROLL for (int i = 0; i < WIDTH; ++i) values[i] = loaded[i / EACH].template get<ACC_TYPE>(i % EACH);
}
