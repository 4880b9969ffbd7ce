// mma with block scales, as the PTX ISA 8.7 defines it: d = (a * scale_a) * (b * scale_b) + c. Element i of a lane's
// fragment is in the row and the column of the figures of m16n8k32 (8 bits) and m16n8k64 (4 bits). In a quad of
// lanes, one pair supplies the scales of rows g and g + 8 of a, and one lane those of column g of b.
//
// Sums are exact in double precision and rounded once, or truncated as on RTX Blackwell (MMA-Sim, arXiv:2511.10909).
#pragma once
#include "lanes.h"

namespace {
struct Scaled { // a number times the product of its scales, kept apart: x * 2^power
    f64 x = 0;
    int power = 0;
};
f64 element(u64 bits, int i, bool bytes, bool e5m2) {
    if (bytes)
        return (e5m2 ? NUMBERS.of_e5m2 : NUMBERS.of_e4m3)[bits >> 8 * i & 0xff];
    const u32 nibble = bits >> 4 * i & 15, exponent = nibble >> 1 & 3, mantissa = nibble & 1;
    const f64 size = exponent ? std::ldexp(2 + mantissa, (int)exponent - 2) : mantissa * 0.5;
    return nibble & 8 ? -size : size;
}
f64 scale(u32 byte, bool ue4m3) {
    if (ue4m3)
        return NUMBERS.of_e4m3[byte & 0x7f];
    return byte == 0xff ? std::numeric_limits<f64>::quiet_NaN() : std::ldexp(1.0, (int)byte - 127);
}
// The power of two of a number in its type, whose least normal number is 2^least; far below all others for zero.
int power_of(f64 x, int least) {
    return x == 0 ? -10000 : std::max(std::ilogb(x), least);
}
// Truncates numbers to `bits` bits after the largest power of two, adds them, and truncates the sum to an f32.
f32 truncated_scaled(const Scaled (&terms)[33], int count, int bits) {
    int top = terms[0].power;
    for (int i = 1; i < count; i++)
        top = std::max(top, terms[i].power);
    f64 sum = 0;
    for (int i = 0; i < count; i++)
        sum += std::trunc(std::ldexp(terms[i].x, bits + terms[i].power - top));
    int exponent;
    const f64 fraction = std::frexp(sum, &exponent);
    const int last = std::max(exponent + top - bits - 24, -149); // the place of the last bit of the f32
    return (f32)std::ldexp(std::trunc(std::ldexp(fraction, exponent + top - bits - last)), last);
}

void multiply_scaled(Lanes &lanes, const Site &site, bool truncated) {
    const u32 vector = site.detail[0];
    const bool bytes = vector == 1, ue4m3 = vector == 4, e5m2[] = {site.detail[1] != 0, site.detail[2] != 0};
    const int each = bytes ? 4 : 8, k = 8 * each, block = k / (int)vector;
    f64 numbers[2][16][64], scales[2][16][4];
    for (u32 lane = 0; lane < 32; lane++) {
        const u64 *in = lanes[lane]->in;
        const int group = lane >> 2, thread = lane & 3;
        for (int i = 0; i < 4 * each; i++) { // of a; the first half of the registers is of the first half of k
            const int row = i / each % 2 ? group + 8 : group,
                      column = thread * each + i % each + i / (2 * each) * k / 2;
            numbers[0][row][column] = element(in[i / each], i % each, bytes, e5m2[0]);
        }
        for (int i = 0; i < 2 * each; i++)
            numbers[1][group][thread * each + i % each + i / each * k / 2] =
                element(in[4 + i / each], i % each, bytes, e5m2[1]);
        for (int side = 0; side < 2; side++) {
            const u32 word = (u32)in[10 + 3 * side], byte = (u32)in[11 + 3 * side], chosen = (u32)in[12 + 3 * side];
            if (byte > 3 || byte % vector || chosen >= (side ? 4u : 2u))
                fault("invalid", "%.120s: {%u, %u} names no scales", site.text, byte, chosen);
            if (side ? thread == (int)chosen : thread >> 1 == (int)chosen)
                for (u32 i = 0; i < vector; i++)
                    scales[side][side || !(thread & 1) ? group : group + 8][i] =
                        scale(word >> 8 * (byte + i) & 0xff, ue4m3);
        }
    }
    const int leasts[] = {e5m2[0] ? -14 : -6, e5m2[1] ? -14 : -6};
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const int row = (lane >> 2) + 8 * (i >> 1), column = 2 * (lane & 3) + (i & 1);
            const f64 *a = numbers[0][row], *b = numbers[1][column];
            const f32 c = f32_of((u32)lanes[lane]->in[6 + i]);
            f64 sum = 0;
            for (int j = 0; j < k; j++)
                sum += a[j] * b[j] * scales[0][row][j / block] * scales[1][column][j / block];
            f32 d = (f32)(sum + c);
            if (truncated && std::isfinite(sum + c)) {
                Scaled terms[33]; // every product of bytes; sums of 16 nibbles' products; and c
                const int run = bytes ? 1 : 16;
                for (int j = 0; j < k; j++) {
                    Scaled &term = terms[j / run];
                    const f64 x = scales[0][row][j / block], y = scales[1][column][j / block];
                    const int least = ue4m3 ? -6 : -127;
                    term.power = power_of(x, least) + power_of(y, least);
                    const f64 scaling = x == 0 || y == 0 ? 0 : std::ldexp(x * y, -term.power);
                    term.x += a[j] * b[j] * scaling;
                    if (bytes) {
                        const int own = power_of(a[j], leasts[0]) + power_of(b[j], leasts[1]);
                        term = {a[j] * b[j] == 0 ? 0 : std::ldexp(term.x, -own), term.power + own};
                    }
                }
                const int power = power_of(c, -126);
                terms[k / run] = {c == 0 ? 0 : std::ldexp((f64)c, -power), power};
                d = truncated_scaled(terms, k / run + 1, bytes ? 25 : 35);
            }
            lanes[lane]->out[i] = bits_of(d);
        }
}
} // namespace
