// From a warp's accumulators to C or to the split-K workspace.
//
// Outputs leave 16 rows (one row of fragments) at a time, in a rolled loop, so that the epilogue is in the code once.
// STAGED: each warp moves its 16 rows through a slab of shared memory of its own, so that every lane gets whole
// 16-byte stores; DIRECT: the pairs of columns an accumulator holds are stored as they are.
#pragma once
#include "contraction.cuh"
#include "mma_fragments.cuh"

constexpr int LANE_VALUES = FRAGMENTS_N * 4; // outputs of a lane in 16 rows

// Outputs per store.
constexpr int PREFERRED_WIDTH = SPLIT ? 16 / (int)sizeof(ACC_TYPE) : C_UNIT ? C_VECTOR / (int)sizeof(OUT_TYPE) : 1;
constexpr int WIDTH = EPILOGUE_STAGED ? PREFERRED_WIDTH : minimum(2, PREFERRED_WIDTH);
static_assert(WARP_N % WIDTH == 0, "A warp's row of outputs must be whole stores: use a narrower C_VECTOR.");

// Staged: groups of WIDTH columns are dealt to the lanes row by row.
constexpr int ROW_GROUPS = WARP_N / WIDTH, SLAB_GROUPS = 16 * ROW_GROUPS;
constexpr int LANE_GROUPS = EPILOGUE_STAGED ? divide_up(SLAB_GROUPS, 32) : LANE_VALUES / WIDTH;
constexpr int SLAB_BYTES = 16 * WARP_N * 4;
using SlabRows = SharedRows<SWIZZLE_WORDS, WARP_N * 4>;

// Where group g of the 16 rows from (row, column) on lies.
struct SlabPlacement {
    int row, column;
    MEMBER Place operator()(int g) const {
        const int lane = thread_index() & 31;
        if constexpr (EPILOGUE_STAGED) {
            const int group = lane + 32 * g;
            const bool valid = SLAB_GROUPS % 32 == 0 || within(group, SLAB_GROUPS);
            return Place{row + group / ROW_GROUPS, column + group % ROW_GROUPS * WIDTH, valid};
        } else {
            const int value = g * WIDTH; // accumulator value % 4 is 2 * (row half) + column
            return Place{row + (lane >> 2) + (value & 2) * 4, column + (value >> 2) * 8 + (lane & 3) * 2 + (value & 1),
                         true};
        }
    }
};

DEVICE void store_slab(sptr<u8> slab, const ACC_TYPE (&accumulators)[FRAGMENTS_N][4]) {
    const int lane = thread_index() & 31, g = lane >> 2, t = lane & 3;
    UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
        UNROLL for (int half = 0; half < 2; ++half) {
            Vec<8> pair;
            pair.set(0, accumulators[j][2 * half]);
            pair.set(1, accumulators[j][2 * half + 1]);
            store_shared(slab + SlabRows::offset(g + 8 * half, (j * 8 + t * 2) * 4), pair);
        }
    }
}

// A lane's WIDTH values of a group, in accesses of 16 bytes. Where they are 2 or 4 chunks, lanes start at different
// ones (picked by `turn`), so that the 8 lanes that are served together fall into different banks.
DEVICE void load_slab_group(sptr<u8> slab, int group, ACC_TYPE *values) {
    constexpr int BYTES = minimum(16, WIDTH * 4), CHUNKS = WIDTH * 4 / BYTES, EACH = BYTES / 4;
    const int row = group / ROW_GROUPS, byte = group % ROW_GROUPS * WIDTH * 4;
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

DEVICE void finish_warp(const Params &params, const Tile &tile, int row, int column, int warp,
                        const ACC_TYPE (&accumulators)[FRAGMENTS_M][FRAGMENTS_N][4]) {
    const sptr<u8> slab = shared_base() + warp * SLAB_BYTES;
    ROLLED for (int i = 0; i < FRAGMENTS_M; ++i) {
        ACC_TYPE values[LANE_GROUPS * WIDTH] = {};
        UNROLL for (int f = 0; f < FRAGMENTS_M; ++f) { // a constant index keeps the accumulators in registers
            if (f == i) {
                if constexpr (EPILOGUE_STAGED) {
                    store_slab(slab, accumulators[f]);
                } else {
                    UNROLL for (int v = 0; v < LANE_VALUES; ++v) values[v] = accumulators[f][v / 4][v % 4];
                }
            }
        }
        const SlabPlacement place = {row + i * 16, column};
        if constexpr (EPILOGUE_STAGED) {
            warp_barrier();
            UNROLL for (int g = 0; g < LANE_GROUPS; ++g) {
                const int group = (thread_index() & 31) + 32 * g;
                if (SLAB_GROUPS % 32 == 0 || within(group, SLAB_GROUPS))
                    load_slab_group(slab, group, values + g * WIDTH);
            }
            warp_barrier();
        }
        if constexpr (SPLIT)
            store_partials<WIDTH>(params, tile, values, place);
        else
            finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, tile.batch, values, place);
    }
}
