// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on Hopper's warpgroup products (wgmma, sm_90a), batched.
//
// A block computes BLOCK_M x BLOCK_N outputs with CONSUMERS warpgroups of four warps that multiply, and one more of
// which one thread requests tiles: tensor copies (TMA) fill a ring of STAGES buffers with a 128-byte swizzle, mbarriers
// say when a buffer is full or empty (wgmma_ring.cuh). The requesting warpgroup hands its registers to the others
// (setmaxnreg). Past the edges of A and B copies bring zeros; C is stored through the epilogue of the tensor-core
// families, from registers or by way of the ring's memory. With PERSISTENT a block walks tiles (wgmma_tiles.cuh). With
// CLUSTER two blocks side by side share tiles of an operand: each requests half of one, and the copy goes to both. With
// A_WINDOW this is a convolution: rows of A are pixels under a filter's taps, which copies find in the image
// (wgmma_requests.cuh); with B_WINDOW columns of B are those of one image that was packed (contraction_packed_wgmma.cu)
// or divided, whose channels came first. With
// GATE the columns of a product are those of the gate's tile and, behind them, of the other matrix's (gate.cuh): a
// block computes BLOCK_M x BLOCK_N / 2 outputs. With PARTS 3 operands are float ones in bfloat16 parts
// (wgmma_floats.cuh).
//
// Legal Programs (O = bytes of OUT_TYPE, THREADS = 128 * (CONSUMERS + 1)):
//   IN_TYPE half_t, bfloat16_t, float (as tf32, to which copies round), ACC_TYPE float, OUT_TYPE half_t, bfloat16_t or
//     float; A_STORED and B_STORED e4m3_t or e5m2_t where IN_TYPE is half_t; IN_TYPE i8, ACC_TYPE i32, OUT_TYPE also
//     i32 and i8. E = bytes of A_STORED; E != 2: A_LAYOUT 0 and B_LAYOUT 0
//   1 <= CONSUMERS <= 3, BLOCK_M % (64 * CONSUMERS) == 0, BLOCK_M <= 256; TILES_M = BLOCK_M / (64 * CONSUMERS);
//   PERSISTENT 0, 1 or 2; 2: CONSUMERS >= 2, BLOCK_M % 64 == 0, TILES_M = BLOCK_M / 64; any grid up to a block per tile
//   STREAM 0, or 1: PERSISTENT 1, CLUSTER 0, SPLIT 0, A_WINDOW 0, B_WINDOW 0
//   GATE 0, or a gate: BLOCK_N % 32 == 0, with B_LAYOUT 1 % 128, SPLIT 0, STREAM 0, CLUSTER 0 or 2, A_WINDOW 0,
//     B_WINDOW 0; COLUMNS = BLOCK_N / 2 then, else BLOCK_N
//   PARTS 1, or 3: IN_TYPE bfloat16_t, OUT_TYPE float, A_LAYOUT 0, B_LAYOUT 0, BLOCK_K 64, STREAM 0, GATE 0
//   RAGGED_ROWS 0, or 1 (ragged.cuh): CLUSTER 0 or 2, STORE_COPIES 0, SPLIT 0, STREAM 0, GATE 0, PARTS 1, A_WINDOW 0,
//     B_WINDOW 0; params.batch are the groups, the grid has tiles_m * tiles_n tiles
//   NORM 0, or 1 or 2 (norm.cuh): SPLIT 1, for one part of k too, EPILOGUE_CODES 0, PARTS 1, GATE 0, RAGGED_ROWS 0,
//     A_WINDOW 0, B_WINDOW 0
//   BLOCK_SCALED 0, or 1 (wgmma_scales.cuh): 8-bit floats, SCALES_OF_B <= 2, GATE 0, RAGGED_ROWS 0, NORM 0, A_WINDOW 0,
//     B_WINDOW 0; d are the scales of A, and the fourth operand those of B
//   CLUSTER 0, 1 or 2; else grids are whole pairs of blocks, and params.tiles_m, tiles_n and raster count pairs
//   BLOCK_N % 16 == 0 and <= 256; B_LAYOUT 1: BLOCK_N % 64 == 0; 2 <= STAGES <= 8
//   BLOCK_K * E 128 or 256, with 8-bit floats 128
//   1 <= MIN_BLOCKS: registers at entry = min(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256), of a multiplying thread
//     min(240, (entry * (CONSUMERS + 1) - (CONSUMERS == 3 ? 32 : 40)) / CONSUMERS / 8 * 8), or 255 where that many are
//     there at entry; sums, TILES_M * BLOCK_N / 2, with 8-bit floats or PARTS 3 (TILES_M + 1) * BLOCK_N / 2, are at
//     least 32 fewer, with PERSISTENT or STORE_COPIES 64; with BLOCK_SCALED 12 + 4 * TILES_M more, where
//     128 % BLOCK_N != 0 14 + 6 * TILES_M
//   A_WINDOW 0, or 1: A_LAYOUT 0; b is filters, a tap behind the other along k
//   B_WINDOW 0, or 1 where A_WINDOW is 0: PACKED 2 or PARTS 3, A_LAYOUT 0, B_LAYOUT 0
//   STORE_COPIES 0, or 1: EPILOGUE_STAGED 0, SPLIT 0, C_UNIT 1, COLUMNS * O % 128 == 0; c and its strides are multiples
//     of 16 bytes
//   O <= C_VECTOR <= 16; C_UNIT 0 needs C_VECTOR == O; EPILOGUE_STAGED 0 stores at most two adjacent outputs at a time
//   a and b, their strides and the extents along their unit strides are multiples of 16 bytes; k_per_split % BLOCK_K ==
//   0
//
// Shared bytes = 1024 + max(STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K * E * PARTS,
//   EPILOGUE_STAGED ? CONSUMERS * 256 * WARP_N : STORE_COPIES ? CONSUMERS * 16384 : 0), WARP_N = COLUMNS, or half of
//   them above 128; with PERSISTENT the sum of both, WARP_N = the first of 64, 48, 32, 16 that divides COLUMNS
//
// Bank conflicts: none.
#pragma parameter IN_TYPE half_t // elements of A and B: half_t, bfloat16_t, float (as tf32), i8
#ifndef A_STORED
#define A_STORED                                                                                                       \
    IN_TYPE // those of A where IN_TYPE would hold them too: e4m3_t, e5m2_t, which are multiplied as they are
