// Computes y from a thread's sums: joins the parts of a window, divides averages, and runs the epilogue.
#pragma once
#include "window_spot.cuh"

// Joins the parts of windows: each of the first PLACES threads joins those of one place, in a fixed order.
DEVICE void join_parts(ACC_TYPE (&sums)[OUTPUTS]) {
    const sptr<ACC_TYPE> words = shared_base().as<ACC_TYPE>();
    UNROLL for (int i = 0; i < OUTPUTS; ++i) {
        Vec<sizeof(ACC_TYPE)> word;
        word.set(0, sums[i]);
        store_shared(words + (i * THREADS + thread_index()), word);
    }
    barrier();
    if (!within(thread_index(), PLACES))
        return;
    cover("split_reduce");
    const int first = CHANNELS_LAST ? thread_index() : thread_index() * SPLIT, stride = CHANNELS_LAST ? PLACES : 1;
    UNROLL for (int i = 0; i < OUTPUTS; ++i) {
        ACC_TYPE sum = initial_value();
        UNROLL_BY_4 for (int part = 0; part < SPLIT; ++part) {
            const auto word = load_shared<sizeof(ACC_TYPE)>(words + (i * THREADS + first + part * stride));
            sum = combine(sum, word.template get<ACC_TYPE>(0));
        }
        sums[i] = sum;
    }
}

// Positions of a window along one axis that an average counts.
DEVICE i32 counted(const Sliding &sliding, int axis, i32 output) {
    const i32 first = output * sliding.step[axis] - sliding.pad[axis], last = first + sliding.window[axis];
    const i32 from = max_(first, sliding.counted_from[axis]), to = minimum(last, sliding.counted_to[axis]);
    return max_(to - from, 0);
}

// 1 / count. The division is repeated only where the count changes, which is at the edges of an image.
struct Reciprocal {
    i32 count = 1;
    ACC_TYPE value = 1;
    MEMBER ACC_TYPE of(i32 positions) {
        if (max_(positions, 1) != count)
            count = max_(positions, 1), value = ACC_TYPE(1) / (ACC_TYPE)count;
        return value;
    }
};

// Places in y of one row of a thread's outputs, in groups of WIDTH.
constexpr int ROW_OUTPUTS = THREAD_W * CHANNELS;
constexpr int ADJACENT = CHANNELS_LAST ? CHANNELS : THREAD_W & -THREAD_W;
constexpr int WIDTH = minimum(ADJACENT, C_VECTOR / (int)sizeof(OUT_TYPE));
struct RowPlaces {
    i32 row, column, channel;
    bool inside;
    MEMBER Place operator()(int group) const {
        constexpr int PIECES = CHANNELS_LAST ? CHANNELS / WIDTH : 1;
        if (CHANNELS_LAST)
            return Place{column + group / PIECES, channel + group % PIECES * WIDTH, inside};
        return Place{row, column + group * WIDTH, inside};
    }
};

// Stores a thread's outputs. The loop over its rows is rolled, so the code has the epilogue once; rotating the sums
// keeps their register numbers constant.
DEVICE void store(const Params &params, const Spot &spot, ACC_TYPE (&sums)[OUTPUTS]) {
    const Sliding &sliding = params.sliding;
    RowPlaces at = {spot.row, spot.column, spot.channel, false};
    Reciprocal reciprocals[THREAD_W];
    ROLLED for (int i = 0; i < THREAD_H; ++i) {
        ACC_TYPE values[ROW_OUTPUTS];
        UNROLL for (int j = 0; j < ROW_OUTPUTS; ++j) values[j] = sums[j];
        at.row = spot.row + i;
        at.inside = spot.inside && within(at.row, sliding.output[0]);
        if constexpr (OPERATION == AVERAGE) {
            const i32 rows = counted(sliding, 0, at.row);
            UNROLL for (int j = 0; j < THREAD_W; ++j) {
                const ACC_TYPE reciprocal = reciprocals[j].of(rows * counted(sliding, 1, spot.column + j));
                UNROLL for (int k = 0; k < CHANNELS; ++k) values[j * CHANNELS + k] *= reciprocal;
            }
        }
        const Batch batch = {{0, spot.image, CHANNELS_LAST ? at.row : spot.channel}};
        finish_outputs<OUT_TYPE, WIDTH, true>(params, batch, values, at);
        rotate<ROW_OUTPUTS>(sums);
    }
}
