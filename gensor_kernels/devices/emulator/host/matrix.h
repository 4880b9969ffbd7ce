// Models of ldmatrix and mma.sync. With g = lane / 4 and t = lane % 4 a lane holds, as the PTX ISA lays out:
//   C, D   rows g and g + 8, columns 2t and 2t + 1
//   A      rows g and g + 8; one register of row g, then one of row g + 8, for each half of K
//   B      column g; one register for each half of K
// and a register holds the 4 bytes of K from 4t bytes on (one tf32, two halves or four int8).
#pragma once
#include "memory.h"
#include <cmath>

namespace emulator {

// ---- elements of products as floats, and sums of products of 8-bit floats: of a warp and of a warpgroup

// Lets the compiler use wider vectors where the processor has them; no fused multiply-add, so results do not differ.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_VECTORS __attribute__((target_clones("avx2", "default")))
#else
#define WIDE_VECTORS
#endif
// The same with fused multiply-adds, which round the same in hardware and in the library.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__)
#define WIDE_MULTIPLY_ADDS __attribute__((target_clones("arch=haswell", "default")))
#else
#define WIDE_MULTIPLY_ADDS
#endif

inline u32 half_to_float_bits(u32 half) {
    u32 magnitude = half & 0x7fff, shifted = magnitude << 13;
    float value, scale;
    u32 bits = 0x77800000; // 2^112 moves the exponent's bias and normalises subnormals
    memcpy(&value, &shifted, 4), memcpy(&scale, &bits, 4);
    value *= scale;
    memcpy(&bits, &value, 4);
    return bits | (magnitude >= 0x7c00 ? 0x7f800000u : 0u) | (half & 0x8000) << 16;
}
// Bytes of an element.
static int size_of(GroupElement element) {
    return element == GROUP_TF32 ? 4 : element <= GROUP_BFLOAT16 ? 2 : 1;
}

typedef float GroupA[16][32];
typedef float GroupB[32][256];
typedef float GroupSums[16][256];

// One element as float, exactly; a float is reduced to the 19 bits that are multiplied.
static float widened(const unsigned char *bytes, GroupElement type) {
    u32 word = 0;
    memcpy(&word, bytes, size_of(type));
    const u32 sign = (word & 0x80) << 24, magnitude = word & 0x7f;
    switch (type) {
    case GROUP_HALF:
        word = half_to_float_bits(word);
        break;
    case GROUP_BFLOAT16:
        word <<= 16;
        break;
    case GROUP_TF32:
        word &= 0xffffe000u;
        break;
    case GROUP_E4M3: { // 2^120 moves the exponent's bias
        u32 scale = 0x7b800000u, bits = sign | magnitude << 20;
        float value, factor;
        memcpy(&value, &bits, 4), memcpy(&factor, &scale, 4);
        value *= factor;
        memcpy(&word, &value, 4);
        word = magnitude == 0x7f ? sign | 0x7fc00000u : word;
        break;
    }
    case GROUP_E5M2:
        word = half_to_float_bits(word << 8);
        break;
    case GROUP_INT8:
        return (float)(signed char)word;
    case GROUP_E2M1: { // of a byte the lower half: a sign, two bits of exponent, one of significand
        static const float sizes[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
        return word & 8 ? -sizes[word & 7] : sizes[word & 7];
    }
    }
    float value;
    memcpy(&value, &word, 4);
    return value;
}

// A power of two as a float, which has only an exponent.
static float power(u32 exponent) {
    const u32 bits = exponent << 23;
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

// Products of 8-bit floats: all products and the sum are truncated to 13 bits after the leading bit of the largest one,
// and the new sum to 14 bits (tolerance.py). A sum with a NaN or an infinity is that of IEEE arithmetic.
WIDE_VECTORS void multiply_cut_rows(GroupSums &sums, const GroupA &a, const GroupB &b, int n) {
    static float largest[256], unit[256], inverse[256], plain[256], cut[256];
    for (int i = 0; i < 16; ++i) {
        float *const sum = sums[i];
        for (int j = 0; j < n; ++j)
            plain[j] = sum[j], largest[j] = __builtin_fabsf(sum[j]);
        for (int k = 0; k < 32; ++k)
            for (int j = 0; j < n; ++j) {
                const float term = a[i][k] * b[k][j], magnitude = __builtin_fabsf(term);
                plain[j] += term, largest[j] = magnitude > largest[j] ? magnitude : largest[j];
            }
        for (int j = 0; j < n; ++j) {
            u32 bits;
            memcpy(&bits, &largest[j], 4);
            // All products but 0 are larger than 2^-77; from 2^127 on nothing is truncated.
            const u32 exponent = bits >> 23 < 50 ? 50 : bits >> 23 > 253 ? 253 : bits >> 23;
            unit[j] = power(exponent - 13), inverse[j] = power(254 - exponent + 13);
            cut[j] = __builtin_truncf(sum[j] * inverse[j]);
        }
        for (int k = 0; k < 32; ++k)
            for (int j = 0; j < n; ++j)
                cut[j] += __builtin_truncf(a[i][k] * b[k][j] * inverse[j]);
        for (int j = 0; j < n; ++j) {
            float whole = cut[j] * unit[j];
            u32 bits;
            memcpy(&bits, &whole, 4);
            bits &= 0xfffffc00u;
            memcpy(&whole, &bits, 4);
            sum[j] = __builtin_fabsf(plain[j]) < power(253) ? whole : plain[j];
        }
    }
}

// ---- fragments

struct ShapeFacts {
    int rows, halves, register_elements; // register rows of A (8 each), halves of K, elements per register
};
constexpr ShapeFacts SHAPES[] = {{2, 2, 2}, {2, 2, 2}, {2, 1, 2}, {2, 2, 1}, {2, 2, 4},
                                 {1, 1, 4}, {2, 2, 4}, {2, 2, 4}, {2, 2, 4}, {2, 2, 4}};

struct Operands {
    u32 a[16][8]; // registers by row and position along K
    u32 b[8][8];  // registers by position along K and column
    u32 d[16][8];
};

// ---- registers of one kind, widened to what the instruction multiplies

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

// Sums of floats are those of a tensor core, as published measurements describe them: the exact products of BLOCK
// neighbours along K and the sum so far are aligned to the largest of them, truncated to the 24 bits of a float there,
// added, and truncated to a float. GPUs differ: V100, modelled here, has blocks of 4 and no further bits, which is the
// coarsest published; A100 has blocks of 8 for bfloat16 and one more bit, H100 blocks of 16 and two more bits (Fasi,
// Higham, Mikaitis and Pranesh, PeerJ Comput. Sci. 7:e330, 2021; Khattak and Mikaitis, arXiv:2512.07004, 2025). Bounds
// of this model apply to both.
constexpr int BLOCK = 4;

// Four columns of B, or of C.
typedef float Floats __attribute__((vector_size(16)));
typedef int Ints __attribute__((vector_size(16)));
typedef u32 Words __attribute__((vector_size(16)));

inline __attribute__((always_inline)) void add_block(Floats &sum, const Floats (&products)[BLOCK]) {
    constexpr int MAGNITUDE = 0x7fffffff, INFINITE = 255, LEAST = 24; // exponents as they are stored
    Ints most = (Ints)sum & MAGNITUDE;
    for (int t = 0; t < BLOCK; ++t) {
        const Ints bits = (Ints)products[t] & MAGNITUDE;
        most = most > bits ? most : bits;
    }
    const Ints exponent = most == 0 ? most + LEAST : most >> 23, beyond = (exponent < LEAST) | (exponent >= INFINITE);
    u64 any[2];
    memcpy(any, &beyond, sizeof any);
    if (any[0] | any[1]) { // infinities, NaN and sums too small to be scaled: added unscaled
        for (int t = 0; t < BLOCK; ++t)
            sum += products[t];
        return;
    }
    const Floats scale = (Floats)((277 - exponent) << 23), unit = (Floats)((exponent - 23) << 23);
    Ints total = __builtin_convertvector(sum * scale, Ints);
    for (int t = 0; t < BLOCK; ++t)
        total += __builtin_convertvector(products[t] * scale, Ints);
    const Ints sign = total >> 31, size = (total ^ sign) - sign;
    const Floats nearest = __builtin_convertvector(size, Floats);
    // The next float towards zero, where the nearest float is larger; a true comparison is -1.
    const Ints cut = (Ints)nearest + (__builtin_convertvector(nearest, Ints) > size);
    sum = (Floats)(cut | (sign & ~MAGNITUDE)) * unit;
}

// int32 sums wrap around: unsigned arithmetic gives the same bits and is defined.
inline __attribute__((always_inline)) void add_block(Words &sum, const Words (&products)[BLOCK]) {
    for (int t = 0; t < BLOCK; ++t)
        sum += products[t];
}

// Elements with the same position in their registers are adjacent, so that whole arrays are converted at once. K is
// nevertheless summed in order.
template <class From, class Number, class Numbers, int ROWS, int HALVES, int ELEMENTS>
inline __attribute__((always_inline)) void multiply(Operands &o) {
    constexpr int REGISTERS = 4 * HALVES, M = 8 * ROWS, K = REGISTERS * ELEMENTS;
    u32 a[ELEMENTS][M][REGISTERS], b[ELEMENTS][REGISTERS][8];
    Number x[ELEMENTS][M][REGISTERS];
    Numbers y[ELEMENTS][REGISTERS][2], d[M][2];
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
        for (int k = 0; k < K; k += BLOCK)
            for (int half = 0; half < 2; ++half) {
                Numbers products[BLOCK];
                for (int t = 0; t < BLOCK; ++t) {
                    const int e = (k + t) % ELEMENTS, r = (k + t) / ELEMENTS;
                    products[t] = x[e][i][r] * y[e][r][half];
                }
                add_block(d[i][half], products);
            }
    memcpy(o.d, d, sizeof d);
}

WIDE_VECTORS void multiply_half_16(Operands &o) {
    multiply<FromHalf, float, Floats, 2, 2, 2>(o);
}
WIDE_VECTORS void multiply_bfloat16_16(Operands &o) {
    multiply<FromBfloat16, float, Floats, 2, 2, 2>(o);
}
WIDE_VECTORS void multiply_half_8(Operands &o) {
    multiply<FromHalf, float, Floats, 2, 1, 2>(o);
}
WIDE_VECTORS void multiply_tf32_8(Operands &o) {
    multiply<FromTf32, float, Floats, 2, 2, 1>(o);
}
WIDE_VECTORS void multiply_int8_32(Operands &o) {
    multiply<FromInt8, u32, Words, 2, 2, 4>(o);
}
WIDE_VECTORS void multiply_int8_16(Operands &o) {
    multiply<FromInt8, u32, Words, 1, 1, 4>(o);
}

// 8-bit floats: a register holds four neighbours along K.
template <GroupElement A, GroupElement B>
void multiply_eight_bit_32(Operands &o) {
    static GroupA a;
    static GroupB b;
    static GroupSums sums;
    for (int k = 0; k < 32; ++k) {
        for (int i = 0; i < 16; ++i)
            a[i][k] = widened((const unsigned char *)&o.a[i][k / 4] + k % 4, A);
        for (int j = 0; j < 8; ++j)
            b[k][j] = widened((const unsigned char *)&o.b[k / 4][j] + k % 4, B);
    }
    for (int i = 0; i < 16; ++i)
        memcpy(sums[i], o.d[i], sizeof o.d[i]);
    multiply_cut_rows(sums, a, b, 8);
    for (int i = 0; i < 16; ++i)
        memcpy(o.d[i], sums[i], sizeof o.d[i]);
}

typedef void (*Multiply)(Operands &);
constexpr Multiply MULTIPLY[] = {multiply_half_16,
                                 multiply_bfloat16_16,
                                 multiply_half_8,
                                 multiply_tf32_8,
                                 multiply_int8_32,
                                 multiply_int8_16,
                                 multiply_eight_bit_32<GROUP_E4M3, GROUP_E4M3>,
                                 multiply_eight_bit_32<GROUP_E4M3, GROUP_E5M2>,
                                 multiply_eight_bit_32<GROUP_E5M2, GROUP_E4M3>,
                                 multiply_eight_bit_32<GROUP_E5M2, GROUP_E5M2>};

// Doubles: of every four of K, each lane holds the one at t, of each of its rows of A (g, and g + 8 of the larger
// shapes) and of column g of B. Each output is a chain of fused multiply-adds along K, rounded to nearest (PTX ISA,
// mma: the precision of .f64 is that of fma).
WIDE_MULTIPLY_ADDS void multiply_doubles(Warp &warp, int rows, int steps) {
    double b[16][8];
    for (int k = 0; k < 4 * steps; ++k)
        for (int column = 0; column < 8; ++column)
            memcpy(&b[k][column], warp.b[4 * column + k % 4] + 2 * (k / 4), 8);
    for (int row = 0; row < 8 * rows; ++row) {
        double sums[8], a;
        for (int t = 0; t < 4; ++t)
            memcpy(sums + 2 * t, (double *)warp.d[4 * (row % 8) + t] + 2 * (row / 8), 16);
        for (int k = 0; k < 4 * steps; ++k) {
            memcpy(&a, warp.a[4 * (row % 8) + k % 4] + 2 * (k / 4 * rows + row / 8), 8);
            for (int column = 0; column < 8; ++column)
                sums[column] = __builtin_fma(a, b[k][column], sums[column]);
        }
        for (int t = 0; t < 4; ++t)
            memcpy((double *)warp.d[4 * (row % 8) + t] + 2 * (row / 8), sums + 2 * t, 16);
    }
    ++count(MATRIX_MULTIPLIES);
}

// Collects the registers of all lanes, multiplies, and returns the sums.
inline void multiply_warp(Warp &warp, MatrixShape shape) {
    if (shape >= M8N8K4_DOUBLE)
        return multiply_doubles(warp, shape == M8N8K4_DOUBLE ? 1 : 2,
                                shape == M8N8K4_DOUBLE ? 1 : 1 << (shape - M16N8K4_DOUBLE));
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

// ---- block scales (PTX ISA, mma: kinds mxf8f6f4 and mxf4nvf4). Two lanes of four have the scales of a fragment of A,
// row g in the first one and row g + 8 in the second one, and one lane has those of column g of B.
//
// Sums are those that MMA-Sim found bit by bit on RTX Blackwell (Xie, Wang, Yang and Yang, arXiv:2511.10909, 2025). For
// 8-bit floats, the sum so far and 32 products with their scales are cut below 25 bits after the largest exponent,
// where a product has those of its factors, added, and cut to a float. For 4-bit floats, 16 products are added exactly,
// and such sums with their scales, which count by the exponents of scales alone, and the sum so far are cut below 35
// bits.

// A number as part * 2^exponent: 1 <= |part| < 2, or less of a number below the least exponent of its type.
struct Scientific {
    double part;
    int exponent;
};
constexpr int NOTHING = -4096; // the exponent of zero

static Scientific scientific(double value, int least) {
    if (value == 0 || !__builtin_isfinite(value))
        return {value, NOTHING};
    const int exponent = __builtin_ilogb(value) < least ? least : __builtin_ilogb(value);
    return {__builtin_ldexp(value, -exponent), exponent};
}
// A scale of 8 bits: e8m0, or e4m3 without a sign.
static double scale_of(u32 byte, bool has_part) {
    if (!has_part)
        return byte == 255 ? __builtin_nan("") : __builtin_ldexp(1.0, (int)byte - 127);
    const unsigned char bits = byte & 0x7f;
    return widened(&bits, GROUP_E4M3);
}
// A number of four bits: a sign, two bits of exponent, one of part.
static double four_bits(u32 bits) {
    static const double sizes[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return bits & 8 ? -sizes[bits & 7] : sizes[bits & 7];
}

// A row of A or a column of B: its numbers, and its scales.
struct ScaledLine {
    Scientific number[64], scale[4];
    bool finite;
};

// Cuts a term below `bits` bits after an exponent that is not less than its own, and returns it in units of these bits.
static int64_t cut_term(Scientific term, int bits, int most) {
    const int shift = bits + term.exponent - most;
    return shift < -64 ? 0 : (int64_t)__builtin_ldexp(term.part, shift);
}
static float cut_sum(const Scientific *terms, int count, float before, int bits) {
    const Scientific first = scientific(before, -126);
    int most = first.exponent;
    for (int i = 0; i < count; ++i)
        most = terms[i].exponent > most ? terms[i].exponent : most;
    int64_t total = cut_term(first, bits, most);
    for (int i = 0; i < count; ++i)
        total += cut_term(terms[i], bits, most);
    const Scientific sum = scientific(__builtin_ldexp((double)total, most - bits), -126);
    return (float)__builtin_ldexp(__builtin_trunc(__builtin_ldexp(sum.part, 23)), sum.exponent - 23);
}

static float scaled_sum(const ScaledLine &a, const ScaledLine &b, int scales, float before) {
    const bool bytes = scales == 1;
    const int group = bytes ? 1 : 16, count = bytes ? 32 : 4;
    const bool finite = a.finite && b.finite && __builtin_isfinite(before);
    Scientific terms[32];
    double plain = before;
    for (int i = 0; i < count; ++i) {
        const Scientific x = a.scale[i * scales / count], y = b.scale[i * scales / count];
        const Scientific left = a.number[i], right = b.number[i];
        terms[i] = {left.part * right.part, left.exponent + right.exponent};
        if (!bytes)
            terms[i] = {0, 0};
        for (int k = i * group; !bytes && k < (i + 1) * group; ++k)
            terms[i].part += a.number[k].part * b.number[k].part;
        terms[i].part *= x.part * y.part, terms[i].exponent += x.exponent + y.exponent;
        plain += finite ? 0 : terms[i].part; // a NaN or an infinity of the right sign
    }
    return finite ? cut_sum(terms, count, before, bytes ? 25 : 35) : (float)plain;
}

static void multiply_scaled_warp(Warp &warp, const ScaledProduct &product, Site site) {
    const int scales = product.scales, each = scales == 1 ? 4 : 8; // numbers in a register
    if (product.byte % scales || product.byte < 0 || product.byte > 3 || product.pair >> 1 || product.lane >> 2)
        fault(INVALID, "no scales are at byte %d, pair %d, lane %d at %s line %d", product.byte, product.pair,
              product.lane, site.file, site.line);
    static ScaledLine a[16], b[8];
    // Numbers of four bits are summed before they have exponents.
    const auto number = [&](u32 word, int i, bool e5m2) -> Scientific {
        const unsigned char byte = (unsigned char)(word >> 8 * i);
        if (each == 8)
            return {four_bits(word >> 4 * i & 15), 0};
        return scientific(widened(&byte, e5m2 ? GROUP_E5M2 : GROUP_E4M3), e5m2 ? -14 : -6);
    };
    const auto load = [&](ScaledLine &line, int g, int row, bool of_b) {
        const int lane = of_b ? product.lane : 2 * product.pair + row;
        line.finite = true;
        for (int i = 0; i < scales; ++i) {
            const u32 byte = (u32)(warp.word[4 * g + lane] >> (32 * of_b + 8 * (product.byte + i)) & 255);
            line.scale[i] = scientific(scale_of(byte, scales == 4), scales == 4 ? -6 : -127);
            line.finite &= __builtin_isfinite(line.scale[i].part);
        }
        for (int k = 0; k < 8 * each; ++k) {
            const int t = k / each % 4, half = k / each / 4;
            const u32 word = of_b ? warp.b[4 * g + t][half] : warp.a[4 * g + t][row + 2 * half];
            line.number[k] = number(word, k % each, of_b ? product.b_e5m2 : product.a_e5m2);
            line.finite &= __builtin_isfinite(line.number[k].part);
        }
    };
    for (int g = 0; g < 8; ++g)
        load(a[g], g, 0, false), load(a[g + 8], g, 1, false), load(b[g], g, 0, true);
    for (int row = 0; row < 16; ++row)
        for (int column = 0; column < 8; ++column) {
            float *const sum = (float *)warp.d[row % 8 * 4 + column / 2] + row / 8 * 2 + column % 2;
            *sum = scaled_sum(a[row], b[column], scales, *sum);
        }
    ++count(MATRIX_MULTIPLIES);
}

// ---- ldmatrix

// Lane 8m + i gives the address of row i of matrix m; lane 4i + j gets elements 2j and 2j + 1 of row i, or, transposed,
// of column i. On sm_75, lanes that give no row must give valid addresses (PTX ISA, ldmatrix): the model always
// requires this.
inline void load_matrix_warp(Warp &warp, int matrices, bool transposed, Site site) {
    for (int lane = 8 * matrices; lane < WARP; ++lane)
        check_shared((u32)warp.word[lane], 16, site);
    for (int m = 0; m < matrices; ++m) {
        uint16_t tile[8][8];
        u32 address[8];
        for (int i = 0; i < 8; ++i) {
            address[i] = (u32)warp.word[8 * m + i];
            memcpy(tile[i], check_shared(address[i], 16, site), 16);
            if (machine.request->races)
                shadow_read(address[i], 16, true, site.line);
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
