// Launch(entry='gemv', grid=128, block=256, shared_bytes=2048)
// workspace (0, False)
// tile [('k', 256), ('m', 1), ('n', 32), ('raster', 1), ('split', 1), ('stages', 1)]
#define ACC_TYPE float
#define A_CONJUGATE 0
#define B_CONJUGATE 0
#define C_UNIT 1
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define FORM 1
#define IN_TYPE half_t
#define ITEMS 1
#define MIN_BLOCKS 0
#define OUT_TYPE half_t
#define ROWS 4
#define SMALL 1
#define SPLIT 0
#define THREADS_K 32
#define THREADS_L 8
#define WEIGHTS 0
#define W_COLUMNS 0
#define W_UNIT 1
#define W_VECTOR 16
#define X_SHARED 1
#define X_UNIT 1
#define X_VECTOR 16
