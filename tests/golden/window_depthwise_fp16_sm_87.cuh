// Launch(entry='window', grid=392, block=64, shared_bytes=0)
// workspace (0, False)
// tile [('c', 64), ('h', 4), ('split', 1), ('w', 8)]
#define ACC_TYPE float
#define A_VECTOR 16
#define BLOCK_C 64
#define BLOCK_H 4
#define BLOCK_W 8
#define B_VECTOR 16
#define CHANNELS_LAST 1
#define C_VECTOR 16
#define EPILOGUE_CODES 194
#define FILTER_HELD 1
#define IN_TYPE half_t
#define MIN_BLOCKS 0
#define OPERATION 0
#define OUT_TYPE half_t
#define SPLIT 1
#define STAGED 0
#define THREAD_H 2
#define THREAD_W 2
#define WINDOW 3322
