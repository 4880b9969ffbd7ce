// Launch(entry='gemv', grid=128, block=256, shared_bytes=4096)
// workspace (0, False)
// tile [('k', 64), ('m', 32), ('n', 4), ('raster', 1), ('split', 1), ('stages', 1)]
#define ACC_TYPE double
#define A_CONJUGATE 0
#define B_CONJUGATE 0
#define C_UNIT 1
#define C_VECTOR 8
#define EPILOGUE_CODES 162
#define FORM 1
#define IN_TYPE double
#define ITEMS 1
#define MIN_BLOCKS 0
#define OUT_TYPE double
#define ROWS 4
#define SMALL 4
#define SPLIT 0
#define THREADS_K 32
#define THREADS_L 8
#define WEIGHTS 1
#define W_COLUMNS 0
#define W_UNIT 1
#define W_VECTOR 16
#define X_SHARED 1
#define X_UNIT 0
#define X_VECTOR 8
