// Launch(entry='contraction_wgmma', grid=132, block=256, shared_bytes=99328)
// TensorMap(operand='a', along_rows=True, element=2, rows=64)
// TensorMap(operand='b', along_rows=False, element=2, rows=64)
// Launch(entry='contraction_reduce', grid=512, block=256, shared_bytes=0)
// workspace (6291456, False)
// tile [('k', 64), ('m', 64), ('n', 192), ('raster', 1), ('split', 3), ('stages', 3)]
#define ACC_TYPE float
#define A_LAYOUT 1
#define BLOCK_K 64
#define BLOCK_M 64
#define BLOCK_N 192
#define B_LAYOUT 1
#define CONSUMERS 1
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 226
#define EPILOGUE_STAGED 1
#define IN_TYPE bfloat16_t
#define MIN_BLOCKS 2
#define OUT_TYPE float
#define SPLIT 1
#define STAGES 3
