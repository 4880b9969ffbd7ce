// Products of floats by bfloat16 products of warpgroups or in tensor memory, as accurate as multiply-adds of floats:
// the scheme of mma_floats.cuh. An earlier launch has written x * 2^16 as three bfloat16 parts: the nearest number, the
// nearest number to the rest, and what is then left. Each box of a tile holds one of the parts. Six of the nine
// products of two elements' parts are formed. The tensor core sums the large products of 16 neighbours along k,
// starting at zero, and the small products of a step. Ordinary additions add these short sums to sums of floats, *
// 2^32, while other products run.
//
// An operand that is infinite or NaN, or a sum that leaves the range (early, since sums are * 2^32), leaves infinities
// or NaN in the sums. A warp that finds one computes its outputs again by multiply-adds (tma_recompute.cuh).
#pragma once
#include "intrinsics.cuh"

constexpr int SMALL_PRODUCTS = 5;
constexpr float LIFT = 65536.0f, LOWER = 1.0f / LIFT / LIFT;

// The parts of A and B in each small product.
#define PARTS_OF_A {2, 0, 1, 1, 0}
#define PARTS_OF_B {0, 2, 1, 0, 1}
