// Launch(entry='attention', grid=1, block=128, shared_bytes=30720)
// workspace (0, False)
// tile [('k', 32), ('m', 128), ('n', 80), ('raster', 1), ('split', 1), ('stages', 1)]
#define ACC_TYPE float
#define ASYNC 0
#define BLOCK_KEYS 32
#define BLOCK_Q 128
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 97
#define EPILOGUE_STAGED 1
#define HEAD 80
#define INSTRUCTION 1
#define IN_TYPE half_t
#define KEYS_IN 0
#define K_UNIT 1
#define K_VECTOR 16
#define MASK 2
#define MASK_TYPE half_t
#define MASK_UNIT 1
#define MASK_VECTOR 2
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define Q_REGISTERS 0
#define Q_UNIT 1
#define Q_VECTOR 16
#define RAGGED 0
#define SLIDING 0
#define SOFTCAP 0
#define SPLIT 0
#define STAGES 1
#define SWIZZLE 1
#define V_UNIT 1
#define V_VECTOR 16
#define WARP_Q 32
