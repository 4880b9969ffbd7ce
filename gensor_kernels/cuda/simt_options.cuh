// What a Program of the CUDA-core family: contraction_simt.cu binds, and what holds where it does not.
#pragma once
#ifndef IN_TYPE
#define IN_TYPE float // elements of A and B: half_t, bfloat16_t, float, double, i8, c64, c128
#endif
#ifndef A_STORED
#define A_STORED IN_TYPE // elements of A in memory: any real type where IN_TYPE is one; also e4m3_t, e5m2_t
#endif
#ifndef B_STORED
#define B_STORED IN_TYPE // the same for B
#endif
#ifndef OUT_TYPE
#define OUT_TYPE float // elements of C: the same, and i32
#endif
#ifndef ACC_TYPE
#define ACC_TYPE float // accumulators and shared tiles: float, double, i32, c64, c128
#endif
#ifndef MATH_TF32
#define MATH_TF32 0 // 1: the caller allows TF32 products; this family multiplies in full precision all the same
#endif
#ifndef FORM
#define FORM 1 // real products of a multiply-add: 1 for real types, 4 for complex ones, or 3 (Gauss's formula)
#endif
#ifndef A_CONJUGATE
#define A_CONJUGATE 0 // 1: the elements of A are conjugated
#endif
#ifndef B_CONJUGATE
#define B_CONJUGATE 0 // the same for B
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
#ifndef A_VECTOR
#define A_VECTOR 16 // bytes per global load of A
#endif
#ifndef B_VECTOR
#define B_VECTOR 16 // bytes per global load of B
#endif
#ifndef C_VECTOR
#define C_VECTOR 16 // bytes per global store of C
#endif
#ifndef BLOCK_M
#define BLOCK_M 128 // rows of C per block
#endif
#ifndef BLOCK_N
#define BLOCK_N 128 // columns of C per block
#endif
#ifndef BLOCK_K
#define BLOCK_K 8 // extent of one step of the main loop along K
#endif
#ifndef THREAD_M
#define THREAD_M 8 // rows per thread
#endif
#ifndef THREAD_N
#define THREAD_N 8 // columns per thread
#endif
#ifndef VTHREAD_M
#define VTHREAD_M 2 // groups those rows are split into, BLOCK_M / VTHREAD_M apart
#endif
#ifndef VTHREAD_N
#define VTHREAD_N 2 // groups those columns are split into, BLOCK_N / VTHREAD_N apart
#endif
#ifndef LANES_M
#define LANES_M 4 // threads of a warp along M; 32 / LANES_M along N
#endif
#ifndef STAGES
#define STAGES 2 // shared buffers: 1 (two barriers per step) or 2 (one barrier, stores overlap the math)
#endif
#ifndef PAD
#define PAD 1 // transposed tiles: 1 = rows padded by 4 words, 0 = columns swizzled
#endif
#ifndef SPLIT
#define SPLIT 0 // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#endif
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED 0 // 0: results go to C straight from registers; 1: through shared memory; 2: NORM
#endif
#ifndef EPILOGUE_CODES
#define EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#endif
#ifndef GATE
#define GATE 0 // else C = f(A * G) * (A * U) of the two matrices of B (gate.cuh): the EpilogueCode of f
#endif
#ifndef GATE_BIAS
#define GATE_BIAS 0 // 1: a bias is added to both products first: the third operand, [2][n] of IN_TYPE
#endif
#ifndef STREAM
#define STREAM 0 // 1: blocks share the steps of k of all tiles (stream_k.cuh); any grid whose blocks run at once
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
#define MIN_BLOCKS 0 // blocks per SM promised to the compiler; 0 = none (it then may spill a little to save registers)
#endif
