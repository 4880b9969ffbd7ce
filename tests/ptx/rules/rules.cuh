// Functions that the kernels of all rules use.
#pragma once
#include "dependent.cuh"
#include "hopper.cuh"

// After its threads a rule names the faults that emulator and executor must report, as rules.py reads them.
#define RULE_OF(kernel, name, ...)                                                                                     \
    template <bool WRONG>                                                                                              \
    DEVICE void name(const Arguments &params);                                                                         \
    kernel(name##_wrong, Arguments, __VA_ARGS__) {                                                                     \
        name<true>(params);                                                                                            \
    }                                                                                                                  \
    kernel(name##_right, Arguments, __VA_ARGS__) {                                                                     \
        name<false>(params);                                                                                           \
    }                                                                                                                  \
    template <bool WRONG>                                                                                              \
    DEVICE void name(const Arguments &params)
#define RULE(name, threads, ...) RULE_OF(KERNEL, name, threads, 1)

constexpr int GIVEN = 8192, SHARED = 32768; // bytes of `a`, and of shared memory

#ifdef MAPPED
struct Arguments : Params {
    TensorMap a_map, b_map, c_map;
};
#else
typedef Params Arguments;
#endif

DEVICE sptr<u8> slot(int i) {
    return shared_base() + i * 16;
}
DEVICE gptr<u8> given(const Params &params, int byte) {
    return gptr<u8>(params.a) + byte;
}
// This thread's 16 bytes of `a`.
DEVICE Vec<16> word(const Params &params) {
    return load_global<16>(given(params, thread_index() * 16), true);
}
DEVICE void finish(const Params &params, Vec<16> result) {
    store_global(gptr<u8>(params.c) + (block_index() * 4096 + thread_index() * 16), result, true);
}
DEVICE void finish(const Params &params, u32 result) {
    Vec<16> words = Vec<16>::zero();
    words.word[0] = result;
    finish(params, words);
}
template <class T>
DEVICE void finish(const Params &params, const T (&result)[4]) {
    Vec<16> words;
    UNROLL for (int i = 0; i < 4; ++i) words.word[i] = bit_cast<u32>(result[i]);
    finish(params, words);
}
