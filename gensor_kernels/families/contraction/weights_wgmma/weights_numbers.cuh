// Converts quantised weights to the 16-bit left operand of a product, minus their zero, which is exact. Also loads the
// scales and zeros of a thread's columns of C, group by group.
#pragma once
#include "weights_ring.cuh"
#include "widen.cuh"

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
struct Scales {
    gptr<IN_TYPE> scales; // of the first column, in the group that is requested next
    gptr<i8> zeros;
    i64 scale_n, scale_group, zero_n, zero_group; // elements from column to column, and from group to group
    int columns, groups;                          // remaining columns of B from the first one on; remaining groups
    float scale[TILES][2];                        // of the group that is summed
    u32 bias[TILES][2];                           // of the group that is widened
    float next_scale[TILES][2], next_zero[TILES][2];

    MEMBER Scales(const Params &params, const Tile &tile, int column) {
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
