// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) by Blackwell's products in tensor memory
// (contraction_tcgen05.cu), after a launch that copies operands which tensor copies (TMA) cannot read (align.cuh).
#pragma parameter A_PIECE 0  // bytes of a load of the copying launch; 0: A is not copied
#pragma parameter B_PIECE 0  // the same for B
#pragma parameter A_TURNED 0 // 1: adjacent elements of a line of the copy are not adjacent in A
#pragma parameter B_TURNED 0 // the same for B

#pragma parameter A_SOURCE A_STORED // type of A in memory: i8, e4m3_t or e5m2_t if copied as half_t or bfloat16_t
#pragma parameter B_SOURCE B_STORED // the same for B

#define AFTER_ANOTHER contraction_aligned_tcgen05
#include "contraction_tcgen05.cu"
#include "align.cuh"
