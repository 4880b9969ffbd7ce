// Launch(entry='contraction_wgmma', grid=1376, block=384, shared_bytes=148480)
// TensorMap(operand='a', along_rows=False, element=2, rows=128)
// TensorMap(operand='b', along_rows=True, element=2, rows=96)
// TensorMap(operand='c', along_rows=False, element=4, rows=16)
// workspace (0, False)
// tile [('k', 64), ('m', 128), ('n', 96), ('raster', 4), ('split', 1), ('stages', 4)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define BLOCK_K 64
#define BLOCK_M 128
#define BLOCK_N 96
#define B_LAYOUT 0
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 0
#define IN_TYPE half_t
#define MIN_BLOCKS 1
#define OUT_TYPE float
#define PERSISTENT 2
#define SPLIT 0
#define STAGES 4
#define STORE_COPIES 1
