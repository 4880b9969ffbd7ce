// Attention on products in tensor memory: mbarriers, the places of scores and sums, and a warp's share of the softmax.
#pragma once
#include "attention_powers.cuh"
#include "attention_ring.cuh"
#include "blackwell_stores.cuh"

constexpr int K_STEP = 16, KEY_FRAGMENTS = BLOCK_K / 8;

// Columns of tensor memory: of a warpgroup's scores, of SCORE_TILES steps in turn, then of its sums. Weights replace
// the first half of their scores.
constexpr int GROUP_COLUMNS = SCORE_TILES * BLOCK_K + HEAD, ALL_COLUMNS = CONSUMERS * GROUP_COLUMNS;
constexpr int MEMORY_COLUMNS = ALL_COLUMNS > 256 ? 512 : ALL_COLUMNS > 128 ? 256 : ALL_COLUMNS > 64 ? 128 : 64;

DEVICE u32 scores_in(u32 memory, int group, int step) {
    return memory + (u32)(group * GROUP_COLUMNS + step % SCORE_TILES * BLOCK_K);
}
DEVICE u32 sums_in(u32 memory, int group) {
    return memory + (u32)(group * GROUP_COLUMNS + SCORE_TILES * BLOCK_K);
}

// mbarriers after those of attention_ring.cuh: the scores of a step are complete; a warpgroup has stored their weights;
// the sums with them are complete. Steps take them in turn, as they do the places of scores: a phase of one mbarrier
// for all steps could end unseen before a thread waits for it. Then the address of the tensor memory.
DEVICE sptr<u64> step_barrier(int kind, int group, int step) {
    return values_cleared() + (1 + 2 * MASK_STAGES + (kind * CONSUMERS + group) * SCORE_TILES + step % SCORE_TILES);
}
DEVICE sptr<u64> scores_full(int group, int step) {
    return step_barrier(0, group, step);
}
DEVICE sptr<u64> weights_full(int group, int step) {
    return step_barrier(1, group, step);
}
DEVICE sptr<u64> sums_full(int group, int step) {
    return step_barrier(2, group, step);
}
DEVICE u32 parity_of(int step) {
    return (u32)(step / SCORE_TILES) & 1;
}
DEVICE sptr<u32> memory_address() {
    return step_barrier(3, 0, 0).as<u32>();
}

// One thread: makes the mbarriers. The barrier of the block must follow. A commit arrives at an empty buffer and,
// with RAGGED, the thread that commits.
DEVICE void make_barriers() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), RAGGED ? 2 : 1);
    }
    mbarrier_init(queries_full(), 1);
    UNROLL for (int group = 0; group < CONSUMERS; ++group) {
        UNROLL for (int place = 0; place < SCORE_TILES; ++place) {
            mbarrier_init(scores_full(group, place), 1);
            mbarrier_init(weights_full(group, place), 4);
            mbarrier_init(sums_full(group, place), 1);
        }
    }
    if constexpr (RAGGED)
        mbarrier_init(values_cleared(), 4 * CONSUMERS);
#if MASK_STAGES
    UNROLL for (u32 tile = 0; tile < MASK_STAGES; ++tile) {
        mbarrier_init(mask_full(tile), 1);
        mbarrier_init(mask_empty(tile), 8 * CONSUMERS); // for 16 rows of each warp, then for the other 16
    }
#endif
    mbarrier_fence();
}

#if MASK_STAGES
using RowsMask = CopiedMask;
#elif !MASK
struct RowsMask {
    MEMBER RowsMask(const Params &, const Work &, i32) {}
    MEMBER void load(const Params &, i32) {}
    template <class Math>
    MEMBER void apply(const Params &, Math &) const {}
};
#endif

// Whether `value` is true in some lane of the warp; lanes of a row, four adjacent ones, have the same value.
DEVICE bool any_row(bool value) {
    u32 found = value;
    UNROLL for (int lanes = 4; lanes < 32; lanes *= 2) found |= shuffle_xor(found, lanes);
    return warp_uniform((int)found) != 0;
}

