// Macros that a Program of the tensor-core family (contraction_mma.cu) binds, and their defaults.
#pragma once
#include "contraction_options.cuh"
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
#ifndef INSTRUCTION
#define INSTRUCTION                                                                                                    \
    0 // 0, 1 m16n8k16, k8; 2 k8 tf32; 3, 4 k32, m8n8k16 i8; 5 six k16; 6 to 8 doubles; 9 k32 8-bit floats
#endif
#ifndef MASKED
#define MASKED 0 // 1: what leaves the image is known by a bit per row and column of the filter, 31 of them at most
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
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED                                                                                                \
    1 // 0: results go to C straight from registers; 1: through shared memory, in wide stores; 2: NORM
#endif
