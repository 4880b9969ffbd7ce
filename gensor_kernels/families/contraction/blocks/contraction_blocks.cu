// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on the tensor cores (mma.sync) with weights B in a block-scaled
// format: MXFP8, MXFP4 or NVFP4 (block_scales.cuh). Both operands are K-contiguous; fragments of B are widened and
// scaled in registers, or, of both operands, by the tensor cores. Or both are 8-bit floats, and sums of 128 values of k
// are multiplied by float scales (float_scales.cuh). Otherwise as in contraction_mma.cu.

#include "mma_options.cuh"
#pragma parameter AS_STORED 0    // 1: the tensor cores multiply numbers as they are stored, and scale them (sm_120a)
#pragma parameter SCALE_VECTOR 1 // bytes that divide addresses, strides and rows of scales, 1 or 4
#pragma parameter FLOAT_SCALES 0 // 1: rows of A and panels of 128 columns of B have a float scale for 128 values of k

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;

#include "float_scales.cuh"
#include "mma_epilogue.cuh"

KERNEL(contraction_blocks, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K);
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    ScaledMath::Copies pipeline(params, tile);
    ScaledMath math(tile, row, column);
    ROLLED for (int s = 0; s < AHEAD; ++s) pipeline.request(params);
    pipeline.operands.receive();
    math.begin();
    int left = divide_up(tile.k_end - tile.k_begin, BLOCK_K);
    do { // at least once, as in contraction_mma.cu
        if (left > AHEAD)
            cover("steady");
        else
            cover("drain");
        math.compute(pipeline, params);
    } while (within(0, --left));
    if constexpr (EPILOGUE_STAGED)
        Pipeline::finish(); // the slabs replace the tiles
    finish_warp(params, tile, tile.row + row, tile.column + column, math.accumulators[0]);
}
