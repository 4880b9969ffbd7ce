// Element types for storage only: their numbers are widened exactly to the type that is multiplied.
//
// An operand of a product may be stored in a narrower type than IN_TYPE (A_STORED, B_STORED): 8-bit floats, or i8. It
// is widened when it enters shared memory, or when fragments are loaded from shared memory; see the families.
#pragma once
#include "epilogue_operand.cuh"

// 8-bit floats. e4m3 has no infinities, and its largest magnitude is NaN (OCP 8-bit Floating Point Specification,
// E4M3). e5m2 is the upper half of a half_t.
struct e4m3_t {
    u8 bits;
};
struct e5m2_t {
    u8 bits;
};

// Two numbers from -8 to 7 in a byte, the first in its lower half, each stored as the number plus 8.
struct u4x2_t {
    u8 bits;
};
template <class T>
constexpr int per_unit = 1; // elements in a T
template <>
constexpr int per_unit<u4x2_t> = 2;

template <class T>
constexpr bool is_eight_bit_float = same_type<T, e4m3_t> || same_type<T, e5m2_t>;

// One element as float, from which convert<To>(from) continues.
DEVICE float widen(e4m3_t value) {
    const u32 sign = (u32)(value.bits & 0x80) << 24, magnitude = value.bits & 0x7f;
    if (magnitude == 0x7f)
        return bit_cast<float>(sign | 0x7fc00000u);
    // Multiplying by 2^120 moves the exponent bias from 7 to 127 and normalises subnormals exactly.
    return bit_cast<float>(sign | magnitude << 20) * bit_cast<float>(0x7b800000u);
}
DEVICE float widen(e5m2_t value) {
    return to_float(half_t{(u16)(value.bits << 8)});
}

// ---- four bytes -> two pairs of 16-bit elements, in order

// Bytes 2 * i and 2 * i + 1 as the upper bytes of a pair.
DEVICE u32 upper_bytes(u32 word, int i) {
    return byte_permute(word, 0, i == 0 ? 0x1404 : 0x3424);
}
// A pair of half_t as a pair of bfloat16_t; exact for numbers of at most 8 significant bits.
DEVICE u32 half_to_bfloat16(u32 pair) {
    return pack_pair(to_float(half_t{(u16)pair}), to_float(half_t{(u16)(pair >> 16)}), bfloat16_t{});
}

// Without an instruction: the bits of an e4m3 number, one place lower, are a half_t that is 2^8 times smaller. Adding 1
// to a NaN, the byte 0x7f, carries into the bit above, which, one place lower, completes an exponent of all ones.
DEVICE u32 widen_e4m3_pair(u32 word, int i) {
    if constexpr (ARCH >= 890)
        return convert_e4m3_pair((u16)(word >> 16 * i));
    const u32 bytes = upper_bytes(word, i), magnitude = bytes & 0x7f007f00u;
    const u32 marked = magnitude | ((magnitude + 0x01000100u) & 0x80008000u);
    return fma_pair((bytes & 0x80008000u) | marked >> 1, 0x5c005c00u, 0x80008000u, half_t{});
}

DEVICE void widen_word(u32 word, u32 (&pairs)[2], e5m2_t, half_t) {
    UNROLL for (int i = 0; i < 2; ++i) pairs[i] = upper_bytes(word, i);
}
DEVICE void widen_word(u32 word, u32 (&pairs)[2], e4m3_t, half_t) {
    UNROLL for (int i = 0; i < 2; ++i) pairs[i] = widen_e4m3_pair(word, i);
}
// A half_t with the upper byte 0x64 and the number plus 128 as its lower byte is 1024 + 128 + the number.
DEVICE void widen_word(u32 word, u32 (&pairs)[2], i8, half_t) {
    const u32 shifted = word ^ 0x80808080u;
    UNROLL for (int i = 0; i < 2; ++i) pairs[i] =
        fma_pair(byte_permute(shifted, 0x64646464u, i == 0 ? 0x4140 : 0x4342), 0x3c003c00u, 0xe480e480u, half_t{});
}
// The same with floats, 2^23 + 128 + the number, because a bfloat16_t has too few bits for such a sum.
DEVICE void widen_word(u32 word, u32 (&pairs)[2], i8, bfloat16_t) {
    const u32 shifted = word ^ 0x80808080u;
    float number[4];
    UNROLL for (int i = 0; i < 4; ++i) number[i] =
        bit_cast<float>(byte_permute(shifted, 0x4b000000u, 0x7440 | i)) - 8388736.0f;
    UNROLL for (int i = 0; i < 2; ++i) pairs[i] = pack_pair(number[2 * i], number[2 * i + 1], bfloat16_t{});
}
template <class T>
DEVICE void widen_word(u32 word, u32 (&pairs)[2], T, bfloat16_t) {
    static_assert(is_eight_bit_float<T>, "Only 8-bit types are widened.");
    widen_word(word, pairs, T{}, half_t{});
    UNROLL for (int i = 0; i < 2; ++i) pairs[i] = half_to_bfloat16(pairs[i]);
}

// ---- four bytes of u4x2_t -> four pairs. A number is added to 1024 (bfloat16_t: 128) by a bitwise or with its last 4
// bits; then 1024 + 8 (128 + 8) is subtracted.

template <class To>
DEVICE u32 centred(u32 pair) {
    constexpr bool HALF = same_type<To, half_t>;
    const u32 number = (pair & 0x000f000fu) | (HALF ? 0x64006400u : 0x43004300u);
    return fma_pair(number, HALF ? 0x3c003c00u : 0x3f803f80u, HALF ? 0xe408e408u : 0xc308c308u, To{});
}
// Elements (0, 4), (1, 5), (2, 6), (3, 7): the order that needs only a shift.
template <class To>
DEVICE void widen_word(u32 word, u32 (&pairs)[4], u4x2_t, To) {
    UNROLL for (int i = 0; i < 4; ++i) pairs[i] = centred<To>(word >> 4 * i);
}
// The same in order: elements (0, 1), (2, 3), (4, 5), (6, 7).
template <class To>
DEVICE void widen_in_order(u32 word, u32 (&pairs)[4]) {
    UNROLL for (int i = 0; i < 4; ++i) pairs[i] = centred<To>(byte_permute(word, word >> 4, 0x0400 | i << 8 | i));
}

// Widens a piece: returns chunk number `chunk` of the result, BYTES bytes of To elements.
template <int BYTES, class From, class To, int VECTOR>
DEVICE Vec<BYTES> widened(const Vec<VECTOR> &piece, int chunk) {
    Vec<BYTES> result;
    if constexpr (per_unit<From> == 2) {
        u32 pairs[4];
        widen_in_order<To>(piece.word[chunk], pairs);
        UNROLL for (int w = 0; w < BYTES / 4; ++w) result.word[w] = pairs[w];
    } else {
        UNROLL for (int w = 0; w < (BYTES + 7) / 8; ++w) {
            u32 pairs[2];
            widen_word(piece.word[chunk * (BYTES / 8) + w], pairs, From{}, To{});
            result.word[2 * w] = pairs[0];
            if (BYTES > 4)
                result.word[2 * w + 1] = pairs[1];
        }
    }
    return result;
}
