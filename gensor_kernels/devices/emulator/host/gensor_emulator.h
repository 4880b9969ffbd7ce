// The host bodies of the intrinsics: thin typed wrappers over the emulator, so that a kernel compiles fast.
// intrinsics.cuh documents each function and includes this file after the types that it needs.
#pragma once
#include "interface.h"

// KERNEL defines three symbols for every entry, which the launcher looks up by name.
#define EMULATOR_EXPORT extern "C" __attribute__((visibility("default")))
#define KERNEL(name, Params, threads, min_blocks)                                                                      \
    static void name(const Params &params);                                                                            \
    EMULATOR_EXPORT void emulator_entry_##name(const void *bytes) {                                                    \
        name(*static_cast<const Params *>(bytes));                                                                     \
    }                                                                                                                  \
    EMULATOR_EXPORT int emulator_params_##name() {                                                                     \
        return (int)sizeof(Params);                                                                                    \
    }                                                                                                                  \
    EMULATOR_EXPORT int emulator_threads_##name() {                                                                    \
        return (threads);                                                                                              \
    }                                                                                                                  \
    static void name(const Params &params)

#define cover(label)                                                                                                   \
    do {                                                                                                               \
        static emulator::Branch branch = {label, 0, nullptr, false};                                                   \
        if (!branch.linked)                                                                                            \
            emulator::link_branch(&branch);                                                                            \
        ++branch.count;                                                                                                \
    } while (0)

using emulator::barrier;
using emulator::block_index;
using emulator::copy_async_commit;
using emulator::grid_size;
using emulator::thread_index;
using emulator::warp_barrier;
using emulator::warp_uniform;
DEVICE u32 unknown(u32 value) {
    return value;
}
DEVICE sptr<u8> shared_base() {
    return sptr<u8>(emulator::shared_base());
}

template <int BYTES, class T>
DEVICE Vec<BYTES> load_global(gptr<T> p, bool predicate, CALLER) {
    Vec<BYTES> v = Vec<BYTES>::zero();
    if (predicate)
        emulator::load_global(v.word, p.address, BYTES, site);
    return v;
}

template <int BYTES, class T>
DEVICE void store_global(gptr<T> p, Vec<BYTES> v, bool predicate, CALLER) {
    if (predicate)
        emulator::store_global(p.address, v.word, BYTES, site);
}

template <int LEVEL, class T>
DEVICE void prefetch_line(gptr<T> p, bool predicate, CALLER) {
    static_assert(LEVEL == 1 || LEVEL == 2, "Lines are fetched to the L1 or the L2.");
    if (predicate)
        emulator::prefetch_line(p.address, LEVEL, site);
}

template <int BYTES, class T>
DEVICE Vec<BYTES> load_written(gptr<T> p, CALLER) {
    Vec<BYTES> v = Vec<BYTES>::zero();
    emulator::load_written(v.word, p.address, BYTES, site);
    return v;
}
DEVICE void give_flag(gptr<u64> flag, u64 value, CALLER) {
    emulator::give_flag(flag.address, value, site);
}
DEVICE void take_flag(gptr<u64> flag, u64 value, CALLER) {
    emulator::take_flag(flag.address, value, site);
}

template <int BYTES, class T>
DEVICE Vec<BYTES> load_shared(sptr<T> p, CALLER) {
    Vec<BYTES> v = Vec<BYTES>::zero();
    emulator::load_shared(v.word, p.address, BYTES, site);
    return v;
}

template <int BYTES, class T>
DEVICE void store_shared(sptr<T> p, Vec<BYTES> v, CALLER) {
    emulator::store_shared(p.address, v.word, BYTES, site);
}

template <int BYTES, class T, class U>
DEVICE void copy_async(sptr<T> to, gptr<U> from, u32 predicate, CALLER) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async copies 4, 8 or 16 bytes.");
    emulator::copy_async(to.address, from.address, BYTES, predicate != 0, site);
}
template <int N>
DEVICE void copy_async_wait() {
    static_assert(N >= 0, "A wait leaves so many groups.");
    emulator::copy_async_wait(N);
}

template <int N, bool TRANSPOSED, class T>
DEVICE void load_matrix(u32 (&r)[N], sptr<T> row_address, CALLER) {
    static_assert(N == 1 || N == 2 || N == 4, "ldmatrix loads 1, 2 or 4 matrices.");
    emulator::load_matrix(r, N, TRANSPOSED, row_address.address, site);
}

DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], half_t, CALLER) {
    emulator::multiply_matrix(emulator::M16N8K16_HALF, d, a, b, site);
}
DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bfloat16_t, CALLER) {
    emulator::multiply_matrix(emulator::M16N8K16_BFLOAT16, d, a, b, site);
}
DEVICE void mma_m16n8k8(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K8_HALF, d, a, b, site);
}
DEVICE void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K8_TF32, d, a, b, site);
}
template <bool A_E5M2, bool B_E5M2>
DEVICE void mma_m16n8k32_f8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], CALLER) {
    constexpr auto SHAPE = (emulator::MatrixShape)(emulator::M16N8K32_E4M3 + 2 * A_E5M2 + B_E5M2);
    emulator::multiply_matrix(SHAPE, d, a, b, site);
}
DEVICE void mma_m16n8k32_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K32_INT8, d, a, b, site);
}
DEVICE void mma_m8n8k16_s8(i32 (&d)[2], const u32 (&a)[1], const u32 (&b)[1], CALLER) {
    emulator::multiply_matrix(emulator::M8N8K16_INT8, d, a, b, site);
}

