// Launch(entry='window', grid=168, block=192, shared_bytes=43072)
// workspace (0, False)
// tile [('c', 4), ('h', 12), ('split', 1), ('w', 64)]
#define ACC_TYPE float
#define A_VECTOR 4
#define BLOCK_C 4
#define BLOCK_H 12
#define BLOCK_W 64
#define B_VECTOR 4
#define CHANNELS_LAST 0
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define FILTER_HELD 0
#define IN_TYPE float
#define MIN_BLOCKS 0
#define OPERATION 0
#define OUT_TYPE float
#define SPLIT 1
#define STAGED 1
#define THREAD_H 4
#define THREAD_W 4
#define WINDOW 0
