// Launch(entry='winograd_filters', grid=1024, block=256, shared_bytes=0)
// Launch(entry='winograd', grid=64, block=256, shared_bytes=53248)
// Launch(entry='contraction_reduce', grid=420, block=256, shared_bytes=0)
// workspace (18497536, False)
// tile [('k', 4), ('m', 64), ('n', 32), ('raster', 2), ('split', 4)]
#define BLOCK_K 4
#define BLOCK_M 64
#define BLOCK_N 32
#define CHANNELS_LAST 1
#define C_VECTOR 4
#define EPILOGUE_CODES 162
#define FILTERS_LAST 1
#define HELD 1
#define MIN_BLOCKS 0
#define OUT_TYPE float
#define PREPARED 1
#define SPLIT 1
#define STAGES 2
#define THREAD_M 16
#define THREAD_N 8
