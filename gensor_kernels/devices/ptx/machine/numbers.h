// Arithmetic of PTX on one thread's registers, as the PTX ISA 8.x defines it in chapters 9.7.1 to 9.7.9.
#pragma once
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

using u8 = uint8_t;
using u16 = uint16_t;
using u32 = uint32_t;
using u64 = uint64_t;
using s8 = int8_t;
using s16 = int16_t;
using s32 = int32_t;
using s64 = int64_t;
using f32 = float;
using f64 = double;

inline f32 f32_of(u32 bits) {
    return std::bit_cast<f32>(bits);
}
inline f64 f64_of(u64 bits) {
    return std::bit_cast<f64>(bits);
}
// A NaN result of single precision is the canonical one, without a payload.
inline u32 bits_of(f32 value) {
    return value != value ? 0x7fffffffu : std::bit_cast<u32>(value);
}
inline u64 bits_of(f64 value) {
    return std::bit_cast<u64>(value);
}

// ---- 16-bit and 8-bit floats: MANTISSA stored bits, exponents from 1 - BIAS to BIAS

enum Rounding { NEAREST, ZERO, DOWN, UP, AWAY };

// An integer near a finite value; AWAY rounds ties away from zero.
inline f64 whole(f64 value, Rounding rounding) {
    const f64 below = std::floor(value), rest = value - below;
    switch (rounding) {
    case ZERO:
        return std::trunc(value);
    case DOWN:
        return below;
    case UP:
        return std::ceil(value);
    case AWAY:
        return std::round(value);
    default:
        if (rest == 0.5)
            return std::fmod(below, 2) == 0 ? below : below + 1;
        return std::copysign(rest < 0.5 ? below : below + 1, value);
    }
}
// Round to a float of MANTISSA stored bits whose largest exponent is BIAS, as a double.
template <int MANTISSA, int BIAS>
inline f64 rounded_to(f64 value, Rounding rounding) {
    if (value == 0 || std::isnan(value) || std::isinf(value))
        return value;
    int exponent;
    std::frexp(value, &exponent); // value in [2^(exponent - 1), 2^exponent)
    const int unit = std::max(exponent - 1, 1 - BIAS) - MANTISSA;
    const f64 result = std::ldexp(whole(std::ldexp(value, -unit), rounding), unit);
    const f64 largest = std::ldexp(2 - std::ldexp(1.0, -MANTISSA), BIAS);
    if (std::fabs(result) <= largest)
        return std::copysign(result, value);
    const bool outwards =
        rounding == NEAREST || rounding == AWAY || (rounding == UP ? value > 0 : rounding == DOWN && value < 0);
    return std::copysign(outwards ? std::numeric_limits<f64>::infinity() : largest, value);
}
template <int MANTISSA, int BIAS>
inline u16 narrowed(f64 value, Rounding rounding = NEAREST) {
    constexpr u32 SPECIAL = ((1u << (15 - MANTISSA)) - 1) << MANTISSA;
    const u32 sign = std::signbit(value) ? 0x8000 : 0;
    if (std::isnan(value))
        return 0x7fff;
    value = std::fabs(rounded_to<MANTISSA, BIAS>(value, rounding));
    if (std::isinf(value))
        return sign | SPECIAL;
    if (value < std::ldexp(1.0, 1 - BIAS))
        return sign | (u32)std::ldexp(value, BIAS - 1 + MANTISSA);
    int exponent;
    const f64 fraction = std::frexp(value, &exponent); // in [0.5, 1)
    return sign | (u32)(exponent - 1 + BIAS) << MANTISSA | ((u32)std::ldexp(fraction, MANTISSA + 1) - (1u << MANTISSA));
}
inline f32 f32_of_f16(u16 bits) {
    const u32 sign = (u32)(bits & 0x8000) << 16, rest = (u32)(bits & 0x7fff) << 13;
    if ((bits & 0x7c00) == 0x7c00)
        return f32_of(sign | rest | 0x7f800000u);
    return f32_of(sign | bits_of(f32_of(rest) * 0x1p112f)); // exact, also for subnormal numbers
}
inline f32 f32_of_bf16(u16 bits) {
    return f32_of((u32)bits << 16);
}
inline u16 f16_of(f64 value, Rounding rounding = NEAREST) {
    return narrowed<10, 15>(value, rounding);
}
inline u16 bf16_of(f64 value, Rounding rounding = NEAREST) {
    return narrowed<7, 127>(value, rounding);
}
inline u32 tf32_of(f32 value) { // to nearest, ties away: 10 stored bits of mantissa
    const u32 bits = bits_of(value);
    return (bits & 0x7f800000u) == 0x7f800000u ? bits : (bits + 0x1000u) & 0xffffe000u;
}
// E4M3: no infinities, NaN is all ones; returned as f16 bits.
inline u16 f16_of_e4m3(u8 bits) {
    if ((bits & 0x7f) == 0x7f)
        return 0x7fff;
    const int exponent = bits >> 3 & 15, fraction = bits & 7;
    const f64 value = exponent ? std::ldexp(8 + fraction, exponent - 10) : std::ldexp(fraction, -9);
    return f16_of(bits >> 7 ? -value : value);
}
inline u16 f16_of_e5m2(u8 bits) { // the upper half of an f16
    return (bits & 0x7c) == 0x7c && (bits & 3) ? 0x7fff : (u16)(bits << 8);
}
// a * b + c with one rounding, to odd, so that rounding once more to 16 bits is correct.
inline f64 fused_to_odd(f64 a, f64 b, f64 c) {
    const f64 product = a * b, sum = product + c; // the product is exact
    if (!std::isfinite(sum))
        return sum;
    const f64 part = sum - product, lost = (product - (sum - part)) + (c - part);
    if (lost == 0 || (std::bit_cast<u64>(sum) & 1))
        return sum;
    return std::nextafter(sum, lost > 0 ? INFINITY : -INFINITY);
}
template <class Combine>
inline u32 halves(Combine each, u32 a, u32 b, u32 c = 0) {
    return (u32)each((u16)a, (u16)b, (u16)c) | (u32)each((u16)(a >> 16), (u16)(b >> 16), (u16)(c >> 16)) << 16;
}
inline u16 fma_f16(u16 a, u16 b, u16 c) {
    return f16_of(fused_to_odd(f32_of_f16(a), f32_of_f16(b), f32_of_f16(c)));
}
inline u16 fma_bf16(u16 a, u16 b, u16 c) {
    return bf16_of(fused_to_odd(f32_of_bf16(a), f32_of_bf16(b), f32_of_bf16(c)));
}

