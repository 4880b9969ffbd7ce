// The hot loop of one step: fragments from shared memory, multiply-adds into the thread's accumulators.
#pragma once
#include "simt_tile.cuh"

DEVICE float multiply_add(float a, float b, float sum) {
    return fma_(a, b, sum);
}
DEVICE double multiply_add(double a, double b, double sum) {
    return fma_(a, b, sum);
}
DEVICE i32 multiply_add(i32 a, i32 b, i32 sum) {
    return (i32)((u32)a * (u32)b + (u32)sum); // wraps around instead of being undefined
}

using ShapeA = TileShape<BLOCK_M, A_VECTOR, A_LAYOUT == 0, A_WINDOW>;
using ShapeB = TileShape<BLOCK_N, B_VECTOR, B_LAYOUT == 0, B_WINDOW>;
constexpr int TILE_WORDS = ShapeA::WORDS + ShapeB::WORDS; // of one shared buffer

// A thread's place: its first row and column in the block's tile (of its first group).
struct ThreadPlace {
    int row, column;
};
DEVICE ThreadPlace thread_place() {
    constexpr u32 LANES_N = 32 / LANES_M, WARPS_M = BLOCK_M / THREAD_M / LANES_M;
    const u32 warp = (u32)thread_index() / 32, lane = (u32)thread_index() % 32;
    const u32 row = warp % WARPS_M * LANES_M + lane / LANES_N, column = warp / WARPS_M * LANES_N + lane % LANES_N;
    return ThreadPlace{(int)row * (THREAD_M / VTHREAD_M), (int)column * (THREAD_N / VTHREAD_N)};
}

// sums += A tile * B tile. The fragments of k + 1 are read while those of k are multiplied.
DEVICE void multiply_step(ACC_TYPE (&sums)[THREAD_M * THREAD_N], sptr<ACC_TYPE> a_tile, sptr<ACC_TYPE> b_tile,
                          const ThreadPlace &place) {
    UNROLL for (int k = 0; k < BLOCK_K; ++k) {
        ACC_TYPE a[THREAD_M], b[THREAD_N];
        read_fragment<ShapeA, VTHREAD_M>(a, a_tile, place.row, k);
        read_fragment<ShapeB, VTHREAD_N>(b, b_tile, place.column, k);
        UNROLL for (int i = 0; i < THREAD_M; ++i) {
            UNROLL for (int j = 0; j < THREAD_N; ++j) {
                ACC_TYPE &sum = sums[i * THREAD_N + j];
                sum = multiply_add(a[i], b[j], sum);
            }
        }
    }
}
