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
DEVICE void multiply_parts(Sums &sums, TileSums &products, u64 a, u64 b, const StepScales &scales) {
    constexpr int OF_A[SMALL_PRODUCTS] = {2, 0, 1, 1, 0}, OF_B[SMALL_PRODUCTS] = {0, 2, 1, 0, 1};
    UNROLL for (int i = 0; i < TILES_M; ++i) {
        form_short_sums(products, [&] {
            UNROLL for (int p = 0; p < SMALL_PRODUCTS; ++p) UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
                const u64 left = further(a, OF_A[p] * TileA::BOX_BYTES), right = further(b, OF_B[p] * TileB::BOX_BYTES);
                if (p + k == 0)
                    multiply<0>(products, left, right, i, k);
                else
                    multiply<1>(products, left, right, i, k);
            }
        });
        scales.add(sums[i], products, i);
        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
            form_short_sums(products, [&] { multiply<0>(products, a, b, i, k); });
            scales.add(sums[i], products, i);
        }
    }
}
