// Models of mma.sync with block scales (PTX ISA, mma: kinds mxf8f6f4 and mxf4nvf4). A lane holds fragments as of other
// shapes (matrix.h). Of the scales, two lanes of four have those of a fragment of A, row g in the first one and row
// g + 8 in the second one, and one lane has those of column g of B.
//
// Sums are those that MMA-Sim found bit by bit on RTX Blackwell (Xie, Wang, Yang and Yang, arXiv:2511.10909, 2025). Of
// 8-bit floats, the sum so far and 32 products with their scales are cut below 25 bits after the largest exponent,
// where a product has those of its factors, added, and cut to a float. Of 4-bit floats, 16 products are added exactly,
// such sums with their scales, which count by the exponents of scales alone, and the sum so far are cut below 35 bits.
#pragma once
#include "matrix.h"
#include <cmath>

namespace emulator {

// A number as part * 2^exponent: 1 <= |part| < 2, or less of a number below the least exponent of its type.
struct Scientific {
    double part;
    int exponent;
};
constexpr int NOTHING = -4096; // the exponent of zero

static Scientific scientific(double value, int least) {
    if (value == 0 || !std::isfinite(value))
        return {value, NOTHING};
    const int exponent = std::ilogb(value) < least ? least : std::ilogb(value);
    return {std::ldexp(value, -exponent), exponent};
}
// A scale of 8 bits: e8m0, or e4m3 without a sign.
static double scale_of(u32 byte, bool has_part) {
    if (!has_part)
        return byte == 255 ? __builtin_nan("") : std::ldexp(1.0, (int)byte - 127);
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
static int64_t cut(Scientific term, int bits, int most) {
    const int shift = bits + term.exponent - most;
    return shift < -64 ? 0 : (int64_t)std::ldexp(term.part, shift);
}
static float cut_sum(const Scientific *terms, int count, float before, int bits) {
    const Scientific first = scientific(before, -126);
    int most = first.exponent;
    for (int i = 0; i < count; ++i)
        most = terms[i].exponent > most ? terms[i].exponent : most;
    int64_t total = cut(first, bits, most);
    for (int i = 0; i < count; ++i)
        total += cut(terms[i], bits, most);
    const Scientific sum = scientific(std::ldexp((double)total, most - bits), -126);
    return (float)std::ldexp(std::trunc(std::ldexp(sum.part, 23)), sum.exponent - 23);
}

static float scaled_sum(const ScaledLine &a, const ScaledLine &b, int scales, float before) {
    const bool bytes = scales == 1;
    const int group = bytes ? 1 : 16, count = bytes ? 32 : 4;
    const bool finite = a.finite && b.finite && std::isfinite(before);
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
            line.finite &= std::isfinite(line.scale[i].part);
        }
        for (int k = 0; k < 8 * each; ++k) {
            const int t = k / each % 4, half = k / each / 4;
            const u32 word = of_b ? warp.b[4 * g + t][half] : warp.a[4 * g + t][row + 2 * half];
            line.number[k] = number(word, k % each, of_b ? product.b_e5m2 : product.a_e5m2);
            line.finite &= std::isfinite(line.number[k].part);
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

void multiply_scaled(ScaledProduct product, float *d, const u32 *a, const u32 *b, u32 scales_a, u32 scales_b,
                     Site site) {
    Warp &warp = current_warp();
    const int lane = current->lane();
    warp.d[lane] = d, warp.a[lane] = a, warp.b[lane] = b, warp.word[lane] = (u64)scales_b << 32 | scales_a;
    if (meet(MULTIPLY_MATRIX, site, ALL_LANES)) {
        multiply_scaled_warp(warp, product, site);
        release_warp();
    }
}

} // namespace emulator