// ---- Floats

template <class T>
inline T flushed(T value) { // .ftz
    return std::fabs(value) < std::numeric_limits<T>::min() ? std::copysign((T)0, value) : value;
}
template <class T>
inline T saturated(T value) { // .sat: NaN becomes +0
    return value > 0 ? (value < 1 ? value : (T)1) : (T)0;
}
f32 directed_fma(f32 a, f32 b, f32 c, Rounding rounding); // machine.cpp: compiled to heed the rounding mode
f64 directed_fma(f64 a, f64 b, f64 c, Rounding rounding);
template <class T>
inline T fused(T a, T b, T c, Rounding rounding) {
    return rounding == NEAREST ? std::fma(a, b, c) : directed_fma(a, b, c, rounding);
}
inline u64 fused_pair(u64 a, u64 b, u64 c, Rounding rounding) { // .f32x2
    const auto half = [&](int shift) {
        const auto of = [&](u64 pair) { return f32_of((u32)(pair >> shift)); };
        return (u64)bits_of(fused(of(a), of(b), of(c), rounding)) << shift;
    };
    return half(0) | half(32);
}
template <class T>
inline T added(T a, T b, Rounding rounding) {
    return rounding == NEAREST ? a + b : directed_fma((T)1, a, b, rounding);
}
template <class T>
inline T multiplied(T a, T b, Rounding rounding) { // -0 keeps the sign of a product that is zero
    return rounding == NEAREST ? a * b : directed_fma(a, b, rounding == DOWN ? (T)0 : (T)-0.0, rounding);
}
template <class T>
inline T least(T a, T b) { // -0 is below +0; the number where one is NaN
    if (a != a)
        return b;
    if (b != b)
        return a;
    return a < b || (a == b && std::signbit(a)) ? a : b;
}
template <class T>
inline T greatest(T a, T b) {
    if (a != a)
        return b;
    if (b != b)
        return a;
    return a > b || (a == b && !std::signbit(a)) ? a : b;
}
template <class T>
inline T nan_or(T a, T b, T otherwise) { // .NaN
    return a != a || b != b ? std::numeric_limits<T>::quiet_NaN() : otherwise;
}
// Approximations are computed with full accuracy: the ISA only bounds their error.
inline f64 gross_reciprocal(f64 value) { // of the upper word only, to 20 bits of mantissa
    const f64 seen = flushed(f64_of(bits_of(value) & 0xffffffff00000000u));
    return f64_of(bits_of(flushed(1 / seen)) & 0xffffffff00000000u);
}
inline f32 exp2_near(f32 value) {
    return (f32)std::exp2((f64)value);
}
inline f32 log2_near(f32 value) {
    return (f32)std::log2((f64)value);
}
inline f32 tanh_near(f32 value) {
    return (f32)std::tanh((f64)value);
}
inline f32 rsqrt_near(f32 value) {
    return (f32)(1 / std::sqrt((f64)value));
}
inline f32 sin_near(f32 value) {
    return (f32)std::sin((f64)value);
}
inline f32 cos_near(f32 value) {
    return (f32)std::cos((f64)value);
}

