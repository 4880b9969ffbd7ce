// Macros that Programs of all families of products of strided operands bind, and their defaults.
#pragma once
#pragma parameter FORM 1           // real products per multiply-add: 1; 4, or 3 (Gauss's formula), for complex types
#pragma parameter A_CONJUGATE 0    // 1: the elements of A are conjugated
#pragma parameter B_CONJUGATE 0    // the same for B
#pragma parameter C_UNIT 1         // 1: columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16      // bytes per global access of C
#pragma parameter SPLIT 0          // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#pragma parameter EPILOGUE_CODES 0 // 0: operations are in Params; else a compile-time list (epilogue.cuh)
#pragma parameter PROLOGUE 0       // operations on A before the product (prologue.cuh), coded as EPILOGUE_CODES
#pragma parameter D_TYPE float     // type of the prologue's first vector: half_t, bfloat16_t, float, double
#pragma parameter D_VECTOR 4       // maximal bytes per global access of it
#pragma parameter E_TYPE float     // the same for its second vector
#pragma parameter E_VECTOR 4
#pragma parameter MIN_BLOCKS 0 // blocks per SM promised to the compiler, which may spill; 0 = no promise
