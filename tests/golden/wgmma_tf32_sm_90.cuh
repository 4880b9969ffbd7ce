// Launch(entry='contraction_wgmma', grid=512, block=384, shared_bytes=197632)
// TensorMap(operand='a', along_rows=False, element=4, rows=128)
// TensorMap(operand='b', along_rows=True, element=4, rows=256)
// workspace (0, False)
// tile [('k', 32), ('m', 128), ('n', 256), ('raster', 4), ('split', 1), ('stages', 4)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define BLOCK_K 32
#define BLOCK_M 128
#define BLOCK_N 256
#define B_LAYOUT 0
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define IN_TYPE float
#define MIN_BLOCKS 1
#define OUT_TYPE float
#define SPLIT 0
#define STAGES 4
