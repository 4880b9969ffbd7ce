// y = epilogue(3 x 3 convolution of x, stride 1) in float32 by Winograd's F(2 x 2, 3 x 3): Lavin and Gray, Fast
// algorithms for convolutional neural networks, arXiv:1509.09308; the block's shape follows Yan, Wang and Chu,
// Optimizing batched Winograd convolution on GPUs, PPoPP 2020.
//
// A position is a tile of 2 x 2 outputs of one image, counted over all images; it reads 4 x 4 elements d of each
// channel. With V = B^T d B and U = G g G^T, both 4 x 4, its outputs are A^T (sum over channels of U o V) A, o being
// the product component by component: 16 multiply-adds per channel in place of 36. So there are 16 matrix products, one
// per component, of filters and positions. Rows of C are positions and its columns filters where channels are innermost
// in memory (CHANNELS_LAST), and the other way round where columns are: C's columns lie side by side either way.
//
// A block computes BLOCK_M rows by BLOCK_N columns. Every step, its threads load BLOCK_K channels of both operands,
// transform them in registers and store the components to shared memory, [component][channel][entry]. A thread
// multiplies HELD components of THREAD_M rows and THREAD_N columns, in groups of 4 adjacent ones at most; LANES =
// (BLOCK_M / THREAD_M) * (BLOCK_N / THREAD_N) threads share a component, THREADS = 16 / HELD * LANES. At the end the
// components of an output meet in shared memory, STORE_ROWS of a thread's rows at a time. With PREPARED, a first
// launch, winograd_filters, transforms all filters once.
//
// Legal Programs:
//   BLOCK_M % THREAD_M == 0, BLOCK_N % THREAD_N == 0, BLOCK_N % 32 == 0, BLOCK_M % 8 == 0
//   THREAD_M in 2, 4, 8, 16; THREAD_N in 4, 8, 16; HELD in 1, 2, 4; THREAD_N * HELD <= 16
//   BLOCK_K in 4, 8, 16; BLOCK_M % 16 == 0 where BLOCK_K is 4
//   LANES % 16 == 0, THREADS % 32 == 0, THREADS <= 1024
//   HELD * THREAD_M * THREAD_N <= 128 (accumulators must fit the registers)
//   HELD * THREAD_M * THREAD_N * BLOCK_K <= 1024 (the unrolled step must stay in instruction caches)
//   16 * pairs of the image + 9 * pairs of the filters <= 64 (registers of a step's loads), a thread's pairs of entry
//     and channel being, for E entries of which neighbouring threads take neighbouring channels (the image where
//     CHANNELS_LAST, the filters where FILTERS_LAST is 0), ceil(E / (THREADS / min(BLOCK_K, 8))) * ceil(BLOCK_K / 8),
//     and for other operands E / L * ceil(BLOCK_K / (THREADS / L)) with L = gcd(E, THREADS)
//   STAGES in 1, 2; C_VECTOR is the size of OUT_TYPE, or twice that where CHANNELS_LAST is 0: both columns of a
//     position are stored at once then, and rows of y have an even number of them
//   PREPARED 1, for the extent F of the filters' axis: STAGES 2, THREADS % (F / 4 * BLOCK_K) == 0, the quotient divides
//     16, and there are no pairs of the filters
//
// Shared bytes = max(STAGES * 64 * BLOCK_K * (ROW_M + ROW_N), 2 * 64 * LINES * SLAB_ROW)
//   ROW = E + (neighbouring threads take neighbouring channels ? 32 / min(BLOCK_K, 8) : 0), of prepared filters E
//   LINES = STORE_ROWS * BLOCK_M / THREAD_M, STORE_ROWS = min(THREAD_M, 16 / (THREAD_N * HELD))
//   SLAB_ROW = the least 4 * c >= BLOCK_N with c % 8 == BLOCK_N / THREAD_N % 8
//
// Bank conflicts: none. Lanes that store neighbouring channels are spread by the padding of rows, fragments are read in
// 16 bytes that lie side by side or are shared, and a slab's rows are as far apart as lanes that write them need.