DEVICE void mma_m8n8k4_f64(double (&d)[2], const double (&a)[1], const double (&b)[1], CALLER) {
    emulator::multiply_matrix(emulator::M8N8K4_DOUBLE, d, (const u32 *)a, (const u32 *)b, site);
}
DEVICE void mma_m16n8k4_f64(double (&d)[4], const double (&a)[2], const double (&b)[1], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K4_DOUBLE, d, (const u32 *)a, (const u32 *)b, site);
}
DEVICE void mma_m16n8k8_f64(double (&d)[4], const double (&a)[4], const double (&b)[2], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K8_DOUBLE, d, (const u32 *)a, (const u32 *)b, site);
}
DEVICE void mma_m16n8k16_f64(double (&d)[4], const double (&a)[8], const double (&b)[4], CALLER) {
    emulator::multiply_matrix(emulator::M16N8K16_DOUBLE, d, (const u32 *)a, (const u32 *)b, site);
}

template <class T>
DEVICE T shuffle_xor(T value, int mask, CALLER) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "A shuffle moves 4 or 8 bytes.");
    if constexpr (sizeof(T) == 4)
        return bit_cast<T>((u32)emulator::shuffle_xor(bit_cast<u32>(value), mask, site));
    else
        return bit_cast<T>(emulator::shuffle_xor(bit_cast<u64>(value), mask, site));
}

DEVICE float exp_(float x) {
    return __builtin_expf(x);
}
DEVICE double exp_(double x) {
    return __builtin_exp(x);
}
DEVICE float erf_(float x) {
    return __builtin_erff(x);
}
DEVICE double erf_(double x) {
    return __builtin_erf(x);
}
DEVICE float tanh_(float x) {
    return __builtin_tanhf(x);
}
DEVICE double tanh_(double x) {
    return __builtin_tanh(x);
}
DEVICE float log_(float x) {
    return __builtin_logf(x);
}
DEVICE double log_(double x) {
    return __builtin_log(x);
}
DEVICE float sqrt_(float x) {
    return __builtin_sqrtf(x);
}
DEVICE double sqrt_(double x) {
    return __builtin_sqrt(x);
}
// Rounded once, by an instruction or, on a CPU without it, by a slow library call.
DEVICE float fma_(float a, float b, float c) {
    return __builtin_fmaf(a, b, c);
}
DEVICE double fma_(double a, double b, double c) {
    return __builtin_fma(a, b, c);
}
// A multiply-add, because the compiler would fuse a product and a sum; adding -0 keeps the sign of a zero product.
DEVICE float multiply_(float a, float b) {
    return __builtin_fmaf(a, b, -0.0f);
}
DEVICE double multiply_(double a, double b) {
    return __builtin_fma(a, b, -0.0);
}
DEVICE float max_(float a, float b) {
    return a != a || b <= a ? a : b;
}
DEVICE double max_(double a, double b) {
    return a != a || b <= a ? a : b;
}
DEVICE float min_(float a, float b) {
    return a != a || b >= a ? a : b;
}
DEVICE double min_(double a, double b) {
    return a != a || b >= a ? a : b;
}
DEVICE float exp2_(float x) {
    return __builtin_exp2f(x);
}
DEVICE float reciprocal_(float x) {
    return 1.0f / x;
}
DEVICE float maximum_(float a, float b) {
    return __builtin_fmaxf(a, b);
}
DEVICE u32 pack_pair(float low, float high, half_t) {
    return (u32)half_from_float(low).bits | (u32)half_from_float(high).bits << 16;
}
DEVICE u32 pack_pair(float low, float high, bfloat16_t) {
    return (u32)bfloat16_from_float(low).bits | (u32)bfloat16_from_float(high).bits << 16;
}
template <class T>
DEVICE u32 fma_pair(u32 a, u32 b, u32 c, T) {
    u32 result = 0;
    for (int shift = 0; shift < 32; shift += 16) {
        const double x = to_float(T{(u16)(a >> shift)}), y = to_float(T{(u16)(b >> shift)});
        result |= (u32)convert<T>(x * y + to_float(T{(u16)(c >> shift)})).bits << shift;
    }
    return result;
}
DEVICE u32 byte_permute(u32 low, u32 high, u32 selector) {
    const u64 bytes = (u64)high << 32 | low;
    u32 result = 0;
    for (int i = 0; i < 4; ++i)
        result |= (u32)(u8)(bytes >> 8 * (selector >> 4 * i & 7)) << 8 * i;
    return result;
}
DEVICE u32 convert_e4m3_pair(u16 bytes) {
    u32 pair = 0;
    for (int shift = 0; shift < 16; shift += 8) {
        const u32 magnitude = bytes >> shift & 0x7f, sign = bytes >> shift & 0x80;
        const float value = (float)(magnitude >> 3 ? magnitude & 7 | 8 : magnitude & 7) *
                            bit_cast<float>((127 - 10 + (magnitude >> 3 ? magnitude >> 3 : 1)) << 23);
        const u32 half = magnitude == 0x7f ? 0x7fff : half_from_float(value).bits;
        pair |= (half | sign << 8) << 2 * shift;
    }
    return pair;
}
