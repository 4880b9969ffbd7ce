// y = epilogue(reduction over a sliding window of each channel of x): depthwise convolution, average or maximum.
//
// A thread computes THREAD_H x THREAD_W outputs of CHANNELS adjacent channels where channels are innermost in memory
// (CHANNELS_LAST), else of one channel. A block computes BLOCK_H x BLOCK_W outputs of BLOCK_C channels; with
// CHANNELS_LAST 0, these are counted through all images. The innermost axis varies fastest among the threads of a
// block: channels, columns, rows, or else columns, rows, channels.
//
//   WINDOW > 0: the window is compiled in, as the digits of its rows, columns, step along h and step along w (3322: 3 x
//     3 by steps of 2). A thread walks down the rows of x under its outputs. It loads each row once, while it
//     accumulates the row before it into all outputs whose windows contain that row.
//   WINDOW 0: the window comes from Params, with any dilation. SPLIT threads may share a window: each accumulates some
//     of its positions, and the partial sums are added in shared memory.
//   STAGED: a block first copies the rows of x under its outputs to shared memory, padding included, and threads read
//     them from there in vectors. With WINDOW 0, the filter has any size that fits shared memory, moves by steps of 1
//     and has no dilation (window_slide.cuh).

// A thread's rows of y are adjacent. Options in addition to those of window_tile.cuh:
#pragma parameter OPERATION 0 // 0: sum of products with a filter, 1: average, 2: maximum
#pragma parameter B_VECTOR 8  // bytes per load of the filter; divides A_VECTOR
#pragma parameter WINDOW 0    // 0: the window comes from Params; else digits: rows, columns, step along h, step along w
#pragma parameter FILTER_HELD 0 // 1: a thread keeps the whole filter in registers; 0: it loads a row per use
#pragma parameter STAGED 0      // 1: x goes through shared memory
#pragma parameter SPLIT 1       // threads that share a window

#include "window_spot.cuh"

#include "window_operands.cuh"
#if WINDOW
#include "window_fixed.cuh"
#elif STAGED
#include "window_slide.cuh"
#else
#include "window_any.cuh"
#endif
#include "window_store.cuh"

KERNEL(window, Params, THREADS, MIN_BLOCKS) {
    const int place = CHANNELS_LAST ? thread_index() % PLACES : thread_index() / SPLIT;
    Spot spot = find_spot(params.sliding, place);
    ACC_TYPE sums[OUTPUTS];
    UNROLL for (int i = 0; i < OUTPUTS; ++i) sums[i] = initial_value();
    reduce_window(params, spot, place, sums);
    if constexpr (SPLIT > 1) {
        join_parts(sums);
        spot = find_spot(params.sliding, minimum(thread_index(), PLACES - 1));
        spot.inside = spot.inside && within(thread_index(), PLACES);
    }
    store(params, spot, sums);
}
