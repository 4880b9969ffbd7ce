// Directed roundings (PTX ISA, .rz, .rm and .rp): they set the processor's mode, which needs -frounding-math.
#pragma once
#include "numbers.h"
#include <cfenv>

namespace {
struct Mode {
    explicit Mode(Rounding rounding) {
        std::fesetround(rounding == ZERO   ? FE_TOWARDZERO
                        : rounding == DOWN ? FE_DOWNWARD
                        : rounding == UP   ? FE_UPWARD
                                           : FE_TONEAREST);
    }
    ~Mode() { std::fesetround(FE_TONEAREST); }
};
template <class To, class From>
To directed(From value, Rounding rounding) {
    volatile From from = value;
    Mode mode(rounding);
    volatile To result = (To)from;
    return result;
}
template <class T>
T directed_sum(T a, T b, T c, Rounding rounding) {
    volatile T x = a, y = b, z = c;
    Mode mode(rounding);
    volatile T result = std::fma((T)x, (T)y, (T)z);
    return result;
}
} // namespace

f32 directed_fma(f32 a, f32 b, f32 c, Rounding rounding) {
    return directed_sum(a, b, c, rounding);
}
f64 directed_fma(f64 a, f64 b, f64 c, Rounding rounding) {
    return directed_sum(a, b, c, rounding);
}
f32 directed_f32(f64 value, Rounding rounding) {
    return directed<f32>(value, rounding);
}
f32 directed_f32(s64 value, Rounding rounding) {
    return directed<f32>(value, rounding);
}
f32 directed_f32(u64 value, Rounding rounding) {
    return directed<f32>(value, rounding);
}
f64 directed_f64(s64 value, Rounding rounding) {
    return directed<f64>(value, rounding);
}
f64 directed_f64(u64 value, Rounding rounding) {
    return directed<f64>(value, rounding);
}
