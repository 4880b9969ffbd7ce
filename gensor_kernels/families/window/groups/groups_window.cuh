// The sums of a thread over the channels of its group and the window.
#pragma once
#include "groups_filters.cuh"

// Columns of the window that a thread takes at once, and the step between its outputs, in columns that it loads.
constexpr int TAPS = WINDOW ? WINDOW / 10 : 1, STEP = WINDOW ? WINDOW % 10 : 1;
constexpr int COLUMNS = (THREAD_W - 1) * STEP + TAPS;

using Cell = Vec<A_VECTOR>; // CHANNELS elements of x at one position

// The lines of x under a thread, each of CHANNELS channels: for every row of the window one after the other or, with
// WINDOW 0, for every position of it.
struct Lines {
    gptr<IN_TYPE> image; // the channels of the thread's group in its image
    i64 row_stride, channel_stride;
    i32 column_stride; // of 32 bits (Family.reads): the place of a column takes one instruction, not registers
    i32 top, left;     // row and column of x under the first position of the window
    i32 channel = 0, r = 0, s = 0; // of the next line

    MEMBER Lines(const Params &params, const Spot &spot) {
        const Window &w = params.window;
        row_stride = CHANNELS_LAST ? params.a_m : params.b_k;
        column_stride = (i32)(CHANNELS_LAST ? params.a_k : params.b_n);
        channel_stride = w.k_stride[CHANNELS_LAST ? 2 : 0];
        const i64 group = CHANNELS_LAST ? params.a_batch[2] : params.b_batch[2];
        image = gptr<IN_TYPE>(CHANNELS_LAST ? params.a : params.b) +
                (spot.image * w.row_stride[0] + spot.tile.group * group);
        top = spot.row * w.step[0] - w.pad[0], left = spot.column * w.step[1] - w.pad[1];
    }

    MEMBER void load(Cell (&cells)[COLUMNS], const Params &params, const Spot &spot) const {
        const Window &w = params.window;
        const i32 row = top + r * w.dilation[0], column = left + s * w.dilation[1], pace = WINDOW ? 1 : w.step[1];
        const bool inside = spot.tile.inside && within((u32)row, (u32)w.extent[0]);
        if (spot.tile.inside && !inside)
            cover("padding");
        const gptr<IN_TYPE> from = image + (channel * channel_stride + row * row_stride + column * (i64)column_stride);
        const i32 stride = column_stride * pace;
        UNROLL for (int i = 0; i < COLUMNS; ++i) cells[i] =
            load_global<A_VECTOR>(from + (i64)stride * i, inside && within((u32)(column + i * pace), (u32)w.extent[1]));
    }

    MEMBER void advance(const Call &call) {
        if (WINDOW || !within(++s, call.window[1])) {
            s = 0;
            if (!within(++r, call.window[0]))
                r = 0, channel += CHANNELS;
        }
    }
};

template <class T>
DEVICE T multiply_add(T a, T b, T sum) {
    if constexpr (same_type<T, i32>)
        return (i32)((u32)a * (u32)b + (u32)sum); // signed overflow would be undefined
    else
        return fma_(a, b, sum);
}

// Place of an output in a thread's sums: what is adjacent in memory last.
DEVICE constexpr int output_place(int across, int filter) {
    return CHANNELS_LAST ? across * THREAD_C + filter : filter * THREAD_W + across;
}

// Adds a line times the elements of filters from `filters` on; those of neighbouring channels and columns are `channel`
// and `column` apart.
DEVICE void accumulate_line(ACC_TYPE (&sums)[OUTPUTS], const Cell (&cells)[COLUMNS], sptr<ACC_TYPE> filters,
                            i32 channel, i32 column) {
    UNROLL for (int c = 0; c < CHANNELS; ++c) {
        ACC_TYPE x[COLUMNS];
        UNROLL for (int i = 0; i < COLUMNS; ++i) x[i] = convert<ACC_TYPE>(cells[i].template get<IN_TYPE>(c));
        UNROLL for (int s = 0; s < TAPS; ++s) {
            ACC_TYPE taps[THREAD_C];
            read_taps(taps, filters + (c * channel + s * column));
            UNROLL for (int across = 0; across < THREAD_W; ++across) UNROLL for (int f = 0; f < THREAD_C; ++f) {
                ACC_TYPE &sum = sums[output_place(across, f)];
                sum = multiply_add(x[across * STEP + s], taps[f], sum);
            }
        }
    }
}

// Loads each line while the one before it is accumulated.
DEVICE void accumulate(ACC_TYPE (&sums)[OUTPUTS], const Params &params, const Call &call, const Spot &spot) {
    const sptr<ACC_TYPE> filters = tile_filters(call, spot.lane);
    const i32 channel_apart = call.element(1, 0, 0) * THREAD_C, column_apart = call.element(0, 0, 1) * THREAD_C;
    Lines lines(params, spot);
    Cell cells[COLUMNS], next[COLUMNS];
    lines.load(next, params, spot);
    ROLLED while (within(lines.channel, call.channels)) {
        UNROLL for (int i = 0; i < COLUMNS; ++i) cells[i] = next[i];
        const sptr<ACC_TYPE> own = filters + call.element(lines.channel, lines.r, lines.s) * THREAD_C;
        if (lines.channel > 0)
            cover("further_channels");
        lines.advance(call);
        if (within(lines.channel, call.channels))
            lines.load(next, params, spot);
        accumulate_line(sums, cells, own, channel_apart, column_apart);
    }
}
