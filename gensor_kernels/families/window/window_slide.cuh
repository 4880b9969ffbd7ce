// The reduction over a filter of any size that moves by steps of 1 over planes in shared memory: STAGED with WINDOW 0.
//
// A block copies the rows of x under its outputs, padding included, and the filters of its channels, both rounded up to
// whole reads. A thread then walks along the window's columns, TAPS at a time, with the columns of x under its outputs
// in registers: it reads each column once per row, for all outputs whose windows contain it. Shared memory contains x
// as [plane][row][pitch] of IN_TYPE, then the filters as [plane][window row][taps_pitch] of ACC_TYPE.
#pragma once
#include "window_plane.cuh"

constexpr int TAPS = 4; // columns of the window per iteration
constexpr int ELEMENT = (int)sizeof(IN_TYPE), WORD = (int)sizeof(ACC_TYPE), GRAIN = 16 / ELEMENT;
constexpr int PLANE_THREADS = COLUMN_THREADS * ROW_THREADS;
// Elements per read of x, which are adjacent and aligned for every thread, and per read of the filter.
constexpr int READ_ELEMENTS = minimum(minimum(THREAD_W & -THREAD_W, TAPS), GRAIN);
constexpr int READ_TAPS = minimum(TAPS, 16 / WORD);
// The threads of a plane copy COPY_ROWS rows of COPY_COLUMNS elements at once.
constexpr int COPY_COLUMNS = minimum(32, PLANE_THREADS), COPY_ROWS = PLANE_THREADS / COPY_COLUMNS;

// The window, and the layout of shared memory.
struct Slide {
    i32 window[2];
    i32 rows, pitch, taps_pitch;

    MEMBER explicit Slide(const Sliding &sliding) {
        UNROLL for (int i = 0; i < 2; ++i) window[i] = sliding.window[i];
        taps_pitch = (i32)((u32)(window[1] + TAPS - 1) / TAPS) * TAPS;
        rows = BLOCK_H - 1 + window[0];
        pitch = (i32)((u32)(BLOCK_W + taps_pitch + GRAIN - 1) / GRAIN) * GRAIN;
    }
    MEMBER sptr<IN_TYPE> plane(int number) const { return shared_base().as<IN_TYPE>() + number * (rows * pitch); }
    MEMBER sptr<ACC_TYPE> filter(int number) const {
        return plane(BLOCK_C).template as<ACC_TYPE>() + number * (window[0] * taps_pitch);
    }
};

// Calls copy(row, column) for this thread's share of a plane's rows and columns.
template <class Copy>
DEVICE void for_each_copied(int place, i32 rows, i32 columns, const Copy &copy) {
    const int thread = place % PLANE_THREADS;
    const bool mine = within(thread, COPY_ROWS * COPY_COLUMNS);
    ROLLED for (i32 column = mine ? thread % COPY_COLUMNS : columns; within(column, columns); column += COPY_COLUMNS)
        UNROLL_BY_4 for (i32 row = thread / COPY_COLUMNS; within(row, rows); row += COPY_ROWS) copy(row, column);
}

// Copies x and the filters to shared memory. `corner` is that of the block's first outputs.
DEVICE void stage(const Params &params, const Slide &slide, const Spot &spot, int place, const Corner &corner) {
    const Sliding &sliding = params.sliding;
    const Plane plane(params, spot);
    const sptr<IN_TYPE> to = slide.plane(place / PLANE_THREADS);
    for_each_copied(place, slide.rows, slide.pitch, [&](i32 row, i32 column) {
        const i32 from_row = corner.row + row, from_column = corner.column + column;
        const bool valid = spot.inside && within((u32)from_row, (u32)sliding.extent[0]) &&
                           within((u32)from_column, (u32)sliding.extent[1]);
        if (spot.inside && !valid)
            cover("padding");
        store_shared(to + (row * slide.pitch + column),
                     plane.prepared(plane.load(from_row * sliding.row + from_column, valid), valid));
    });
    const gptr<IN_TYPE> filter = gptr<IN_TYPE>(params.b) + spot.channel * sliding.filter_channel;
    const sptr<ACC_TYPE> taps = slide.filter(place / PLANE_THREADS);
    for_each_copied(place, slide.window[0], slide.taps_pitch, [&](i32 row, i32 column) {
        const bool valid = spot.inside && within(column, slide.window[1]);
        const Cell tap = load_global<ELEMENT>(filter + (row * sliding.filter_row + column), valid);
        Vec<WORD> word;
        word.set(0, convert<ACC_TYPE>(tap.template get<IN_TYPE>(0)));
        store_shared(taps + (row * slide.taps_pitch + column), word);
    });
    barrier();
}