#endif
#pragma parameter B_STORED IN_TYPE  // the same for B
#pragma parameter OUT_TYPE half_t   // elements of C: half_t, bfloat16_t, float, i32, i8
#pragma parameter ACC_TYPE float    // accumulators: float; i32 for i8 operands
#pragma parameter A_LAYOUT 0        // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1        // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_WINDOW 0        // 1: A is an image under a window whose k is (filter row, filter column, channel)
#pragma parameter B_WINDOW 0        // 1: the same for B, of a packed image
#pragma parameter PARTS 1           // 3: each element of A and B is the sum of so many
#pragma parameter GATE 0            // the curve of a gated product, a code of epilogue.cuh; 0: a plain product
#pragma parameter GATE_BIAS 0       // 1: both products get a bias first
#pragma parameter BLOCK_SCALED 0    // 1: A has a scale per row and 128 elements of k, B one per 128 x 128
#pragma parameter NORM 0            // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter C_UNIT 1          // 1: the columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16       // bytes per global access of C
#pragma parameter BLOCK_M 128       // rows of C per block
#pragma parameter BLOCK_N 128       // columns of a product: of C per block, or with GATE twice as many
#pragma parameter BLOCK_K 64        // extent of one step of the main loop along k
#pragma parameter STAGES 4          // shared buffers
#pragma parameter CONSUMERS 2       // warpgroups that multiply
#pragma parameter PERSISTENT 0      // 1: blocks walk tiles; 2: warpgroups take these in turn
#pragma parameter STREAM 0          // 1: blocks share the steps of k of all tiles (stream_k.cuh) and are all resident
#pragma parameter CLUSTER 0         // 1: pairs of blocks side by side along m share tiles of B; 2: along n, tiles of A
#pragma parameter SPLIT 0           // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter STORE_COPIES 0    // 1: through shared memory, by tensor copies
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1      // blocks per SM promised to the compiler

