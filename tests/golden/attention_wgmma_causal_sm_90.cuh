// Launch(entry='attention_wgmma', grid=1024, block=384, shared_bytes=232448)
// TensorMap(operand='a', along_rows=False, element=2, rows=128)
// TensorMap(operand='b', along_rows=False, element=2, rows=128)
// TensorMap(operand='d', along_rows=False, element=2, rows=128)
// workspace (0, False)
// tile [('k', 128), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 6)]
#define ACC_TYPE float
#define BLOCK_KEYS 128
#define BLOCK_Q 128
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define HEAD 128
#define IN_TYPE bfloat16_t
#define KEYS_IN 0
#define MASK 0
#define MASK_TYPE float
#define MASK_UNIT 1
#define MASK_VECTOR 4
#define MIN_BLOCKS 1
#define OUT_TYPE bfloat16_t
#define RAGGED 0
#define SLIDING 0
#define SOFTCAP 0
#define SPLIT 0
#define STAGES 6
