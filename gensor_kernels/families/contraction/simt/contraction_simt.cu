// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on the CUDA cores, batched, any strides.
//
// Serves every dtype: float and double always, half, bfloat16 and int8 where the tensor-core family cannot
// (layouts, alignments or sizes it has no instruction for). Operands are converted to ACC_TYPE on their way
// into shared memory, once per block, so that the hot loop is the same for every dtype: wide shared loads and
// multiply-adds. The tiles lie in shared memory as A[k][m] and B[k][n]; an operand that is contiguous along k
// is transposed on the way in. Complex numbers are multiplied by four real multiply-adds, or by three (FORM, see
// product_forms.cuh), and conjugated, where that is asked for, on their way into shared memory.
//
// Threads: THREADS = (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N). A thread computes THREAD_M x THREAD_N outputs
// in VTHREAD_M x VTHREAD_N groups of adjacent rows and columns (virtual threads); groups of one thread lie
// BLOCK_M / VTHREAD_M rows and BLOCK_N / VTHREAD_N columns apart. A warp is LANES_M x (32 / LANES_M) threads,
// the columns varying fastest; warps follow one another along M first.
//
// Legal Programs (element = size of IN_TYPE, word = size of ACC_TYPE, both in bytes; FORM 3: word = half of that,
// sum = 3 words and 3 planes, otherwise sum = 1 word and 1 plane):
//   BLOCK_M % THREAD_M == 0, BLOCK_N % THREAD_N == 0, THREAD_M % VTHREAD_M == 0, THREAD_N % VTHREAD_N == 0
//   THREADS % 32 == 0, 32 <= THREADS <= 1024
//   LANES_M in 1, 2, 4, 8, 16, 32; (BLOCK_M / THREAD_M) % LANES_M == 0; (BLOCK_N / THREAD_N) % (32 / LANES_M) == 0
//   FORM is 1 for real types, 3 or 4 for complex ones
//   MATERIALISED: PROLOGUE, PROLOGUE_OF_B 0, A_WINDOW 0
//   MASKED 1: A_WINDOW or B_WINDOW is 1 or 2, and rows and columns of the filter are 31 or fewer together
//   MATRICES * THREAD_M * THREAD_N * sum <= 768 (accumulators must fit the register file), MATRICES = 2 with GATE, else
//   1 MATRICES * FORM * THREAD_M * THREAD_N * BLOCK_K <= 1024 (the unrolled step, 16 bytes a multiply-add, must stay in
//   instruction caches) STAGES in 1, 2; PAD in 0, 1; X_VECTOR in 1, 2, 4, 8, 16 and >= element; X_UNIT 0 needs X_VECTOR
//   == element X_VECTOR / element divides BLOCK_K where X_LAYOUT is 0, else it divides that operand's block extent
//   global loads per thread, operand and step (LOADS below) <= 32
//   EPILOGUE_STAGED 1: BLOCK_N % (C_VECTOR / size of OUT_TYPE) == 0; k_per_split % BLOCK_K == 0
// with, for operand A of extent E = BLOCK_M (B: BLOCK_N) and V = X_VECTOR / element:
//   X_LAYOUT 0: LANES = gcd(BLOCK_K / V, clamp(32 / X_VECTOR, 1, 8)), INNER = BLOCK_K, OUTER = E
//   X_LAYOUT 1: LANES = gcd(E / V, THREADS), INNER = E, OUTER = BLOCK_K
//   LOADS = INNER / V / LANES * ceil(OUTER / (THREADS / LANES))
//
// Shared bytes = max(tiles, EPILOGUE_STAGED and not SPLIT ? slabs : 0)
//   tiles = STAGES * planes * (round_up(BLOCK_K * ROW_A * word, 128) + MATRICES * round_up(BLOCK_K * ROW_B * word,
//   128)),
//     ROW_A = BLOCK_M + (PAD == 1 and A_LAYOUT == 0 ? 4 : 0), ROW_B likewise
//   slabs = 2 * round_up(STORE_ROWS * BLOCK_M / THREAD_M * BLOCK_N * accumulator, 128), with accumulator = size of
//     ACC_TYPE, ROOM = (THREAD_M * THREAD_N * accumulator >= 256 ? 8 : 16), half of that for an accumulator of 16, and
//     STORE_ROWS = the largest of 4, 2, 1 that divides THREAD_M and has STORE_ROWS * THREAD_N <= ROOM (else 1)
//
// Bank conflicts. Fragments: a group of G = THREAD_M / VTHREAD_M (N likewise) adjacent values is read
// min(16, (G & -G) * word) bytes at a time; lanes of one row (column) of a warp read the same address, and the
// others lie G * word bytes apart: conflict-free where that is what one access reads. Transposing stores: PAD 0
// swizzles columns, conflict-free where the extent is a multiple of 128 / word; PAD 1 makes rows 4 words longer
// (cheaper addresses), conflict-free where LANES * V == 32 / word or LANES == 1, two-way otherwise. Other stores
// and the staged epilogue are conflict-free where a lane's V * word <= 16 bytes and 32 / LANES_M * G * word >= 128.

