// Launch(entry='gemv', grid=64, block=256, shared_bytes=9216)
// Launch(entry='contraction_reduce', grid=8, block=256, shared_bytes=0)
// workspace (262144, False)
// tile [('k', 32), ('m', 4), ('n', 256), ('raster', 1), ('split', 4), ('stages', 1)]
#define ACC_TYPE float
#define A_CONJUGATE 0
#define B_CONJUGATE 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define FORM 1
#define IN_TYPE bfloat16_t
#define ITEMS 4
#define MIN_BLOCKS 0
#define OUT_TYPE bfloat16_t
#define ROWS 1
#define SMALL 4
#define SPLIT 1
#define THREADS_K 8
#define THREADS_L 32
#define WEIGHTS 0
#define W_COLUMNS 1
#define W_UNIT 1
#define W_VECTOR 16
#define X_SHARED 1
#define X_UNIT 1
#define X_VECTOR 8
