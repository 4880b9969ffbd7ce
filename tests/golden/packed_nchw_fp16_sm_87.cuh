// Launch(entry='contraction_pack', grid=65, block=256, shared_bytes=0)
// Launch(entry='contraction_packed', grid=56, block=128, shared_bytes=49152)
// workspace (950272, False)
// tile [('k', 32), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 3)]
#define ACC_TYPE float
#define ASYNC 1
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 32
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 0
#define B_UNIT 1
#define B_VECTOR 16
#define B_WINDOW 1
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define FILTERS_ALIGNED 1
#define FILTERS_LAST 0
#define INSTRUCTION 0
#define IN_TYPE half_t
#define MASKED 1
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE half_t
#define PACKED 2
#define SPLIT 0
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 64
#define WARP_N 64
