// The host body of saturated.cuh, which documents the function and includes this file.
#pragma once
#include "gensor_emulator.h"

DEVICE float fma_saturated_(float a, float b, float c) {
    const float value = __builtin_fmaf(a, b, c);
    return value > 0.0f ? value < 1.0f ? value : 1.0f : 0.0f;
}