// ---- Conversions

// Float to integer: values out of range are clamped, NaN is 0.
template <class To, class From>
inline To integer_of(From value, Rounding rounding) {
    if (value != value)
        return 0;
    const f64 near = std::isinf(value) ? (f64)value : whole((f64)value, rounding);
    constexpr f64 above = std::numeric_limits<To>::is_signed ? (f64)((u64)1 << (sizeof(To) * 8 - 1))
                                                             : 2.0 * ((u64)1 << (sizeof(To) * 8 - 1));
    if (near >= above)
        return std::numeric_limits<To>::max();
    if (near < (f64)std::numeric_limits<To>::min())
        return std::numeric_limits<To>::min();
    return (To)near;
}
template <class From>
inline From whole_float(From value, Rounding rounding) {
    return std::isfinite(value) ? (From)std::copysign(whole((f64)value, rounding), value) : value;
}
f32 directed_f32(f64 value, Rounding rounding);
f32 directed_f32(s64 value, Rounding rounding);
f32 directed_f32(u64 value, Rounding rounding);
f64 directed_f64(s64 value, Rounding rounding);
f64 directed_f64(u64 value, Rounding rounding);
template <class To, class From>
inline To clamped(From value) { // .sat between integers
    if (value > 0 && (u64)value > (u64)std::numeric_limits<To>::max())
        return std::numeric_limits<To>::max();
    if (value < 0 && (!std::numeric_limits<To>::is_signed || (s64)value < (s64)std::numeric_limits<To>::min()))
        return std::numeric_limits<To>::min();
    return (To)value;
}

// ---- Integers

