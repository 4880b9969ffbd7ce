// C = epilogue(operation of A along k): reductions of rows, and maps such as softmax whose elements need their row's.
//
// A row is what is folded into one result: its elements lie along k, which has up to three digits (outer, middle,
// inner; several reduced axes that are not adjacent). LAYOUT 0: a row is contiguous along k (or, with A_UNIT 0, has any
// stride), and THREADS_K neighbouring threads share it; a block takes THREADS_M rows. LAYOUT 1: rows are the columns
// of a matrix, neighbours in memory: THREADS_M threads side by side take `elements` columns each, THREADS_K of them
// share a column. COPY has no fold: it is the epilogue alone, each part of the split one step long.
//
//   reductions   C[batch, m, n] = finish(fold over k of A[batch, m, k, n]); n = 1 with LAYOUT 0
//   maps         C[batch, m, k] = map(A[batch, m, k], folds of the row);  n = k           (LAYOUT 0)
//                C[batch, k, n] = map(A[batch, k, n], folds of the column); m = k         (LAYOUT 1)
//
// A step of a row is THREADS_K * ITEMS accesses of VECTOR bytes. Folds join in a fixed order: within a thread pairwise,
// then step by step, then lanes, then warps, then the parts of a split, which rows_reduce joins in a second launch:
// the same bits on every run. A pass over a row that needs it again finds it in registers (KEEP 1), in shared memory
// (KEEP 2), or reads x once more (KEEP 0), mostly from the L2 cache. ONLINE folds need one pass where ONLINE 0 takes a
// maximum or a mean first and sums exponentials or squares relative to it in a second pass.
//
// Legal Programs (element = size of IN_TYPE, word = size of ACC_TYPE, elements = VECTOR / element):
//   THREADS_K, THREADS_M powers of two, 32 <= THREADS_K * THREADS_M <= 1024; ITEMS in 1, 2, 4, 8
//   VECTOR in 1 to 16, >= element, at most the alignment class of A; A_UNIT 0 needs VECTOR == element
//   elements * ITEMS * word <= 256
//   KEEP 1, 2: Programs of more than one pass, no split, DIGITS 1; KEEP 1: k <= STEP = THREADS_K * ITEMS * (LAYOUT ? 1
//   : elements) SPLIT needs ONLINE where the operation has two forms; k_per_split % STEP == 0 DIGITS 3 needs an
//   operation that is no map
//
// Shared bytes = scratch(first pass) + (two passes ? scratch(second pass) : 0) + (KEEP == 2 ? kept : 0)
//   scratch = round_up(states * words * word, 16), states = LAYOUT 1: THREADS_K > 1 ? THREADS * elements : 0
//     LAYOUT 0: THREADS_K > 32 ? THREADS / 32 : 0; words = 1, 2 (arg, softmax online) or 3 (variance online)
//   kept = ceil(k / STEP) * ITEMS * THREADS * VECTOR

#pragma parameter IN_TYPE float  // elements of A: half_t, bfloat16_t, float, double, i8, i32
#pragma parameter OUT_TYPE float // elements of C: the same, and i64
#pragma parameter ACC_TYPE float // what is folded: float, double, i32, i64
#pragma parameter OPERATION 1    // RowOperation in rows_fold.cuh
#pragma parameter LAYOUT 0       // 0: rows along k; 1: columns, adjacent in memory
#pragma parameter A_UNIT 1       // 1: neighbours along k (LAYOUT 0) lie side by side; 0: their stride is in Params
#pragma parameter C_UNIT 1       // the same for the outputs: along k of maps of rows, else along columns
#pragma parameter DIGITS 1       // digits of k: 1 or 3
#pragma parameter VECTOR 16      // bytes per global load of A
#pragma parameter C_VECTOR 16    // most bytes per global store of C
#pragma parameter THREADS_K 32   // threads of a row (column)
#pragma parameter THREADS_M 8    // rows (groups of columns) of a block
#pragma parameter ITEMS 1        // loads per thread and step, all under way at once
#pragma parameter KEEP 0   // between passes: 0 = read x again, 1 = the row stays in registers, 2 = in shared memory
#pragma parameter ONLINE 1 // 1: one pass, states that carry their own maximum or mean; 0: two passes
#pragma parameter SPLIT 0  // 1: blocks fold parts of a row into the workspace, rows_reduce joins them
#pragma parameter EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "rows_finish.cuh"

