// Launch(entry='contraction_weights_wgmma', grid=128, block=384, shared_bytes=173056)
// TensorMap(operand='a', along_rows=False, element=2, rows=128)
// TensorMap(operand='b', along_rows=True, element=1, rows=128)
// workspace (0, False)
// tile [('k', 256), ('m', 128), ('n', 128), ('raster', 1), ('split', 1), ('stages', 2)]
#define ACC_TYPE float
#define BLOCK_K 256
#define BLOCK_M 128
#define BLOCK_N 128
#define B_STORED u4x2_t
#define CONSUMERS 2
#define C_UNIT 1
#define C_VECTOR 16
#define EPILOGUE_CODES 0
#define GROUP 128
#define IN_TYPE bfloat16_t
#define MIN_BLOCKS 1
#define OUT_TYPE bfloat16_t
#define SCALED 1
#define SPLIT 0
#define STAGES 2
