// The multiply-adds of one step: loads fragments from shared memory and adds products to a thread's accumulators.
#pragma once
#include "simt_tile.cuh"

using ShapeA = TileShape<BLOCK_M, A_VECTOR, A_LAYOUT == 0, A_WINDOW, A_CONJUGATE, A_STORED, INLINED_A>;
using ShapeB = TileShape<BLOCK_N, B_VECTOR, B_LAYOUT == 0, B_WINDOW, B_CONJUGATE, B_STORED, INLINED_B>;
constexpr int TILE_WORDS = ShapeA::WORDS + MATRICES * ShapeB::WORDS; // of one shared buffer

// The first row and column of a thread's first group in the block's tile.
struct ThreadPlace {
    int row, column;
};
DEVICE ThreadPlace thread_place() {
    constexpr u32 LANES_N = 32 / LANES_M, WARPS_M = BLOCK_M / THREAD_M / LANES_M;
    const u32 warp = (u32)thread_index() / 32, lane = (u32)thread_index() % 32;
    const u32 row = warp % WARPS_M * LANES_M + lane / LANES_N, column = warp / WARPS_M * LANES_N + lane % LANES_N;
    return ThreadPlace{(int)row * (THREAD_M / VTHREAD_M), (int)column * (THREAD_N / VTHREAD_N)};
}

// sums += A tile * B tile. The fragments of k + 1 are read while those of k are multiplied. Both halves of a complex
// multiply-add add to the same sum, so all first halves come before the second halves, which need not wait for them.
DEVICE void multiply_step(Sum (&sums)[MATRICES][THREAD_M * THREAD_N], sptr<TileWord> a_tile, sptr<TileWord> b_tile,
                          const ThreadPlace &place) {
    UNROLL for (int k = 0; k < BLOCK_K; ++k) {
        TileWord a[PLANES][THREAD_M], b[MATRICES][PLANES][THREAD_N];
        UNROLL for (int p = 0; p < PLANES; ++p) {
            read_fragment<ShapeA, VTHREAD_M>(a[p], a_tile + p * ShapeA::PLANE_WORDS, place.row, k);
            UNROLL for (int x = 0; x < MATRICES; ++x) read_fragment<ShapeB, VTHREAD_N>(
                b[x][p], b_tile + (x * PLANES + p) * ShapeB::PLANE_WORDS, place.column, k);
        }
        UNROLL for (int half = 0; half < HALVES; ++half) {
            UNROLL for (int x = 0; x < MATRICES; ++x) {
                UNROLL for (int i = 0; i < THREAD_M; ++i) {
                    UNROLL for (int j = 0; j < THREAD_N; ++j)
                        add_product(sums[x][i * THREAD_N + j], a, b[x], i, j, half);
                }
            }
        }
    }
}
