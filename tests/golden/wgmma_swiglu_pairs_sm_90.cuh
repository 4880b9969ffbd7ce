// Launch(entry='contraction_wgmma', grid=176, block=384, shared_bytes=99328)
// TensorMap(operand='a', along_rows=False, element=2, rows=64)
// TensorMap(operand='b', along_rows=True, element=2, rows=64)
// TensorMap(operand='b', along_rows=True, element=2, rows=64)
// TensorMap(operand='c', along_rows=False, element=2, rows=16)
// workspace (0, False)
// tile [('k', 64), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define BLOCK_K 64
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 0
#define CLUSTER 2
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 0
#define GATE 9
#define GATE_BIAS 1
#define IN_TYPE bfloat16_t
#define MIN_BLOCKS 1
#define OUT_TYPE bfloat16_t
#define PERSISTENT 1
#define SPLIT 0
#define STAGES 2
#define STORE_COPIES 1
