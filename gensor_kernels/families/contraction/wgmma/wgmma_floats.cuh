// Products of floats by bfloat16 warpgroup products, as accurate as multiply-adds of floats: the scheme of
// mma_floats.cuh. An earlier launch has written x * 2^16 as three bfloat16 parts: the nearest number, the nearest
// number to the rest, and what is then left. Each box of a tile holds one of the parts. Six of the nine products of two
// elements' parts are formed. The tensor core sums the large products of 16 neighbours along k, starting at zero, and
// the small products of a step. Ordinary additions add these short sums to sums of floats, * 2^32, while the other
// warpgroups multiply.
//
// An operand that is infinite or NaN, or a sum that leaves the range (early, since sums are * 2^32), leaves infinities
// or NaN in the sums. A warp that finds one computes its outputs again by multiply-adds (wgmma_recompute.cuh).
#pragma once
#include "wgmma_scales.cuh"

constexpr int SMALL_PRODUCTS = 5;
constexpr float LIFT = 65536.0f, LOWER = 1.0f / LIFT / LIFT;

// The products of a step: one short sum of all small products, and one for each large product.
DEVICE void multiply_parts(Sums &sums, TileSums &products, u64 a, u64 b, const StepScales &scales) {
    constexpr int OF_A[SMALL_PRODUCTS] = {2, 0, 1, 1, 0}, OF_B[SMALL_PRODUCTS] = {0, 2, 1, 0, 1};
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
