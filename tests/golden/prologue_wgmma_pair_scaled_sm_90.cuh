// Launch(entry='contraction_prologue_wgmma', grid=128, block=256, shared_bytes=148480)
// TensorMap(operand='a', along_rows=False, element=2, rows=32)
// TensorMap(operand='b', along_rows=True, element=2, rows=64)
// TensorMap(operand='c', along_rows=False, element=2, rows=16)
// workspace (0, False)
// tile [('k', 64), ('m', 64), ('n', 128), ('raster', 1), ('split', 1), ('stages', 8)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define BLOCK_K 64
#define BLOCK_M 64
#define BLOCK_N 64
#define B_LAYOUT 0
#define CLUSTER 2
#define CONSUMERS 1
#define C_UNIT 1
#define C_VECTOR 16
#define D_TYPE bfloat16_t
#define D_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 0
#define IN_TYPE bfloat16_t
#define MATERIALISED 0
#define MIN_BLOCKS 1
#define OUT_TYPE bfloat16_t
#define PERSISTENT 1
#define PROLOGUE 4
#define PROLOGUE_OF_B 0
#define SPLIT 0
#define STAGES 8
#define STORE_COPIES 1
