// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) of doubles, by exact products of 8-bit slices (Ozaki's scheme),
// on parts whose integer tensor cores are far faster than their double arithmetic. Batched.
//
// A first launch, contraction_slice, writes every row of A and column of B as SLICES digits of base 128 and a power of
// two (slices.cuh). A block then walks through k once per pair of slices (s, t) with s + t <= SLICES + 1, the least
// significant pair first. Pairs with equal s + t are summed exactly in 32 bits; these sums are added in double.
//
// A first pass multiplies leading bits: if it finds terms that are large compared with the largest elements of their
// row and column, the omitted pairs are below the rounding of double sums. Otherwise, and where there is an infinity or
// NaN, the block sums by multiply-adds of doubles.

#pragma parameter OUT_TYPE double // elements of C
#pragma parameter BLOCK_K 64      // extent of one step of the main loop along k
#pragma parameter WARP_M 32       // rows of C per warp
#pragma parameter WARP_N 32       // columns of C per warp

#define IN_TYPE i8
#define A_STORED i8
#define B_STORED i8
#define ACC_TYPE double
#define SUM_TYPE i32
#define INSTRUCTION 3
#define A_LAYOUT 0
#define B_LAYOUT 0
#define A_UNIT 1
#define B_UNIT 1
#define A_WINDOW 0
#define B_WINDOW 0
#define A_VECTOR 16
#define B_VECTOR 16
#define ASYNC 1
#define SWIZZLE 1
#define SPLIT 0
#include "mma_options.cuh"

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;

#include "mma_epilogue.cuh"
#include "sliced_math.cuh"

static_assert(WARP_M * WARP_N <= 1536, "The sums of a larger warp tile do not fit the registers.");
static_assert(STAGES >= 2 && STAGES <= 6, "cp.async takes 2 to 6 stages.");

KERNEL(contraction_sliced, Params, THREADS, MIN_BLOCKS) {
    grid_dependency_wait();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K);
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    SlicedMath math(params, tile, row, column);
    math.multiply_slices(params);
    Pipeline::finish();
    finish_warp(params, tile, tile.row + row, tile.column + column, math.sums);
}