// Reads cells [FIRST, FIRST + COUNT) of a row; `from` is the address of cell 0.
template <int FIRST, int COUNT>
DEVICE void read_cells(ACC_TYPE (&cells)[THREAD_W + TAPS], sptr<IN_TYPE> from) {
    UNROLL for (int i = 0; i < COUNT; i += READ_ELEMENTS) {
        const auto piece = load_shared<READ_ELEMENTS * ELEMENT>(from + (FIRST + i));
        UNROLL for (int j = 0; j < READ_ELEMENTS; ++j) cells[FIRST + i + j] =
            convert<ACC_TYPE>(piece.template get<IN_TYPE>(j));
    }
}

DEVICE void read_taps(ACC_TYPE (&taps)[TAPS], sptr<ACC_TYPE> from) {
    UNROLL for (int i = 0; i < TAPS; i += READ_TAPS) {
        const auto piece = load_shared<READ_TAPS * WORD>(from + i);
        UNROLL for (int j = 0; j < READ_TAPS; ++j) taps[i + j] = piece.template get<ACC_TYPE>(j);
    }
}

// Multiplies row `i` of x under the thread by columns [s, s + TAPS) of the window. `at` is the address of the first
// cell, and `filter` that of row i of the window, which need not exist. LAST: the window may end before column s +
// TAPS; cells past its end are not multiplied, because x may be infinite there.
template <bool LAST>
DEVICE void accumulate_taps(ACC_TYPE (&sums)[OUTPUTS], ACC_TYPE (&cells)[THREAD_W + TAPS], const Slide &slide,
                            sptr<IN_TYPE> at, sptr<ACC_TYPE> filter, i32 i, i32 s) {
    read_cells<THREAD_W, TAPS>(cells, at);
    UNROLL for (int down = 0; down < THREAD_H; ++down) {
        const sptr<ACC_TYPE> row = filter;
        filter = filter + -slide.taps_pitch;
        if (!within((u32)(i - down), (u32)slide.window[0]))
            continue;
        ACC_TYPE taps[TAPS];
        read_taps(taps, row);
        UNROLL for (int j = 0; j < TAPS; ++j) if (!LAST || within(s + j, slide.window[1]))
            UNROLL for (int across = 0; across < THREAD_W; ++across) {
            ACC_TYPE &sum = sums[down * THREAD_W + across];
            sum = multiply_add(cells[across + j], taps[j], sum);
        }
    }
    UNROLL for (int j = 0; j < THREAD_W; ++j) cells[j] = cells[j + TAPS];
}

DEVICE void reduce_window(const Params &params, const Spot &spot, int place, ACC_TYPE (&sums)[OUTPUTS]) {
    const Slide slide(params.sliding);
    const int column = place % COLUMN_THREADS, row = place / COLUMN_THREADS % ROW_THREADS;
    stage(params, slide, spot, place,
          corner_of(params.sliding, spot.row - row * THREAD_H, spot.column - column * THREAD_W, 1, 1));
    const sptr<IN_TYPE> plane = slide.plane(place / PLANE_THREADS) + (row * THREAD_H * slide.pitch + column * THREAD_W);
    sptr<ACC_TYPE> filter = slide.filter(place / PLANE_THREADS);
    const i32 whole = (i32)((u32)slide.window[1] / TAPS) * TAPS;
    ROLLED for (i32 i = 0; within(i, THREAD_H - 1 + slide.window[0]); ++i) {
        const sptr<IN_TYPE> at = plane + i * slide.pitch;
        ACC_TYPE cells[THREAD_W + TAPS];
        read_cells<0, THREAD_W>(cells, at);
        ROLLED for (i32 s = 0; within(s, whole); s += TAPS)
            accumulate_taps<false>(sums, cells, slide, at + s, filter + s, i, s);
        if (whole < slide.window[1]) {
            cover("last_taps");
            accumulate_taps<true>(sums, cells, slide, at + whole, filter + whole, i, whole);
        }
        filter = filter + slide.taps_pitch;
    }
}
