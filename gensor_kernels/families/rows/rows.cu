// C = epilogue(operation on A along k): reductions of rows, and maps such as softmax that also need their row's folds.
//
//   reductions   C[batch, m, n] = finish(fold over k of A[batch, m, k, n]); n = 1 with LAYOUT 0
//   maps         C[batch, m, k] = map(A[batch, m, k], folds of the row);  n = k           (LAYOUT 0)
//                C[batch, k, n] = map(A[batch, k, n], folds of the column); m = k         (LAYOUT 1)
//   scans        the same, each element mapped to the fold of the row up to itself (rows_scan.cuh)
//
// A row is the set of elements that are folded into one result. Its axis k has up to three digits (outer, middle,
// inner), for several reduced axes that are not adjacent. With LAYOUT 0, a row is contiguous along k (or, with A_UNIT
// 0, has any stride): THREADS_K neighbouring threads share a row, and a block takes THREADS_M rows. With LAYOUT 1, rows
// are the columns of a matrix and adjacent in memory: each of THREADS_M neighbouring threads loads ELEMENTS columns per
// access, and THREADS_K threads share a column. COPY has no fold: it is the epilogue alone, and each part of its split
// is one step long.
//
// A thread loads ITEMS accesses of VECTOR bytes per step. Folds are joined in a fixed order, so results are the same
// bits on every run: pairwise within a thread, then step by step, then across lanes, warps and the parts of a split,
// which rows_reduce joins in a second launch. A second pass over a row finds it in registers (KEEP 1) or in shared
// memory (KEEP 2), or reads x again (KEEP 0), mostly from the L2 cache. ONLINE folds need one pass. With ONLINE 0, the
// first pass computes a maximum or a mean, and the second one sums exponentials or squares relative to it.

#pragma parameter IN_TYPE float  // elements of A: half_t, bfloat16_t, float, double, i8, i32
#pragma parameter OUT_TYPE float // elements of C: the same, and i64
#pragma parameter ACC_TYPE float // what is folded: float, double, i32, i64
#pragma parameter OPERATION 1    // RowOperation in rows_fold.cuh
#pragma parameter LAYOUT 0       // 0: rows along k; 1: columns, adjacent in memory
#pragma parameter A_UNIT 1       // 1: the stride along k (LAYOUT 0) is 1; 0: it is in Params
#pragma parameter C_UNIT 1       // the same for C: along k of maps of rows, else along columns
#pragma parameter DIGITS 1       // digits of k: 1 or 3
#pragma parameter VECTOR 16      // bytes per global load of A
#pragma parameter C_VECTOR 16    // most bytes per global store of C
#pragma parameter THREADS_K 32   // threads of a row (column)
#pragma parameter THREADS_M 8    // rows (groups of columns) of a block
#pragma parameter ITEMS 1        // loads per thread and step, all in flight at once
#pragma parameter KEEP 0   // between passes: 0 = x is read again, 1 = the row stays in registers, 2 = in shared memory
#pragma parameter ONLINE 1 // 1: one pass, whose states contain their maximum or mean; 0: two passes
#pragma parameter SPLIT 0  // 1: blocks fold parts of a row into the workspace, rows_reduce joins them
#pragma parameter EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#pragma parameter STAGED 0         // rows of a thread that are staged in shared memory (rows_staged.cuh); 0 = none are
#pragma parameter MIN_BLOCKS 0     // blocks per SM promised to the compiler; 0 = none

#include "rows_scan.cuh"
#include "rows_staged.cuh"

DEVICE constexpr bool power_of_two(int value) {
    return value > 0 && (value & (value - 1)) == 0;
}

