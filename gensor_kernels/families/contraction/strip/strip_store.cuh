// Stores a warp's outputs to C: a lane holds whole stores of outputs (column_of).
#pragma once
#include "strip_tile.cuh"

using Accumulators = ACC_TYPE[FRAGMENTS_M][FRAGMENTS_N][4];
// Whether rows of C are columns of fragments; rows of C of which a lane holds outputs, and outputs of such a row.
constexpr bool TURNED = OUTPUTS_DOWN && !PIXEL_ROWS;
constexpr int LANE_ROWS = TURNED ? 2 * FRAGMENTS_N : 2 * FRAGMENTS_M,
              OF_ROW = FRAGMENTS_M * FRAGMENTS_N * 4 / LANE_ROWS;

struct RowPlacement {
    int row, column; // of this lane's first output
    i32 end;         // end of the tile's outputs
    MEMBER Place operator()(int group) const {
        constexpr int RUN = 2 * TOGETHER;
        const int value = group * WIDTH;
        const int at = column + (TURNED ? value * 8 : value / RUN * 4 * RUN + value % RUN);
        return Place{row, at, within(PIXEL_ROWS ? row : at, end)};
    }
};

DEVICE void store_tile(const Params &params, const StripTile &own, int row, int column, const Accumulators &sums) {
    const int lane = thread_index() & 31, g = lane >> 2, t = lane & 3;
    ROLLED for (int line = 0; line < LANE_ROWS; ++line) {
        ACC_TYPE values[OF_ROW] = {};
        UNROLL for (int f = 0; f < LANE_ROWS; ++f) { // a constant index keeps the accumulators in registers
            if (f != line)
                continue;
            UNROLL for (int v = 0; v < OF_ROW; ++v) values[v] =
                TURNED ? sums[v / 2][f / 2][v % 2 * 2 + f % 2] : sums[f / 2][v / 2][f % 2 * 2 + v % 2];
        }
        const int down = TURNED ? line / 2 * 8 + t * 2 + line % 2 : line * 8 + g;
        const RowPlacement place = {own.tile.row + row + down,
                                    own.tile.column + column + (TURNED ? g : t * 2 * TOGETHER), own.end};
        finish_outputs<OUT_TYPE, WIDTH, C_UNIT>(params, own.tile.batch, values, place);
    }
}
