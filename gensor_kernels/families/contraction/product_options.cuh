// Macros that Programs of every family of products on strided operands bind alike, and their defaults.
#pragma once
#pragma parameter FORM 1 // real products of a multiply-add: 1 of real types; 4 of complex ones, or 3 (Gauss's formula)
#pragma parameter A_CONJUGATE 0    // 1: the elements of A are conjugated
#pragma parameter B_CONJUGATE 0    // the same for B
#pragma parameter C_UNIT 1         // 1: the columns of C have stride 1; 0: their stride is in Params
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter SPLIT 0          // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#pragma parameter EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter PROLOGUE 0       // operations on A before the product (prologue.cuh), coded as EPILOGUE_CODES
#pragma parameter D_TYPE float     // elements of the prologue's first vector: half_t, bfloat16_t, float, double
#pragma parameter D_VECTOR 4       // bytes per global access of it, at most
#pragma parameter E_TYPE float     // the same of its second vector
#pragma parameter E_VECTOR 4
#pragma parameter MIN_BLOCKS 0 // blocks per SM promised to the compiler, which may spill a little for it; 0 = none
