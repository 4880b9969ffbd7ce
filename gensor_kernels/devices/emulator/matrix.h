// Models of ldmatrix and mma.sync. With g = lane / 4 and t = lane % 4 a lane holds, as the PTX ISA lays out:
//   C, D   rows g and g + 8, columns 2t and 2t + 1
//   A      rows g and g + 8; one register of row g, then one of row g + 8, for each half of K
//   B      column g; one register for each half of K
// and a register holds the 4 bytes of K from 4t bytes on (one tf32, two halves or four int8).
#pragma once
#include "memory.h"

namespace emulator {

// Lets the compiler use wider vectors where the processor has them; no fused multiply-add, so results do not differ.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_VECTORS
#endif

struct ShapeFacts {
    int rows, halves, register_elements; // register rows of A (8 each), halves of K, elements per register
};
constexpr ShapeFacts SHAPES[] = {{2, 2, 2}, {2, 2, 2}, {2, 1, 2}, {2, 2, 1}, {2, 2, 4}, {1, 1, 4}};

struct Operands {
    u32 a[16][8]; // registers by row and position along K
    u32 b[8][8];  // registers by position along K and column
    u32 d[16][8];
};

// ---- registers of one kind, widened to what the instruction multiplies

inline u32 half_to_float_bits(u32 half) {
    u32 magnitude = half & 0x7fff, shifted = magnitude << 13;
    float value, scale;
    u32 bits = 0x77800000; // 2^112 moves the exponent's bias and normalises subnormals
    memcpy(&value, &shifted, 4), memcpy(&scale, &bits, 4);
    value *= scale;
    memcpy(&bits, &value, 4);
    return bits | (magnitude >= 0x7c00 ? 0x7f800000u : 0u) | (half & 0x8000) << 16;
}
struct FromHalf {
    static u32 element(u32 word, int i) { return half_to_float_bits(word >> 16 * i & 0xffff); }
};
struct FromBfloat16 {
    static u32 element(u32 word, int i) { return i ? word & 0xffff0000u : word << 16; }
};
struct FromTf32 {
    // The hardware ignores the low 13 bits.
    static u32 element(u32 word, int) { return word & 0xffffe000u; }
};
struct FromInt8 {
    static u32 element(u32 word, int i) { return (u32)(int)(signed char)(word >> 8 * i); }
};

// Elements of equal position in their registers are kept together: whole arrays convert at once, and K is summed in
// its order all the same.
template <class From, class Number, int ROWS, int HALVES, int ELEMENTS>
inline __attribute__((always_inline)) void multiply(Operands &o) {
    constexpr int REGISTERS = 4 * HALVES, M = 8 * ROWS;
    u32 a[ELEMENTS][M][REGISTERS], b[ELEMENTS][REGISTERS][8];
    Number x[ELEMENTS][M][REGISTERS], y[ELEMENTS][REGISTERS][8], d[M][8];
    for (int e = 0; e < ELEMENTS; ++e) {
        for (int i = 0; i < M; ++i)
            for (int r = 0; r < REGISTERS; ++r)
                a[e][i][r] = From::element(o.a[i][r], e);
        for (int r = 0; r < REGISTERS; ++r)
            for (int j = 0; j < 8; ++j)
                b[e][r][j] = From::element(o.b[r][j], e);
    }
    memcpy(x, a, sizeof a), memcpy(y, b, sizeof b), memcpy(d, o.d, sizeof d);
    for (int i = 0; i < M; ++i)
        for (int r = 0; r < REGISTERS; ++r)
            for (int e = 0; e < ELEMENTS; ++e)
                for (int j = 0; j < 8; ++j)
                    d[i][j] += x[e][i][r] * y[e][r][j];
    memcpy(o.d, d, sizeof d);
}

WIDE_VECTORS void multiply_half_16(Operands &o) {
    multiply<FromHalf, float, 2, 2, 2>(o);
}
WIDE_VECTORS void multiply_bfloat16_16(Operands &o) {
    multiply<FromBfloat16, float, 2, 2, 2>(o);
}
WIDE_VECTORS void multiply_half_8(Operands &o) {
    multiply<FromHalf, float, 2, 1, 2>(o);
}
WIDE_VECTORS void multiply_tf32_8(Operands &o) {
    multiply<FromTf32, float, 2, 2, 1>(o);
}
// int32 sums wrap around: unsigned arithmetic gives the same bits and is defined
WIDE_VECTORS void multiply_int8_32(Operands &o) {
    multiply<FromInt8, u32, 2, 2, 4>(o);
}
WIDE_VECTORS void multiply_int8_16(Operands &o) {
    multiply<FromInt8, u32, 1, 1, 4>(o);
}

typedef void (*Multiply)(Operands &);
constexpr Multiply MULTIPLY[] = {multiply_half_16, multiply_bfloat16_16, multiply_half_8,
                                 multiply_tf32_8,  multiply_int8_32,     multiply_int8_16};

// Collects the registers of all lanes, multiplies, and hands the sums back.
inline void multiply_warp(Warp &warp, MatrixShape shape) {
    const ShapeFacts facts = SHAPES[shape];
    Operands o;
    for (int lane = 0; lane < WARP; ++lane) {
        int g = lane / 4, t = lane % 4;
        for (int half = 0; half < facts.halves; ++half) {
            for (int row = 0; row < facts.rows; ++row)
                o.a[g + 8 * row][t + 4 * half] = warp.a[lane][row + facts.rows * half];
            o.b[t + 4 * half][g] = warp.b[lane][half];
        }
        for (int row = 0; row < facts.rows; ++row)
            memcpy(&o.d[g + 8 * row][2 * t], (u32 *)warp.d[lane] + 2 * row, 8);
    }
    MULTIPLY[shape](o);
    for (int lane = 0; lane < WARP; ++lane)
        for (int row = 0; row < facts.rows; ++row)
            memcpy((u32 *)warp.d[lane] + 2 * row, &o.d[lane / 4 + 8 * row][2 * (lane % 4)], 8);
    ++count(MATRIX_MULTIPLIES);
}

// Lane 8m + i gives the address of row i of matrix m; lane 4i + j gets elements 2j and 2j + 1 of row i, or, transposed,
// of column i.
inline void load_matrix_warp(Warp &warp, int matrices, bool transposed, const char *file, int line) {
    for (int m = 0; m < matrices; ++m) {
        uint16_t tile[8][8];
        u32 address[8];
        for (int i = 0; i < 8; ++i) {
            address[i] = (u32)warp.word[8 * m + i];
            memcpy(tile[i], check_shared(address[i], 16, file, line), 16);
            if (machine.request->races)
                shadow_read(address[i], 16, true, line);
        }
        count(CONFLICTS_MATRIX_LOAD) += phase_conflicts(address, 0xff, 16);
        for (int lane = 0; lane < WARP; ++lane) {
            int i = lane / 4, j = 2 * (lane % 4);
            u32 low = transposed ? tile[j][i] : tile[i][j], high = transposed ? tile[j + 1][i] : tile[i][j + 1];
            ((u32 *)warp.d[lane])[m] = low | high << 16;
        }
    }
    ++count(MATRIX_LOADS);
}

} // namespace emulator
