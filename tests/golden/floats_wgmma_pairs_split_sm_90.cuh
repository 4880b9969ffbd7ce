// Launch(entry='contraction_divide', grid=151, block=256, shared_bytes=32768)
// Launch(entry='contraction_floats_wgmma', grid=264, block=384, shared_bytes=197632)
// TensorMap(operand='a', along_rows=False, element=2, rows=128)
// TensorMap(operand='b', along_rows=True, element=2, rows=48)
// Launch(entry='contraction_reduce', grid=3911, block=256, shared_bytes=0)
// workspace (18963456, False)
// tile [('k', 64), ('m', 256), ('n', 96), ('raster', 1), ('split', 3), ('stages', 2)]
#define ACC_TYPE float
#define A_PIECE 4
#define A_TURNED 0
#define BLOCK_K 64
#define BLOCK_M 128
#define BLOCK_N 96
#define B_PIECE 4
#define B_TURNED 1
#define CLUSTER 1
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 4
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define MIN_BLOCKS 1
#define PERSISTENT 1
#define SPLIT 1
#define STAGES 2
