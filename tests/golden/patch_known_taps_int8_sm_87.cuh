// Launch(entry='contraction_patch', grid=8, block=128, shared_bytes=44032)
// workspace (0, False)
// tile [('k', 32), ('m', 64), ('n', 64), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE i32
#define A_VECTOR 16
#define BLOCK_K 32
#define BLOCK_M 64
#define BLOCK_N 64
#define COPIES 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define IN_TYPE i8
#define MIN_BLOCKS 0
#define OUT_TYPE i32
#define SPLIT 0
#define TAPS 9
#define WARP_M 32
#define WARP_N 32