template <class T>
inline T quotient(T a, T b) { // by zero: unspecified, all ones here
    if (b == 0)
        return (T) ~(T)0;
    return std::numeric_limits<T>::is_signed && b == (T)-1 ? (T)(0 - (u64)a) : (T)(a / b);
}
template <class T>
inline T remainder_of(T a, T b) {
    if (b == 0)
        return a;
    return std::numeric_limits<T>::is_signed && b == (T)-1 ? (T)0 : (T)(a % b);
}
template <class T>
inline T high_product(T a, T b) {
    if constexpr (sizeof(T) == 8) {
        using Wide = std::conditional_t<std::numeric_limits<T>::is_signed, __int128, unsigned __int128>;
        return (T)((Wide)a * (Wide)b >> 64);
    } else {
        using Wide = std::conditional_t<std::numeric_limits<T>::is_signed, s64, u64>;
        return (T)((Wide)a * (Wide)b >> (sizeof(T) * 8));
    }
}
template <class T>
inline T shifted_left(T value, u32 by) {
    return by >= sizeof(T) * 8 ? (T)0 : (T)(value << by);
}
template <class T>
inline T shifted_right(T value, u32 by) { // signed types are filled with the sign
    const u32 bits = sizeof(T) * 8;
    return (T)(by < bits ? value >> by : std::numeric_limits<T>::is_signed ? value >> (bits - 1) : 0);
}
inline u32 funnel(u32 low, u32 high, u32 by, bool left, bool wrap) {
    by = wrap ? by & 31 : by < 32 ? by : 32;
    const u64 both = (u64)high << 32 | low;
    return left ? (u32)(both << by >> 32) : (u32)(both >> by);
}
template <class T>
inline T field_inserted(T field, T into, u32 position, u32 length) {
    position &= 255, length &= 255;
    T result = into;
    for (u32 bit = 0; bit < length && position + bit < sizeof(T) * 8; bit++) {
        const T mask = (T)1 << (position + bit);
        result = (result & ~mask) | ((field >> bit & 1) ? mask : 0);
    }
    return result;
}
template <class T>
inline T field_extracted(T value, u32 position, u32 length) {
    using Bits = std::make_unsigned_t<T>;
    const u32 last = sizeof(T) * 8 - 1;
    position &= 255, length &= 255;
    const u32 top = position + length - 1 < last ? position + length - 1 : last;
    const Bits sign = std::numeric_limits<T>::is_signed && length ? (Bits)value >> top & 1 : 0;
    Bits result = 0;
    for (u32 bit = 0; bit <= last; bit++) {
        const Bits taken = bit < length && position + bit <= last ? (Bits)value >> (position + bit) & 1 : sign;
        result |= taken << bit;
    }
    return (T)result;
}
inline u32 permuted(u32 low, u32 high, u32 selector) { // prmt, default mode
    const u64 bytes = (u64)high << 32 | low;
    u32 result = 0;
    for (u32 place = 0; place < 4; place++) {
        const u32 which = selector >> 4 * place & 15;
        u32 byte = (u32)(bytes >> 8 * (which & 7)) & 255;
        if (which & 8)
            byte = byte & 128 ? 255 : 0;
        result |= byte << 8 * place;
    }
    return result;
}
inline u32 looked_up(u32 a, u32 b, u32 c, u32 table) { // lop3
    u32 result = 0;
    for (u32 entry = 0; entry < 8; entry++)
        if (table >> entry & 1)
            result |= (entry & 4 ? a : ~a) & (entry & 2 ? b : ~b) & (entry & 1 ? c : ~c);
    return result;
}
inline s32 dot_bytes(u32 a, u32 b, s32 c, bool signed_a, bool signed_b) { // dp4a
    for (int byte = 0; byte < 4; byte++) {
        const u32 x = a >> 8 * byte & 255, y = b >> 8 * byte & 255;
        c = (s32)((u32)c + (u32)((signed_a ? (s8)x : (s32)x) * (signed_b ? (s8)y : (s32)y)));
    }
    return c;
}
// 8-bit floats as floats.
struct Numbers {
    f32 of_e4m3[256], of_e5m2[256];

    Numbers() {
        for (u32 bits = 0; bits < 256; bits++)
            of_e4m3[bits] = f32_of_f16(f16_of_e4m3((u8)bits)), of_e5m2[bits] = f32_of_f16(f16_of_e5m2((u8)bits));
    }
};
inline const Numbers NUMBERS;
