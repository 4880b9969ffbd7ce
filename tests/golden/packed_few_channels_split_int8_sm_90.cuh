// Launch(entry='contraction_pack', grid=36, block=256, shared_bytes=0)
// Launch(entry='contraction_packed', grid=128, block=128, shared_bytes=49152)
// Launch(entry='contraction_reduce', grid=512, block=256, shared_bytes=0)
// workspace (4337920, False)
// tile [('k', 64), ('m', 128), ('n', 128), ('raster', 1), ('split', 2), ('stages', 3)]
#define ACC_TYPE i32
#define ASYNC 1
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 4
#define A_WINDOW 1
#define BLOCK_K 64
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 0
#define B_UNIT 1
#define B_VECTOR 4
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define FILTERS_ALIGNED 0
#define FILTERS_LAST 0
#define INSTRUCTION 3
#define IN_TYPE i8
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE i32
#define PACKED 1
#define SPLIT 1
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 64
#define WARP_N 64