#include "simt_options.cuh"

#include "stream_k.cuh"

constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "Thread tiles must fill the block tile.");
static_assert(THREAD_M % VTHREAD_M == 0 && THREAD_N % VTHREAD_N == 0,
              "Virtual threads must share a thread's outputs evenly.");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "A block must have 1 to 32 whole warps.");
static_assert(LANES_M >= 1 && LANES_M <= 32 && 32 % LANES_M == 0, "LANES_M must divide the 32 lanes of a warp.");
static_assert(BLOCK_M / THREAD_M % LANES_M == 0, "Warps must fill the block tile along M.");
static_assert(BLOCK_N / THREAD_N % (32 / LANES_M) == 0, "Warps must fill the block tile along N.");
static_assert(STAGES == 1 || STAGES == 2, "Shared memory holds one or two buffers.");
static_assert(MATRICES * FORM * THREAD_M * THREAD_N * BLOCK_K <= 1024,
              "A step's unrolled multiply-adds must stay in instruction caches.");

#include "simt_store.cuh"

static_assert(A_UNIT || A_VECTOR == sizeof(A_STORED), "Without a unit stride, A is loaded element by element.");
static_assert(B_UNIT || B_VECTOR == sizeof(B_STORED), "Without a unit stride, B is loaded element by element.");
static_assert(MATRICES * THREAD_M * THREAD_N * sizeof(Sum) <= 768, "A thread's accumulators must fit its registers.");

// sums += the product over the tile's range of k. With two buffers the next step is stored while slower warps
// still multiply this one, and one barrier per step is enough; with one buffer, a second barrier keeps it until
// everybody has read it. Loads are issued a whole step before their values are stored.
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
        // In the last step these loads and stores only bring zeros. They are not skipped, because loads whose
        // only use is behind a branch are moved behind it by ptxas, after the math that should hide them.
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
#if RAGGED_ROWS
    if (tile.row == tile.end)
        return;
#endif
    const ThreadPlace place = thread_place();
    Sum sums[MATRICES][THREAD_M * THREAD_N] = {};
    multiply_tile(params, tile, place, sums);
    ACC_TYPE outputs[MATRICES][THREAD_M * THREAD_N];
    UNROLL for (int x = 0; x < MATRICES; ++x) resolve_sums(sums[x], outputs[x]);
    if (!joined<THREAD_M * THREAD_N, THREADS>(params, share, [&](int i) -> ACC_TYPE & { return outputs[0][i]; }))
        return;
#if GATE && SPLIT
    Tile behind = tile;
    behind.part += params.split;
    store_sums_as_partials(params, behind, place, outputs[1]);
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
#if MATERIALISED
    grid_dependency_wait();
#endif
    if constexpr (SPLIT)
        launch_dependents();
    each_tile(params, [&](const Tile &tile, const TileShare &share) {
        compute_tile(params, tile, share);
        if constexpr (STREAM)
            barrier(); // the next tile lies where this one's outputs passed through
    });
}
