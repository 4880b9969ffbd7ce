// Macros that Programs of the CUDA-core family and of the tensor-core family bind alike, and their defaults.
#pragma once
#include "product_options.cuh"
#ifndef MATH_TF32
#define MATH_TF32 0 // 1: the caller allows TF32 products; CUDA cores multiply in full precision all the same
#endif
#ifndef A_LAYOUT
#define A_LAYOUT 0 // contiguous axis of A: 0 = K, 1 = M
#endif
#ifndef B_LAYOUT
#define B_LAYOUT 1 // contiguous axis of B: 0 = K, 1 = N
#endif
#ifndef A_UNIT
#define A_UNIT 1 // 1: that axis of A has stride 1; 0: its stride is in Params
#endif
#ifndef B_UNIT
#define B_UNIT 1 // the same for B
#endif
#ifndef A_WINDOW
#define A_WINDOW                                                                                                       \
    0 // 0: A is a matrix; 1, 2: read through a window, its k (filter row, column, channel), or (channel, ...)
#endif
#ifndef B_WINDOW
#define B_WINDOW 0 // the same for B
#endif
#ifndef A_VECTOR
#define A_VECTOR 16 // bytes per global access of A
#endif
#ifndef B_VECTOR
#define B_VECTOR 16 // bytes per global access of B
#endif
#ifndef BLOCK_M
#define BLOCK_M 128 // rows of C per block
#endif
#ifndef BLOCK_N
#define BLOCK_N 128 // columns of C per block
#endif
#ifndef STREAM
#define STREAM 0 // 1: blocks share the steps of k of all tiles (stream_k.cuh); any grid whose blocks run at once
#endif
#ifndef GATE
#define GATE 0 // else C = f(A * G) * (A * U) of the two matrices of B (gate.cuh): the EpilogueCode of f
#endif
#ifndef GATE_BIAS
#define GATE_BIAS 0 // 1: a bias is added to both products first: the third operand, [2][n] of IN_TYPE
#endif
#ifndef RAGGED_ROWS
#define RAGGED_ROWS 0 // 1: groups of different rows, one matrix of B for each (ragged.cuh)
#endif
#ifndef NORM
#define NORM 0 // rows of C are normalised within the epilogue (norm.cuh): 1 layernorm, 2 rmsnorm
#endif
#ifndef PROLOGUE_OF_B
#define PROLOGUE_OF_B 0 // 1: on those of B
#endif
#ifndef MATERIALISED
#define MATERIALISED 0 // 1: a launch in front prepares A in the workspace (prepared.cuh)
#endif
