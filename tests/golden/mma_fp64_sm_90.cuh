// Launch(entry='contraction_mma', grid=1024, block=256, shared_bytes=98304)
// workspace (0, False)
// tile [('k', 16), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 3)]
#define ACC_TYPE double
#define ASYNC 1
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 16
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 1
#define B_UNIT 1
#define B_VECTOR 16
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define INSTRUCTION 6
#define IN_TYPE double
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE double
#define SPLIT 0
#define STAGES 3
#define SWIZZLE 1
#define WARP_M 64
#define WARP_N 32
