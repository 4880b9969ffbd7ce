// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) where m or n is small: GEMV and skinny products, batched.
//
// Memory bandwidth for the large operand, the weights, limits these products. The weights are therefore read once, in
// wide accesses straight into registers, and the small operand, x, is reused. The long axis is that of the weights (n
// where WEIGHTS is 0, m where it is 1), and the small axis is that of x.
//
//   W_COLUMNS 0: weights are contiguous along k (or have any strides). THREADS_K neighbouring threads share ROWS rows
//   of
//     the long axis. Shuffles add their sums, so that each lane keeps a share of them; then warps add theirs.
//   W_COLUMNS 1: weights are contiguous along the long axis. Each of THREADS_L neighbouring threads takes ELEMENTS
//     entries of it. THREADS_K threads share an entry, and each takes ITEMS adjacent k of a step.
//
// A step of k is THREADS_K * ITEMS * (W_COLUMNS ? 1 : ELEMENTS). A thread loads its weights of a step; with X_SHARED,
// the block then copies x of the step, converted, to one of two shared buffers, and one barrier follows. Without it,
// every thread loads x itself. Sums of threads that share outputs are added through shared memory in a fixed order, so
// results are the same bits on every run. With SPLIT, the sums go to the workspace and contraction_reduce adds them.
//
// Shared bytes = max(X_SHARED ? 2 * SMALL * STEP * WORD : 0, words of scratch_word() * WORD)

#include "product_options.cuh"
#pragma parameter IN_TYPE float  // elements of A and B: half_t, bfloat16_t, float, double, i8, c64, c128
#pragma parameter OUT_TYPE float // elements of C: the same, and i32
#pragma parameter ACC_TYPE float // what is summed: float, double, i32, c64, c128
#pragma parameter WEIGHTS 0      // the operand that is read once: 0 = B, 1 = A
#pragma parameter W_COLUMNS 0    // contiguous axis of the weights: 0 = k, 1 = the long axis
#pragma parameter W_UNIT 1       // 1: that axis has stride 1; 0: its stride is in Params
#pragma parameter X_UNIT 1       // 1: x has stride 1 along k
#pragma parameter W_VECTOR 16    // bytes per global load of the weights
#pragma parameter X_VECTOR 16    // bytes per global load of x
#pragma parameter THREADS_K 32   // threads that share an output
#pragma parameter THREADS_L 8    // threads (groups of THREADS_K) along the long axis
#pragma parameter ROWS 1         // rows of the weights per thread (W_COLUMNS 0)
#pragma parameter SMALL 1        // entries of the small axis per block
#pragma parameter ITEMS 2        // loads per thread, step and row, all in flight at once
#pragma parameter X_SHARED 1     // 1: x goes through shared memory; 0: straight into registers
// 1: the launch may start before the previous one has ended, and fetches the weights of its first step into the L2
// while it waits for it. Weights may be what the previous launch stores: stores reach the L2.
#pragma parameter EARLY 0

#include "gemv_store.cuh"

// Sums the products of the tile's range of k.
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
        // One barrier per step: a thread past it no longer reads the buffer that the next step writes.
        barrier();
        if constexpr (W_COLUMNS)
            multiply_columns(weights, buffer, spot, sums);
        else
            multiply_rows(weights, buffer, spot, sums);
        const sptr<ACC_TYPE> used = buffer;
        buffer = other;
        other = used;
#else
        Vec<X_VECTOR> x[X_PIECES];
        load_input(source, spot, left, x);
        multiply_rows(weights, x, sums);
#endif
        source.weights = source.weights + STEP * source.w_k;
        source.x = source.x + STEP * source.x_k;
    }
}

KERNEL(gemv, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT || EARLY)
        launch_dependents();
    const Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, STEP);
    const Spot spot = find_spot(params, tile);
    if constexpr (EARLY) {
        fetch_weights(begin_source(params, tile, spot), spot, tile);
        grid_dependency_wait();
    }
    ACC_TYPE sums[COUNT] = {};
    multiply_tile(params, tile, spot, sums);
    store_sums(params, tile, spot, sums);
}
