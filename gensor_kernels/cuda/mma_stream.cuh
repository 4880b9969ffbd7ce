// The tiles of C that a block of the tensor-core family computes: one, or with STREAM tiles and shares of tiles.
#pragma once
#include "mma_epilogue.cuh"
#include "stream_k.cuh"

// compute(tile, join) for each; join(accumulators) says whether this block finishes the tile.
template <class Compute>
DEVICE void each_tile(const Params &params, Compute compute) {
#if STREAM
    constexpr int ROW = FRAGMENTS_N * 4, MATRIX = FRAGMENTS_M * ROW;
    const Stream stream(params);
    stream.each_share([&](const Share &share) {
        Tile tile = decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K, share.tile);
        tile.k_begin = (i32)share.first * BLOCK_K;
        tile.k_end = minimum((i32)share.last * BLOCK_K, params.k);
        compute(tile, [&](Accumulators(&sums)[MATRICES]) {
            return joined<MATRICES * MATRIX, THREADS>(params, stream, share, [&](int i) -> ACC_TYPE & {
                return sums[i / MATRIX][i % MATRIX / ROW][i % ROW / 4][i % 4];
            });
        });
        Pipeline::finish(); // the next tile's copies go where this one's sums were
    });
#else
    compute(decode_tile<BLOCK_M, BLOCK_N>(params, BLOCK_K), [](const auto &) { return true; });
#endif
}
