// Launch(entry='attention', grid=64, block=32, shared_bytes=36864)
// Launch(entry='attention_combine', grid=2, block=256, shared_bytes=0)
// workspace (133120, False)
// tile [('k', 32), ('m', 16), ('n', 128), ('raster', 1), ('split', 8), ('stages', 2)]
#define ACC_TYPE float
#define ASYNC 1
#define BLOCK_KEYS 32
#define BLOCK_Q 16
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define HEAD 128
#define INSTRUCTION 0
#define IN_TYPE bfloat16_t
#define KEYS_IN 0
#define K_UNIT 1
#define K_VECTOR 16
#define MASK 1
#define MASK_TYPE i8
#define MASK_UNIT 1
#define MASK_VECTOR 2
#define MIN_BLOCKS 1
#define OUT_TYPE bfloat16_t
#define Q_REGISTERS 1
#define Q_UNIT 1
#define Q_VECTOR 16
#define RAGGED 0
#define SLIDING 0
#define SOFTCAP 0
#define SPLIT 1
#define STAGES 2
#define SWIZZLE 1
#define V_UNIT 1
#define V_VECTOR 16
#define WARP_Q 16
