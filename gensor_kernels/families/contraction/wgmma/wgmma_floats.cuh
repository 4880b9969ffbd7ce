// Products of floats by warpgroup products of their parts (float_parts.cuh).
#pragma once
#include "wgmma_scales.cuh"

// The products of a step: one short sum of all small products, and one for each large product.
DEVICE void multiply_parts(Sums &sums, TileSums &products, u64 a, u64 b, const StepScales &scales) {
    constexpr int OF_A[SMALL_PRODUCTS] = PARTS_OF_A, OF_B[SMALL_PRODUCTS] = PARTS_OF_B;
    UNROLL for (int i = 0; i < TILES_M; ++i) {
        form_short_sums(products, [&] {
            UNROLL for (int p = 0; p < SMALL_PRODUCTS; ++p) UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
                const u64 part_a = further(a, OF_A[p] * TileA::BOX_BYTES);
                const u64 part_b = further(b, OF_B[p] * TileB::BOX_BYTES);
                if (p + k == 0)
                    multiply<0>(products, part_a, part_b, i, k);
                else
                    multiply<1>(products, part_a, part_b, i, k);
            }
        });
        scales.add(sums[i], products, i);
        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
            form_short_sums(products, [&] { multiply<0>(products, a, b, i, k); });
            scales.add(sums[i], products, i);
        }
    }
}
