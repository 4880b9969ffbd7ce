// Fixed-width types, 16-bit floats, complex numbers and conversions, the same on the GPU and on the host.
// No file includes a CUDA header, so that NVRTC needs no other files.
#pragma once

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char i8;
typedef int i32;
typedef long long i64;

#ifdef __CUDACC__
#pragma nv_diag_suppress 177 // a kernel need not use every function
#define DEVICE static __device__ __forceinline__
#define MEMBER __device__ __forceinline__
#define UNROLL _Pragma("unroll")
#define UNROLL_BY_4 _Pragma("unroll 4")
#define ROLLED _Pragma("unroll 1")
#define COPY_BYTES memcpy
enum { ARCH = __CUDA_ARCH__ }; // 900 on sm_90, 0 on the host; a constexpr would be a symbol of the binary
#else
#define DEVICE static inline
#define MEMBER inline
#define UNROLL // unrolling on the host only slows the host compiler down
#define UNROLL_BY_4
#define ROLLED
#define COPY_BYTES __builtin_memcpy
enum { ARCH = 0 };
#endif

template <class T>
DEVICE constexpr T minimum(T a, T b) {
    return a < b ? a : b;
}
template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

// 16-bit storage types. They have no arithmetic: it is done in float.
struct half_t {
    u16 bits;
};
struct bfloat16_t {
    u16 bits;
};

// Complex numbers, real part first in memory.
template <class T>
struct complex_t {
    T re, im;
};
typedef complex_t<float> c64;
typedef complex_t<double> c128;

template <class T>
DEVICE complex_t<T> operator+(complex_t<T> a, complex_t<T> b) {
    return complex_t<T>{a.re + b.re, a.im + b.im};
}
template <class T>
DEVICE bool operator==(complex_t<T> a, complex_t<T> b) {
    return a.re == b.re && a.im == b.im;
}

// The type of the real and the imaginary part of a number; a real number is its own part.
template <class T>
struct Part {
    typedef T Type;
    static constexpr bool COMPLEX = false;
};
template <class T>
struct Part<complex_t<T>> {
    typedef T Type;
    static constexpr bool COMPLEX = true;
};
template <class T>
using part_t = typename Part<T>::Type;
template <class T>
constexpr bool is_complex = Part<T>::COMPLEX;

template <class To, class From>
DEVICE To bit_cast(const From &from) {
    static_assert(sizeof(To) == sizeof(From), "bit_cast keeps the size.");
    To to;
    COPY_BYTES(&to, &from, sizeof(To));
    return to;
}

// ---- half and bfloat16 <-> float, round to nearest even, NaN and infinity kept

DEVICE float to_float(bfloat16_t value) {
    return bit_cast<float>((u32)value.bits << 16);
}

DEVICE bfloat16_t bfloat16_from_float(float value) {
    u32 bits = bit_cast<u32>(value);
    if (value != value)
        return bfloat16_t{(u16)((bits >> 16) | 0x40)}; // keeps a NaN a (quiet) NaN
    return bfloat16_t{(u16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16)};
}

#ifdef __CUDACC__
DEVICE float to_float(half_t value) {
    float result;
    asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
    return result;
}

DEVICE half_t half_from_float(float value) {
    half_t result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result.bits) : "f"(value));
    return result;
}
#else
DEVICE float to_float(half_t value) {
    u32 sign = (u32)(value.bits & 0x8000) << 16, magnitude = value.bits & 0x7fff;
    if (magnitude >= 0x7c00)
        return bit_cast<float>(sign | 0x7f800000 | ((magnitude & 0x3ff) << 13));
    // Multiplying by 2^112 moves the exponent bias from 15 to 127 and normalises subnormals exactly.
    float scaled = bit_cast<float>(magnitude << 13) * bit_cast<float>(0x77800000u);
    return bit_cast<float>(sign | bit_cast<u32>(scaled));
}

DEVICE half_t half_from_float(float value) {
    u32 bits = bit_cast<u32>(value), sign = (bits >> 16) & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000)
        return half_t{(u16)(sign | 0x7fff)};
    if (magnitude >= 0x477ff000)
        return half_t{(u16)(sign | 0x7c00)}; // 65520 and above round to infinity
    if (magnitude < 0x38800000) {            // below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low bits
        float shifted = bit_cast<float>(magnitude) + 0.5f;
        return half_t{(u16)(sign | (bit_cast<u32>(shifted) - 0x3f000000))};
    }
    return half_t{(u16)(sign | ((magnitude - 0x38000000 + 0xfff + ((magnitude >> 13) & 1)) >> 13))};
}
#endif

