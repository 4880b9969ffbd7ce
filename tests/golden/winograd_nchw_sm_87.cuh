// Launch(entry='winograd', grid=98, block=256, shared_bytes=102400)
// workspace (0, False)
// tile [('k', 8), ('m', 64), ('n', 32), ('raster', 1), ('split', 1)]
#define BLOCK_K 8
#define BLOCK_M 64
#define BLOCK_N 32
#define CHANNELS_LAST 0
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define FILTERS_LAST 0
#define HELD 1
#define MIN_BLOCKS 0
#define OUT_TYPE float
#define PREPARED 0
#define SPLIT 0
#define STAGES 2
#define THREAD_M 16
#define THREAD_N 8
