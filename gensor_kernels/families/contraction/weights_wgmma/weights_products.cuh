// A warpgroup's part of contraction_weights_wgmma: the transposed product, sums[n][m] += weights[n][k] * A[m][k].
//
// The weights are the left operand, which products take from registers: each warp reads and widens 16 of every 64 rows
// of weights. The rows of A are the columns of the product and stay in shared memory. A step is split into chunks of k.
// While the products of a chunk run, the weights of the next chunk are widened into the other of two sets of
// registers. With GROUP the sums of each group start at zero and are scaled before they are added to the totals.
#pragma once
#include "weights_ring.cuh"
#if SCALED
#include "weights_numbers.cuh"
#else
#include "weights_floats.cuh"
#endif

constexpr int K_STEP = FLOATS ? 8 : 16;                                // extent of k of one wgmma
constexpr int MOST_CHUNK = FLOATS ? 16 : TILES > 1 ? 32 : UNIT;        // several tiles need more registers per k
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
    Weights weights;
    u64 a;     // descriptor of the tile of A in the ring's first buffer
    int first; // byte offset in a buffer of the first weights that this lane reads

    // The warpgroup computes the columns of C from column `column` of the block's tile on.
    MEMBER GroupMath(const Params &params, const Tile &tile, int column)
        : sums{}, totals{}, weights(params, tile, column) {
        a = matrix_descriptor(tiles(0), 16, ATOM);
        first = WEIGHTS + Weights::offset(column);
    }

    MEMBER void hold(int buffer) {
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p)
            wgmma_hold(widened[buffer][i][p]);
    }
    MEMBER void hold_sums() { UNROLL for (int i = 0; i < TILES; ++i) wgmma_hold(sums[i]); }

    // Reads and widens the weights of a chunk.
    MEMBER void widen(int slot, int chunk) {
        if (GROUP && chunk % (GROUP ? CHUNKS_OF_GROUP : 1) == 0)
            weights.begin_widening();
        UNROLL for (int p = 0; p < PARTS_OF_CHUNK; ++p) UNROLL for (int i = 0; i < TILES; ++i)
            weights.read(tiles(slot) + first, chunk * CHUNK + p * K_STEP, i, widened[chunk % 2][i][p]);
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
            const u64 columns = further(tile, k / UNIT * A_BOX + k % UNIT * (int)sizeof(IN_TYPE));
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
            weights.add(sums[i][v], i, v >> 1 & 1, totals[i][v]);
        weights.begin_summing();
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
            weights.begin_summing();
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
        return GROUP ? totals[GROUP ? i : 0][GROUP ? v : 0] : weights.scaled(sums[i][v], i, v >> 1 & 1);
    }
};
