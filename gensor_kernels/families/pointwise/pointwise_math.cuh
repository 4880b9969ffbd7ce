// The operations of a program, on float, double, int and long long, with NumPy's meaning.
#pragma once
#include "intrinsics.cuh"
#include "pointwise_program.cuh"

#ifdef __CUDACC__
#define MATH(name) name
#else
#define MATH(name) __builtin_##name
#endif

// A function of the mathematical library, of floats and of doubles.
#define POINTWISE_FUNCTION(name)                                                                                       \
    DEVICE float name##_of(float x) {                                                                                  \
        return MATH(name##f)(x);                                                                                       \
    }                                                                                                                  \
    DEVICE double name##_of(double x) {                                                                                \
        return MATH(name)(x);                                                                                          \
    }
POINTWISE_FUNCTION(exp2)
POINTWISE_FUNCTION(expm1)
POINTWISE_FUNCTION(log2)
POINTWISE_FUNCTION(log10)
POINTWISE_FUNCTION(log1p)
POINTWISE_FUNCTION(sin)
POINTWISE_FUNCTION(cos)
POINTWISE_FUNCTION(tan)
POINTWISE_FUNCTION(asin)
POINTWISE_FUNCTION(acos)
POINTWISE_FUNCTION(atan)
POINTWISE_FUNCTION(sinh)
POINTWISE_FUNCTION(cosh)
POINTWISE_FUNCTION(asinh)
POINTWISE_FUNCTION(acosh)
POINTWISE_FUNCTION(atanh)
POINTWISE_FUNCTION(floor)
POINTWISE_FUNCTION(ceil)
POINTWISE_FUNCTION(rint)
POINTWISE_FUNCTION(trunc)
#undef POINTWISE_FUNCTION
DEVICE float fmod_of(float a, float b) {
    return MATH(fmodf)(a, b);
}
DEVICE double fmod_of(double a, double b) {
    return MATH(fmod)(a, b);
}
DEVICE float pow_of(float a, float b) {
    return MATH(powf)(a, b);
}
DEVICE double pow_of(double a, double b) {
    return MATH(pow)(a, b);
}
DEVICE float atan2_of(float a, float b) {
    return MATH(atan2f)(a, b);
}
DEVICE double atan2_of(double a, double b) {
    return MATH(atan2)(a, b);
}

// Unsigned numbers wrap around where signed ones must not.
template <class T>
struct Unsigned;
template <>
struct Unsigned<i32> {
    typedef u32 Type;
};
template <>
struct Unsigned<i64> {
    typedef u64 Type;
};
template <class T>
using unsigned_t = typename Unsigned<T>::Type;

// 8-bit floats, as in the OCP 8-bit Floating Point Specification (OFP8), revision 1.0.
template <int FRACTION>
DEVICE float to_float(float8_t<FRACTION> value) {
    if constexpr (FRACTION == 2)
        return to_float(half_t{(u16)(value.bits << 8)});
    const u32 sign = (u32)(value.bits & 0x80) << 24, magnitude = value.bits & 0x7f;
    if (magnitude == 0x7f)
        return bit_cast<float>(sign | 0x7fc00000u);
    // Multiplying by 2^120 moves the exponent bias from 7 to 127 and normalises subnormals exactly.
    return bit_cast<float>(sign | magnitude << 20) * bit_cast<float>(0x7b800000u);
}

// Rounds to nearest, ties to even; numbers beyond the range become infinite, or NaN without infinities.
template <int FRACTION>
struct Narrow<float8_t<FRACTION>> {
    static MEMBER float8_t<FRACTION> from(float value) {
        constexpr int BIAS = FRACTION == 3 ? 7 : 15, SHIFT = 23 - FRACTION;
        constexpr u32 BEYOND = FRACTION == 3 ? 0x7f : 0x7c;
        const u32 bits = bit_cast<u32>(value), sign = bits >> 24 & 0x80, size = bits & 0x7fffffffu;
        u32 found;
        if (size > 0x7f800000u)
            found = 0x7f;
        else if (size < (u32)(128 - BIAS) << 23) {
            // Neighbours of this power of two are as far apart as subnormal numbers.
            constexpr u32 POWER = (u32)(128 - BIAS + SHIFT) << 23;
            found = bit_cast<u32>(bit_cast<float>(size) + bit_cast<float>(POWER)) - POWER;
        } else {
            const u32 rounded = size + (1u << (SHIFT - 1)) - 1 + (size >> SHIFT & 1);
            found = (rounded >> SHIFT) - ((u32)(127 - BIAS) << FRACTION);
            found = found < BEYOND ? found : BEYOND;
        }
        return {(u8)(sign | found)};
    }
    template <class From>
    static MEMBER float8_t<FRACTION> from(From value) {
        return from(to_float_odd(value));
    }
};

