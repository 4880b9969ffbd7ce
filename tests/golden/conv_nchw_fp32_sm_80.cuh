// Launch(entry='contraction_simt', grid=56, block=256, shared_bytes=16384)
// workspace (0, False)
// tile [('k', 8), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE float
#define A_CONJUGATE 0
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 0
#define BLOCK_K 8
#define BLOCK_M 128
#define BLOCK_N 128
#define B_CONJUGATE 0
#define B_LAYOUT 1
#define B_UNIT 1
#define B_VECTOR 4
#define B_WINDOW 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 0
#define FORM 1
#define IN_TYPE float
#define LANES_M 4
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE float
#define PAD 0
#define SPLIT 0
#define STAGES 2
#define THREAD_M 8
#define THREAD_N 8
#define VTHREAD_M 2
#define VTHREAD_N 2