#ifndef OUT_TYPE
#define OUT_TYPE float // elements of y
#endif
#ifndef CHANNELS_LAST
#define CHANNELS_LAST 0 // innermost axis of x and y in memory: 1 = channels, 0 = columns
#endif
#ifndef FILTERS_LAST
#define FILTERS_LAST 0 // innermost axis of w in memory: 1 = filters, 0 = channels or taps
#endif
#ifndef C_VECTOR
#define C_VECTOR 4 // bytes per store into y
#endif
#ifndef BLOCK_M
#define BLOCK_M 64 // rows of C per block
#endif
#ifndef BLOCK_N
#define BLOCK_N 32 // columns of C per block
#endif
#ifndef BLOCK_K
#define BLOCK_K 8 // channels of one step of the main loop
#endif
#ifndef THREAD_M
#define THREAD_M 16 // rows per thread
#endif
#ifndef THREAD_N
#define THREAD_N 8 // columns per thread
#endif
#ifndef HELD
#define HELD 1 // components per thread
#endif
#ifndef PREPARED
#define PREPARED 0 // 1: winograd_filters transforms the filters into the workspace first; they come by cp.async (sm_80)
#endif
#ifndef STAGES
#define STAGES 2 // shared buffers: 1 (two barriers per step) or 2 (one barrier, stores overlap the math)
#endif
#ifndef SPLIT
#define SPLIT 0 // 1: blocks write partial sums to the workspace, contraction_reduce finishes
#endif
#ifndef EPILOGUE_CODES
#define EPILOGUE_CODES 0 // 0: steps from Params; else a compile-time list, 5 bits per step, first step lowest
#endif
#ifndef MIN_BLOCKS
#define MIN_BLOCKS 0 // blocks per SM promised to the compiler; 0 = none
#endif
#define IN_TYPE float
#define ACC_TYPE float
#define C_UNIT 1

#include "winograd_store.cuh"

static_assert(BLOCK_M % THREAD_M == 0 && BLOCK_N % THREAD_N == 0, "Thread tiles must fill the block tile.");
static_assert(BLOCK_N % 32 == 0 && BLOCK_M % 8 == 0, "Warps finish whole rows; rows come in eights.");
static_assert(16 % HELD == 0 && THREAD_N * HELD <= 16, "A thread finishes at most as many outputs as it holds.");
static_assert(LANES % 16 == 0, "Lanes of an access must share a component.");
static_assert(THREADS % 32 == 0 && THREADS <= 1024, "A block must have 1 to 32 whole warps.");
static_assert(HELD * THREAD_M * THREAD_N <= 128, "A thread's accumulators must fit its registers.");
static_assert(HELD * THREAD_M * THREAD_N * BLOCK_K <= 1024,
              "A step's unrolled multiply-adds must stay in instruction caches.");
static_assert(BLOCK_K == 4 || BLOCK_K == 8 || BLOCK_K == 16, "A step has 4, 8 or 16 channels.");
static_assert(BLOCK_K > 4 || BLOCK_M % 16 == 0, "Rows padded by 8 words must not share banks.");
static_assert(STAGES == 1 || STAGES == 2, "Shared memory holds one or two buffers.");
static_assert(Image::PAIRS * 16 + (PREPARED ? 0 : Filters::PAIRS * 9) <= 64, "A step's loads must fit the registers.");
static_assert(!PREPARED || STAGES == 2, "Prepared filters are copied to one buffer while the other is read.");

// sums += the products of the tile's channels, a component at a time. Loads are issued a whole step before their values
// are transformed and stored.
DEVICE void multiply_tile(const Params &params, const Positions &positions, const Tile &tile, const ThreadPlace &place,
                          float (&sums)[SUMS]) {
    Loader<Image, 4> image = image_loader(params, positions, tile);
#if PREPARED
    PreparedFilters filters(params, tile);
#else
    Loader<Filters, 3> filters = filter_loader(params, tile);
#endif
    sptr<float> current = shared_base().as<float>(), next = current + (STAGES - 1) * TILE_WORDS;
    image.load_step();
    filters.load_step(current + FILTERS_AT);
    image.store_step(current + IMAGE_AT);
    filters.store_step(current + FILTERS_AT);
    barrier();
    for (int k = tile.k_begin; within(k, tile.k_end);) {
        k += BLOCK_K;
        if (k < tile.k_end)
            cover("steady");
        else
            cover("drain");
        // In the last step these loads and stores only bring zeros: see contraction_simt.cu.
        image.load_step();
        filters.load_step(next + FILTERS_AT);
        multiply_step(sums, current, place);
        if (STAGES == 1)
            barrier();
        image.store_step(next + IMAGE_AT);
        filters.store_step(next + FILTERS_AT);
        barrier();
        const sptr<float> read = current;
        current = next;
        next = read;
    }
}

KERNEL(winograd, Params, THREADS, MIN_BLOCKS) {
#if PREPARED
    grid_dependency_wait();
#endif
    if constexpr (SPLIT)
        launch_dependents();
    const Positions positions(params);
    const Tile tile = tile_of(params, positions);
    const ThreadPlace place = thread_place();
    float sums[SUMS] = {};
    multiply_tile(params, positions, tile, place, sums);
    store(params, positions, tile, place, sums);
}
