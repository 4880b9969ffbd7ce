// Launch(entry='contraction_strip', grid=896, block=128, shared_bytes=42592)
// workspace (0, False)
// tile [('m', 128), ('n', 64)]
#define ACC_TYPE float
#define BLOCK_M 128
#define BLOCK_N 64
#define CHANNELS_LAST 1
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 162
#define IN_TYPE half_t
#define LINES 7
#define MIN_BLOCKS 2
#define OCTETS 3
#define OUT_TYPE half_t
#define PIXEL_ROWS 1
#define PLANES 1
#define WARP_M 64
#define WARP_N 32
