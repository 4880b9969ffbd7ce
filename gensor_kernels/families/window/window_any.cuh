// The reduction over a window of any size and dilation, which Params describes: WINDOW 0 without STAGED.
#pragma once
#include "window_operands.cuh"

// Accumulates one position of the window into all outputs of the thread.
DEVICE void accumulate_position(const Params &params, const Spot &spot, const Plane &plane, const Corner &corner, i32 r,
                                i32 s, ACC_TYPE (&sums)[OUTPUTS]) {
    const Sliding &sliding = params.sliding;
    Tap tap;
    if (OPERATION == MULTIPLY)
        tap = load_tap(params, spot, r, s);
    UNROLL for (int down = 0; down < THREAD_H; ++down) {
        const i32 row = corner.row + down * sliding.step[0] + r * sliding.dilation[0];
        const bool inside = spot.inside && within((u32)row, (u32)sliding.extent[0]);
        if (spot.inside && !inside)
            cover("padding");
        UNROLL for (int across = 0; across < THREAD_W; ++across) {
            const i32 column = corner.column + across * sliding.step[1] + s * sliding.dilation[1];
            const bool valid = inside && within((u32)column, (u32)sliding.extent[1]);
            const Cell cell = plane.load(row * sliding.row + column * column_stride(sliding), valid);
            accumulate(sums, down * THREAD_W + across, plane.prepared(cell, valid), tap);
        }
    }
}

// Position i of a window is (i / width, i % width). Part p of SPLIT accumulates positions p, p + SPLIT, ...
DEVICE void reduce_window(const Params &params, const Spot &spot, int, ACC_TYPE (&sums)[OUTPUTS]) {
    const i32 part = CHANNELS_LAST ? thread_index() / PLACES : thread_index() % SPLIT;
    const Sliding &sliding = params.sliding;
    const Plane plane(params, spot);
    const Corner corner = corner_of(sliding, spot.row, spot.column, sliding.step[0], sliding.step[1]);
    const i32 width = sliding.window[1], positions = sliding.window[0] * width;
    const i32 step_r = SPLIT / width, step_s = SPLIT % width, mine = (positions - part + SPLIT - 1) / SPLIT;
    i32 r = part / width, s = part % width;
    UNROLL_BY_4 for (i32 i = 0; within(i, mine); ++i) {
        accumulate_position(params, spot, plane, corner, r, s, sums);
        r += step_r, s += step_s;
        if (s >= width)
            s -= width, ++r;
    }
}
