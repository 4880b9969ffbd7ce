// An intrinsic for numbers between 0 and 1. As in intrinsics.cuh, it has two bodies; the model is in the emulator's
// gensor_emulator_saturated.h.
//
//   fma_saturated_(a, b, c)    float; a * b + c, rounded once, then 0 where it is less or NaN, and 1 where it is more
#pragma once
#include "intrinsics.cuh"

#ifdef __CUDACC__
DEVICE float fma_saturated_(float a, float b, float c) {
    return __saturatef(__fmaf_rn(a, b, c));
}
#else
#include <gensor_emulator_saturated.h>
#endif
