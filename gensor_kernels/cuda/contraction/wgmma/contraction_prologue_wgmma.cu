// C[m, n] = epilogue(sum over k of f(A[m, k]) * B[k, n]) on Hopper's warpgroup products (wgmma, sm_90a), batched, where
// f is a prologue: element-wise operations on A (prologue.cuh).
//
// A block computes BLOCK_M x BLOCK_N outputs with CONSUMERS warpgroups of four warps that multiply, and one more of
// which one thread requests tiles, as in contraction_wgmma, whose ring, requests and stores this kernel has
// (wgmma_ring.cuh, wgmma_requests.cuh, wgmma_store.cuh). Rows of A go from shared memory through the prologue into
// registers, from which products take them; each element is prepared once per block (prologue_products.cuh).
//
// Legal Programs (THREADS = 128 * (CONSUMERS + 1), V = 2 for each vector of 16 bits, 4 for each of 32 bits):
//   IN_TYPE half_t or bfloat16_t; OUT_TYPE half_t, bfloat16_t, float; PROLOGUE not 0; D_TYPE, E_TYPE IN_TYPE or float
//   1 <= CONSUMERS <= 3, BLOCK_M % (64 * CONSUMERS) == 0, BLOCK_M <= 256; TILES_M = BLOCK_M / (64 * CONSUMERS)
//   BLOCK_N % 16 == 0 and <= 256; B_LAYOUT 1: BLOCK_N % 64 == 0; BLOCK_K 64 or 128, TILES_M * BLOCK_K <= 256
//   2 <= STAGES <= 8
//   1 <= MIN_BLOCKS: registers at entry = min(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256), of a multiplying thread
//     min(240, (entry * (CONSUMERS + 1) - (CONSUMERS == 3 ? 32 : 40)) / CONSUMERS / 8 * 8), or 255 where that many are
//     there at entry; sums, elements and vectors, TILES_M * (BLOCK_N + BLOCK_K / 2) / 2 + V * BLOCK_K / 32, are at least
//     64 fewer; BLOCK_N / 2 + 34 <= entry
//   sizeof(OUT_TYPE) <= C_VECTOR <= 16; C_UNIT 0 needs C_VECTOR == sizeof(OUT_TYPE); EPILOGUE_STAGED 0 stores at most
//     two adjacent outputs at a time
//   a and b, their strides and the extents along their unit strides are multiples of 16 bytes; k_per_split % BLOCK_K ==
//   0
//
// Shared bytes = 1024 + max(STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K * 2, EPILOGUE_STAGED ? CONSUMERS * 256 * WARP_N : 0),
//   WARP_N = BLOCK_N, or half of it above 128
//
// Bank conflicts: none.
#ifndef IN_TYPE
#define IN_TYPE half_t // elements of A and B: half_t, bfloat16_t
#endif
#ifndef OUT_TYPE
#define OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float
#endif
#ifndef ACC_TYPE
#define ACC_TYPE float // accumulators
#endif
#ifndef PROLOGUE
#define PROLOGUE 6 // operations on the elements of A before they are multiplied (prologue.cuh), as in EPILOGUE_CODES
#endif
#ifndef D_TYPE
#define D_TYPE float // elements of the prologue's first vector: half_t, bfloat16_t, float
#endif
#ifndef D_VECTOR
#define D_VECTOR 4 // bytes per global access of it, at most
#endif
#ifndef E_TYPE
#define E_TYPE float // the same of its second vector
#endif
#ifndef E_VECTOR
#define E_VECTOR 4
#endif
#ifndef A_LAYOUT
#define A_LAYOUT 0 // contiguous axis of A: 0 = K, 1 = M
#endif
#ifndef B_LAYOUT
#define B_LAYOUT 0 // contiguous axis of B: 0 = K, 1 = N
#endif
#ifndef C_UNIT
#define C_UNIT 1 // 1: the columns of C are adjacent; 0: their stride is in Params
#endif
#ifndef C_VECTOR
#define C_VECTOR 16 // bytes per global access of C
#endif
#ifndef BLOCK_M
#define BLOCK_M 128 // rows of C per block
#endif
#ifndef BLOCK_N
#define BLOCK_N 128 // columns of C per block
#endif
#ifndef BLOCK_K
#define BLOCK_K 64 // extent of one step of the main loop along k
#endif
#ifndef STAGES
#define STAGES 4 // shared buffers
#endif
#ifndef CONSUMERS
#define CONSUMERS 2 // warpgroups that multiply
#endif
#ifndef SPLIT
#define SPLIT 0 // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#endif
#ifndef EPILOGUE_STAGED
#define EPILOGUE_STAGED 1 // 0: results go to C straight from registers; 1: through shared memory, in wide stores
#endif
#ifndef EPILOGUE_CODES
#define EPILOGUE_CODES 0 // 0: operations from Params; else a compile-time list, see epilogue.cuh
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 1 // blocks per SM promised to the compiler
#endif

