// Products of operands in block-scaled formats on tensor cores (sm_120a). As in intrinsics.cuh, every function has two
// bodies.
//
//   mma_m16n8k32_scaled<A_E5M2, B_E5M2>(d, a, b, scales, at)   8-bit floats; a scale (e8m0) of 32 values of k
//   mma_m16n8k64_scaled<SCALES>(d, a, b, scales, at)   e2m1; SCALES scales of k: 2 (e8m0) or 4 (e4m3 without a sign)
//     adds to float (&d)[4] the product of u32 (&a)[4] and u32 (&b)[2]; a register holds 4 bytes of k, two numbers of
//     e2m1 in a byte. A's scales of row 8 * h + g of a fragment are in lane 4 * g + 2 * at.pair + h, B's of column g in
//     lane 4 * g + at.lane, from byte `byte` of the register on: any for one scale, 0 or 2 for two, 0 for four.
#pragma once
#include "intrinsics.cuh"

// The registers of scales of A and of B, and where the scales are in them; constants after unrolling.
struct ScaleRegisters {
    u32 a, b;
};
struct ScalePlace {
    int byte, pair, lane;
};

#ifdef __CUDACC__
#define MMA_SCALED(form)                                                                                               \
    asm volatile("mma.sync.aligned." form                                                                              \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3}, %10, {%11, %12}, %13, {%11, %14};"  \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "r"(scales.a), "h"((u16)at.byte), \
                   "h"((u16)at.pair), "r"(scales.b), "h"((u16)at.lane))
#define MMA_SCALED_BYTES(types) MMA_SCALED("m16n8k32.row.col.kind::mxf8f6f4.block_scale.scale_vec::1X." types ".ue8m0")
template <bool A_E5M2, bool B_E5M2>
DEVICE void mma_m16n8k32_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], ScaleRegisters scales,
                                ScalePlace at) {
    if constexpr (A_E5M2 && B_E5M2)
        MMA_SCALED_BYTES("f32.e5m2.e5m2.f32");
    else if constexpr (A_E5M2)
        MMA_SCALED_BYTES("f32.e5m2.e4m3.f32");
    else if constexpr (B_E5M2)
        MMA_SCALED_BYTES("f32.e4m3.e5m2.f32");
    else
        MMA_SCALED_BYTES("f32.e4m3.e4m3.f32");
}
template <int SCALES>
DEVICE void mma_m16n8k64_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], ScaleRegisters scales,
                                ScalePlace at) {
    static_assert(SCALES == 2 || SCALES == 4, "64 numbers have two scales or four.");
    if constexpr (SCALES == 2)
        MMA_SCALED("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::2X.f32.e2m1.e2m1.f32.ue8m0");
    else
        MMA_SCALED("m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32.ue4m3");
}
#undef MMA_SCALED_BYTES
#undef MMA_SCALED
#else
template <bool A_E5M2, bool B_E5M2>
DEVICE void mma_m16n8k32_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], ScaleRegisters scales,
                                ScalePlace at, CALLER) {
    const emulator::ScaledProduct product = {1, A_E5M2, B_E5M2, at.byte, at.pair, at.lane};
    emulator::multiply_scaled(product, d, a, b, scales.a, scales.b, site);
}
template <int SCALES>
DEVICE void mma_m16n8k64_scaled(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], ScaleRegisters scales,
                                ScalePlace at, CALLER) {
    const emulator::ScaledProduct product = {SCALES, false, false, at.byte, at.pair, at.lane};
    emulator::multiply_scaled(product, d, a, b, scales.a, scales.b, site);
}
#endif
