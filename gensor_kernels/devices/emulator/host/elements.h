// Elements of products as floats, and sums of products of 8-bit floats: of a warp and of a warpgroup.
#pragma once
#include "memory.h"

namespace emulator {

// Lets the compiler use wider vectors where the processor has them; no fused multiply-add, so results do not differ.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_VECTORS
#endif
// The same with fused multiply-adds, which round the same in hardware and in the library.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_MULTIPLY_ADDS __attribute__((target_clones("arch=haswell", "default")))
#else
#define WIDE_MULTIPLY_ADDS
#endif

inline u32 half_to_float_bits(u32 half) {
    u32 magnitude = half & 0x7fff, shifted = magnitude << 13;
    float value, scale;
    u32 bits = 0x77800000; // 2^112 moves the exponent's bias and normalises subnormals
    memcpy(&value, &shifted, 4), memcpy(&scale, &bits, 4);
    value *= scale;
    memcpy(&bits, &value, 4);
    return bits | (magnitude >= 0x7c00 ? 0x7f800000u : 0u) | (half & 0x8000) << 16;
}
// Bytes of an element.
static int size_of(GroupElement element) {
    return element == GROUP_TF32 ? 4 : element <= GROUP_BFLOAT16 ? 2 : 1;
}

typedef float GroupA[16][32];
typedef float GroupB[32][256];
typedef float GroupSums[16][256];

// One element as float, exactly; a float is reduced to the 19 bits that are multiplied.
static float widened(const unsigned char *bytes, GroupElement type) {
    u32 word = 0;
    memcpy(&word, bytes, size_of(type));
    const u32 sign = (word & 0x80) << 24, magnitude = word & 0x7f;
    switch (type) {
    case GROUP_HALF:
        word = half_to_float_bits(word);
        break;
    case GROUP_BFLOAT16:
        word <<= 16;
        break;
    case GROUP_TF32:
        word &= 0xffffe000u;
        break;
    case GROUP_E4M3: { // 2^120 moves the exponent's bias
        u32 scale = 0x7b800000u, bits = sign | magnitude << 20;
        float value, factor;
        memcpy(&value, &bits, 4), memcpy(&factor, &scale, 4);
        value *= factor;
        memcpy(&word, &value, 4);
        word = magnitude == 0x7f ? sign | 0x7fc00000u : word;
        break;
    }
    case GROUP_E5M2:
        word = half_to_float_bits(word << 8);
        break;
    case GROUP_INT8:
        return (float)(signed char)word;
    }
    float value;
    memcpy(&value, &word, 4);
    return value;
}

// A power of two as a float, which has only an exponent.
static float power(u32 exponent) {
    const u32 bits = exponent << 23;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// Products of 8-bit floats: all products and the sum are truncated to 13 bits after the leading bit of the largest one,
// and the new sum to 14 bits (tolerance.py). A sum with a NaN or an infinity is that of IEEE arithmetic.
WIDE_VECTORS void multiply_cut_rows(GroupSums &sums, const GroupA &a, const GroupB &b, int n) {
    static float largest[256], unit[256], inverse[256], plain[256], cut[256];
    for (int i = 0; i < 16; ++i) {
        float *const sum = sums[i];
        for (int j = 0; j < n; ++j)
            plain[j] = sum[j], largest[j] = __builtin_fabsf(sum[j]);
        for (int k = 0; k < 32; ++k)
            for (int j = 0; j < n; ++j) {
                const float term = a[i][k] * b[k][j], magnitude = __builtin_fabsf(term);
                plain[j] += term, largest[j] = magnitude > largest[j] ? magnitude : largest[j];
            }
        for (int j = 0; j < n; ++j) {
            u32 bits;
            memcpy(&bits, &largest[j], 4);
            // All products but 0 are larger than 2^-77; from 2^127 on nothing is truncated.
            const u32 exponent = bits >> 23 < 50 ? 50 : bits >> 23 > 253 ? 253 : bits >> 23;
            unit[j] = power(exponent - 13), inverse[j] = power(254 - exponent + 13);
            cut[j] = __builtin_truncf(sum[j] * inverse[j]);
        }
        for (int k = 0; k < 32; ++k)
            for (int j = 0; j < n; ++j)
                cut[j] += __builtin_truncf(a[i][k] * b[k][j] * inverse[j]);
        for (int j = 0; j < n; ++j) {
            float whole = cut[j] * unit[j];
            u32 bits;
            memcpy(&bits, &whole, 4);
            bits &= 0xfffffc00u;
            memcpy(&whole, &bits, 4);
            sum[j] = __builtin_fabsf(plain[j]) < power(253) ? whole : plain[j];
        }
    }
}

} // namespace emulator
