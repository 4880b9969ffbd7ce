// Launch(entry='contraction_mma', grid=17, block=128, shared_bytes=49152)
// workspace (0, False)
// tile [('k', 64), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 3)]
#define ACC_TYPE float
#define ASYNC 1
#define A_LAYOUT 0
#define A_STORED e4m3_t
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 64
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 0
#define B_STORED e4m3_t
#define B_UNIT 1
#define B_VECTOR 16
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define INSTRUCTION 0
#define IN_TYPE half_t
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE float
#define SPLIT 0
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 64
#define WARP_N 64
