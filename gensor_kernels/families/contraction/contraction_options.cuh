// Macros that Programs of both the CUDA-core family and the tensor-core family bind, and their defaults.
#pragma once
#include "product_options.cuh"
#pragma parameter MATH_TF32 0     // 1: the caller allows TF32 products (CUDA cores multiply in full precision)
#pragma parameter A_LAYOUT 0      // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1      // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_UNIT 1        // 1: this axis has stride 1; 0: its stride is in Params
#pragma parameter B_UNIT 1        // the same for B
#pragma parameter A_WINDOW 0      // 0: A is a matrix; else an image that is read through a window (WindowKind)
#pragma parameter B_WINDOW 0      // the same for B
#pragma parameter A_VECTOR 16     // bytes per global access of A
#pragma parameter B_VECTOR 16     // bytes per global access of B
#pragma parameter BLOCK_M 128     // rows of C per block
#pragma parameter BLOCK_N 128     // columns of C per block
#pragma parameter STREAM 0        // 1: blocks share the steps of k of all tiles (stream_k.cuh) and are all resident
#pragma parameter GATE 0          // EpilogueCode of f: C = f(A * G) * (A * U) for two matrices G and U in B (gate.cuh)
#pragma parameter GATE_BIAS 0     // 1: the third operand, [2][n] of IN_TYPE, is a bias of both products
#pragma parameter RAGGED_ROWS 0   // 1: groups with different numbers of rows, and a matrix of B for each (ragged.cuh)
#pragma parameter NORM 0          // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter PROLOGUE_OF_B 0 // 1: they apply to B
#pragma parameter MATERIALISED 0  // 1: a first launch prepares A in the workspace (prepared.cuh)
