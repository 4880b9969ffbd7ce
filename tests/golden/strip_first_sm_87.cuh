// Launch(entry='contraction_strip', grid=1792, block=128, shared_bytes=43040)
// workspace (0, False)
// tile [('m', 64), ('n', 128)]
#define ACC_TYPE float
#define BLOCK_M 64
#define BLOCK_N 128
#define CHANNELS_LAST 0
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define IN_TYPE half_t
#define LINES 21
#define MIN_BLOCKS 2
#define OCTETS 1
#define OUT_TYPE half_t
#define PIXEL_ROWS 0
#define PLANES 3
#define WARP_M 64
#define WARP_N 32
