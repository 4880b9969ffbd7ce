// Vec<BYTES>: the data of one memory instruction, in 32-bit registers.
#pragma once
#include "types.cuh"

template <int BYTES>
struct Vec {
    static_assert(BYTES == 1 || BYTES == 2 || BYTES == 4 || BYTES == 8 || BYTES == 16,
                  "A memory instruction moves 1, 2, 4, 8 or 16 bytes.");
    static constexpr int WORDS = (BYTES + 3) / 4;
    u32 word[WORDS];

    static MEMBER Vec zero() {
        Vec result;
        UNROLL for (int i = 0; i < WORDS; ++i) result.word[i] = 0;
        return result;
    }

    // Element i of type T. i must be a constant after unrolling: otherwise the vector is moved to local memory.
    template <class T>
    MEMBER T get(int i) const {
        static_assert(sizeof(T) <= BYTES, "The element is wider than the vector.");
        if constexpr (is_complex<T>) {
            return T{get<part_t<T>>(2 * i), get<part_t<T>>(2 * i + 1)};
        } else if constexpr (sizeof(T) == 8) {
            return bit_cast<T>((u64)word[2 * i + 1] << 32 | word[2 * i]);
        } else if constexpr (sizeof(T) == 4) {
            return bit_cast<T>(word[i]);
        } else if constexpr (sizeof(T) == 2) {
            return bit_cast<T>((u16)(word[i >> 1] >> (16 * (i & 1))));
        } else {
            return bit_cast<T>((u8)(word[i >> 2] >> (8 * (i & 3))));
        }
    }

    template <class T>
    MEMBER void set(int i, T value) {
        static_assert(sizeof(T) <= BYTES, "The element is wider than the vector.");
        if constexpr (is_complex<T>) {
            set(2 * i, value.re), set(2 * i + 1, value.im);
        } else if constexpr (sizeof(T) == 8) {
            u64 bits = bit_cast<u64>(value);
            word[2 * i] = (u32)bits, word[2 * i + 1] = (u32)(bits >> 32);
        } else if constexpr (sizeof(T) == 4) {
            word[i] = bit_cast<u32>(value);
        } else if constexpr (sizeof(T) == 2) {
            int shift = 16 * (i & 1);
            word[i >> 1] = (word[i >> 1] & ~(0xffffu << shift)) | (u32)bit_cast<u16>(value) << shift;
        } else {
            int shift = 8 * (i & 3);
            word[i >> 2] = (word[i >> 2] & ~(0xffu << shift)) | (u32)bit_cast<u8>(value) << shift;
        }
    }
};
