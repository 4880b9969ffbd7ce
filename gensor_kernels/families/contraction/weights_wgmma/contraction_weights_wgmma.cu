// C[m, n] = epilogue(sum over k of A[m, k] * (B[n, k] - zero) * scale) with Hopper's warpgroup products (wgmma,
// sm_90a), where the weights B have 8 or 4 bits. With SCALED 0, C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) in
// TF32, where rows of B are contiguous along n: wgmma reads 32-bit operands in shared memory along k only.
//
// The kernel computes the transposed product. The weights are its left operand, which wgmma takes from registers: a
// warpgroup reads them from shared memory and widens each weight once per block. The rows of A are the columns of the
// product, so a block may have as few as 16 of them. A block computes BLOCK_M x BLOCK_N outputs with CONSUMERS
// warpgroups that multiply and one producer warpgroup, of which one thread requests tiles by tensor copies
// (weights_ring.cuh). Zeros are subtracted while weights are widened, which is exact in 16 bits, and sums are scaled
// group by group (weights_numbers.cuh, weights_products.cuh). The epilogue transposes the sums in shared memory
// (weights_store.cuh).
//
// Shared bytes = 1024 + STAGES * (BLOCK_M * BLOCK_K * 2 + BLOCK_N * 128) + CONSUMERS * 4096. There are no bank
// conflicts.
#pragma parameter IN_TYPE half_t   // elements of A, and of widened weights: half_t, bfloat16_t; float (as tf32)
#pragma parameter B_STORED i8      // weights in memory: i8, or u4x2_t with two weights in a byte; float
#pragma parameter OUT_TYPE half_t  // elements of C: half_t, bfloat16_t, float
#pragma parameter ACC_TYPE float   // accumulators
#pragma parameter SCALED 1         // 1: weights have scales; 2: scales and zeros; 0: weights are floats along n
#pragma parameter GROUP 0          // elements of k that share a scale; 0: all of k
#pragma parameter C_UNIT 1         // 1: the columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter BLOCK_M 64       // rows of C per block
#pragma parameter BLOCK_N 128      // columns of C per block
#pragma parameter BLOCK_K 128      // extent of one step of the main loop along k
#pragma parameter STAGES 4         // buffers of the ring in shared memory
#pragma parameter CONSUMERS 2      // warpgroups that multiply
#pragma parameter SPLIT 0          // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#pragma parameter EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1     // blocks per SM promised to the compiler

// The shared headers of epilogues use these names: results pass through a warp's slab, 16 columns at a time.
#define EPILOGUE_STAGED 1
constexpr int THREADS = 128 * (CONSUMERS + 1), TILES = BLOCK_N / (64 * CONSUMERS);
constexpr int WARP_N = 16, FRAGMENTS_N = 2;

#include "weights_store.cuh"

// Registers of a thread: at entry, of the producer after it gives some away, and of a multiplying thread afterwards.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = CONSUMERS == 3 ? 32 : 40;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);

KERNEL(contraction_weights_wgmma, MappedParams, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    if (warp_uniform(thread_index() / 32) == 0 && elect_one()) {
        prefetch_map(params.a_map), prefetch_map(params.b_map);
        make_ring();
    }
    barrier();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K, (u32)block_index());
    const int group = warp_uniform(thread_index() / 128); // a uniform value lets descriptors use uniform registers
    if (group == 0) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp_uniform(thread_index() / 32) == 0)
            produce(params, tile);
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        const int first = (group - 1) * 64 * TILES;
        GroupMath math(params, tile, first);
        math.multiply(steps_of(tile));
        finish_group(params, tile, first, math);
    }
}
