// Launch(entry='contraction_simt', grid=8, block=128, shared_bytes=32768)
// Launch(entry='contraction_reduce', grid=16, block=256, shared_bytes=0)
// workspace (524288, False)
// tile [('k', 8), ('m', 64), ('n', 64), ('raster', 1), ('split', 8), ('stages', 2)]
#define ACC_TYPE c128
#define A_CONJUGATE 0
#define A_LAYOUT 0
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
#define EPILOGUE_STAGED 0
#define FORM 4
#define IN_TYPE c128
#define LANES_M 8
#define MATH_TF32 0
#define MIN_BLOCKS 0
#define OUT_TYPE c128
#define PAD 0
#define SPLIT 1
#define STAGES 2
#define THREAD_M 4
#define THREAD_N 8
#define VTHREAD_M 4
#define VTHREAD_N 8
