// Launch(entry='contraction_mma', grid=256, block=256, shared_bytes=49152)
// workspace (0, False)
// tile [('k', 8), ('m', 64), ('n', 64), ('raster', 1), ('split', 1), ('stages', 3)]
#define ACC_TYPE c128
#define ASYNC 1
#define A_CONJUGATE 1
#define A_LAYOUT 1
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 8
#define BLOCK_M 64
#define BLOCK_N 64
#define B_CONJUGATE 0
#define B_LAYOUT 1
#define B_UNIT 1
#define B_VECTOR 16
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define FORM 3
#define INSTRUCTION 7
#define IN_TYPE c128
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE c128
#define SPLIT 0
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 32
#define WARP_N 16
