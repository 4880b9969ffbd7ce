// y = epilogue(x convolved with the filters of each group): grouped convolution on the CUDA cores, for groups of few
// channels, of which the least tile of tensor cores would be mostly zeros.
//
// A thread computes THREAD_W adjacent outputs of a row for THREAD_C adjacent filters of one group, a tile of filters,
// in THREAD_H rows one after the other. A block computes BLOCK_H x BLOCK_W outputs of BLOCK_C / THREAD_C tiles, which
// are counted through all groups. The innermost axis in memory varies fastest among the threads of a block: tiles of
// filters, columns, rows where channels are innermost (CHANNELS_LAST), else columns, rows, tiles.
//
// The block first copies its filters to shared memory, as accumulators, THREAD_C of a tile side by side. A thread then
// loops over the channels of its group, as many at once as one load has, and over the window:
//
//   WINDOW > 0: the window's columns are compiled in, and are the digits of their number and their step (32: 3 columns
//     by steps of 2). A thread loads a line of x under its outputs for each row of the window, while it multiplies the
//     line before by all columns of the window.
//   WINDOW 0: the window comes from Params, with any dilation. There is a line for each of its positions.

// A thread's rows of y are BLOCK_H / THREAD_H apart, and the channels of a group are whole loads. Options in addition
// to those of window_tile.cuh:
#pragma parameter THREAD_C 4 // filters per thread, adjacent; BLOCK_C are filters
#pragma parameter WINDOW 0   // 0: the window comes from Params; else digits: its columns, and their step

#include "groups_store.cuh"
#include "groups_window.cuh"

KERNEL(window_groups, Params, THREADS, MIN_BLOCKS) {
    const Call call(params);
    Spot spot = find_spot(params, call);
    copy_filters(call, spot);
    barrier();
    ROLLED for (int i = 0; i < THREAD_H; ++i) {
        ACC_TYPE sums[OUTPUTS];
        UNROLL for (int j = 0; j < OUTPUTS; ++j) sums[j] = ACC_TYPE(0);
        accumulate(sums, params, call, spot);
        store(params, spot, sums);
        spot.row += ROW_THREADS;
    }
}