// Truncates towards zero and saturates; NaN gives 0.
template <class T>
DEVICE i64 to_long(T value) {
    if (value != value)
        return 0;
    if (value >= T(9223372036854775808.0))
        return 9223372036854775807ll;
    return value <= T(-9223372036854775808.0) ? -9223372036854775807ll - 1 : (i64)value;
}

// A number of another type, of the type code CODE.
template <u64 CODE, class From>
DEVICE typename Coded<CODE>::Held cast(From x) {
    constexpr bool REAL = same_type<From, float> || same_type<From, double>;
    typedef typename Coded<CODE>::Held To;
    typedef typename Coded<CODE>::Stored Stored;
    if constexpr (CODE == B1)
        return x != From(0);
    else if constexpr (is_narrow(CODE)) {
        if constexpr (same_type<From, i64>)
            return to_float(Narrow<Stored>::from((double)x));
        else
            return to_float(Narrow<Stored>::from(x));
    } else if constexpr (is_real(CODE) || !REAL) {
        return (To)(Stored)x;
    } else if constexpr (same_type<To, i64>) {
        return (To)(Stored)to_long(x);
    } else {
        return (To)(Stored)to_int(x);
    }
}

// The remainder of a division that rounds down, as a number between zero and the divisor.
template <class T>
DEVICE T remainder_down(T a, T b) {
    const T rest = fmod_of(a, b);
    return rest != T(0) && (rest < T(0)) != (b < T(0)) ? rest + b : rest;
}
template <class T>
DEVICE T quotient_down(T a, T b) {
    const T rest = fmod_of(a, b);
    if (b == T(0))
        return a / b;
    T quotient = (a - rest) / b;
    if (rest != T(0) && (rest < T(0)) != (b < T(0)))
        quotient = quotient - T(1);
    const T down = floor_of(quotient);
    return quotient - down > T(0.5) ? down + T(1) : down;
}

