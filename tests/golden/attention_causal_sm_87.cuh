// Launch(entry='attention', grid=192, block=128, shared_bytes=40960)
// workspace (0, False)
// tile [('k', 64), ('m', 64), ('n', 64), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE float
#define ASYNC 1
#define BLOCK_KEYS 64
#define BLOCK_Q 64
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define HEAD 64
#define INSTRUCTION 0
#define IN_TYPE half_t
#define KEYS_IN 0
#define K_UNIT 1
#define K_VECTOR 16
#define MASK 0
#define MASK_TYPE float
#define MASK_UNIT 1
#define MASK_VECTOR 4
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define Q_REGISTERS 1
#define Q_UNIT 1
#define Q_VECTOR 16
#define RAGGED 0
#define SLIDING 0
#define SOFTCAP 0
#define SPLIT 0
#define STAGES 2
#define SWIZZLE 1
#define V_UNIT 1
#define V_VECTOR 16
#define WARP_Q 16
