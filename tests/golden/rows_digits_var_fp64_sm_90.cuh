// Launch(entry='rows', grid=64, block=256, shared_bytes=12288)
// workspace (0, False)
// tile [('pace', 32), ('rows', 16), ('split', 1), ('step', 128)]
#define ACC_TYPE double
#define A_UNIT 1
#define C_UNIT 1
#define C_VECTOR 16
#define DIGITS 3
#define EPILOGUE_CODES 0
#define IN_TYPE double
#define ITEMS 4
#define KEEP 0
#define LAYOUT 1
#define MIN_BLOCKS 0
#define ONLINE 1
#define OPERATION 9
#define OUT_TYPE double
#define SPLIT 0
#define THREADS_K 32
#define THREADS_M 8
#define VECTOR 16
