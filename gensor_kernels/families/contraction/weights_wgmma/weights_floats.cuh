// Floats as the left operand of a TF32 product, which tensor copies have rounded. A box holds rows of k with 32 columns
// of B, and a warp needs 16 columns of 4 rows at once: 8 bytes of each lane. Neighbouring columns would share banks
// from row to row, because the swizzle moves chunks of one row by less than 4. Row g + 8 * h of a warp's fragments is
// therefore column
//     h + 2 * (g & 1) + 16 * (g >> 1 & 1) + 4 * (g >> 2), plus 8 in odd warps, of the 32 columns of a pair of warps.
#pragma once
#include "weights_ring.cuh"

struct Weights {
    MEMBER Weights(const Params &, const Tile &, int) {}

    // The first column of this warp among the 64 columns of a warpgroup, and the offset of the box it is in.
    static MEMBER int warp_column() { return (thread_index() >> 6 & 1) * 32 + (thread_index() >> 5 & 1) * 8; }
    static MEMBER int offset(int first) { return (first + warp_column()) / UNIT * FLOAT_BOX; }

    // The column of a warp's slab for row g + 8 * half of its fragments, and the warp's column that it stands for.
    static MEMBER int slab_column(int g, int half) { return g * 2 + half; }
    static MEMBER int column(int of_slab) { return (of_slab & 3) + (of_slab >> 2 & 1) * 16 + (of_slab >> 3) * 4; }

    // Reads 8 of k of the columns of tile i.
    MEMBER void read(sptr<u8> from, int k, int i, u32 (&factors)[4]) const {
        const int lane = thread_index() & 31;
        const int column = (thread_index() >> 5 & 1) * 8 + (lane >> 2 & 1) * 2 + (lane >> 3 & 1) * 16 + (lane >> 4) * 4;
        UNROLL for (int half = 0; half < 2; ++half) {
            const int at = 64 / UNIT * i * FLOAT_BOX + k * 128 + WeightRows::offset(half * 4 + (lane & 3), column * 4);
            const Vec<8> pair = load_shared<8>(from + at);
            factors[half * 2] = pair.word[0], factors[half * 2 + 1] = pair.word[1];
        }
    }
    MEMBER float scaled(float sum, int, int) const { return sum; }
    MEMBER float add(float sum, int, int, float total) const { return sum + total; }
    MEMBER void begin_widening() {}
    MEMBER void begin_summing() {}
};
