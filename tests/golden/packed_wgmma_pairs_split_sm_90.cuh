// Launch(entry='contraction_pack', grid=122, block=256, shared_bytes=0)
// Launch(entry='contraction_packed_wgmma', grid=704, block=256, shared_bytes=33792)
// TensorMap(operand='a', along_rows=False, element=2, rows=64)
// TensorMap(operand='b', along_rows=True, element=2, rows=32)
// Launch(entry='contraction_reduce', grid=676, block=256, shared_bytes=0)
// workspace (7290880, False)
// tile [('k', 64), ('m', 128), ('n', 64), ('raster', 1), ('split', 2), ('stages', 2)]
#define ACC_TYPE float
#define A_LAYOUT 0
#define BLOCK_K 64
#define BLOCK_M 64
#define BLOCK_N 64
#define B_LAYOUT 0
#define B_WINDOW 1
#define CLUSTER 1
#define CONSUMERS 1
#define C_UNIT 1
#define C_VECTOR 8
#define EPILOGUE_CODES 0
#define EPILOGUE_STAGED 1
#define IN_TYPE half_t
#define MIN_BLOCKS 1
#define OUT_TYPE half_t
#define PACKED 2
#define SPLIT 1
#define STAGES 2
