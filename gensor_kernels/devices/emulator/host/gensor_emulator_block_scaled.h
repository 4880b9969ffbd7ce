// The host bodies of block_scaled.cuh, which documents the functions and includes this file.
#pragma once
#include "gensor_emulator.h"

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
