// C[m, n] = epilogue(sum over k of f(A[m, k]) * B[k, n]) by Blackwell's products in tensor memory
// (contraction_tcgen05.cu), where f is a prologue: element-wise operations on A.
//
// A first launch, contraction_prepare (prepared.cuh), writes f(A) into the workspace with layout A_LAYOUT, where tensor
// copies (TMA) read it. A is read and written once more, but f is computed once per element, not in every block.
#pragma parameter PROLOGUE 5     // operations on A before the product (prologue.cuh), coded as EPILOGUE_CODES
#pragma parameter MATERIALISED 1 // a first launch applies them
#pragma parameter D_TYPE float   // type of the prologue's first vector: half_t, bfloat16_t, float
#pragma parameter D_VECTOR 4     // maximal bytes per global access of it
#pragma parameter E_TYPE float   // the same for its second vector
#pragma parameter E_VECTOR 4
#pragma parameter A_UNIT 1    // 1: an axis of A has stride 1; 0: both strides are in Params
#pragma parameter A_VECTOR 16 // bytes per global access of A

#define AFTER_ANOTHER contraction_prepared_tcgen05
#include "contraction_tcgen05.cu"
#include "prepared.cuh"

static_assert(PARTS == 1 && B_WINDOW == 0, "Only A as a matrix is prepared.");
