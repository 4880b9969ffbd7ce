// Launch(entry='gemv', grid=8, block=256, shared_bytes=4096)
// workspace (0, False)
// tile [('k', 32), ('m', 64), ('n', 1), ('raster', 1), ('split', 1), ('stages', 1)]
#define ACC_TYPE c64
#define A_CONJUGATE 1
#define B_CONJUGATE 0
#define C_UNIT 1
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define FORM 4
#define IN_TYPE c64
#define ITEMS 4
#define MIN_BLOCKS 0
#define OUT_TYPE c64
#define ROWS 1
#define SMALL 1
#define SPLIT 0
#define THREADS_K 8
#define THREADS_L 32
#define WEIGHTS 1
#define W_COLUMNS 1
#define W_UNIT 1
#define W_VECTOR 16
#define X_SHARED 1
#define X_UNIT 1
#define X_VECTOR 16
