// Macros that Programs of every family of products on strided operands bind alike, and their defaults.
#pragma once
#ifndef FORM
#define FORM 1 // real products of a multiply-add: 1 for real types, 4 for complex ones, or 3 (Gauss's formula)
#endif
#ifndef A_CONJUGATE
#define A_CONJUGATE 0 // 1: the elements of A are conjugated
#endif
#ifndef B_CONJUGATE
#define B_CONJUGATE 0 // the same for B
#endif
#ifndef C_UNIT
#define C_UNIT 1 // 1: the columns of C have stride 1; 0: their stride is in Params
#endif
#ifndef C_VECTOR
#define C_VECTOR 16 // bytes per global access of C
#endif
#ifndef SPLIT
#define SPLIT 0 // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#endif
#ifndef EPILOGUE_CODES
#define EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#endif
#ifndef PROLOGUE
#define PROLOGUE 0 // operations on the elements of A before they are multiplied (prologue.cuh), as in EPILOGUE_CODES
#endif
#ifndef D_TYPE
#define D_TYPE float // elements of the prologue's first vector: half_t, bfloat16_t, float, double
#endif
#ifndef D_VECTOR
#define D_VECTOR 4 // bytes per global access of it, at most
#endif
#ifndef E_TYPE
#define E_TYPE float // the same of its second vector
#endif
#ifndef E_VECTOR
#define E_VECTOR 4
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 0 // blocks per SM promised to the compiler; 0 = none (it then may spill a little to save registers)
#endif
