// Options of both families of windows, and the tiles that outputs are divided into.
#pragma once
#pragma parameter IN_TYPE half_t   // elements of x and of filters: half_t, bfloat16_t, float, double, i8
#pragma parameter OUT_TYPE half_t  // elements of y: the same, and i32
#pragma parameter ACC_TYPE float   // accumulators: float, double, i32
#pragma parameter CHANNELS_LAST 1  // innermost axis of x and y, of stride 1 in y: 1 = channels, 0 = columns
#pragma parameter A_VECTOR 8       // bytes per load of x
#pragma parameter C_VECTOR 8       // bytes per store to y, at most
#pragma parameter BLOCK_C 64       // channels, or filters, per block
#pragma parameter BLOCK_W 8        // columns of y per block
#pragma parameter BLOCK_H 8        // rows of y per block
#pragma parameter THREAD_W 2       // columns of y per thread, adjacent
#pragma parameter THREAD_H 2       // rows of y per thread
#pragma parameter EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "epilogue.cuh"

DEVICE u32 tiles(i32 extent, int block) {
    return ((u32)extent + (u32)block - 1) / (u32)block;
}

// Counts the edges of a block's outputs, the first of which is at (row, column) of y, `output` rows and columns;
// `edge_c`: it has channels past the last one.
DEVICE void cover_tile(const i32 (&output)[2], i32 row, i32 column, bool edge_c) {
    const bool edge_h = row + BLOCK_H > output[0], edge_w = column + BLOCK_W > output[1];
    if (edge_c)
        cover("edge_c");
    if (edge_h)
        cover("edge_h");
    if (edge_w)
        cover("edge_w");
    if (!edge_c && !edge_h && !edge_w)
        cover("full_tile");
}
