// The GPU bodies of the intrinsics that compute in registers: rounding, shuffles, functions of numbers, pairs.
// intrinsics.cuh documents them.
#pragma once

template <class T>
DEVICE T shuffle_xor(T value, int mask) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "A shuffle moves 4 or 8 bytes.");
    if constexpr (sizeof(T) == 4) {
        return bit_cast<T>(__shfl_xor_sync(0xffffffffu, bit_cast<u32>(value), mask));
    } else {
        u64 bits = bit_cast<u64>(value);
        u32 low = __shfl_xor_sync(0xffffffffu, (u32)bits, mask);
        return bit_cast<T>((u64)__shfl_xor_sync(0xffffffffu, (u32)(bits >> 32), mask) << 32 | low);
    }
}

DEVICE int warp_uniform(int value) {
    return __shfl_sync(0xffffffffu, value, 0);
}

DEVICE float exp_(float x) {
    return expf(x);
}
DEVICE double exp_(double x) {
    return exp(x);
}
DEVICE float erf_(float x) {
    return erff(x);
}
DEVICE double erf_(double x) {
    return erf(x);
}
DEVICE float tanh_(float x) {
    return tanhf(x);
}
DEVICE double tanh_(double x) {
    return tanh(x);
}
DEVICE float log_(float x) {
    return logf(x);
}
DEVICE double log_(double x) {
    return log(x);
}
DEVICE float sqrt_(float x) {
    return sqrtf(x);
}
DEVICE double sqrt_(double x) {
    return sqrt(x);
}
DEVICE float fma_(float a, float b, float c) {
    return fmaf(a, b, c);
}
DEVICE double fma_(double a, double b, double c) {
    return fma(a, b, c);
}
DEVICE float multiply_(float a, float b) {
    return __fmul_rn(a, b);
}
DEVICE double multiply_(double a, double b) {
    return __dmul_rn(a, b);
}
DEVICE double max_(double a, double b) {
    return a != a || b <= a ? a : b;
}
DEVICE double min_(double a, double b) {
    return a != a || b >= a ? a : b;
}
DEVICE float max_(float a, float b) {
    float result = a != a || b <= a ? a : b;
    if constexpr (ARCH >= 800)
        asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
DEVICE float min_(float a, float b) {
    float result = a != a || b >= a ? a : b;
    if constexpr (ARCH >= 800)
        asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(a), "f"(b));
    return result;
}
DEVICE float exp2_(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float reciprocal_(float x) {
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}
DEVICE float maximum_(float a, float b) {
    return fmaxf(a, b);
}
template <class T>
DEVICE u32 pack_pair(float low, float high, T) {
    u32 packed;
    if constexpr (ARCH < 800)
        packed = (u32)from_float<T>(low).bits | (u32)from_float<T>(high).bits << 16;
    else if constexpr (same_type<T, half_t>)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
    return packed;
}
DEVICE u32 fma_pair(u32 a, u32 b, u32 c, half_t) {
    u32 result;
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
DEVICE u32 fma_pair(u32 a, u32 b, u32 c, bfloat16_t) {
    u32 result;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(result) : "r"(a), "r"(b), "r"(c));
    return result;
}
DEVICE u32 byte_permute(u32 low, u32 high, u32 selector) {
    u32 result;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(selector));
    return result;
}
DEVICE u32 convert_e4m3_pair(u16 bytes) {
    u32 pair;
    asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(bytes));
    return pair;
}
