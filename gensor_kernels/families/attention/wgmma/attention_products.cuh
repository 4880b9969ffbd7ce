// Attention on warpgroup products: a warpgroup's share of the math, an online softmax over tiles of keys.
//
// Scores are the accumulators of the first product. Weights, their exponentials in 16 bits, then have the layout of the
// left operand of the second product, which takes it from registers.
#pragma once
#include "attention_powers.cuh"
#include "attention_ring.cuh"

constexpr int K_STEP = 16, HEAD_STEPS = HEAD / K_STEP, KEY_STEPS = BLOCK_K / K_STEP, KEY_FRAGMENTS = BLOCK_K / 8;

#if !MASK
struct NoMask {
    MEMBER void load(const Params &, i32) {}
    template <class Math>
    MEMBER void apply(const Params &, Math &) const {}
};
#endif

// A thread's share of 64 rows: four values of each fragment of 8 columns, in rows g and g + 8 of its warp's 16 rows, as
// in mma.sync.
struct WarpMath {
    float scores[BLOCK_K / 2];
    u32 weights[KEY_STEPS][4];
    float sums[HEAD / 2];
    // Per row (two): the largest score yet, this lane's part of the sum of weights, and the factor that brings earlier
    // sums into the measure of the largest score.
    float top[1][2], total[1][2], kept[2];
    u64 queries, first_keys, first_values; // descriptors of tiles, of the ring's first buffer

    MEMBER explicit WarpMath(int group) : sums{}, total{} {
        top[0][0] = top[0][1] = minus_infinity();
        queries = matrix_descriptor(shared_base() + (QUERIES + group * 64 * 128), 16, ATOM);
        first_keys = matrix_descriptor(tile_in(0), 16, ATOM);
        first_values = matrix_descriptor(tile_in(0), TILE_BOX, ATOM);
    }

    // Value v of fragment j.
    MEMBER float &score(int, int j, int v) { return scores[4 * j + v]; }
    MEMBER float sum(int, int j, int v) const { return sums[4 * j + v]; }

    MEMBER void hold_scores() { wgmma_hold(scores); }
    MEMBER void hold_weights() { UNROLL for (int step = 0; step < KEY_STEPS; ++step) wgmma_hold(weights[step]); }

    // Issues scores = Q K^T of the tile in the ring's next buffer, which is full, as a group of products.
    MEMBER void begin_scores(const Turn &turn) {
        const u64 keys = further(first_keys, turn.slot * SLOT_BYTES);
        wgmma_hold(scores);
        wgmma_fence();
        UNROLL for (int step = 0; step < HEAD_STEPS; ++step) {
            const int box = step * K_STEP / UNIT, byte = step * K_STEP % UNIT * 2;
            const u64 q = further(queries, box * QUERY_BOX + byte), k = further(keys, box * TILE_BOX + byte);
            if (step == 0)
                wgmma<0, 0, 0>(scores, q, k, IN_TYPE{}, IN_TYPE{});
            else
                wgmma<0, 0, 1>(scores, q, k, IN_TYPE{}, IN_TYPE{});
        }
        wgmma_commit();
    }

    // Issues sums += weights V of the tile in the ring's next buffer, which is full, as a group of products.
    MEMBER void begin_sums(const Turn &turn) {
        const u64 values = further(first_values, turn.slot * SLOT_BYTES);
        wgmma_hold(sums);
        hold_weights();
        wgmma_fence();
        UNROLL for (int step = 0; step < KEY_STEPS; ++step)
            wgmma_held<1, 1>(sums, weights[step], further(values, step * K_STEP * 128), IN_TYPE{});
        wgmma_commit();
    }

    MEMBER void end_scores_alone() {
        wgmma_wait<0>();
        wgmma_hold(scores);
    }
    MEMBER void end_scores() {
        wgmma_wait<1>();
        wgmma_hold(scores);
    }
    MEMBER void end_sums() {
        wgmma_wait<0>();
        wgmma_hold(sums);
        hold_weights();
    }

    // The sigmoid of each score, for a soft cap.
    MEMBER void cap_scores(float factor) {
        UNROLL for (int i = 0; i < BLOCK_K / 2; ++i) scores[i] = reciprocal_(1.0f + exp2_(scores[i] * factor));
    }

    // Turns scores into exponentials relative to the largest score yet. Sums and weights, which a product in flight may
    // use, are not touched.
    MEMBER void weigh(float unit) {
        UNROLL for (int half = 0; half < 2; ++half) {
            float largest[2] = {top[0][half], minus_infinity()}, total_here[2] = {0, 0};
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) largest[e] =
                larger_score(largest[e], scores[4 * j + 2 * half + e]);
            largest[0] = larger_score(largest[0], largest[1]);
            largest[0] = larger_score(largest[0], shuffle_xor(largest[0], 1));
            largest[0] = larger_score(largest[0], shuffle_xor(largest[0], 2));
            // Rows that have seen nothing yet have no largest score: any finite number serves.
            const float base = largest[0] == minus_infinity() ? 0.0f : largest[0];
            kept[half] = weight_of(top[0][half], base, unit);
            top[0][half] = largest[0];
            const RowPowers powers(base, unit);
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) {
                float &score = scores[4 * j + 2 * half + e];
                score = by_polynomial(j) ? powers.weight(score, scores[4 * known_before(j) + 2 * half + e])
                                         : weight_of(score, base, unit);
                total_here[e] += score;
            }
            total[0][half] = fma_(total[0][half], kept[half], total_here[0] + total_here[1]);
        }
    }

    // Packs the exponentials as weights of the next product, and rescales the sums to the same measure.
    MEMBER void take_weights() {
        UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int half = 0; half < 2; ++half)
            weights[j / 2][j % 2 * 2 + half] =
                pack_pair(scores[4 * j + 2 * half], scores[4 * j + 2 * half + 1], IN_TYPE{});
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int v = 0; v < 4; ++v) sums[4 * j + v] *= kept[v / 2];
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