// The value of a step of this name; what follows is for the other names.
#define ON(name, value)                                                                                                \
    if constexpr (NAME == letters(#name))                                                                              \
        return value;                                                                                                  \
    else

template <u64 NAME, class T>
DEVICE T real_of_one(T x) {
    ON(neg, -x)
    ON(abs, x < T(0) ? -x : x + T(0)) // +0 of -0
    ON(sign, x != x ? x : T((x > T(0)) - (x < T(0))))
    ON(sqrt, sqrt_(x))
    ON(rsqrt, T(1) / sqrt_(x))
    ON(recip, T(1) / x)
    ON(exp, exp_(x))
    ON(exp2, exp2_of(x))
    ON(expm1, expm1_of(x))
    ON(log, log_(x))
    ON(log2, log2_of(x))
    ON(log10, log10_of(x))
    ON(log1p, log1p_of(x))
    ON(sin, sin_of(x))
    ON(cos, cos_of(x))
    ON(tan, tan_of(x))
    ON(asin, asin_of(x))
    ON(acos, acos_of(x))
    ON(atan, atan_of(x))
    ON(sinh, sinh_of(x))
    ON(cosh, cosh_of(x))
    ON(tanh, tanh_(x))
    ON(asinh, asinh_of(x))
    ON(acosh, acosh_of(x))
    ON(atanh, atanh_of(x))
    ON(erf, erf_(x))
    ON(sigmoid, T(1) / (T(1) + exp_(-x)))
    ON(floor, floor_of(x))
    ON(ceil, ceil_of(x))
    ON(rint, rint_of(x)) {
        static_assert(NAME == letters("trunc"), "The operation is one of program.py.");
        return trunc_of(x);
    }
}

template <u64 NAME, class T>
DEVICE T real_of_two(T a, T b) {
    ON(add, a + b)
    ON(sub, a - b)
    ON(mul, a * b)
    ON(div, a / b)
    ON(max, max_(a, b))
    ON(min, min_(a, b))
    ON(pow, pow_of(a, b))
    ON(atan2, atan2_of(a, b))
    ON(floordiv, quotient_down(a, b))
    ON(mod, remainder_down(a, b)) {
        static_assert(NAME == letters("fmod"), "The operation is one of program.py.");
        return fmod_of(a, b);
    }
}

// Quotient and rest of a division that truncates: 0 by a divisor of 0, and without the overflow of the least integer.
template <class T>
DEVICE T quotient_of(T a, T b) {
    if (b == T(0))
        return T(0);
    return b == T(-1) ? T(unsigned_t<T>(0) - unsigned_t<T>(a)) : T(a / b);
}
template <class T>
DEVICE T rest_of(T a, T b) {
    return b == T(0) || b == T(-1) ? T(0) : T(a % b);
}

template <u64 NAME, int BITS, class T>
DEVICE T whole_of_two(T a, T b) {
    typedef unsigned_t<T> U;
    ON(add, T(U(a) + U(b)))
    ON(sub, T(U(a) - U(b)))
    ON(mul, T(U(a) * U(b)))
    ON(max, a > b ? a : b)
    ON(min, a < b ? a : b)
    ON(and, a & b)
    ON(or, a | b)
    ON(xor, a ^ b)
    ON(shl, b < T(0) || b >= T(BITS) ? T(0) : T(U(a) << U(b & T(8 * sizeof(T) - 1))))
    ON(shr, b < T(0) || b >= T(BITS) ? (a < T(0) ? T(-1) : T(0)) : T(a >> (b & T(8 * sizeof(T) - 1))))
    ON(truncdiv, quotient_of(a, b))
    ON(fmod, rest_of(a, b)) {
        const T rest = rest_of(a, b);
        const bool down = rest != T(0) && (rest < T(0)) != (b < T(0));
        ON(floordiv, quotient_of(a, b) - T(down)) {
            static_assert(NAME == letters("mod"), "The operation is one of program.py.");
            return down ? rest + b : rest;
        }
    }
}

template <u64 NAME, bool LOGICAL, class T>
DEVICE T whole_of_one(T x) {
    typedef unsigned_t<T> U;
    ON(neg, T(U(0) - U(x)))
    ON(abs, x < T(0) ? T(U(0) - U(x)) : x)
    ON(sign, T((x > T(0)) - (x < T(0)))) {
        static_assert(NAME == letters("not"), "The operation is one of program.py.");
        return LOGICAL ? T(x == T(0)) : T(~x);
    }
}

template <u64 NAME, class T>
DEVICE i32 decide(T a, T b) {
    ON(lt, a < b)
    ON(le, a <= b)
    ON(gt, a > b)
    ON(ge, a >= b)
    ON(eq, a == b)
    ON(ne, a != b)
    ON(isnan, a != a) {
        const bool finite = a - a == T(0);
        return NAME == letters("isfinite") ? finite : !finite && a == a;
    }
}

#undef ON

// The values of one element, by their types. Indices are constants, so that all of them are registers.
struct Values {
    float real[VALUES];
    double wide[VALUES];
    i32 whole[VALUES];
    i64 large[VALUES];

    template <class T>
    MEMBER T &at(int value) {
        if constexpr (same_type<T, float>)
            return real[value];
        else if constexpr (same_type<T, double>)
            return wide[value];
        else if constexpr (same_type<T, i32>)
            return whole[value];
        else
            return large[value];
    }
    template <int VALUE>
    MEMBER held_t<VALUE> &of() {
        return at<held_t<VALUE>>(VALUE);
    }
};

template <int NUMBER>
DEVICE void execute(Values &values) {
    constexpr Instruction STEP = instruction(NUMBER);
    constexpr u64 NAME = STEP.name, CODE = STEP.dtype;
    constexpr int A = STEP.argument[0], B = STEP.argument[1], C = STEP.argument[2];
    typedef typename Coded<CODE>::Held T;
    auto &result = values.of<INPUTS + NUMBER>();
    if constexpr (NAME == CONSTANT) {
        if constexpr (is_real(CODE))
            result = (T)bit_cast<double>((u64)STEP.bits);
        else
            result = (T)(typename Coded<CODE>::Stored)STEP.bits;
    } else if constexpr (NAME == letters("cast")) {
        result = cast<CODE>(values.of<A>());
    } else if constexpr (NAME == letters("where")) {
        result = values.of<A>() ? values.of<B>() : values.of<C>();
    } else if constexpr (is_predicate(NAME)) {
        result = decide<NAME>(values.of<A>(), values.of<B>());
    } else if constexpr (is_real(CODE)) {
        if constexpr (takes_two(NAME))
            result = real_of_two<NAME>(values.of<A>(), values.of<B>());
        else
            result = real_of_one<NAME>(values.of<A>());
    } else {
        T found;
        if constexpr (takes_two(NAME))
            found = whole_of_two<NAME, 8 * (int)sizeof(typename Coded<CODE>::Stored)>(values.of<A>(), values.of<B>());
        else
            found = whole_of_one<NAME, CODE == B1>(values.of<A>());
        result = (T)(typename Coded<CODE>::Stored)found;
    }
}

// Executes the program from the instruction NUMBER on.
template <int NUMBER>
DEVICE void execute_all(Values &values) {
    if constexpr (NUMBER < INSTRUCTIONS) {
        execute<NUMBER>(values);
        execute_all<NUMBER + 1>(values);
    }
}