constexpr bool ALTERNATING = PERSISTENT == 2;
constexpr int THREADS = 128 * (CONSUMERS + 1), TILES_M = BLOCK_M / (64 * (ALTERNATING ? 1 : CONSUMERS));
// Columns that go through a warp's slab at a time; a slab beside the ring is a small one. Boxes of copies are whole
// batches of four fragments.
constexpr int COLUMNS = GATE ? BLOCK_N / 2 : BLOCK_N; // of C
constexpr int SMALL_N = COLUMNS % 64 == 0 ? 64 : COLUMNS % 48 == 0 ? 48 : COLUMNS % 32 == 0 ? 32 : 16;
constexpr int SLAB_N = PERSISTENT ? SMALL_N : COLUMNS > 128 ? COLUMNS / 2 : COLUMNS;
constexpr int WARP_N = STORE_COPIES ? 32 : SLAB_N, FRAGMENTS_N = WARP_N / 8;

#include "wgmma_tiles.cuh"
#if NORM
#include "norm.cuh"
#endif

static_assert(CONSUMERS >= 1 && CONSUMERS <= 3, "One to three warpgroups multiply.");
static_assert(BLOCK_M % 64 == 0 && TILES_M * 64 * (ALTERNATING ? 1 : CONSUMERS) == BLOCK_M && BLOCK_M <= 256,
              "Every warpgroup has whole tiles of 64 rows.");
static_assert(BLOCK_N % (B_LAYOUT ? 64 : 16) == 0 && BLOCK_N <= 256,
              "A block has 16 to 256 columns, in steps of 16, or of 64 where B is N-contiguous.");
static_assert(BLOCK_K * ELEMENT == 128 || (BLOCK_K * ELEMENT == 256 && !PROMOTED),
              "A step of k is one or two rows of 128 bytes, one of 8-bit floats.");
static_assert(ELEMENT == 2 || (TileA::K_CONTIGUOUS && TileB::K_CONTIGUOUS), "Only 16-bit rows of k are multiplied.");
static_assert(ELEMENT == sizeof(B_STORED), "Both operands have elements of one size.");
static_assert(A_WINDOW == WINDOW_NONE || (A_WINDOW == WINDOW_CHANNELS_LAST && TileA::K_CONTIGUOUS),
              "An image's channels are contiguous.");
static_assert(B_WINDOW == WINDOW_NONE || (B_WINDOW == WINDOW_CHANNELS_LAST && (PACKED || PARTS > 1) &&
                                          TileA::K_CONTIGUOUS && TileB::K_CONTIGUOUS),
              "Columns are pixels of packed or divided images, whose filters are packed or divided as well.");
static_assert(A_WINDOW == WINDOW_NONE || B_WINDOW == WINDOW_NONE, "One operand is an image.");
static_assert(PERSISTENT >= 0 && PERSISTENT <= 2 && (!ALTERNATING || CONSUMERS > 1),
              "Blocks walk tiles or not, and several warpgroups can take them in turn.");
static_assert(!STREAM || (PERSISTENT == 1 && !CLUSTER && !SPLIT && A_WINDOW == WINDOW_NONE && B_WINDOW == WINDOW_NONE),
              "A stream's blocks walk shares of a plain product.");
static_assert(!GATE || (COLUMNS % (B_LAYOUT ? 64 : 16) == 0 && !SPLIT && !STREAM && CLUSTER != 1 &&
                        A_WINDOW == WINDOW_NONE && B_WINDOW == WINDOW_NONE),
              "A gated product has whole boxes of both matrices, which no pair of blocks shares, and all of k.");