DEVICE constexpr bool power_of_two(int value) {
    return value > 0 && (value & (value - 1)) == 0;
}
static_assert(power_of_two(THREADS_K) && power_of_two(THREADS_M), "Threads of rows and blocks are powers of two.");
static_assert(THREADS >= 32 && THREADS <= 1024, "A block must have 1 to 32 whole warps.");
static_assert(power_of_two(ITEMS), "The elements of a step are joined in pairs.");
static_assert(ELEMENTS >= 1, "A global load must bring at least one element.");
static_assert(A_UNIT || ELEMENTS == 1, "Without a unit stride, x is loaded element by element.");
static_assert(COUNT * WORD <= 256, "A thread's elements of one step must fit its registers.");
static_assert(KEEP == 0 || TWO_PASSES || (MAPS && OPERATION != COPY), "Only rows that are needed again are kept.");
static_assert(!SPLIT || (KEEP == 0 && !TWO_PASSES), "A split row has one pass per launch.");
static_assert(DIGITS == 1 || !MAPS, "Maps take k as one axis.");

// The states of the thread's rows after one pass.
template <int FOLD, bool AGAIN>
DEVICE void fold_pass(const Params &params, const Spot &spot, Chunk &chunk, State<FOLD> (&states)[WIDTH],
                      const ACC_TYPE (&center)[WIDTH]) {
    UNROLL for (int c = 0; c < WIDTH; ++c) states[c] = neutral<FOLD>();
    each_chunk<AGAIN>(params, spot, chunk, [&](Chunk &here) {
        if constexpr (AGAIN && HOLDS_TERMS) {
            hold_terms(here, center);
            const ACC_TYPE none[WIDTH] = {};
            absorb_chunk(states, here, none);
        } else {
            absorb_chunk(states, here, center);
        }
    });
    join_threads(states, spot, AGAIN ? SECOND_SCRATCH : 0);
}

// The second of two passes: `totals` of the first hold a sum or a maximum.
DEVICE void second_pass(const Params &params, const Spot &spot, Chunk &chunk, Totals &totals) {
    UNROLL for (int c = 0; c < WIDTH; ++c) totals.first[c] =
        MOMENTS ? totals.first[c] / ACC_TYPE(params.k) : totals.first[c];
    ACC_TYPE center[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) center[c] = EXPONENTIAL ? shift_of(totals.first[c]) : totals.first[c];
    State<SECOND_FOLD> states[WIDTH];
    fold_pass<SECOND_FOLD, true>(params, spot, chunk, states, center);
    UNROLL for (int c = 0; c < WIDTH; ++c) totals.second[c] = states[c].word[0];
}

KERNEL(rows, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Spot spot = find_spot(params);
    Chunk chunk;
    if constexpr (OPERATION == COPY) {
        map_rows<false>(params, spot, Totals{}, chunk);
    } else {
        State<FIRST_FOLD> states[WIDTH];
        const ACC_TYPE center[WIDTH] = {};
        fold_pass<FIRST_FOLD, false>(params, spot, chunk, states, center);
#if SPLIT
        store_parts(params, spot, states);
#else
        Totals totals = totals_of(states);
        if constexpr (TWO_PASSES)
            second_pass(params, spot, chunk, totals);
        if constexpr (MAPS)
            map_rows<true>(params, spot, totals, chunk);
        else
            store_results(params, spot, totals);
#endif
    }
}

#if SPLIT
// Second launch of a split: joins the parts in order, then as many blocks as before for a map, else one per tile.
KERNEL(rows_reduce, Params, THREADS, 0) {
    grid_dependency_wait();
    const Spot spot = find_spot(params);
    State<FIRST_FOLD> states[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) states[c] = neutral<FIRST_FOLD>();
    load_parts(params, spot, states);
    join_threads(states, spot, 0);
    cover("split_reduce");
    Chunk chunk;
    if constexpr (MAPS)
        map_rows<true>(params, spot, totals_of(states), chunk);
    else
        store_results(params, spot, totals_of(states));
}
#endif
