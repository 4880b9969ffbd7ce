// Launch(entry='rows', grid=4096, block=256, shared_bytes=64)
// workspace (0, False)
// tile [('pace', 2048), ('rows', 1), ('split', 1), ('step', 2048)]
#define ACC_TYPE float
#define A_UNIT 1
#define C_UNIT 1
#define C_VECTOR 16
#define DIGITS 1
#define EPILOGUE_CODES 0
#define IN_TYPE half_t
#define ITEMS 1
#define KEEP 1
#define LAYOUT 0
#define MIN_BLOCKS 0
#define ONLINE 0
#define OPERATION 11
#define OUT_TYPE half_t
#define SPLIT 0
#define THREADS_K 256
#define THREADS_M 1
#define VECTOR 16