// Rounds to odd, so that rounding the result again to 16 bits is the correct rounding of `value`.
DEVICE float to_float_odd(double value) {
    float nearest = (float)value;
    double back = (double)nearest;
    if (back == value || value != value)
        return nearest;
    u32 bits = bit_cast<u32>(nearest);
    bool away = value < 0 ? back < value : back > value;
    return bit_cast<float>((bits - (away ? 1u : 0u)) | 1u);
}

// Exact up to 2^24. Above 2^24 the low 8 bits are folded into the next bit, which is below the bit that decides how
// either 16-bit type is rounded. The remaining bits fit a float.
DEVICE float to_float_odd(i32 value) {
    const bool exact = (u32)value + 0x1000000u <= 0x2000000u || (value & 0xff) == 0;
    return (float)(exact ? value : (value & ~0xff) | 0x100);
}

// Truncates towards zero and saturates; NaN gives 0. (A plain cast is undefined outside int's range.)
DEVICE i32 to_int(double value) {
    if (value != value)
        return 0;
    return value <= -2147483648.0 ? -2147483647 - 1 : value >= 2147483647.0 ? 2147483647 : (i32)value;
}
DEVICE i32 to_int(float value) {
    if (value != value)
        return 0;
    return value <= -2147483648.0f ? -2147483647 - 1 : value >= 2147483648.0f ? 2147483647 : (i32)value;
}

// ---- convert<To>(from) between double, float, half_t, bfloat16_t, i8 and i32, and from each of them to c64 and c128;
// i64 from and to integers
// Conversions to an integer round towards zero and saturate at 32 bits; i32 to i8 wraps around (two's complement), as
// in NumPy.

DEVICE float widen(half_t value) {
    return to_float(value);
}
DEVICE float widen(bfloat16_t value) {
    return to_float(value);
}
DEVICE i32 widen(i8 value) {
    return value;
}
template <class T>
DEVICE T widen(T value) {
    return value;
}

template <class To>
struct Narrow;
template <>
struct Narrow<double> {
    template <class From>
    static MEMBER double from(From value) {
        return (double)value;
    }
};
template <>
struct Narrow<float> {
    template <class From>
    static MEMBER float from(From value) {
        return (float)value;
    }
};
template <>
struct Narrow<half_t> {
    static MEMBER half_t from(float value) { return half_from_float(value); }
    static MEMBER half_t from(double value) { return half_from_float(to_float_odd(value)); }
    static MEMBER half_t from(i32 value) { return from((float)value); } // exact below 2^24, infinite above 2^16
};
template <>
struct Narrow<bfloat16_t> {
    static MEMBER bfloat16_t from(float value) { return bfloat16_from_float(value); }
    static MEMBER bfloat16_t from(double value) { return bfloat16_from_float(to_float_odd(value)); }
    static MEMBER bfloat16_t from(i32 value) { return from(to_float_odd(value)); }
};
template <>
struct Narrow<i32> {
    static MEMBER i32 from(float value) { return to_int(value); }
    static MEMBER i32 from(double value) { return to_int(value); }
    static MEMBER i32 from(i32 value) { return value; }
};
template <>
struct Narrow<i8> {
    template <class From>
    static MEMBER i8 from(From value) {
        return (i8)(u8)(u32)Narrow<i32>::from(value);
    }
};

template <>
struct Narrow<i64> {
    static MEMBER i64 from(i64 value) { return value; }
};
template <class T>
struct Narrow<complex_t<T>> {
    template <class From>
    static MEMBER complex_t<T> from(From value) {
        return complex_t<T>{(T)value, T(0)};
    }
    template <class From>
    static MEMBER complex_t<T> from(complex_t<From> value) {
        return complex_t<T>{(T)value.re, (T)value.im};
    }
};

template <class To, class From>
DEVICE To convert(From value) {
    return Narrow<To>::from(widen(value));
}
template <class To>
DEVICE To from_float(float value) {
    return Narrow<To>::from(value);
}
