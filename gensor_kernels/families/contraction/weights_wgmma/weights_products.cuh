// A warpgroup's part of contraction_weights_wgmma: the transposed product, sums[n][m] += weights[n][k] * A[m][k].
//
// The weights are the left operand, which products take from registers: each warp reads and widens 16 of every 64 rows
// of weights. The rows of A are the columns of the product and stay in shared memory. A step is split into chunks of k.
// While the products of a chunk run, the weights of the next chunk are widened into the other of two sets of
// registers. With GROUP the sums of each group start at zero and are scaled before they are added to the totals.
#pragma once
#include "weights_numbers.cuh"

constexpr int K_STEP = 16;                                             // extent of k of one wgmma
constexpr int MOST_CHUNK = TILES > 1 ? 32 : UNIT;                      // several tiles need more registers per k
constexpr int CHUNK = GROUP ? minimum(GROUP, MOST_CHUNK) : MOST_CHUNK; // extent of k that is widened at once
constexpr int CHUNKS = BLOCK_K / CHUNK, PARTS_OF_CHUNK = CHUNK / K_STEP;
constexpr int CHUNKS_OF_GROUP = GROUP ? GROUP / CHUNK : 0;
static_assert(CHUNKS % 2 == 0, "The first chunk of each step is widened into the same registers.");

// Four sums for each fragment of 8 rows of A, in columns g and g + 8 of a warp's 16 columns of C, as in mma.sync.
typedef float TileSums[BLOCK_M / 2];
typedef TileSums Sums[TILES];

struct GroupMath {
    Sums sums; // of the current group
    float totals[GROUP ? TILES : 1][GROUP ? BLOCK_M / 2 : 1];
    u32 widened[2][TILES][PARTS_OF_CHUNK][4]; // weights of two chunks
    Scales scales;
    u64 a;       // descriptor of the tile of A in the ring's first buffer
    int weights; // byte offset in a buffer of the first weights that this lane reads

    // The warpgroup computes the columns of C from column `first` of the block's tile on.
    MEMBER GroupMath(const Params &params, const Tile &tile, int first)
        : sums{}, totals{}, scales(params, tile, tile.column + first + lane_row()) {
        a = matrix_descriptor(tiles(0), 16, ATOM);
        weights = WEIGHTS + (first + lane_row()) * 128;
    }
    // The row of this lane among the 64 rows of weights of a warpgroup.
    static MEMBER int lane_row() { return (thread_index() >> 5 & 3) * 16 + (thread_index() >> 2 & 7); }

    MEMBER void hold(int buffer) {
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p)
            wgmma_hold(widened[buffer][i][p]);
    }
    MEMBER void hold_sums() { UNROLL for (int i = 0; i < TILES; ++i) wgmma_hold(sums[i]); }

    // Reads and widens the weights of a chunk.
    MEMBER void widen(int slot, int chunk) {
        const sptr<u8> from = tiles(slot) + weights;
        const int lane = thread_index() & 31;
        if (GROUP && chunk % (GROUP ? CHUNKS_OF_GROUP : 1) == 0)
            scales.begin_widening();
        UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p) UNROLL for (int i = 0; i < TILES; ++i)
            UNROLL for (int r = 0; r < 4; ++r) {
            const int half = r & 1, k = chunk * CHUNK + p * K_STEP + (r >> 1) * 8;
            const int byte = k / per_unit<B_STORED> + (lane & 3) * PAIR_BYTES;
            const int at = (i * 64 + half * 8) * 128 + WeightRows::offset(lane >> 2 & 7, byte) - (lane >> 2 & 7) * 128;
            widened[chunk % 2][i][p][r] = widen_pair(load_shared<PAIR_BYTES>(from + at).word[0], scales.bias[i][half]);
        }
    }
    // Issues the products of a chunk and commits them as one group.
    MEMBER void begin(int slot, int chunk) {
        const u64 tile = further(a, slot * SLOT_BYTES);
        const bool first = GROUP && chunk % (GROUP ? CHUNKS_OF_GROUP : 1) == 0;
        hold_sums();
        hold(chunk % 2);
        wgmma_fence();
        UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p) UNROLL for (int i = 0; i < TILES; ++i) {
            const int k = chunk * CHUNK + p * K_STEP;
            const u64 columns = further(tile, k / UNIT * A_BOX + k % UNIT * 2);
            if (first && p == 0)
                wgmma_held<0, 0>(sums[i], widened[chunk % 2][i][p], columns, IN_TYPE{});
            else
                wgmma_held<0, 1>(sums[i], widened[chunk % 2][i][p], columns, IN_TYPE{});
        }
        wgmma_commit();
    }
    // Scales the group's sums, whose products are finished, and adds them to the totals.
    MEMBER void end_group() {
        cover("group");
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int v = 0; v < BLOCK_M / 2; ++v) totals[i][v] =
            fma_(sums[i][v], scales.scale[i][v >> 1 & 1], totals[i][v]);
        scales.begin_summing();
    }

    // Multiplies a step whose first chunk is already widened. With MORE the next step's first chunk is widened as well.
    template <bool MORE>
    MEMBER void step(Turn &turn, int previous, bool release_previous) {
        const int slot = turn.slot;
        turn.next();
        UNROLL for (int chunk = 0; chunk < CHUNKS; ++chunk) {
            const bool last = chunk == CHUNKS - 1;
            begin(slot, chunk);
            wgmma_wait<1>(); // the previous chunk has finished: its registers are free
            hold((chunk + 1) % 2);
            if (chunk == 0 && !GROUP && release_previous)
                release(previous);
            if (!last) {
                widen(slot, chunk + 1);
            } else if (MORE) {
                mbarrier_wait(full(turn.slot), turn.parity);
                widen(turn.slot, 0);
            }
            if (GROUP && (chunk + 1) % (GROUP ? CHUNKS_OF_GROUP : 1) == 0) {
                wgmma_wait<0>();
                hold_sums();
                hold(chunk % 2);
                if (last)
                    release(slot);
                end_group();
            }
        }
    }

    // Sums a tile's steps. A tile without steps returns early: if both paths joined before a wait, the compiler would
    // copy sums that products still write.
    MEMBER void multiply(int steps) {
        if (!within(0, steps))
            return;
        Turn turn;
        mbarrier_wait(full(turn.slot), turn.parity);
        widen(turn.slot, 0);
        if (GROUP)
            scales.begin_summing();
        int previous = 0;
        for (int done = 1; within(done, steps); ++done) {
            cover("steady");
            const int slot = turn.slot;
            step<true>(turn, previous, done > 1);
            previous = slot;
        }
        cover("drain");
        step<false>(turn, previous, steps > 1);
        if constexpr (!GROUP) {
            wgmma_wait<0>();
            hold_sums();
        }
    }
    // The output of sum v of tile i.
    MEMBER float output(int i, int v) const {
        return GROUP ? totals[GROUP ? i : 0][GROUP ? v : 0] : sums[i][v] * scales.scale[i][v >> 1 & 1];
    }
};