// What the shared headers know beside this: nothing of it serves a product behind a prologue.
#define A_STORED IN_TYPE
#define B_STORED IN_TYPE
#define A_WINDOW 0
#define B_WINDOW 0
#define PARTS 1
#define PERSISTENT 0
#define CLUSTER 0
#define STORE_COPIES 0
constexpr bool ALTERNATING = false;
constexpr int THREADS = 128 * (CONSUMERS + 1), TILES_M = BLOCK_M / (64 * CONSUMERS), COLUMNS = BLOCK_N;
constexpr int WARP_N = BLOCK_N > 128 ? BLOCK_N / 2 : BLOCK_N, FRAGMENTS_N = WARP_N / 8;

#include "prologue_products.cuh"
#include "wgmma_store.cuh"

static_assert(same_type<IN_TYPE, half_t> || same_type<IN_TYPE, bfloat16_t>, "Prepared elements have 16 bits.");
static_assert(PROLOGUE != 0, "A prologue has operations.");
static_assert(CONSUMERS >= 1 && CONSUMERS <= 3, "One to three warpgroups multiply.");
static_assert(TILES_M * 64 * CONSUMERS == BLOCK_M && BLOCK_M <= 256, "Every warpgroup has whole tiles of 64 rows.");
static_assert(BLOCK_N % (B_LAYOUT ? 64 : 16) == 0 && BLOCK_N <= 256,
              "A block has 16 to 256 columns, in steps of 16, or of 64 where B is N-contiguous.");
static_assert(BLOCK_K == 64 || BLOCK_K == 128, "A step of k is one or two rows of 128 bytes.");
static_assert(TILES_M * BLOCK_K <= 256, "Elements that are prepared together fit the registers.");
static_assert(STAGES >= 2 && STAGES <= 8, "The ring has 2 to 8 buffers.");
static_assert(MIN_BLOCKS >= 1, "Registers change hands only where the launch bounds say how many there are.");
static_assert(C_UNIT || C_VECTOR == sizeof(OUT_TYPE), "Columns of C that are not adjacent are stored one by one.");

// Registers of each thread at entry, and after the exchange.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = CONSUMERS == 3 ? 32 : 40;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);
constexpr int OF_VECTORS = (VECTORS > 0 ? (int)sizeof(D_TYPE) : 0) + (VECTORS > 1 ? (int)sizeof(E_TYPE) : 0);
static_assert(TILES_M * (BLOCK_N + BLOCK_K / 2) / 2 + OF_VECTORS * BLOCK_K / 32 + 64 <= (ENTRY > 240 ? 255 : TAKEN),
              "Sums, elements and vectors do not fit the registers.");
static_assert(BLOCK_N / 2 + 34 <= ENTRY, "The operands of one product do not fit the registers at entry.");

KERNEL(contraction_prologue_wgmma, MappedParams, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    if (warp_uniform(thread_index() / 32) == 0 && elect_one()) {
        prefetch_maps(params);
        make_ring();
    }
    barrier();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K, (u32)block_index());
    const int group = warp_uniform(thread_index() / 128); // else descriptors are taken from every lane
    if (group == 0) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        Turn turn;
        if (warp_uniform(thread_index() / 32) == 0)
            produce(params, tile, turn, elect_one());
        leave_ring();
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        const int row = (group - 1) * 64 * TILES_M;
        prefetch_tile(params, tile, row);
        Sums sums = {};
        PreparedMath math(params, tile, row);
        math.multiply(sums, steps_of(params, tile).count);
        leave_ring();
        finish_group(params, tile, row, sums);
    }
}
