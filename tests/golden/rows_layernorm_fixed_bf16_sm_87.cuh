// Launch(entry='rows', grid=128, block=256, shared_bytes=0)
// workspace (0, False)
// tile [('pace', 256), ('rows', 8), ('split', 1), ('step', 1024)]
#define ACC_TYPE float
#define A_UNIT 1
#define C_UNIT 1
#define C_VECTOR 16
#define DIGITS 1
#define EPILOGUE_CODES 68
#define IN_TYPE bfloat16_t
#define ITEMS 4
#define KEEP 1
#define LAYOUT 0
#define MIN_BLOCKS 0
#define ONLINE 0
#define OPERATION 13
#define OUT_TYPE bfloat16_t
#define SPLIT 0
#define THREADS_K 32
#define THREADS_M 8
#define VECTOR 16
