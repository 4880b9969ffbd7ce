// Launch(entry='contraction_phased', grid=24, block=128, shared_bytes=8192)
// Launch(entry='contraction_interleave', grid=16, block=256, shared_bytes=0)
// workspace (124416, False)
// tile [('k', 8), ('m', 64), ('n', 64), ('raster', 1), ('split', 2), ('stages', 2)]
#define ACC_TYPE float
#define A_CONJUGATE 0
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define A_WINDOW 1
#define BLOCK_K 8
#define BLOCK_M 64
#define BLOCK_N 64
#define B_CONJUGATE 0
#define B_LAYOUT 0
#define B_UNIT 1
#define B_VECTOR 16
#define B_WINDOW 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 0
#define FORM 1
#define IN_TYPE float
#define LANES_M 8
#define MASKED 1
#define MATH_TF32 0
#define MIN_BLOCKS 1
#define OUT_TYPE float
#define PAD 0
#define SPLIT 1
#define STAGES 2
#define THREAD_M 4
#define THREAD_N 8
#define VTHREAD_M 1
#define VTHREAD_N 2
