// The macros that a Program of the CUDA-core family (contraction_simt.cu) sets, and their defaults.
#pragma once
#include "contraction_options.cuh"
#pragma parameter IN_TYPE float    // elements of A and B: half_t, bfloat16_t, float, double, i8, c64, c128
#pragma parameter A_STORED IN_TYPE // elements of A in memory: any real type for a real IN_TYPE, also e4m3_t and e5m2_t
#pragma parameter B_STORED IN_TYPE // the same for B
#pragma parameter OUT_TYPE float   // elements of C: as IN_TYPE, or i32
#pragma parameter ACC_TYPE float   // accumulators and shared tiles: float, double, i32, c64, c128
#pragma parameter BLOCK_K 8        // extent of one step of the main loop along k
#pragma parameter THREAD_M 8       // rows per thread
#pragma parameter THREAD_N 8       // columns per thread
#pragma parameter VTHREAD_M 2      // groups of a thread's rows, BLOCK_M / VTHREAD_M apart
#pragma parameter VTHREAD_N 2      // groups of a thread's columns, BLOCK_N / VTHREAD_N apart
#pragma parameter LANES_M 4        // threads of a warp along m; 32 / LANES_M along n
#pragma parameter STAGES 2 // shared buffers: 1 (two barriers per step) or 2 (one barrier, stores overlap the math)
#pragma parameter PAD 1    // transposed tiles: 1 = rows padded by 4 words, 0 = columns swizzled
#pragma parameter EPILOGUE_STAGED 0 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter MASKED 0 // 1: a bit per row and column of the filter, at most 31, marks those inside the image
