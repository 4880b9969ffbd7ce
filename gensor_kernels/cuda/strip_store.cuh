// A warp's outputs on their way to C: a lane holds whole stores of them (column_of).
#pragma once
#include "strip_tile.cuh"

using Accumulators = ACC_TYPE[FRAGMENTS_M][FRAGMENTS_N][4];

// A lane's outputs of one row, or those of another tile's places.
struct RowPlacement {
    int row, column; // of this lane's first output
    i32 end;         // of the tile's outputs
    MEMBER Place operator()(int group) const {
        constexpr int RUN = 2 * TOGETHER;
        const int value = group * WIDTH, at = column + value / RUN * 4 * RUN + value % RUN;
        return Place{row, at, within(PIXEL_ROWS ? row : at, end)};
    }
};

DEVICE void store_tile(const Params &params, const StripTile &own, int row, int column, const Accumulators &sums) {
    const int lane = thread_index() & 31;
    ROLLED for (int line = 0; line < 2 * FRAGMENTS_M; ++line) {
        ACC_TYPE values[2 * FRAGMENTS_N] = {};
        UNROLL for (int f = 0; f < 2 * FRAGMENTS_M; ++f) { // a constant index keeps the accumulators in registers
            if (f != line)
                continue;
            UNROLL for (int v = 0; v < 2 * FRAGMENTS_N; ++v) values[v] = sums[f / 2][v / 2][f % 2 * 2 + v % 2];
        }
        const RowPlacement place = {own.tile.row + row + line * 8 + (lane >> 2),
                                    own.tile.column + column + (lane & 3) * 2 * TOGETHER, own.end};
        finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, own.tile.batch, values, place);
    }
}
