// y = epilogue(reduction over a sliding window of each channel of x): depthwise convolution, average and maximum.
//
// A thread computes THREAD_H x THREAD_W outputs, of CHANNELS = A_VECTOR / element adjacent channels where channels are
// innermost in memory (CHANNELS_LAST), else of one channel. A block computes BLOCK_H x BLOCK_W outputs of BLOCK_C
// channels; channels of all images are counted through where they are not innermost. Threads: what is innermost in
// memory varies fastest (channels, columns, rows; or columns, rows, channels), THREADS = SPLIT * (BLOCK_C / CHANNELS)
// * (BLOCK_W / THREAD_W) * (BLOCK_H / THREAD_H).
//
// WINDOW compiles the window in, as the digits of its rows, columns, step along h and along w (3322: 3 x 3 by steps of
// 2). A thread then walks down the rows of x under its outputs: each row is loaded once, while the one before is
// used, and serves every output it lies under. With WINDOW 0 the window comes from Params, any dilation included, and
// SPLIT threads may share it: they deal its cells out among them and meet in shared memory. STAGED: the rows of x under
// a block are copied to shared memory first, padding included, and threads read theirs from there in vectors. STAGED
// with WINDOW 0 takes filters of any size, as many as shared memory holds, that move by steps of 1 and have no holes
// (window_slide.cuh).
//
// Legal Programs (element = size of IN_TYPE, word = size of ACC_TYPE, both in bytes):
//   A_VECTOR = element where CHANNELS_LAST is 0, else 1, 2, 4, 8 or 16 and >= element
//   BLOCK_C % CHANNELS == 0, BLOCK_W % THREAD_W == 0, BLOCK_H % THREAD_H == 0
//   THREADS % 32 == 0, 32 <= THREADS <= 1024
//   OUTPUTS = THREAD_H * THREAD_W * CHANNELS; OUTPUTS * word <= 512 (accumulators must fit the register file)
//   WINDOW > 0: OUTPUTS * window rows * window columns <= 2048 (unrolled: 32 KB of code, run through once),
//     2 * A_VECTOR * columns of x under a thread + (FILTER_HELD ? A_VECTOR * window : 0) <= 768 (registers), SPLIT == 1
//   WINDOW == 0: FILTER_HELD == 0; SPLIT > 1: OUTPUTS <= 16
//   STAGED == 1: CHANNELS_LAST == 0, SPLIT == 1; with WINDOW == 0: OPERATION == 0
//   C_VECTOR >= size of OUT_TYPE
//   PROLOGUE (prologue.cuh): OPERATION == 0, and IN_TYPE no i8
//
// Shared bytes = STAGED && WINDOW ? BLOCK_C * rows of x under a block * round_up(its columns * element, 16)
//   : STAGED ? BLOCK_C * (rows of x under a block * round_up((BLOCK_W + taps) * element, 16)
//     + window rows * taps * word), taps = round_up(window columns, 4)
//   : SPLIT > 1 ? THREADS * OUTPUTS * word : 0

#pragma parameter IN_TYPE half_t  // elements of x and of the filter: half_t, bfloat16_t, float, double, i8
#pragma parameter OUT_TYPE half_t // elements of y: the same, and i32
#pragma parameter ACC_TYPE float  // accumulators: float, double, i32
#pragma parameter OPERATION 0     // 0: sum of products with a filter, 1: average, 2: maximum
#pragma parameter CHANNELS_LAST 1 // innermost axis of x and y, of stride 1: 1 = channels, 0 = columns
#pragma parameter A_VECTOR 16     // bytes per load of x
#pragma parameter B_VECTOR 16     // bytes per load of the filter; divides A_VECTOR
#pragma parameter C_VECTOR 16     // bytes per store into y, at most
#pragma parameter BLOCK_C 64      // channels per block
#pragma parameter BLOCK_W 8       // columns of y per block
#pragma parameter BLOCK_H 8       // rows of y per block
#pragma parameter THREAD_W 2      // columns of y per thread, adjacent
#pragma parameter THREAD_H 2      // rows of y per thread, adjacent
#pragma parameter WINDOW 0 // 0: the window comes from Params; else digits: rows, columns, step along h, step along w
#pragma parameter FILTER_HELD 0 // 1: a thread keeps the whole filter in registers; 0: it loads a row where it is used
#pragma parameter STAGED 0      // 1: x passes through shared memory
#pragma parameter SPLIT 1       // threads that share a window
#pragma parameter EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "window_spot.cuh"

static_assert(CHANNELS_LAST || A_VECTOR == sizeof(IN_TYPE), "Neighbouring columns are not loaded as vectors.");
static_assert(A_VECTOR % sizeof(IN_TYPE) == 0 && A_VECTOR % B_VECTOR == 0, "Vectors must hold whole elements.");
static_assert(BLOCK_C % CHANNELS == 0, "Channel vectors must fill the block tile.");
static_assert(BLOCK_W % THREAD_W == 0 && BLOCK_H % THREAD_H == 0, "Thread tiles must fill the block tile.");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "A block must have 1 to 32 whole warps.");
static_assert(OUTPUTS * sizeof(ACC_TYPE) <= 512, "A thread's accumulators must fit its registers.");
static_assert(!WINDOW || SPLIT == 1, "Only windows from Params are split.");
static_assert(!WINDOW || OUTPUTS * (WINDOW / 1000) * (WINDOW / 100 % 10) <= 2048,
              "An unrolled window must not grow without bound.");
static_assert(!STAGED || (SPLIT == 1 && !CHANNELS_LAST), "Planes are staged, and no window over them is split.");
static_assert(!STAGED || WINDOW || OPERATION == 0, "Filters slide over staged planes; other windows are compiled in.");
static_assert(WINDOW || !FILTER_HELD, "The filter is held only where its size is known.");
static_assert(SPLIT == 1 || OUTPUTS <= 16, "Threads that share a window have few outputs.");
static_assert(C_VECTOR >= sizeof(OUT_TYPE), "A store takes an element at least.");

#include "window_loops.cuh"
#include "window_slide.cuh"
#include "window_store.cuh"

KERNEL(window, Params, THREADS, MIN_BLOCKS) {
    const int part = CHANNELS_LAST ? thread_index() / PLACES : thread_index() % SPLIT;
    const int place = CHANNELS_LAST ? thread_index() % PLACES : thread_index() / SPLIT;
    Spot spot = spot_of(params.sliding, place);
    ACC_TYPE sums[OUTPUTS];
    UNROLL for (int i = 0; i < OUTPUTS; ++i) sums[i] = initial();
#if WINDOW
    fixed_window(params, spot, place, sums);
#elif STAGED
    slide_window(params, spot, place, sums);
#else
    any_window(params, spot, part, sums);
#endif
#if SPLIT > 1
    meet(sums);
    spot = spot_of(params.sliding, minimum(thread_index(), PLACES - 1));
    spot.inside = spot.inside && within(thread_index(), PLACES);
#endif
    store(params, spot, sums);
}