// A thread's share of 16 rows: four values of each fragment of 8 columns, in rows g and g + 8, as in mma.sync.
struct WarpMath {
    float scores[BLOCK_K / 2];
    float sums[HEAD / 2]; // at the end
    // Per row (two): the score to which weights are relative, this lane's part of the sum of weights, and the factor
    // that brings earlier sums into the measure of this step.
    float top[1][2], total[1][2], kept[2];

    MEMBER WarpMath() : sums{}, total{} { top[0][0] = top[0][1] = minus_infinity(); }

    // Value v of fragment j.
    MEMBER float &score(int, int j, int v) { return scores[4 * j + v]; }
    MEMBER float sum(int, int j, int v) const { return sums[4 * j + v]; }

    // The sigmoid of each score, for a soft cap.
    MEMBER void cap_scores(float factor) {
        UNROLL for (int i = 0; i < BLOCK_K / 2; ++i) scores[i] = reciprocal_(1.0f + exp2_(scores[i] * factor));
    }

    // The largest score of a row yet.
    MEMBER float largest_score(int half) const {
        float largest[2] = {top[0][half], minus_infinity()};
        UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) largest[e] =
            larger_score(largest[e], scores[4 * j + 2 * half + e]);
        largest[0] = larger_score(largest[0], largest[1]);
        largest[0] = larger_score(largest[0], shuffle_xor(largest[0], 1));
        return larger_score(largest[0], shuffle_xor(largest[0], 2));
    }

    // Turns scores into weights. Returns whether earlier sums have to be multiplied by `kept`. A row that has seen
    // nothing has sums of zero, in any measure. Polynomials are not above 2.
    MEMBER bool weigh(float unit) {
        const float growth = (POLYNOMIALS ? 1.0f : 8.0f) * reciprocal_(unit);
        const float largest[2] = {largest_score(0), largest_score(1)};
        bool grows = false;
        UNROLL for (int half = 0; half < 2; ++half) grows |=
            top[0][half] != minus_infinity() && !(largest[half] <= top[0][half] + growth); // NaN grows
        grows = any_row(grows);
        UNROLL for (int half = 0; half < 2; ++half) {
            const float before = top[0][half];
            if (grows || before == minus_infinity())
                top[0][half] = largest[half];
            // Rows that have seen nothing yet have no largest score: any finite number serves.
            const float base = top[0][half] == minus_infinity() ? 0.0f : top[0][half];
            kept[half] = grows ? weight_of(before, base, unit) : 1.0f;
            const RowPowers powers(base, unit);
            float total_here[2] = {0, 0};
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) {
                float &score = scores[4 * j + 2 * half + e];
                score = by_polynomial(j) ? powers.weight(score, scores[4 * known_before(j) + 2 * half + e])
                                         : weight_of(score, base, unit);
                total_here[e] += score;
            }
            total[0][half] = fma_(total[0][half], kept[half], total_here[0] + total_here[1]);
        }
        return grows;
    }

    // The weights in 16 bits, as tensor_store_pairs takes them.
    MEMBER void pack(u32 (&weights)[BLOCK_K / 4]) const {
        UNROLL for (int i = 0; i < BLOCK_K / 4; ++i) weights[i] =
            pack_pair(scores[2 * i], scores[2 * i + 1], IN_TYPE{});
    }

    // Total weight over the four lanes of a row, and division by it. Rows that saw no key are zero.
    MEMBER void gather_totals() {
        UNROLL for (int half = 0; half < 2; ++half) {
            total[0][half] += shuffle_xor(total[0][half], 1);
            total[0][half] += shuffle_xor(total[0][half], 2);
            if (POLYNOMIALS && top[0][half] == -minus_infinity())
                total[0][half] = top[0][half] - top[0][half];
        }
    }
    MEMBER void divide() {
        UNROLL for (int half = 0; half < 2; ++half) {
            const float share = total[0][half] == 0.0f ? 0.0f : 1.0f / total[0][half];
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
                sums[4 * j + 2 * half] *= share;
                sums[4 * j + 2 * half + 1] *= share;
            }
        }
    }
};
