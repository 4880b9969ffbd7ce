// Launch(entry='contraction_align', grid=74, block=256, shared_bytes=0)
// Launch(entry='contraction_aligned', grid=32, block=384, shared_bytes=197632)
// TensorMap(operand='a', along_rows=False, element=2, rows=128)
// TensorMap(operand='b', along_rows=False, element=2, rows=128)
// Launch(entry='contraction_reduce', grid=1022, block=256, shared_bytes=0)
// workspace (3305472, False)
// tile [('k', 128), ('m', 128), ('n', 128), ('raster', 1), ('split', 2), ('stages', 3)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define A_PIECE 8
#define A_TURNED 0
#define BLOCK_K 128
#define BLOCK_M 128
#define BLOCK_N 128
#define B_LAYOUT 1
#define B_PIECE 2
#define B_TURNED 0
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 2
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define IN_TYPE half_t
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define SPLIT 1
#define STAGES 3
