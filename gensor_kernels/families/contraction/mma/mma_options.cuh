// Macros that a Program of the tensor-core family (contraction_mma.cu) binds, and their defaults.
#pragma once
#include "contraction_options.cuh"
#pragma parameter IN_TYPE half_t // multiplied elements: half_t, bfloat16_t, float (tf32, or in parts), i8, double, c128
#pragma parameter A_STORED IN_TYPE // elements of A in memory: IN_TYPE, or a type widened to it: e4m3_t, e5m2_t, i8
#pragma parameter B_STORED IN_TYPE // the same for B, also u4x2_t
#pragma parameter SCALED 0 // 1: columns of B have scales (Params::d), one per group of k; 2: and zeros (Params::groups)
#pragma parameter GROUP 0  // elements of k that share a scale; 0: all
#pragma parameter OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float, i32, i8, double, c128
#pragma parameter ACC_TYPE float  // accumulators: float; i32 for i8 operands, IN_TYPE for double and c128
// mma.sync of 16-bit floats: 0 m16n8k16, 1 m16n8k8; tf32: 2 m16n8k8; i8: 3 m16n8k32, 4 m8n8k16; floats in parts: 5;
// double: 6 m16n8k16, 7 m16n8k8, 8 m8n8k4, 10 m16n8k4; 8-bit floats: 9 m16n8k32.
#pragma parameter INSTRUCTION 0
#pragma parameter MASKED 0   // 1: a bit per filter row and column (31 at most) says if an entry's tap is in the image
#pragma parameter BLOCK_K 32 // values of k in one step of the main loop
#pragma parameter WARP_M 64  // rows of C per warp
#pragma parameter WARP_N 64  // columns of C per warp
#pragma parameter STAGES 3   // shared buffers; STAGES - 1 steps are copied while one is computed
#pragma parameter ASYNC 1    // 1: cp.async; 0: through registers
#pragma parameter SWIZZLE 1  // 0: shared rows are not permuted, and reads have bank conflicts
// Results are stored 0: directly from registers; 1: through shared memory, in wide stores; 2: as a tile for NORM.
#pragma parameter EPILOGUE_STAGED 1
