// Launch(entry='rows', grid=4, block=256, shared_bytes=32)
// Launch(entry='rows_reduce', grid=1, block=256, shared_bytes=32)
// workspace (16, False)
// tile [('pace', 512), ('rows', 2), ('split', 4), ('step', 2048)]
#define ACC_TYPE float
#define A_UNIT 1
#define C_UNIT 1
#define C_VECTOR 4
#define DIGITS 1
#define EPILOGUE_CODES 0
#define IN_TYPE float
#define ITEMS 4
#define KEEP 0
#define LAYOUT 0
#define MIN_BLOCKS 0
#define ONLINE 1
#define OPERATION 1
#define OUT_TYPE float
#define SPLIT 1
#define THREADS_K 128
#define THREADS_M 2
#define VECTOR 16
