// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]) on the tensor cores (mma.sync), batched.
//
// A block computes BLOCK_M x BLOCK_N outputs, and each of its warps computes WARP_M x WARP_N of them. The main loop
// takes BLOCK_K values of k per step, through STAGES shared buffers. With ASYNC 1, cp.async copies later steps while a
// step is multiplied. With ASYNC 0 (sm_75, and accesses narrower than 4 bytes), a thread loads the next step into
// registers before the math of a step, and stores it into shared memory after that. Shared tiles keep the orientation
// of the operand, are swizzled by chunks of 16 bytes, and are read with ldmatrix (mma_tiles.cuh, mma_fragments.cuh).
//
// Shared bytes = max(STAGES * (bytes of a tile of A + MATRICES * bytes of a tile of B) + (STREAM ? 32 : 0),
//   EPILOGUE_STAGED ? WARPS * 16 * WARP_N * size of ACC_TYPE : 0)
// Two-way bank conflicts remain where M- or N-contiguous i8 has rows that are no multiple of 64 bytes, and where pieces
// are widened to more than 16 bytes (four-way for rows of more than 128 bytes). With SWIZZLE 0, reads conflict unless a
// row is an odd number of chunks. Operands of the epilogue are read in vectors where they are adjacent and aligned.

#include "mma_options.cuh"

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;

#include "mma_floats.cuh"
#include "mma_epilogue.cuh"
#include "stream_k.cuh"

DEVICE void compute_tile(const Params &params, const Tile &tile, const TileShare &share) {
    if (RAGGED_ROWS && tile.row == tile.end)
        return;
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    Pipeline pipeline(params, tile);
    Math math(params, tile, row, column);
    const sptr<u8> saved_tile = shared_base() + STAGES * STAGE_BYTES;
    save_tile(saved_tile, tile);
    ROLLED for (int s = 0; s < AHEAD; ++s) pipeline.request(params);
    pipeline.receive();
    math.begin();
    // If k is empty, a step of zeros is multiplied: a branch around the loop would make the compiler copy all
    // accumulators after it.
    int left = divide_up(tile.k_end - tile.k_begin, BLOCK_K);
    do {
        if (left > AHEAD)
            cover("steady");
        else
            cover("drain");
        math.compute(pipeline, [&]() { pipeline.request(params); });
    } while (within(0, --left));
    math.finish(params, restore_tile(params, saved_tile, tile));
    constexpr int ROW = FRAGMENTS_N * 4;
    if (!joined<FRAGMENTS_M * ROW, THREADS>(
            params, share, [&](int i) -> ACC_TYPE & { return math.accumulators[0][i / ROW][i % ROW / 4][i % 4]; }))
        return;
    const Tile &place = restore_tile(params, saved_tile, tile);
    if constexpr (EPILOGUE_STAGED) // the slabs replace the operand tiles
        Pipeline::finish();
#if GATE && !SPLIT
    gate_warp(params, place.column + column, math.accumulators);
#endif
#if NORM && !SPLIT
    keep_sums(row, column, math.accumulators[0]);
    barrier();
    finish_tile(params, place);
#else
    finish_warp(params, place, place.row + row, place.column + column, math.accumulators[0]);
#endif
    if constexpr (GATE && SPLIT) {
        Tile other = place;
        other.part += params.split;
        finish_warp(params, other, other.row + row, other.column + column, math.accumulators[MATRICES - 1]);
    }
}

DEVICE void compute_tiles(const Params &params) {
    if constexpr (SPLIT)
        launch_dependents();
    each_tile(params, [&](const Tile &tile, const TileShare &share) {
        compute_tile(params, tile, share);
        if constexpr (STREAM)
            Pipeline::finish(); // the copies of the next tile overwrite this tile's sums
    });
}

#if !PACKED
KERNEL(contraction_mma, Params, THREADS, MIN_BLOCKS) {
    if constexpr (MATERIALISED)
        grid_dependency_wait();
    compute_tiles(params);
}
#endif
