// Macros that Programs of the CUDA-core family and of the tensor-core family bind alike, and their defaults.
#pragma once
#include "product_options.cuh"
#pragma parameter MATH_TF32 0 // 1: the caller allows TF32 products (CUDA cores multiply in full precision)
#pragma parameter A_LAYOUT 0  // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1  // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_UNIT 1    // 1: that axis of A has stride 1; 0: its stride is in Params
#pragma parameter B_UNIT 1    // the same for B
#ifndef A_WINDOW
#define A_WINDOW                                                                                                       \
    0 // 0: A is a matrix; 1, 2: read through a window, its k (filter row, column, channel), or (channel, ...)
#endif
#pragma parameter B_WINDOW 0  // the same for B
#pragma parameter A_VECTOR 16 // bytes per global access of A
#pragma parameter B_VECTOR 16 // bytes per global access of B
#pragma parameter BLOCK_M 128 // rows of C per block
#pragma parameter BLOCK_N 128 // columns of C per block
#pragma parameter STREAM 0    // 1: blocks share the steps of k of all tiles (stream_k.cuh) and are all resident
#pragma parameter GATE 0      // else the EpilogueCode of f: C = f(A * G) * (A * U) of the two matrices of B (gate.cuh)
#pragma parameter GATE_BIAS 0 // 1: a bias is added to both products first: the third operand, [2][n] of IN_TYPE
#pragma parameter RAGGED_ROWS 0   // 1: groups of different rows, one matrix of B for each (ragged.cuh)
#pragma parameter NORM 0          // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter PROLOGUE_OF_B 0 // 1: on those of B
#pragma parameter MATERIALISED 0  // 1: a launch in front prepares A in the workspace (prepared.cuh)
