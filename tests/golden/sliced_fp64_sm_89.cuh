// Launch(entry='contraction_slice', grid=1024, block=256, shared_bytes=0)
// Launch(entry='contraction_sliced', grid=1376, block=256, shared_bytes=57344)
// workspace (335577088, False)
// tile [('k', 64), ('m', 96), ('n', 128), ('raster', 16), ('split', 1), ('stages', 4)]
#define BLOCK_K 64
#define BLOCK_M 96
#define BLOCK_N 128
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define MIN_BLOCKS 0
#define OUT_TYPE double
#define STAGES 4
#define WARP_M 48
#define WARP_N 32
