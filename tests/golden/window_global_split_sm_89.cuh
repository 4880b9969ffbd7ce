// Launch(entry='window', grid=64, block=64, shared_bytes=1024)
// workspace (0, False)
// tile [('c', 64), ('h', 1), ('split', 4), ('w', 1)]
#define ACC_TYPE float
#define A_VECTOR 8
#define BLOCK_C 64
#define BLOCK_H 1
#define BLOCK_W 1
#define B_VECTOR 8
#define CHANNELS_LAST 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define FILTER_HELD 0
#define IN_TYPE bfloat16_t
#define MIN_BLOCKS 0
#define OPERATION 1
#define OUT_TYPE bfloat16_t
#define SPLIT 4
#define STAGED 0
#define THREAD_H 1
#define THREAD_W 1
#define WINDOW 0
