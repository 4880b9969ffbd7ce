// Products of float operands on the bfloat16 warpgroup products, as accurate as multiply-adds of floats: the scheme of
// mma_floats.cuh. A launch in front has written x * 2^16 as three bfloat16 numbers, the nearest one, the nearest one to
// the rest, and what is then left; boxes of a tile hold one of these each. Of the nine products of two such numbers six
// are formed. The large products of 16 neighbours along k are summed by the tensor core, from zero, and so are the
// small ones of a step; these sums are added to those of floats, * 2^32, by ordinary additions, while the other
// warpgroups multiply.
//
// An infinity or NaN among the operands, or a sum that leaves the range (which, lifted by 2^32, it does early), leaves
// infinities or NaN in the sums, whatever follows. A warp that finds one sums its outputs by multiply-adds of the
// operands themselves.
#pragma once

constexpr int SMALL_PRODUCTS = 5;
constexpr float LIFT = 65536.0f, LOWER = 1.0f / LIFT / LIFT;

// A step's products. Its small ones are one short sum, each large one another.
DEVICE void multiply_parts(Sums &sums, TileSums &products, u64 a, u64 b) {
    constexpr int OF_A[SMALL_PRODUCTS] = {2, 0, 1, 1, 0}, OF_B[SMALL_PRODUCTS] = {0, 2, 1, 0, 1};
    UNROLL for (int i = 0; i < TILES_M; ++i) {
        add_short_sums(sums[i], products, [&] {
            UNROLL for (int p = 0; p < SMALL_PRODUCTS; ++p) UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
                const u64 left = further(a, OF_A[p] * TileA::BOX_BYTES), right = further(b, OF_B[p] * TileB::BOX_BYTES);
                if (p + k == 0)
                    multiply<0>(products, left, right, i, k);
                else
                    multiply<1>(products, left, right, i, k);
            }
        });
        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP)
            add_short_sums(sums[i], products, [&] { multiply<0>(products, a, b, i, k); });
    }
}

// The sums of a warp by multiply-adds in the order of k. Sums of a thread: wgmma_boxes.cuh.
DEVICE void sum_again(const Params &params, const Tile &tile, int row, Sums &sums) {
    const int lane = thread_index() & 31, left = tile.column + (lane & 3) * 2;
    const int top = tile.row + row + (thread_index() >> 5 & 3) * 16 + (lane >> 2);
    const gptr<float> a = gptr<float>(params.a) + batch_offset(params.a_batch, tile.batch);
    const gptr<float> b = gptr<float>(params.b) + batch_offset(params.b_batch, tile.batch);
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[i][v] = 0.0f;
    ROLLED for (i32 k = tile.k_begin; within(k, tile.k_end); ++k) {
        float of_a[TILES_M][2];
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const i32 at = top + i * 64 + half * 8;
            of_a[i][half] =
                load_global<4>(a + (at * params.a_m + k * params.a_k), within(at, params.m)).template get<float>(0);
        }
        UNROLL for (int v = 0; v < BLOCK_N / 2; v += 4) UNROLL for (int c = 0; c < 2; ++c) {
            const i32 at = left + v * 2 + c;
            const float of_b =
                load_global<4>(b + (at * params.b_n + k * params.b_k), within(at, params.n)).template get<float>(0);
            UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half)
                sums[i][v + 2 * half + c] = fma_(of_a[i][half], of_b, sums[i][v + 2 * half + c]);
        }
    }
}

// Finite sums are lowered, others formed again.
DEVICE void settle_parts(const Params &params, const Tile &tile, int row, Sums &sums) {
    float trace = 0.0f; // zero times what is not finite is NaN
    UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) trace =
        fma_(sums[i][v], 0.0f, trace);
    UNROLL for (int mask = 1; mask < 32; mask *= 2) trace = trace + shuffle_xor(trace, mask);
    if (trace != 0.0f) {
        cover("again");
        sum_again(params, tile, row, sums);
    } else {
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[i][v] =
            sums[i][v] * LOWER;
    }
}
