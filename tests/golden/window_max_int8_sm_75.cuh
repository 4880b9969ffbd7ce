// Launch(entry='window', grid=8, block=64, shared_bytes=0)
// workspace (0, False)
// tile [('c', 64), ('h', 2), ('split', 1), ('w', 8)]
#define ACC_TYPE i32
#define A_VECTOR 16
#define BLOCK_C 64
#define BLOCK_H 2
#define BLOCK_W 8
#define B_VECTOR 16
#define CHANNELS_LAST 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define FILTER_HELD 0
#define IN_TYPE i8
#define MIN_BLOCKS 0
#define OPERATION 2
#define OUT_TYPE i8
#define SPLIT 1
#define STAGED 0
#define THREAD_H 1
#define THREAD_W 1
#define WINDOW 0
