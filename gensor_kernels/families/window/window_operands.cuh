// The operands of a window: x, directly or through shared memory, and elements of the filter.
#pragma once
#include "window_plane.cuh"
#if STAGED && WINDOW
#include "window_stage.cuh"
#endif

constexpr int TAP_LOADS = A_VECTOR / B_VECTOR;
// CHANNELS elements of the filter at one position of the window.
struct Tap {
    Vec<B_VECTOR> piece[TAP_LOADS];
    MEMBER ACC_TYPE value(int channel) const {
        constexpr int EACH = B_VECTOR / (int)sizeof(IN_TYPE);
        return convert<ACC_TYPE>(piece[channel / EACH].template get<IN_TYPE>(channel % EACH));
    }
};

// Loads a tap. A thread without a channel reads that of channel 0, so that all loads are inside the filter.
DEVICE Tap load_tap(const Params &params, const Spot &spot, i32 row, i32 column) {
    const Sliding &sliding = params.sliding;
    const i64 channel = CHANNELS_LAST ? (spot.inside ? spot.channel : 0) : spot.channel * sliding.filter_channel;
    const gptr<IN_TYPE> from = gptr<IN_TYPE>(params.b) + channel + row * sliding.filter_row +
                               (CHANNELS_LAST ? column * sliding.filter_column : (i64)column); // columns are dense
    Tap tap;
    UNROLL for (int i = 0; i < TAP_LOADS; ++i) tap.piece[i] =
        load_global<B_VECTOR>(from + i * (B_VECTOR / (int)sizeof(IN_TYPE)), true);
    return tap;
}

// Accumulates one cell, multiplied by its tap where there is a filter, into output number `output` of the thread.
DEVICE void accumulate(ACC_TYPE (&sums)[OUTPUTS], int output, const Cell &cell, const Tap &tap) {
    UNROLL for (int i = 0; i < CHANNELS; ++i) {
        ACC_TYPE &sum = sums[output * CHANNELS + i];
        const ACC_TYPE value = convert<ACC_TYPE>(cell.template get<IN_TYPE>(i));
        if constexpr (OPERATION == MULTIPLY)
            sum = multiply_add(value, tap.value(i), sum);
        else
            sum = combine(sum, value);
    }
}
