// Macros that a Program of the tensor-core family (contraction_mma.cu) binds, and their defaults.
#pragma once
#include "contraction_options.cuh"
#pragma parameter IN_TYPE half_t   // elements of A and B: half_t, bfloat16_t, float (as tf32, or in parts), i8, double
#pragma parameter A_STORED IN_TYPE // elements of A in memory: IN_TYPE, or widened to it: e4m3_t, e5m2_t, i8
#pragma parameter B_STORED IN_TYPE // the same for B
#pragma parameter SCALED 0 // 1: columns of B have scales (Params::d), one per group of k; 2: and zeros (Params::groups)
#pragma parameter GROUP 0  // elements of k that share a scale; 0: all
#pragma parameter OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float, i32, i8, double
#pragma parameter ACC_TYPE float  // accumulators: float; i32 for i8 operands, double for double
#ifndef INSTRUCTION
#define INSTRUCTION                                                                                                    \
    0 // 0, 1 m16n8k16, k8; 2 k8 tf32; 3, 4 k32, m8n8k16 i8; 5 six k16; 6 to 8 doubles; 9 k32 8-bit floats
#endif
#pragma parameter MASKED 0   // 1: a bit per row and column of the filter, at most 31, marks what is inside the image
#pragma parameter BLOCK_K 32 // extent of one step of the main loop along k
#pragma parameter WARP_M 64  // rows of C per warp
#pragma parameter WARP_N 64  // columns of C per warp
#pragma parameter STAGES 3   // shared buffers; STAGES - 1 steps are on their way while one is computed
#pragma parameter ASYNC 1    // 1: cp.async; 0: through registers
#pragma parameter SWIZZLE 1  // 0: shared rows as they come, with bank conflicts
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED                                                                                                \
    1 // 0: results go to C straight from registers; 1: through shared memory, in wide stores; 2: NORM
#endif
