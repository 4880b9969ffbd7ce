// Launch(entry='rows', grid=16, block=256, shared_bytes=16384)
// workspace (0, False)
// tile [('pace', 32), ('rows', 64), ('split', 1), ('step', 128)]
#define ACC_TYPE i32
#define A_UNIT 1
#define C_UNIT 1
#define C_VECTOR 16
#define DIGITS 1
#define EPILOGUE_CODES 0
#define IN_TYPE i8
#define ITEMS 4
#define KEEP 0
#define LAYOUT 1
#define MIN_BLOCKS 0
#define ONLINE 1
#define OPERATION 6
#define OUT_TYPE i64
#define SPLIT 0
#define THREADS_K 32
#define THREADS_M 8
#define VECTOR 8
