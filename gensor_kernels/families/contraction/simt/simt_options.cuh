// Macros that a Program of the CUDA-core family (contraction_simt.cu) binds, and their defaults.
#pragma once
#include "contraction_options.cuh"
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
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED 0 // 0: results go to C straight from registers; 1: through shared memory; 2: NORM
#endif
#ifndef MASKED
#define MASKED 0 // 1: what leaves the image is known by a bit per row and column of the filter, 31 of them at most
#endif
