// C[m, n] = epilogue(sum over k of f(A[m, k]) * B[k, n]) on Hopper's warpgroup products (contraction_wgmma.cu), where f
// is a prologue: element-wise operations on A (prologue.cuh).
//
// Everything but the main loop is contraction_wgmma's. Rows of A go from shared memory through the prologue into
// registers, from which products take them; each element is prepared once per block (prologue_products.cuh).
//
// Legal Programs: those of contraction_wgmma.cu with IN_TYPE half_t or bfloat16_t, A_STORED and B_STORED the same,
//   A_WINDOW 0, B_WINDOW 0, PARTS 1, GATE 0, RAGGED_ROWS 0, NORM 0, STREAM 0, PERSISTENT 0 or 1, and further
//   PROLOGUE not 0; D_TYPE, E_TYPE IN_TYPE or float; TILES_M * BLOCK_K <= 256
//   registers of a multiplying thread: sums, elements and vectors, TILES_M * (BLOCK_N / 2 + BLOCK_K * 5 / 8) +
//     V * BLOCK_K / 32, V = 2 for each vector of 16 bits, 4 for each of 32 bits, are at least 24 fewer, with PERSISTENT
//     or STORE_COPIES 56; BLOCK_N / 2 + 34 <= registers at entry
//
// Bank conflicts: none.
#ifndef PROLOGUE
#define PROLOGUE 5 // operations on the elements of A before they are multiplied (prologue.cuh), as in EPILOGUE_CODES
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

#define BEHIND_ANOTHER // this kernel has the name
#include "contraction_wgmma.cu"
#include "prologue_products.cuh"

static_assert(same_type<A_STORED, half_t> || same_type<A_STORED, bfloat16_t>, "Prepared elements have 16 bits.");
static_assert(A_WINDOW == 0 && B_WINDOW == 0 && PARTS == 1 && !GATE && !RAGGED_ROWS && !NORM && !STREAM && !ALTERNATING,
              "Matrices are prepared, for products of blocks that walk tiles or have one.");
static_assert(PROLOGUE != 0, "A prologue has operations.");
static_assert(TILES_M * BLOCK_K <= 256, "Elements that are prepared together fit the registers.");

constexpr int OF_VECTORS = (VECTORS > 0 ? (int)sizeof(D_TYPE) : 0) + (VECTORS > 1 ? (int)sizeof(E_TYPE) : 0);
static_assert(TILES_M * (BLOCK_N / 2 + BLOCK_K * 5 / 8) + OF_VECTORS * BLOCK_K / 32 +
                      (PERSISTENT || STORE_COPIES ? 56 : 24) <=
                  (ENTRY > 240 ? 255 : TAKEN),
              "Sums, elements and vectors do not fit the registers.");
static_assert(BLOCK_N / 2 + 34 <= ENTRY, "The operands of one product do not fit the registers at entry.");

// A warpgroup multiplies its rows of every tile.
DEVICE void multiply_prepared(const MappedParams &params, int group) {
    const int row = group * 64 * TILES_M;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int) {
        prefetch_tile(params, tile, row);
        Sums sums = {};
        PreparedMath math(params, tile, row);
        math.multiply(sums, steps_of(params, tile).count, turn);
        leave_ring();
        finish_group(params, tile, row, sums);
    });
    leave_boxes();
}

WGMMA_KERNEL(contraction_prologue_wgmma) {
    set_up(params);
    const int group = warp_uniform(thread_index() / 128); // else descriptors are taken from every lane
    if (group == 0) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp_uniform(thread_index() / 32) == 0)
            produce_tiles(params);
        leave_ring();
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        multiply_prepared(params, group - 1);
    }
    leave_cluster();
}
