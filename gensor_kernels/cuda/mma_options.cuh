// What a Program of the tensor-core family: contraction_mma.cu binds, and what holds where it does not.
#pragma once
#ifndef IN_TYPE
#define IN_TYPE half_t // elements of A and B: half_t, bfloat16_t, float (as tf32, or in parts), i8, double
#endif
#ifndef A_STORED
#define A_STORED IN_TYPE // elements of A in memory: IN_TYPE, or widened to it: e4m3_t, e5m2_t, i8
#endif
#ifndef B_STORED
#define B_STORED IN_TYPE // the same for B
#endif
#ifndef SCALED
#define SCALED 0 // 1: columns of B have scales (Params::d), one per group of k; 2: and zeros (Params::groups)
#endif
#ifndef GROUP
#define GROUP 0 // elements of k that share a scale; 0: all
#endif
#ifndef OUT_TYPE
#define OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float, i32, i8, double
#endif
#ifndef ACC_TYPE
#define ACC_TYPE float // accumulators: float; i32 for i8 operands, double for double
#endif
#ifndef MATH_TF32
#define MATH_TF32 0 // 1: float operands are rounded to tf32
#endif
#ifndef INSTRUCTION
#define INSTRUCTION 0 // 0, 1 m16n8k16, k8; 2 m16n8k8 tf32; 3, 4 m16n8k32, m8n8k16 i8; 5 six m16n8k16; 6 to 8 doubles
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
#ifndef C_UNIT
#define C_UNIT 1 // the same for the columns of C
#endif
#ifndef A_WINDOW
#define A_WINDOW                                                                                                       \
    0 // 0: A is a matrix; 1, 2: read through a window, its k (filter row, column, channel), or (channel, ...)
#endif
#ifndef B_WINDOW
#define B_WINDOW 0 // the same for B
#endif
#ifndef MASKED
#define MASKED 0 // 1: what leaves the image is known by a bit per row and column of the filter, 31 of them at most
#endif
#ifndef A_VECTOR
#define A_VECTOR 16 // bytes per global access of A
#endif
#ifndef B_VECTOR
#define B_VECTOR 16 // bytes per global access of B
#endif
#ifndef C_VECTOR
#define C_VECTOR 16 // bytes per global access of C
#endif
#ifndef BLOCK_M
#define BLOCK_M 128 // rows of C per block
#endif
#ifndef BLOCK_N
#define BLOCK_N 128 // columns of C per block
#endif
#ifndef BLOCK_K
#define BLOCK_K 32 // extent of one step of the main loop along k
#endif
#ifndef WARP_M
#define WARP_M 64 // rows of C per warp
#endif
#ifndef WARP_N
#define WARP_N 64 // columns of C per warp
#endif
#ifndef STAGES
#define STAGES 3 // shared buffers; STAGES - 1 steps are on their way while one is computed
#endif
#ifndef ASYNC
#define ASYNC 1 // 1: cp.async; 0: through registers
#endif
#ifndef SWIZZLE
#define SWIZZLE 1 // 0: shared rows as they come, with bank conflicts
#endif
#ifndef SPLIT
#define SPLIT 0 // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#endif
#ifndef STREAM
#define STREAM 0 // 1: blocks share the steps of k of all tiles (stream_k.cuh); any grid whose blocks run at once
#endif
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED                                                                                                \
    1 // 0: results go to C straight from registers; 1: through shared memory, in wide stores; 2: NORM
#endif
#ifndef EPILOGUE_CODES
#define EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
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
#ifndef PROLOGUE
#define PROLOGUE 0 // operations on the elements of A before they are multiplied (prologue.cuh), as in EPILOGUE_CODES
#endif
#ifndef PROLOGUE_OF_B
#define PROLOGUE_OF_B 0 // 1: on those of B
#endif
#ifndef MATERIALISED
#define MATERIALISED 0 // 1: a launch in front prepares A in the workspace (prepared.cuh)
#endif
#ifndef D_TYPE
#define D_TYPE float // elements of the prologue's first vector: half_t, bfloat16_t, float, double
#endif
#ifndef D_VECTOR
#define D_VECTOR 4 // bytes per global access of it, at most
#endif
#ifndef E_TYPE
#define E_TYPE float // the same of its second vector
#endif
#ifndef E_VECTOR
#define E_VECTOR 4
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 0 // blocks per SM promised to the compiler; 0 = none
#endif