// Computes the states of the thread's rows in one pass.
template <int FOLD, bool AGAIN>
DEVICE void fold_pass(const Params &params, const Spot &spot, Chunk &chunk, State<FOLD> (&states)[WIDTH],
                      const ACC_TYPE (&center)[WIDTH]) {
    UNROLL for (int c = 0; c < WIDTH; ++c) states[c] = neutral<FOLD>();
    for_each_chunk<AGAIN>(params, spot, chunk, [&](Chunk &elements) {
        if constexpr (AGAIN && HOLDS_TERMS) {
            hold_terms(elements, center);
            const ACC_TYPE none[WIDTH] = {};
            accumulate_chunk(states, elements, none);
        } else {
            accumulate_chunk(states, elements, center);
        }
    });
    join_threads(states, spot, AGAIN ? SECOND_SCRATCH : 0);
}

// The second of two passes. `totals.first` is a sum or a maximum from the first one.
DEVICE void second_pass(const Params &params, const Spot &spot, Chunk &chunk, Totals &totals) {
    UNROLL for (int c = 0; c < WIDTH; ++c) totals.first[c] =
        MOMENTS ? totals.first[c] / ACC_TYPE(params.k) : totals.first[c];
    ACC_TYPE center[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) center[c] = EXPONENTIAL ? shift_of(totals.first[c]) : totals.first[c];
    State<SECOND_FOLD> states[WIDTH];
    fold_pass<SECOND_FOLD, true>(params, spot, chunk, states, center);
    UNROLL for (int c = 0; c < WIDTH; ++c) totals.second[c] = states[c].word[0];
}

#if STAGED
// Folds a row that its thread has alone, and stores or maps it.
DEVICE void run_rows(const Params &params, const Spot &spot) {
    if constexpr (SCANS) {
        scan_rows<FIRST_FOLD>(params, spot);
        return;
    }
    Chunk chunk;
    State<FIRST_FOLD> states[1];
    const ACC_TYPE center[1] = {};
    fold_pass<FIRST_FOLD, false>(params, spot, chunk, states, center);
    Totals totals = totals_of(states);
    if constexpr (TWO_PASSES)
        second_pass(params, spot, chunk, totals);
    if constexpr (MAPS)
        map_rows<true>(params, spot, totals, chunk);
    else
        store_results(params, spot, totals);
}

KERNEL(rows, Params, THREADS, MIN_BLOCKS) {
    const Stage stage = find_stage(params);
    copy_rows<true>(params, stage);
    barrier();
    ROLLED for (i32 row = thread_index(); within(row, stage.rows); row += THREADS)
        run_rows(params, find_staged_spot(params, stage, row));
    if constexpr (MAPS) {
        barrier();
        copy_rows<false>(params, stage);
    }
}
#else
KERNEL(rows, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Spot spot = find_spot(params);
    Chunk chunk;
    if constexpr (OPERATION == COPY) {
        map_rows<false>(params, spot, Totals{}, chunk);
    } else if constexpr (SCANS && !SPLIT) {
        scan_rows<FIRST_FOLD>(params, spot);
    } else {
        State<FIRST_FOLD> states[WIDTH];
        const ACC_TYPE center[WIDTH] = {};
        fold_pass<FIRST_FOLD, false>(params, spot, chunk, states, center);
        if constexpr (SPLIT) {
            store_parts(params, spot, states);
            return;
        }
        Totals totals = totals_of(states);
        if constexpr (TWO_PASSES)
            second_pass(params, spot, chunk, totals);
        if constexpr (MAPS)
            map_rows<true>(params, spot, totals, chunk);
        else
            store_results(params, spot, totals);
    }
}
#endif

#if SPLIT
// Second launch of a split: joins the parts in order. A map has as many blocks as in the first launch, else one per
// tile.
KERNEL(rows_reduce, Params, THREADS, 0) {
    grid_dependency_wait();
    const Spot spot = find_spot(params);
    State<FIRST_FOLD> states[WIDTH];
    UNROLL for (int c = 0; c < WIDTH; ++c) states[c] = neutral<FIRST_FOLD>();
    load_parts(params, spot, states);
    join_threads(states, spot, 0);
    cover("split_reduce");
    Chunk chunk;
    if constexpr (SCANS)
        scan_rows(params, spot, states);
    else if constexpr (MAPS)
        map_rows<true>(params, spot, totals_of(states), chunk);
    else
        store_results(params, spot, totals_of(states));
}
#endif
