// Launch(entry='contraction_mma', grid=48, block=128, shared_bytes=32768)
// workspace (0, False)
// tile [('k', 32), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE float
#define ASYNC 0
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 32
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 1
#define B_UNIT 1
#define B_VECTOR 2
#define B_WINDOW 2
#define C_UNIT 1
#define C_VECTOR 8
#define D_TYPE float
#define D_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define E_TYPE float
#define E_VECTOR 16
#define INSTRUCTION 0
#define IN_TYPE bfloat16_t
#define MATERIALISED 0
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE bfloat16_t
#define PROLOGUE 9284
#define PROLOGUE_OF_B 1
#define SPLIT 0
#define STAGES 2
#define SWIZZLE 1
#define WARP_M 64
#define WARP_N 64
