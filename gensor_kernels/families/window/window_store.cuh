// From a thread's sums to y: parts of a window meet, averages are divided, the epilogue follows.
#pragma once
#include "window_spot.cuh"

#if SPLIT > 1
// The first PLACES threads add up the parts of one place each, always in the same order.
DEVICE void meet(ACC_TYPE (&sums)[OUTPUTS]) {
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
        ACC_TYPE sum = initial();
        UNROLL_BY_4 for (int part = 0; part < SPLIT; ++part) {
            const auto word = load_shared<sizeof(ACC_TYPE)>(words + (i * THREADS + first + part * stride));
            sum = combine(sum, word.template get<ACC_TYPE>(0));
        }
        sums[i] = sum;
    }
}
#endif

// Positions of one side's window that an average counts.
DEVICE i32 counted(const Sliding &sliding, int side, i32 output) {
    const i32 first = output * sliding.step[side] - sliding.pad[side], last = first + sliding.window[side];
    const i32 from = max_(first, sliding.counted_from[side]), to = minimum(last, sliding.counted_to[side]);
    return max_(to - from, 0);
}

// 1 / count, divided again only where the count changes: at the edges of an image.
struct Share {
    i32 count = 1;
    ACC_TYPE share = 1;
    MEMBER ACC_TYPE of(i32 positions) {
        if (max_(positions, 1) != count)
            count = max_(positions, 1), share = ACC_TYPE(1) / (ACC_TYPE)count;
        return share;
    }
};

// Where the outputs of one row of a thread lie, in groups of WIDTH.
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

// The loop over a thread's rows is rolled, so that the epilogue is in the code once; rotating the sums keeps their
// register numbers constant.
DEVICE void store(const Params &params, const Spot &spot, ACC_TYPE (&sums)[OUTPUTS]) {
    const Sliding &sliding = params.sliding;
    RowPlaces at = {spot.row, spot.column, spot.channel, false};
    Share shares[THREAD_W];
    ROLLED for (int i = 0; i < THREAD_H; ++i) {
        ACC_TYPE values[ROW_OUTPUTS];
        UNROLL for (int j = 0; j < ROW_OUTPUTS; ++j) values[j] = sums[j];
        at.row = spot.row + i;
        at.inside = spot.inside && within(at.row, sliding.output[0]);
        if constexpr (OPERATION == AVERAGE) {
            const i32 rows = counted(sliding, 0, at.row);
            UNROLL for (int j = 0; j < THREAD_W; ++j) {
                const ACC_TYPE share = shares[j].of(rows * counted(sliding, 1, spot.column + j));
                UNROLL for (int k = 0; k < CHANNELS; ++k) values[j * CHANNELS + k] *= share;
            }
        }
        const Batch batch = {{0, spot.image, CHANNELS_LAST ? at.row : spot.channel}};
        finish_outputs<OUT_TYPE, WIDTH, true>(params, batch, values, at);
        rotate<ROW_OUTPUTS>(sums);
    }
}
