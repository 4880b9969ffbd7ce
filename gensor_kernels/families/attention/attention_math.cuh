// Attention: one warp's share of the math, an online softmax over tiles of keys.
//
// Scores are the accumulators of the first product. Their weights, in 16 bits, already have the layout of the left
// operand of the second product, so they stay in registers.
#pragma once
#include "attention_tile.cuh"

constexpr int HEAD_STEPS = HEAD / K_STEP, KEY_FRAGMENTS = BLOCK_K / 8;
constexpr int FETCH = 2; // reads of fragments in flight
constexpr int QUERY_SETS = Q_REGISTERS ? HEAD_STEPS : 2;

// Calls use(i, fragments) for i = 0, ... COUNT - 1; load(i, fragments) has read the fragments FETCH calls earlier. The
// copies of `request` are issued after the first products, which keep the tensor cores busy meanwhile.
template <int COUNT, class Load, class Use, class Request>
DEVICE void stream(const Load &load, const Use &use, const Request &request) {
    u32 held[FETCH + 1][4];
    UNROLL for (int i = 0; i < minimum(FETCH, COUNT); ++i) load(i, held[i]);
    unrolled<COUNT>([&](int i) {
        if (i + FETCH < COUNT)
            load(i + FETCH, held[(i + FETCH) % (FETCH + 1)]);
        if (i == minimum(FETCH, COUNT - 1))
            request();
        use(i, held[i % (FETCH + 1)]);
    });
}

struct WarpMath {
    FragmentLoader<HeadRows, FRAGMENTS_M, 4> load_q;
    FragmentLoader<HeadRows, KEY_FRAGMENTS, 2> load_k;
    FragmentLoader<ValueTile, FRAGMENTS_N, 2> load_v;
    u32 queries[QUERY_SETS][FRAGMENTS_M][4];
    float scores[FRAGMENTS_M][KEY_FRAGMENTS][4];
    u32 weights[FRAGMENTS_M][KEY_FRAGMENTS][2];
    float sums[FRAGMENTS_M][FRAGMENTS_N][4];
    // For the rows g and g + 8 of a fragment: the largest score yet, and this lane's part of the sum of weights.
    float top[FRAGMENTS_M][2], total[FRAGMENTS_M][2];

    MEMBER explicit WarpMath(int row) : load_q(row), load_k(0), load_v(0), sums{}, total{} {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) top[i][0] = top[i][1] = minus_infinity();
    }

    // Value v of fragment j of the i-th 16 rows.
    MEMBER float &score(int i, int j, int v) { return scores[i][j][v]; }
    MEMBER float sum(int i, int j, int v) const { return sums[i][j][v]; }

    MEMBER void load_queries(int step) { load_q.load(queries[step % QUERY_SETS], shared_base(), step); }
    MEMBER void keep_queries() {
        if constexpr (Q_REGISTERS)
            UNROLL for (int step = 0; step < HEAD_STEPS; ++step) load_queries(step);
    }

    // scores = Q K^T of a tile of keys; `request` issues copies meanwhile.
    template <class Request>
    MEMBER void multiply_keys(sptr<u8> tile, const Request &request) {
        constexpr int PAIRS = KEY_FRAGMENTS / 2;
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j)
            UNROLL for (int v = 0; v < 4; ++v) scores[i][j][v] = 0;
        if (!Q_REGISTERS)
            load_queries(0);
        stream<HEAD_STEPS * PAIRS>(
            [&](int i, u32(&pair)[4]) { load_matrix<4, false>(pair, tile + load_k.place(i % PAIRS, i / PAIRS)); },
            [&](int i, const u32(&pair)[4]) {
                const int step = i / PAIRS;
                if (!Q_REGISTERS && i % PAIRS == 0 && step + 1 < HEAD_STEPS)
                    load_queries(step + 1);
                multiply_pair(scores, i % PAIRS, queries[step % QUERY_SETS], pair);
            },
            request);
    }

    // The sigmoid of each score, for a soft cap.
    MEMBER void cap_scores(float factor) {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j)
            UNROLL for (int v = 0; v < 4; ++v) scores[i][j][v] = reciprocal_(1.0f + exp2_(scores[i][j][v] * factor));
    }

    // Computes the tile's weights relative to the largest score so far, and rescales sums and totals to it.
    MEMBER void weigh(float unit) {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            float largest = top[i][half], total_here = 0;
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) largest =
                maximum_(largest, maximum_(scores[i][j][2 * half], scores[i][j][2 * half + 1]));
            largest = maximum_(largest, shuffle_xor(largest, 1));
            largest = maximum_(largest, shuffle_xor(largest, 2));
            // A row that has seen no key yet has no largest score: any finite number will do.
            const float base = largest == minus_infinity() ? 0.0f : largest;
            const float kept = weight_of(top[i][half], base, unit);
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) {
                const float first = weight_of(scores[i][j][2 * half], base, unit);
                const float second = weight_of(scores[i][j][2 * half + 1], base, unit);
                total_here += first + second;
                weights[i][j][half] = pack_pair(first, second, IN_TYPE{});
            }
            top[i][half] = largest;
            total[i][half] = fma_(total[i][half], kept, total_here);
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
                sums[i][j][2 * half] *= kept;
                sums[i][j][2 * half + 1] *= kept;
            }
        }
    }

    // sums += weights V of a tile of values; `request` issues copies meanwhile.
    template <class Request>
    MEMBER void multiply_values(sptr<u8> tile, const Request &request) {
        constexpr int PAIRS = FRAGMENTS_N / 2;
        stream<K_STEPS * PAIRS>(
            [&](int i, u32(&pair)[4]) { load_matrix<4, true>(pair, tile + load_v.place(i % PAIRS, i / PAIRS)); },
            [&](int i, const u32(&pair)[4]) {
                u32 left[FRAGMENTS_M][4];
                UNROLL for (int m = 0; m < FRAGMENTS_M; ++m) UNROLL for (int r = 0; r < 4; ++r) left[m][r] =
                    weights[m][i / PAIRS * 2 + r / 2][r % 2];
                multiply_pair(sums, i % PAIRS, left, pair);
            },
            request);
    }

    // Adds products to fragments 2 * pair and 2 * pair + 1 of each row of fragments.
    template <int COUNT>
    static MEMBER void multiply_pair(float (&into)[FRAGMENTS_M][COUNT][4], int pair, const u32 (&left)[FRAGMENTS_M][4],
                                     const u32 (&right)[4]) {
        const u32 first[2] = {right[0], right[1]}, second[2] = {right[2], right[3]};
        UNROLL for (int m = 0; m < FRAGMENTS_M; ++m) {
            multiply(into[m][2 * pair], left[m], first);
            multiply(into[m][2 * pair + 1], left[m], second);
        }
    }

    // Ends the sums: a total over the four lanes of a row, and a division by it. Rows that saw no key are zero.
    MEMBER void gather_totals() {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            total[i][half] += shuffle_xor(total[i][half], 1);
            total[i][half] += shuffle_xor(total[i][half], 2);
        }
    }
    MEMBER void divide() {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const float share = total[i][half] == 0.0f ? 0.0f : 1.0f / total[i][half];
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
                sums[i][j][2 * half] *= share;
                sums[i][j][2 * half + 1] *= share;
            }
        }
    }
};
