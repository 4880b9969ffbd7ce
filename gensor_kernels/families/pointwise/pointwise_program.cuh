// The program: the macro PROGRAM, one identifier, read by the compiler while it instantiates templates.
// operators/expression/program.py describes the text.
#pragma once
#include "types.cuh"

#define POINTWISE_TEXT_OF(text) #text
#define POINTWISE_TEXT(macro) POINTWISE_TEXT_OF(macro)

struct Instruction {
    u64 name, dtype; // packed letters
    int argument[3]; // numbers of earlier values
    u64 bits;        // of a constant
};

// Up to eight letters as a number.
DEVICE constexpr u64 letters(const char *text) {
    u64 packed = 0;
    for (; *text && *text != '_'; ++text)
        packed = packed << 8 | (u8)*text;
    return packed;
}

// The text after a word and the underscore that follows it.
DEVICE constexpr const char *after_word(const char *text) {
    while (*text && *text != '_')
        ++text;
    return *text ? text + 1 : text;
}

DEVICE constexpr int decimal(const char *text) {
    int number = 0;
    for (; *text >= '0' && *text <= '9'; ++text)
        number = 10 * number + (*text - '0');
    return number;
}

DEVICE constexpr u64 hexadecimal(const char *text) {
    u64 number = 0;
    for (; *text && *text != '_'; ++text)
        number = number << 4 | (u64)(*text <= '9' ? *text - '0' : *text - 'a' + 10);
    return number;
}

// The part of the program with this number; parts end with two underscores.
DEVICE constexpr const char *part(int number) {
    const char *text = POINTWISE_TEXT(PROGRAM);
    for (; number > 0; --number) {
        while (text[0] != '_' || text[1] != '_')
            ++text;
        text += 2;
    }
    return text;
}

DEVICE constexpr int count_inputs() {
    int count = 0;
    for (const char *text = part(0); text[0] != '_' || text[1] != '_'; ++text)
        count += text[0] == '_';
    return count;
}

// Parts between the first and the last.
DEVICE constexpr int count_instructions() {
    int count = -1;
    for (const char *text = part(0); *text; ++text)
        if (text[0] == '_' && text[1] == '_') {
            ++count;
            ++text;
        }
    return count;
}

constexpr u64 CONSTANT = letters("const");
enum { INPUTS = count_inputs(), INSTRUCTIONS = count_instructions(), VALUES = INPUTS + INSTRUCTIONS };

DEVICE constexpr Instruction instruction(int number) {
    const char *text = part(number + 1);
    Instruction found = {letters(text), 0, {0, 0, 0}, 0};
    text = after_word(text);
    found.dtype = letters(text);
    text = after_word(text);
    if (found.name == CONSTANT) {
        found.bits = hexadecimal(text);
        return found;
    }
    for (int i = 0; i < 3 && *text >= '0' && *text <= '9'; ++i) {
        found.argument[i] = decimal(text);
        text = after_word(text);
    }
    return found;
}

DEVICE constexpr bool is_predicate(u64 name) {
    return name == letters("lt") || name == letters("le") || name == letters("gt") || name == letters("ge") ||
           name == letters("eq") || name == letters("ne") || name == letters("isnan") || name == letters("isinf") ||
           name == letters("isfinite");
}

DEVICE constexpr bool takes_two(u64 name) {
    return name == letters("add") || name == letters("sub") || name == letters("mul") || name == letters("div") ||
           name == letters("max") || name == letters("min") || name == letters("pow") || name == letters("atan2") ||
           name == letters("floordiv") || name == letters("truncdiv") || name == letters("mod") ||
           name == letters("fmod") || name == letters("and") || name == letters("or") || name == letters("xor") ||
           name == letters("shl") || name == letters("shr");
}

// The type code of a value.
DEVICE constexpr u64 dtype_of(int value) {
    if (value < INPUTS) {
        const char *text = after_word(part(0));
        for (; value > 0; --value)
            text = after_word(text);
        return letters(text);
    }
    const Instruction found = instruction(value - INPUTS);
    return is_predicate(found.name) ? letters("b1") : found.dtype;
}

DEVICE constexpr int count_results() {
    int count = 0;
    for (const char *text = part(INSTRUCTIONS + 1); *text; ++text)
        count += *text == '_';
    return count;
}

// The value that is a result.
DEVICE constexpr int result(int number) {
    const char *text = after_word(part(INSTRUCTIONS + 1));
    for (; number > 0; --number)
        text = after_word(text);
    return decimal(text);
}

enum { RESULTS = count_results(), RESULT = result(0) };

constexpr u64 F8 = letters("f8"), F4 = letters("f4"), F2 = letters("f2"), BF = letters("bf"), B1 = letters("b1");
constexpr u64 I1 = letters("i1"), I4 = letters("i4"), I8 = letters("i8"), U1 = letters("u1"), U4 = letters("u4");
constexpr u64 E4 = letters("e4"), E5 = letters("e5");

// Floats that are computed as float.
DEVICE constexpr bool is_narrow(u64 code) {
    return code == F2 || code == BF || code == E4 || code == E5;
}
DEVICE constexpr bool is_real(u64 code) {
    return code == F8 || code == F4 || is_narrow(code);
}

// An 8-bit float with this number of bits of the fraction: e4m3 (3), which has no infinities, or e5m2 (2).
template <int FRACTION>
struct float8_t {
    u8 bits;
};

// The type of a number in memory, and that in which it is computed: all others become float, int or long long.
template <u64 CODE>
struct Coded;
template <>
struct Coded<F8> {
    typedef double Stored, Held;
};
template <>
struct Coded<F4> {
    typedef float Stored, Held;
};
template <>
struct Coded<F2> {
    typedef half_t Stored;
    typedef float Held;
};
template <>
struct Coded<BF> {
    typedef bfloat16_t Stored;
    typedef float Held;
};
template <>
struct Coded<E4> {
    typedef float8_t<3> Stored;
    typedef float Held;
};
template <>
struct Coded<E5> {
    typedef float8_t<2> Stored;
    typedef float Held;
};
template <>
struct Coded<B1> {
    typedef u8 Stored;
    typedef i32 Held;
};
template <>
struct Coded<I1> {
    typedef i8 Stored;
    typedef i32 Held;
};
template <>
struct Coded<U1> {
    typedef u8 Stored;
    typedef i32 Held;
};
template <>
struct Coded<I4> {
    typedef i32 Stored, Held;
};
template <>
struct Coded<U4> {
    typedef u32 Stored;
    typedef i64 Held;
};
template <>
struct Coded<I8> {
    typedef i64 Stored, Held;
};
template <int VALUE>
using stored_t = typename Coded<dtype_of(VALUE)>::Stored;
template <int VALUE>
using held_t = typename Coded<dtype_of(VALUE)>::Held;
