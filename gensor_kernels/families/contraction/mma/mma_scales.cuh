// Scales of a quantised B: the value of element (k, n) is (its number - zero) * scale, with one zero and one scale for
// each column and GROUP elements of k. The kernel multiplies the numbers themselves. At the end of a group, it
// subtracts zero * (sum of the group's elements of A) from the sum, and multiplies by the scale. The sums of A are the
// product of its fragments and ones.
#pragma once
#include "contraction.cuh"
#include "mma_widen.cuh"

using Accumulators = SUM_TYPE[FRAGMENTS_M][FRAGMENTS_N][4];

#if SCALED

struct Scaling {
    static constexpr bool ZEROS = SCALED == 2;
    static constexpr float CENTRE = per_unit<B_STORED> == 2 ? 8.0f : 0.0f; // widening subtracts it from the numbers
    static constexpr int UNIT = GROUP == 0 ? BLOCK_K : minimum(GROUP, BLOCK_K); // k after which a group may end
    static constexpr int PARTS = UNIT * ELEMENT / K_STEP_BYTES;                 // fragments along k in a unit
    gptr<IN_TYPE> scales;                                                       // from this lane's first column on
    gptr<i8> zeros;
    i64 scale_n, scale_group, zero_n, zero_group; // strides in elements, of columns and of groups
    int columns, groups;                          // columns of B from the lane's first on, and groups from this one on
    int left;                                     // values of k of the group that are not summed yet
    u32 scale[FRAGMENTS_N];                       // of two columns of a fragment
    float zero[ZEROS ? FRAGMENTS_N : 1][2];
    float sums[ZEROS ? FRAGMENTS_M : 1][4]; // of rows of A
    float totals[GROUP ? FRAGMENTS_M : 1][GROUP ? FRAGMENTS_N : 1][4];

    MEMBER Scaling(const Params &params, const Tile &tile, int column) : sums{}, totals{} {
        const int first = column + (thread_index() & 3) * 2, group = GROUP ? tile.k_begin / (GROUP ? GROUP : 1) : 0;
        scale_n = params.d_n, scale_group = params.d_m;
        zero_n = params.groups.zero_n, zero_group = params.groups.zero_group;
        scales = gptr<IN_TYPE>(params.d) + (first * scale_n + group * scale_group);
        zeros = gptr<i8>(params.groups.zeros) + (first * zero_n + group * zero_group);
        columns = params.n - first, groups = (GROUP ? divide_up(params.k, GROUP ? GROUP : 1) : 1) - group;
        left = GROUP - (tile.k_begin - group * GROUP);
        load();
    }

    // Loads the scales and zeros of the group.
    MEMBER void load() {
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
            Vec<4> pair = Vec<4>::zero();
            UNROLL for (int i = 0; i < 2; ++i) {
                const bool inside = within(j * 8 + i, columns) && within(0, groups);
                pair.set(i, load_global<2>(scales + (j * 8 + i) * scale_n, inside).template get<IN_TYPE>(0));
                if (ZEROS)
                    zero[j][i] =
                        (float)load_global<1>(zeros + (j * 8 + i) * zero_n, inside).template get<i8>(0) - CENTRE;
            }
            scale[j] = pair.word[0];
        }
    }
    // Adds the elements of a column of fragments of A to the sums of its rows.
    MEMBER void add(const u32 (&a)[FRAGMENTS_M][4]) {
        if constexpr (ZEROS) {
            const u32 one = same_type<IN_TYPE, half_t> ? 0x3c003c00u : 0x3f803f80u, ones[2] = {one, one};
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) multiply(sums[i], a[i], ones);
        }
    }
    // Ends the group if its last fragment has been multiplied; `parts` fragments along k of this stage have been.
    MEMBER void advance(Accumulators &group, int parts) {
        if (GROUP == 0 || parts % PARTS != 0)
            return;
        left -= UNIT;
        if (UNIT < GROUP && left > 0)
            return;
        cover("group");
        end(group);
        left = GROUP, --groups;
        scales = scales + scale_group, zeros = zeros + zero_group;
        load();
    }
    // Scales the sums of the group and adds them to the totals.
    MEMBER void end(Accumulators &group) {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
            UNROLL for (int r = 0; r < 4; ++r) {
                const float factor = to_float(bit_cast<IN_TYPE>((u16)(scale[j] >> 16 * (r & 1))));
                float value = group[i][j][r];
                if (ZEROS)
                    value = fma_(-zero[j][r & 1], sums[i][r], value);
                if (GROUP)
                    totals[i][j][r] = fma_(value, factor, totals[i][j][r]);
                group[i][j][r] = GROUP ? 0.0f : value * factor;
            }
        }
        if (ZEROS)
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int r = 0; r < 4; ++r) sums[i][r] = 0.0f;
    }
    // Replaces the sums of the last group by those of all groups.
    MEMBER void finish(Accumulators &group) {
        end(group);
        if (GROUP)
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
                UNROLL for (int r = 0; r < 4; ++r) group[i][j][r] = totals[i][j][r];
    }
};

#else
struct Scaling {
    MEMBER Scaling(const Params &, const Tile &, int) {}
    template <class Part>
    MEMBER void add(const Part &) {}
    MEMBER void advance(Accumulators &, int) {}
    MEMBER void finish(Accumulators &) {}
};
#endif
