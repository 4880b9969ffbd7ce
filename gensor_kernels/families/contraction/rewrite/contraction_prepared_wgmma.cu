// C[m, n] = epilogue(sum over k of f(A[m, k]) * B[k, n]) on Hopper's warpgroup products (contraction_wgmma.cu), where f
// is a prologue: element-wise operations on A, which a launch of their own applies first, contraction_prepare
// (prepared.cuh). It writes f(A) into the workspace, from where tensor copies read it. A is moved once more each way;
// operations of many instructions are done once, not in every block. contraction_prologue_wgmma is the alternative.
//
// Legal Programs: those of contraction_wgmma.cu, where A_LAYOUT is that of f(A). A_VECTOR divides A's address, its
// strides across lines and their length; A_UNIT 0: one element.
//
// Global accesses of contraction_prepare: loads and stores of A_VECTOR bytes. No shared memory.
#pragma parameter PROLOGUE 5     // operations on A before the product (prologue.cuh), coded as EPILOGUE_CODES
#pragma parameter MATERIALISED 1 // they are applied by a launch in front
#pragma parameter D_TYPE float   // elements of the prologue's first vector: half_t, bfloat16_t, float
#pragma parameter D_VECTOR 4     // bytes per global access of it, at most
#pragma parameter E_TYPE float   // the same of its second vector
#pragma parameter E_VECTOR 4
#pragma parameter A_UNIT 1    // 1: an axis of A has stride 1; 0: both strides are in Params
#pragma parameter A_VECTOR 16 // bytes per global access of A

#define BEHIND_ANOTHER // launch, for which the main one waits
#include "contraction_wgmma.cu"
#include "prepared.cuh"

static_assert(PARTS == 1 && B_WINDOW == 0, "Only A as a matrix is prepared.");

WGMMA_KERNEL(contraction_prepared_wgmma) {
    set_up(params);
    grid_dependency_wait();
    compute_tiles(params);
}
