// Stores the transposed sums of a warpgroup to C or to the split-K workspace. Each warp transposes 16 rows by 16
// columns of C at a time in its slab, from which lanes store whole pieces of rows.
#pragma once
#include "warp_outputs.cuh"
#include "weights_products.cuh"

constexpr int SLABS = RING + STAGES * SLOT_BYTES, PIECES = BLOCK_M / 16; // pieces of 16 rows of C
constexpr int TOGETHER = FLOATS ? 2 : 1;                                 // columns of a slab that a lane writes at once

// Rows of a slab are permuted, since the rows of C of lanes that store together are two apart and would share banks.
// Row 8 * f + 4 * c + t of a slab is row 8 * f + 2 * t + c of C.
struct TransposedPlacement {
    StagedPlacement staged;
    MEMBER bool valid(int g) const { return staged.valid(g); }
    MEMBER Place operator()(int g) const {
        Place at = staged(g);
        const int row = at.row - staged.row;
        at.row = staged.row + (row & 8) + (row & 3) * 2 + (row >> 2 & 1);
        at.column = staged.column + Weights::column(at.column - staged.column);
        return at;
    }
};

DEVICE void store_transposed(sptr<u8> slab, const GroupMath &math, int tile, int piece) {
    const int lane = thread_index() & 31;
    UNROLL for (int f = 0; f < 2; ++f) UNROLL for (int v = 0; v < 4 / TOGETHER; ++v) {
        Vec<4 * TOGETHER> words = Vec<4 * TOGETHER>::zero();
        UNROLL for (int w = 0; w < TOGETHER; ++w) words.set(w, math.output(tile, (piece * 2 + f) * 4 + v + w * 2));
        const int row = f * 8 + (v & 1) * 4 + (lane & 3), column = Weights::slab_column(lane >> 2, v >> 1);
        store_shared(slab + SlabRows::offset(row, column * SLAB_WORD), words);
    }
}

DEVICE void finish_group(const MappedParams &params, const Tile &tile, int first, const GroupMath &math) {
    const int warp = thread_index() >> 5;
    const sptr<u8> slab = shared_base() + (SLABS + (warp - 4) * SLAB_BYTES);
    const int column = tile.column + first + Weights::warp_column();
    ROLLED for (int i = 0; i < TILES * PIECES; ++i) {
        UNROLL for (int f = 0; f < TILES * PIECES; ++f) // a constant index keeps the sums in registers
            if (f == i) store_transposed(slab, math, f / PIECES, f % PIECES);
        warp_barrier();
        ROLLED for (int g = 0; g < LANE_GROUPS; g += BATCH_GROUPS) {
            const TransposedPlacement place = {
                {tile.row + i % PIECES * 16, column + i / PIECES * 64, (thread_index() & 31) + 32 * g}};
            float values[BATCH_GROUPS * WIDTH] = {};
            UNROLL for (int b = 0; b < BATCH_GROUPS; ++b) if (place.valid(b))
                load_slab_group(slab, place.staged.group + 32 * b, values + b * WIDTH);
            finish_batch(params, tile, values, place);
        }
        warp_barrier();
    }
}
