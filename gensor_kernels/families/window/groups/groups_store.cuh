// Runs the epilogue on a thread's sums, and stores them in y.
#pragma once
#include "groups_spot.cuh"

constexpr int ADJACENT = CHANNELS_LAST ? THREAD_C : THREAD_W;                          // outputs of a thread, in y
constexpr int WIDTH = minimum(ADJACENT & -ADJACENT, C_VECTOR / (int)sizeof(OUT_TYPE)); // of them, per store

// Places in y of a thread's outputs, in groups of WIDTH.
struct Places {
    i32 pixel, column, columns, filter; // of the first output; columns of y
    bool inside;
    MEMBER Place operator()(int group) const {
        constexpr int PIECES = ADJACENT / WIDTH;
        const int outer = group / PIECES, inner = group % PIECES * WIDTH;
        const int across = CHANNELS_LAST ? outer : inner, filters = CHANNELS_LAST ? inner : outer;
        const bool valid = inside && within(column + across, columns);
        if (CHANNELS_LAST)
            return Place{pixel + across, filter + filters, valid};
        return Place{filter + filters, pixel + across, valid};
    }
};

DEVICE void store(const Params &params, const Spot &spot, ACC_TYPE (&sums)[OUTPUTS]) {
    const i32 *output = params.window.rows;
    const Batch batch = {{0, CHANNELS_LAST ? 0 : spot.image, spot.tile.group}};
    const i32 row = spot.row + (CHANNELS_LAST ? spot.image * output[0] : 0);
    const Places places = {row * output[1] + spot.column, spot.column, output[1], spot.tile.filter,
                           spot.tile.inside && within(spot.row, output[0])};
    finish_outputs<OUT_TYPE, WIDTH, true>(params, batch, sums, places);
}
