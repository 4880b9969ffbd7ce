// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) where one of m and n is small: GEMV and skinny products, batched.
//
// Their limit is how fast the large operand, the weights, comes from memory: it is read once, in wide accesses
// straight into registers, while the small one, x, is reused. Names below: the long axis is the weights' own (n where
// WEIGHTS is 0, m where it is 1), the small axis that of x.
//
//   W_COLUMNS 0: weights contiguous along k (or of any strides). THREADS_K neighbouring threads share ROWS rows of the
//     long axis; their sums meet by shuffles, each lane keeping a share of them, then across warps.
//   W_COLUMNS 1: weights contiguous along the long axis. THREADS_L threads side by side take `elements` entries of it
//     each, THREADS_K of them share an entry and take ITEMS adjacent k of a step each.
//
// A step of k is THREADS_K * ITEMS * (W_COLUMNS ? 1 : elements). With X_SHARED, the block brings x of a step,
// converted, into one of two shared buffers, behind the loads of the weights and in front of one barrier; without it,
// every thread reads what it needs of x itself. Sums of threads that share outputs meet in shared memory and are added
// in a fixed order; with SPLIT they go to the workspace and contraction_reduce adds them: the same bits on every run.
//
// Legal Programs (element = size of IN_TYPE, word = size of ACC_TYPE, elements = W_VECTOR / element, x_elements =
// X_VECTOR / element, entries = W_COLUMNS ? elements : ROWS):
//   THREADS_K, THREADS_L, ROWS, ITEMS powers of two, 32 <= THREADS_K * THREADS_L <= 1024; W_COLUMNS 1: ROWS 1, X_SHARED
//   1 W_VECTOR at most the alignment class of the weights, X_VECTOR that of x; without a unit stride, one element
//   x_elements divides the step, and elements where X_SHARED is 0; C_VECTOR / size of OUT_TYPE divides the block's
//   columns, and entries where WEIGHTS is 0; k_per_split % step == 0
//   SMALL * entries * word <= 512; ROWS * ITEMS * W_VECTOR <= 256
//   PROLOGUE: WEIGHTS 0, X_SHARED 1
//   X_SHARED 0: SMALL * ITEMS * elements * element <= 128; else loads of x per thread and step (X_LOADS) * X_VECTOR <=
//   128
//
// Shared bytes = max(X_SHARED ? 2 * SMALL * step * word : 0, scratch), scratch = word *
//   W_COLUMNS 0: words = max(1, THREADS_K / 32) * THREADS_L * SMALL * ROWS, and 16 / word for every 128 / word of them
//   W_COLUMNS 1: THREADS_K * part, with banks = 128 / word, piece = min(elements, 16 / word), pieces = elements /
//   piece,
//     words = round * pieces * (THREADS_L * piece + (pieces > 1 ? banks / pieces : 0)),
//     part = words + (THREADS_L * piece < banks ? (THREADS_L * piece - words) mod banks : 0),
//     round = SMALL where that makes at most 32 KB, else 1

#include "product_options.cuh"
#pragma parameter IN_TYPE float  // elements of A and B: half_t, bfloat16_t, float, double, i8, c64, c128
#pragma parameter OUT_TYPE float // elements of C: the same, and i32
#pragma parameter ACC_TYPE float // what is summed: float, double, i32, c64, c128
#pragma parameter WEIGHTS 0      // the operand that is streamed: 0 = B, 1 = A
#pragma parameter W_COLUMNS 0    // contiguous axis of the weights: 0 = k, 1 = the long axis
#pragma parameter W_UNIT 1       // 1: that axis has stride 1; 0: its stride is in Params
#pragma parameter X_UNIT 1       // 1: x has stride 1 along k
#pragma parameter W_VECTOR 16    // bytes per global load of the weights
#pragma parameter X_VECTOR 16    // bytes per global load of x
#pragma parameter THREADS_K 32   // threads that share an output
#pragma parameter THREADS_L 8    // threads (groups of THREADS_K) along the long axis
#pragma parameter ROWS 1         // rows of the weights per thread (W_COLUMNS 0)
#pragma parameter SMALL 1        // entries of the small axis per block
#pragma parameter ITEMS 2        // loads per thread, step and row, all under way at once
#pragma parameter X_SHARED 1     // 1: x of a step comes through shared memory; 0: straight into registers

#include "gemv_store.cuh"

static_assert(power_of_two(THREADS_K) && power_of_two(THREADS_L), "Threads come in powers of two.");
static_assert(power_of_two(ROWS) && power_of_two(ITEMS), "Rows and loads of a thread come in powers of two.");
static_assert(THREADS >= 32 && THREADS <= 1024, "A block must have 1 to 32 whole warps.");
static_assert(FORM != 3, "Weights are multiplied as they are.");
static_assert(!W_COLUMNS || (ROWS == 1 && X_SHARED && W_UNIT), "Columns are adjacent, and share x.");
static_assert(W_UNIT || ELEMENTS == 1, "Without a unit stride, weights are loaded element by element.");
static_assert(X_UNIT || X_ELEMENTS == 1, "Without a unit stride, x is loaded element by element.");
static_assert(STEP % X_ELEMENTS == 0, "Loads of x must fill a step.");
static_assert(!PROLOGUE || (INLINED_A && !WEIGHTS && X_SHARED), "A prologue is that of x in shared memory.");
static_assert(COUNT * WORD <= 512, "A thread's sums must fit its registers.");
static_assert((WEIGHTS ? SMALL : ENTRIES) % C_WIDTH == 0, "Stores into C must fill a thread's columns.");

DEVICE void multiply_tile(const Params &params, const Tile &tile, const Spot &spot, ACC_TYPE (&sums)[COUNT]) {
    Source source = begin_source(params, tile, spot);
    [[maybe_unused]] PreparingX preparing(params, tile.batch);
    sptr<ACC_TYPE> buffer = shared_base().as<ACC_TYPE>(), other = buffer + SMALL * STEP;
    for (i32 k = tile.k_begin; within(k, tile.k_end); k += STEP) {
        const Remaining left = {tile.k_end - k, spot.small_left, spot.long_left};
        Vec<W_VECTOR> weights[LOADS];
        load_weights(source, spot, left, weights);
#if X_SHARED
        stage_input(source, left, tile.k_end, preparing, buffer);
        // One barrier per step: who is past it has used the buffer that the next step writes.
        barrier();
        multiply_step(weights, buffer, spot, sums);
        const sptr<ACC_TYPE> used = buffer;
        buffer = other;
        other = used;
#else
        Vec<X_VECTOR> x[X_PIECES];
        load_input(source, spot, left, x);
        multiply_step(weights, x, sums);
#endif
        source.weights = source.weights + STEP * source.w_k;
        source.x = source.x + STEP * source.x_k;
    }
}

KERNEL(gemv, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, STEP);
    const Spot spot = find_spot(params, tile);
    ACC_TYPE sums[COUNT] = {};
    multiply_tile(params, tile, spot, sums);
    store_sums(params, tile, spot, sums);
}
