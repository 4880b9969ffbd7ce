// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on the CUDA cores, batched, with any strides.
//
// The kernel serves every dtype: float and double always, and half, bfloat16 and int8 with layouts, alignments or sizes
// that the tensor-core family has no instruction for. Operands are converted to ACC_TYPE once per block, on their way
// into shared memory, so the main loop is the same for every dtype: wide shared loads and multiply-adds. The tiles in
// shared memory are A[k][m] and B[k][n]; an operand that is contiguous along k is transposed when it is stored there.
// Complex numbers are multiplied by four real multiply-adds, or by three (FORM, see product_forms.cuh). A_CONJUGATE and
// B_CONJUGATE conjugate an operand on its way into shared memory.
//
// A block has THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N) threads. A thread computes THREAD_M x THREAD_N
// outputs in VTHREAD_M x VTHREAD_N groups of adjacent rows and columns (virtual threads). The groups of a thread are
// BLOCK_M / VTHREAD_M rows and BLOCK_N / VTHREAD_N columns apart. A warp is LANES_M x (32 / LANES_M) threads, numbered
// along the columns first; warps are numbered along the rows first.
//
// Shared bytes = max(tiles, EPILOGUE_STAGED and not SPLIT ? slabs : 0), with words of the bytes of ACC_TYPE (FORM 3:
// half of that, in 3 planes), ROW_A = BLOCK_M + (PAD == 1 and A_LAYOUT == 0 ? 4 : 0), and ROW_B as ROW_A
//   tiles = STAGES * planes * (round_up(BLOCK_K * ROW_A * word, 128) + MATRICES * round_up(BLOCK_K * ROW_B * word,
//   128)) slabs = 2 * round_up(STORE_ROWS * BLOCK_M / THREAD_M * BLOCK_N * size of ACC_TYPE, 128); see simt_store.cuh
//
// Reads of fragments have no bank conflicts where one access reads a whole group of a thread's rows (columns). Stores
// that transpose have none with PAD 0 where the extent is a multiple of 128 / word, and with PAD 1, whose addresses are
// cheaper, where LANES (simt_tile.cuh) * elements per load == 32 / word or LANES == 1; otherwise two lanes conflict.
#include "simt_options.cuh"

#include "stream_k.cuh"

constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);

#include "simt_store.cuh"

// sums += the product over the tile's range of k. With two buffers, faster warps store the next step while slower warps
// multiply the current one, and one barrier per step is enough. With one buffer, a second barrier protects it until all
// warps have read it. Loads are issued a whole step before their values are stored.
DEVICE void multiply_tile(const Params &params, const Tile &tile, const ThreadPlace &place,
                          Sum (&sums)[MATRICES][THREAD_M * THREAD_N]) {
    constexpr bool B_COLUMNS = B_LAYOUT == 0;
    const FirstOperand from = first_operand(params, tile);
    const gptr<B_STORED> b_entry = gptr<B_STORED>(params.b) + batch_offset(params.b_batch, tile.batch);
    TileLoader<ShapeA> a(params, tile, from.entry, tile.row, tile.end, from.m, from.k);
    TileLoader<ShapeB> b(params, tile, b_entry, tile.column, params.n, B_UNIT && !B_COLUMNS ? 1 : params.b_n,
                         B_UNIT && B_COLUMNS ? 1 : params.b_k);
#if GATE
    TileLoader<ShapeB> other(params, tile, b_entry + params.gated.b_other, tile.column, params.n,
                             B_UNIT && !B_COLUMNS ? 1 : params.b_n, B_UNIT && B_COLUMNS ? 1 : params.b_k);
    other.load_step(params);
#endif
    sptr<TileWord> current = shared_base().as<TileWord>(), next = current + (STAGES - 1) * TILE_WORDS;
    a.load_step(params);
    b.load_step(params);
    store_step(a, current);
    store_step(b, current + ShapeA::WORDS);
#if GATE
    store_step(other, current + (ShapeA::WORDS + ShapeB::WORDS));
#endif
    barrier();
    for (int k = tile.k_begin; within(k, tile.k_end);) {
        k += BLOCK_K;
        if (k < tile.k_end)
            cover("steady");
        else
            cover("drain");
        // In the last step these loads and stores only bring zeros. They are not skipped: if the only use of a load
        // were after a branch, ptxas would move the load there, after the math that should hide its latency.
        a.load_step(params);
        b.load_step(params);
#if GATE
        other.load_step(params);
#endif
        multiply_step(sums, current, current + ShapeA::WORDS, place);
        if (STAGES == 1)
            barrier();
        store_step(a, next);
        store_step(b, next + ShapeA::WORDS);
#if GATE
        store_step(other, next + (ShapeA::WORDS + ShapeB::WORDS));
#endif
        barrier();
        const sptr<TileWord> read = current;
        current = next;
        next = read;
    }
}

DEVICE void compute_tile(const Params &params, const Tile &tile, const TileShare &share) {
    if (RAGGED_ROWS && tile.row == tile.end)
        return;
    const ThreadPlace place = thread_place();
    Sum sums[MATRICES][THREAD_M * THREAD_N] = {};
    multiply_tile(params, tile, place, sums);
    ACC_TYPE outputs[MATRICES][THREAD_M * THREAD_N];
    UNROLL for (int x = 0; x < MATRICES; ++x) resolve_sums(sums[x], outputs[x]);
    if (!joined<THREAD_M * THREAD_N, THREADS>(params, share, [&](int i) -> ACC_TYPE & { return outputs[0][i]; }))
        return;
#if GATE && SPLIT
    Tile other = tile; // the partial sums of the gate's other matrix follow those of the first
    other.part += params.split;
    store_sums_as_partials(params, other, place, outputs[1]);
#elif GATE
    gate_outputs(params, tile, place, outputs);
#endif
#if SPLIT
    store_sums_as_partials(params, tile, place, outputs[0]);
#elif NORM
    keep_sums(place, outputs[0]);
    barrier();
    finish_tile(params, tile);
#elif EPILOGUE_STAGED
    store_staged(params, tile, place, outputs[0]);
#else
    store_direct(params, tile, place, outputs[0]);
#endif
}

KERNEL(contraction_simt, Params, THREADS, MIN_BLOCKS) {
    if constexpr (MATERIALISED)
        grid_dependency_wait();
    if constexpr (SPLIT)
        launch_dependents();
    each_tile(params, [&](const Tile &tile, const TileShare &share) {
        compute_tile(params, tile, share);
        if constexpr (STREAM)
            barrier(); // the next tile overwrites the slabs of this tile's outputs
    });
}