static_assert(PARTS == 1 || (PARTS == 3 && same_type<IN_TYPE, bfloat16_t> && same_type<OUT_TYPE, float> &&
                             TileA::K_CONTIGUOUS && TileB::K_CONTIGUOUS && BLOCK_K == UNIT && !STREAM && !GATE),
              "Parts of floats are bfloat16, a box of each to a step.");
static_assert(!RAGGED_ROWS || (CLUSTER != 1 && !STORE_COPIES && !SPLIT && !STREAM && !GATE && PARTS == 1 &&
                               A_WINDOW == WINDOW_NONE && B_WINDOW == WINDOW_NONE),
              "Tiles of groups have matrices of their own, and end where the next group begins.");
static_assert(!BLOCK_SCALED || (PROMOTED && BLOCK_K == SCALED_COLUMNS && SCALES_OF_B <= 2 && !GATE && !RAGGED_ROWS &&
                                !NORM && A_WINDOW == WINDOW_NONE && B_WINDOW == WINDOW_NONE),
              "A plain product of 8-bit floats is scaled, a step at a time by one scale of B or two.");
static_assert(!NORM || (SPLIT && PARTS == 1), "Rows are normalised where all of them are: in the workspace.");
static_assert(CLUSTER >= 0 && CLUSTER <= 2, "A cluster is a pair of blocks along m or n.");
static_assert(STAGES >= 2 && STAGES <= 8, "The ring has 2 to 8 buffers.");
static_assert(!STORE_COPIES || (COLUMNS * sizeof(OUT_TYPE) % 128 == 0 && !EPILOGUE_STAGED && !SPLIT && C_UNIT),
              "Copies store whole rows of 128 bytes.");
static_assert(MIN_BLOCKS >= 1, "Registers change hands only where the launch bounds say how many there are.");
static_assert(C_UNIT || C_VECTOR == sizeof(OUT_TYPE), "Columns of C that are not adjacent are stored one by one.");
static_assert(PROMOTED ? same_type<IN_TYPE, half_t> && is_eight_bit_float<B_STORED>
                       : same_type<A_STORED, IN_TYPE> && same_type<B_STORED, IN_TYPE>,
              "8-bit floats are multiplied by one another, the other types by themselves.");
static_assert(same_type<IN_TYPE, i8> ? same_type<ACC_TYPE, i32> : same_type<ACC_TYPE, float>,
              "Integers accumulate in i32, the others in float.");

// Registers of each thread at entry, and after the exchange.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = CONSUMERS == 3 ? 32 : 40;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);
static_assert((TILES_M + SHORT_SUMS) * BLOCK_N / 2 + (PERSISTENT || STORE_COPIES ? 64 : 32) +
                      (BLOCK_SCALED ? 10 + 2 * SCALES_OF_B + 2 * (1 + SCALES_OF_B) * TILES_M : 0) <=
                  (ENTRY > 240 ? 255 : TAKEN),
              "The sums do not fit the registers.");

// Sets a block up before it touches global memory, while a launch in front may still run.
DEVICE void set_up(const MappedParams &params) {
    if constexpr (SPLIT)
        launch_dependents();
    if (warp_uniform(thread_index() / 32) == 0 && elect_one()) {
        prefetch_maps(params);
        make_ring();
    }
    if constexpr (CLUSTER)
        cluster_begin();
    else
        barrier();
}

DEVICE void compute_tiles(const MappedParams &params) {
    const int group = warp_uniform(thread_index() / 128); // else descriptors are taken from every lane
    if (group == 0) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp_uniform(thread_index() / 32) == 0)
            produce_tiles(params);
        leave_ring();
        leave_cluster();
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        multiply_tiles(params, group - 1);
        leave_cluster();
    }
}

#if CLUSTER
#define WGMMA_KERNEL(name) CLUSTERED_KERNEL(name, MappedParams, THREADS, MIN_BLOCKS, PEERS)
#else
#define WGMMA_KERNEL(name) KERNEL(name, MappedParams, THREADS, MIN_BLOCKS)
#endif

#ifndef BEHIND_ANOTHER
WGMMA_KERNEL(contraction_wgmma) {
    set_up(params);
    compute_tiles(params);
}
#endif
