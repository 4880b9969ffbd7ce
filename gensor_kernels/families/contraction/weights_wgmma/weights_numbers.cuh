// Converts quantised weights to the 16-bit left operand of a product, minus their zero, which is exact. Also loads the
// scales and zeros of a thread's columns of C, group by group.
#pragma once
#include "weights_ring.cuh"

constexpr bool HALF = same_type<IN_TYPE, half_t>, FOUR_BITS = per_unit<B_STORED> == 2;
constexpr bool ZEROS = SCALED == 2;
constexpr int PAIR_BYTES = FOUR_BITS ? 1 : 2; // bytes of two weights that are adjacent along k

// Two stored weights become numbers of the form "large number + weight" in 16 bits (i8 as bfloat16_t: in float). All
// weights of a group then add the same bias: minus the large number, minus the zero.
DEVICE u32 bias_of(float zero) {
    const float large = FOUR_BITS ? (HALF ? 1024.0f : 128.0f) : HALF ? 1152.0f : 8388736.0f, bias = -(large + zero);
    if constexpr (HALF || FOUR_BITS)
        return pack_pair(bias, bias, IN_TYPE{});
    else
        return bit_cast<u32>(bias);
}
DEVICE u32 widen_pair(u32 stored, u32 bias) {
    constexpr u32 ONES = HALF ? 0x3c003c00u : 0x3f803f80u;
    if constexpr (FOUR_BITS) { // shifts the upper half of a byte left by 12 bits
        const u32 pair = (stored * 0x1001u & 0x000f000fu) | (HALF ? 0x64006400u : 0x43004300u);
        return fma_pair(pair, ONES, bias, IN_TYPE{});
    } else if constexpr (HALF) {
        return fma_pair(byte_permute(stored, 0, 0x4140) ^ 0x64806480u, ONES, bias, IN_TYPE{});
    } else {
        float number[2];
        UNROLL for (int i = 0; i < 2; ++i) number[i] =
            bit_cast<float>(byte_permute(stored, 0, 0x4440 | i) ^ 0x4b000080u) + bit_cast<float>(bias);
        return pack_pair(number[0], number[1], IN_TYPE{});
    }
}

// Scales and zeros of the columns of C whose sums a thread holds: two of every 64 columns. The scales and zeros of the
// next group are loaded while a group is multiplied.
struct Weights {
    gptr<IN_TYPE> scales; // of the first column, in the group that is requested next
    gptr<i8> zeros;
    i64 scale_n, scale_group, zero_n, zero_group; // elements from column to column, and from group to group
    int columns, groups;                          // remaining columns of B from the first one on; remaining groups
    float scale[TILES][2];                        // of the group that is summed
    u32 bias[TILES][2];                           // of the group that is widened
    float next_scale[TILES][2], next_zero[TILES][2];

    MEMBER Weights(const Params &params, const Tile &tile, int first) {
        const int column = tile.column + first + lane_row();
        const int group = GROUP ? tile.k_begin / (GROUP ? GROUP : 1) : 0;
        scale_n = params.d_n, scale_group = params.d_m;
        zero_n = params.groups.zero_n, zero_group = params.groups.zero_group;
        scales = gptr<IN_TYPE>(params.d) + (column * scale_n + group * scale_group);
        zeros = gptr<i8>(params.groups.zeros) + (column * zero_n + group * zero_group);
        columns = params.n - column, groups = (GROUP ? divide_up(params.k, GROUP ? GROUP : 1) : 1) - group;
        request();
        if (!GROUP)
            begin_widening(), begin_summing();
    }
    // The row of this lane among the 64 rows of weights of a warpgroup, and the offset of the first one of its tiles.
    static MEMBER int warp_column() { return (thread_index() >> 5 & 3) * 16; }
    static MEMBER int lane_row() { return warp_column() + (thread_index() >> 2 & 7); }
    static MEMBER int offset(int first) { return (first + lane_row()) * 128; }
    // The column of a warp's slab for row g + 8 * half of its fragments, and the warp's column that it stands for.
    static MEMBER int slab_column(int g, int half) { return half * 8 + g; }
    static MEMBER int column(int of_slab) { return of_slab; }

    MEMBER void request() {
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const int column = i * 64 + half * 8;
            const bool inside = within(column, columns) && within(0, groups);
            next_scale[i][half] = to_float(load_global<2>(scales + column * scale_n, inside).template get<IN_TYPE>(0));
            next_zero[i][half] = FOUR_BITS ? 8.0f : 0.0f;
            if (ZEROS)
                next_zero[i][half] = (float)load_global<1>(zeros + column * zero_n, inside).template get<i8>(0);
        }
        scales = scales + scale_group, zeros = zeros + zero_group;
        --groups;
    }
    // Reads 16 of k of the weights of tile i from byte `from` of a buffer on, and widens them.
    MEMBER void read(sptr<u8> from, int k, int i, u32 (&widened)[4]) const {
        const int lane = thread_index() & 31;
        UNROLL for (int r = 0; r < 4; ++r) {
            const int half = r & 1, byte = (k + (r >> 1) * 8) / per_unit<B_STORED> + (lane & 3) * PAIR_BYTES;
            const int at = (i * 64 + half * 8) * 128 + WeightRows::offset(lane >> 2 & 7, byte) - (lane >> 2 & 7) * 128;
            widened[r] = widen_pair(load_shared<PAIR_BYTES>(from + at).word[0], bias[i][half]);
        }
    }
    // The sum of tile i and of this half of its rows, scaled; and added to another.
    MEMBER float scaled(float sum, int i, int half) const { return sum * scale[i][half]; }
    MEMBER float add(float sum, int i, int half, float total) const { return fma_(sum, scale[i][half], total); }
    // Call this before the first weights of the next group are widened.
    MEMBER void begin_widening() {
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int half = 0; half < 2; ++half) bias[i][half] =
            bias_of(next_zero[i][half]);
    }
    // Call this after the previous group's sums are scaled.
    MEMBER void begin_summing() {
        UNROLL for (int i = 0; i < TILES; ++i) UNROLL for (int half = 0; half < 2; ++half) scale[i][half] =
            next_scale[i][half];
        if (GROUP)
            request();
    }
};
