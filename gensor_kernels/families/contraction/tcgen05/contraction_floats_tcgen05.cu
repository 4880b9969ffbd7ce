// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) of floats, by Blackwell's products of bfloat16 in tensor
// memory (contraction_tcgen05.cu, PARTS 3), at least as exact as with multiply-adds of floats (float_parts.cuh),
// after a launch that divides the operands (divide.cuh).
#pragma parameter A_PIECE 16 // bytes of a load of A
#pragma parameter B_PIECE 16 // the same for B
#pragma parameter A_TURNED 0 // 1: adjacent elements along k are not adjacent in A
#pragma parameter B_TURNED 0 // the same for B

#define PARTS 3
#define IN_TYPE bfloat16_t
#define OUT_TYPE float
#define A_LAYOUT 0
#define B_LAYOUT 0
#define AFTER_ANOTHER contraction_floats_tcgen05
#include "contraction_tcgen05.cu"
#include "divide.cuh"
