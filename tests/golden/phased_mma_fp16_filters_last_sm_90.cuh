// Launch(entry='contraction_phased_mma', grid=24, block=128, shared_bytes=24576)
// Launch(entry='contraction_interleave', grid=16, block=256, shared_bytes=0)
// workspace (62208, False)
// tile [('k', 32), ('m', 64), ('n', 64), ('raster', 2), ('split', 1), ('stages', 3)]
#define ACC_TYPE float
#define ASYNC 1
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 1
#define BLOCK_K 32
#define BLOCK_M 64
#define BLOCK_N 64
#define B_LAYOUT 1
#define B_UNIT 1
#define B_VECTOR 8
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define INSTRUCTION 0
#define IN_TYPE half_t
#define MASKED 1
#define MATH_TF32 0
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define SPLIT 1
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 32
#define WARP_N 32
