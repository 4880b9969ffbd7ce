// The reduction over a window whose size and steps are compiled in.
#pragma once
#include "window_operands.cuh"

constexpr int ROWS = (THREAD_H - 1) * STEP_H + WINDOW_R, COLUMNS = (THREAD_W - 1) * STEP_W + WINDOW_S; // of x
constexpr int HELD = OPERATION != MULTIPLY ? 0 : FILTER_HELD ? WINDOW_R * WINDOW_S : WINDOW_S;

// Accumulates row `i` of x under the thread into every output whose window contains it.
DEVICE void accumulate_row(ACC_TYPE (&sums)[OUTPUTS], int i, const Cell (&row)[COLUMNS], Tap (&taps)[HELD + 1],
                           const Params &params, const Spot &spot) {
    UNROLL for (int down = 0; down < THREAD_H; ++down) {
        const int r = i - down * STEP_H;
        if (r < 0 || r >= WINDOW_R)
            continue;
        if (OPERATION == MULTIPLY && !FILTER_HELD)
            UNROLL for (int s = 0; s < WINDOW_S; ++s) taps[s] = load_tap(params, spot, r, s);
        UNROLL for (int s = 0; s < WINDOW_S; ++s) {
            const Tap &tap = taps[OPERATION == MULTIPLY ? s + (FILTER_HELD ? r * WINDOW_S : 0) : 0];
            UNROLL for (int across = 0; across < THREAD_W; ++across)
                accumulate(sums, down * THREAD_W + across, row[across * STEP_W + s], tap);
        }
    }
}

#if STAGED
// Reads rows of x from shared memory.
DEVICE void accumulate_rows(const Params &params, const Spot &spot, int place, ACC_TYPE (&sums)[OUTPUTS],
                            Tap (&taps)[HELD + 1]) {
    const int column = place % COLUMN_THREADS, row = place / COLUMN_THREADS % ROW_THREADS;
    const i32 first_row = spot.row - row * THREAD_H, first_column = spot.column - column * THREAD_W;
    stage(params, spot, place, corner_of(params.sliding, first_row, first_column, STEP_H, STEP_W));
    const sptr<IN_TYPE> plane = staged_plane(place);
    unrolled<ROWS>([&](int i) {
        Cell cells[COLUMNS];
        read_row(cells, plane, row * (THREAD_H * STEP_H) + i, column * (THREAD_W * STEP_W));
        accumulate_row(sums, i, cells, taps, params, spot);
    });
}
#else
// ---- x from global memory into registers

DEVICE void load_row(Cell (&row)[COLUMNS], const Sliding &sliding, const Plane &plane, const Spot &spot, i32 index,
                     i32 first) {
    const bool inside = spot.inside && within((u32)index, (u32)sliding.extent[0]);
    if (spot.inside && !inside)
        cover("padding");
    const i64 stride = column_stride(sliding);
    const i64 from = index * sliding.row + first * stride;
    UNROLL for (int i = 0; i < COLUMNS; ++i) row[i] =
        plane.load(from + i * stride, inside && within((u32)(first + i), (u32)sliding.extent[1]));
}

// Applies the prologue to a loaded row, after the loads of the next row are issued.
DEVICE void prepare_row(Cell (&row)[COLUMNS], const Sliding &sliding, const Plane &plane, const Spot &spot, i32 index,
                        i32 first) {
    const bool inside = spot.inside && within((u32)index, (u32)sliding.extent[0]);
    UNROLL for (int i = 0; i < COLUMNS; ++i) row[i] =
        plane.prepared(row[i], inside && within((u32)(first + i), (u32)sliding.extent[1]));
}

// Loads each row while the one before it is accumulated.
DEVICE void accumulate_rows(const Params &params, const Spot &spot, int, ACC_TYPE (&sums)[OUTPUTS],
                            Tap (&taps)[HELD + 1]) {
    const Sliding &sliding = params.sliding;
    const Plane plane(params, spot);
    const Corner corner = corner_of(sliding, spot.row, spot.column, STEP_H, STEP_W);
    Cell row[COLUMNS], next[COLUMNS];
    load_row(row, sliding, plane, spot, corner.row, corner.column);
    unrolled<ROWS>([&](int i) {
        if (i + 1 < ROWS)
            load_row(next, sliding, plane, spot, corner.row + i + 1, corner.column);
        if (PROLOGUE)
            prepare_row(row, sliding, plane, spot, corner.row + i, corner.column);
        accumulate_row(sums, i, row, taps, params, spot);
        UNROLL for (int j = 0; j < COLUMNS; ++j) row[j] = next[j];
    });
}
#endif

DEVICE void reduce_window(const Params &params, const Spot &spot, int place, ACC_TYPE (&sums)[OUTPUTS]) {
    Tap taps[HELD + 1];
    if (FILTER_HELD)
        UNROLL for (int i = 0; i < HELD; ++i) taps[i] = load_tap(params, spot, i / WINDOW_S, i % WINDOW_S);
    accumulate_rows(params, spot, place, sums, taps);
}
