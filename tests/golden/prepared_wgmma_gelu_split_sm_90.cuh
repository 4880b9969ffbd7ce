// Launch(entry='contraction_prepare', grid=192, block=256, shared_bytes=0)
// Launch(entry='contraction_prepared_wgmma', grid=96, block=256, shared_bytes=148480)
// TensorMap(operand='a', along_rows=False, element=2, rows=64)
// TensorMap(operand='b', along_rows=True, element=2, rows=64)
// Launch(entry='contraction_reduce', grid=48, block=256, shared_bytes=0)
// workspace (2359296, False)
// tile [('k', 64), ('m', 64), ('n', 64), ('raster', 1), ('split', 4), ('stages', 8)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define A_UNIT 1
#define A_VECTOR 16
#define BLOCK_K 64
#define BLOCK_M 64
#define BLOCK_N 64
#define B_LAYOUT 0
#define CONSUMERS 1
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define IN_TYPE half_t
#define MATERIALISED 1
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define PERSISTENT 1
#define PROLOGUE 7
#define PROLOGUE_OF_B 0
#define SPLIT 1
#define STAGES 8
