// The reductions over a window: one whose size is known when compiling, and any.
#pragma once
#include "window_plane.cuh"
#include "window_stage.cuh"

// ---- the filter: CHANNELS elements at one of its positions

constexpr int TAP_LOADS = A_VECTOR / B_VECTOR;
struct Tap {
    Vec<B_VECTOR> piece[TAP_LOADS];
    MEMBER ACC_TYPE value(int channel) const {
        constexpr int EACH = B_VECTOR / (int)sizeof(IN_TYPE);
        return convert<ACC_TYPE>(piece[channel / EACH].template get<IN_TYPE>(channel % EACH));
    }
};

// There is always such a tap: a thread whose channel lies beyond the last one reads the first one's.
DEVICE Tap load_tap(const Params &params, const Spot &spot, i32 row, i32 column) {
    const Sliding &sliding = params.sliding;
    const i64 channel = CHANNELS_LAST ? (spot.inside ? spot.channel : 0) : spot.channel * sliding.filter_channel;
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.b) + channel + row * sliding.filter_row +
                               (CHANNELS_LAST ? column * sliding.filter_column : (i64)column); // "crs": dense columns
    Tap tap;
    UNROLL for (int i = 0; i < TAP_LOADS; ++i) tap.piece[i] =
        load_global<B_VECTOR>(from + i * (B_VECTOR / (int)sizeof(IN_TYPE)), true);
    return tap;
}

// Output number `output` of the thread takes in one cell, with its tap of the filter.
DEVICE void take(ACC_TYPE (&sums)[OUTPUTS], int output, const Cell &cell, const Tap &tap) {
    UNROLL for (int i = 0; i < CHANNELS; ++i) {
        ACC_TYPE &sum = sums[output * CHANNELS + i];
        const ACC_TYPE value = convert<ACC_TYPE>(cell.template get<IN_TYPE>(i));
        if constexpr (OPERATION == MULTIPLY)
            sum = multiply_add(value, tap.value(i), sum);
        else
            sum = combine(sum, value);
    }
}

#if WINDOW
constexpr int ROWS = (THREAD_H - 1) * STEP_H + WINDOW_R, COLUMNS = (THREAD_W - 1) * STEP_W + WINDOW_S; // of x
constexpr int HELD = OPERATION != MULTIPLY ? 0 : FILTER_HELD ? WINDOW_R * WINDOW_S : WINDOW_S;
static_assert(2 * A_VECTOR * COLUMNS + (FILTER_HELD ? A_VECTOR * WINDOW_R * WINDOW_S : 0) <= 768,
              "Rows of x and the filter must fit a thread's registers.");

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

// Behind the loads of the next row: so nothing waits for those.
DEVICE void prepare_row(Cell (&row)[COLUMNS], const Sliding &sliding, const Plane &plane, const Spot &spot, i32 index,
                        i32 first) {
    const bool inside = spot.inside && within((u32)index, (u32)sliding.extent[0]);
    UNROLL for (int i = 0; i < COLUMNS; ++i) row[i] =
        plane.prepared(row[i], inside && within((u32)(first + i), (u32)sliding.extent[1]));
}

// The row `i` of those under the thread goes to every output above it.
DEVICE void use_row(ACC_TYPE (&sums)[OUTPUTS], int i, const Cell (&row)[COLUMNS], Tap (&taps)[HELD + 1],
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
                take(sums, down * THREAD_W + across, row[across * STEP_W + s], tap);
        }
    }
}

#if STAGED
DEVICE void use_rows(const Params &params, const Spot &spot, int place, ACC_TYPE (&sums)[OUTPUTS],
                     Tap (&taps)[HELD + 1]) {
    const int column = place % COLUMN_THREADS, row = place / COLUMN_THREADS % ROW_THREADS;
    const i32 first_row = spot.row - row * THREAD_H, first_column = spot.column - column * THREAD_W;
    stage(params, spot, place, corner_of(params.sliding, first_row, first_column, STEP_H, STEP_W));
    const sptr<IN_TYPE> plane = staged_plane(place);
    unrolled<ROWS>([&](int i) {
        Cell cells[COLUMNS];
        read_row(cells, plane, row * (THREAD_H * STEP_H) + i, column * (THREAD_W * STEP_W));
        use_row(sums, i, cells, taps, params, spot);
    });
}
#else
// A row is loaded while the one before is used.
DEVICE void use_rows(const Params &params, const Spot &spot, int, ACC_TYPE (&sums)[OUTPUTS], Tap (&taps)[HELD + 1]) {
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
        use_row(sums, i, row, taps, params, spot);
        UNROLL for (int j = 0; j < COLUMNS; ++j) row[j] = next[j];
    });
}
#endif

DEVICE void fixed_window(const Params &params, const Spot &spot, int place, ACC_TYPE (&sums)[OUTPUTS]) {
    Tap taps[HELD + 1];
    if (FILTER_HELD)
        UNROLL for (int i = 0; i < HELD; ++i) taps[i] = load_tap(params, spot, i / WINDOW_S, i % WINDOW_S);
    use_rows(params, spot, place, sums, taps);
}
#else

// All outputs of the thread take in one position of the window.
DEVICE void take_position(const Params &params, const Spot &spot, const Plane &plane, const Corner &corner, i32 r,
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
            take(sums, down * THREAD_W + across, plane.prepared(cell, valid), tap);
        }
    }
}

// The positions of a window are counted along its rows; part p of SPLIT takes p, p + SPLIT, ...
DEVICE void any_window(const Params &params, const Spot &spot, i32 part, ACC_TYPE (&sums)[OUTPUTS]) {
    const Sliding &sliding = params.sliding;
    const Plane plane(params, spot);
    const Corner corner = corner_of(sliding, spot.row, spot.column, sliding.step[0], sliding.step[1]);
    const i32 width = sliding.window[1], positions = sliding.window[0] * width;
    const i32 step_r = SPLIT / width, step_s = SPLIT % width, mine = (positions - part + SPLIT - 1) / SPLIT;
    i32 r = part / width, s = part % width;
    UNROLL_BY_4 for (i32 i = 0; within(i, mine); ++i) {
        take_position(params, spot, plane, corner, r, s, sums);
        r += step_r, s += step_s;
        if (s >= width)
            s -= width, ++r;
    }
}
#endif
