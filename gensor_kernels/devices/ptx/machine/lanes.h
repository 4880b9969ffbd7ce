// Instructions of a whole warp: mma, ldmatrix, shuffles, reductions and votes, as the PTX ISA 8.x defines them.
#pragma once
#include "machine.h"
#include "sums.h"

namespace {
using Lanes = Thread *[32];

// d = a * b + c, fragments as in "Matrix fragments" of mma: a register holds `each` neighbours along k. Sums of floats
// are exact products, added in double precision and rounded once, or truncated: the ISA does not specify the order and
// the rounding.
void multiply(Lanes &lanes, const Site &site, bool truncated) {
    const int m = site.detail[0], k = site.detail[1];
    const Kind kind = (Kind)site.detail[2], kind_b = (Kind)site.detail[3];
    const bool integers = kind == S8 || kind == U8, floats = kind == E4M3 || kind == E5M2; // of 8 bits
    const int each = integers || floats ? 4 : kind == F16 || kind == BF16 ? 2 : 1, span = 4 * each;
    const int steps = k / span, halves = m / 8, c_from = halves * steps + steps;
    const auto number = [&](u64 bits, int part, Kind type) -> f64 {
        switch (type) {
        case F16:
            return f32_of_f16((u16)(bits >> 16 * part));
        case BF16:
            return f32_of_bf16((u16)(bits >> 16 * part));
        case TF32:
            return f32_of((u32)bits & 0xffffe000u);
        case S8:
            return (s8)(bits >> 8 * part);
        case U8:
            return (u8)(bits >> 8 * part);
        case E4M3:
            return NUMBERS.of_e4m3[bits >> 8 * part & 0xff];
        case E5M2:
            return NUMBERS.of_e5m2[bits >> 8 * part & 0xff];
        default:
            return f64_of(bits);
        }
    };
    f64 a[16][32], b[8][32];
    for (int lane = 0; lane < 32; lane++) {
        const int group = lane >> 2, place = lane & 3;
        for (int i = 0; i < halves * steps; i++)
            for (int part = 0; part < each; part++)
                a[group + 8 * (i % halves)][place * each + part + i / halves * span] =
                    number(lanes[lane]->in[i], part, kind);
        for (int i = 0; i < steps; i++)
            for (int part = 0; part < each; part++)
                b[group][place * each + part + i * span] = number(lanes[lane]->in[halves * steps + i], part, kind_b);
    }
    for (int lane = 0; lane < 32; lane++)
        for (int i = 0; i < 2 * halves; i++) {
            const int row = (lane >> 2) + 8 * (i >> 1), column = 2 * (lane & 3) + (i & 1);
            const u64 c = lanes[lane]->in[c_from + i];
            u64 &d = lanes[lane]->out[i];
            if (kind == F64) {
                f64 sum = f64_of(c);
                for (int j = 0; j < k; j++)
                    sum = std::fma(a[row][j], b[column][j], sum);
                d = bits_of(sum);
                continue;
            }
            if (!integers && truncated) {
                d = bits_of(floats ? truncated_bytes(a[row], b[column], f32_of((u32)c))
                                   : truncated_sum(a[row], b[column], k, f32_of((u32)c)));
                continue;
            }
            f64 sum = 0;
            for (int j = 0; j < k; j++)
                sum += a[row][j] * b[column][j];
            d = integers ? (u32)((u32)c + (u32)(s64)sum) : bits_of((f32)(sum + f32_of((u32)c)));
        }
}

// ldmatrix: lanes 8 i to 8 i + 7 name the rows of matrix i.
void load_matrix(Lanes &lanes, const Site &site, u32 sm) {
    const u32 matrices = site.detail[0];
    const bool transposed = site.detail[1];
    u16 rows[32][8];
    for (u32 lane = 0; lane < 32; lane++) {
        const bool named = lane < 8 * matrices;
        if (!named && sm != 75)
            continue; // sm_75 requires a valid address of every lane
        aligned_to(lanes[lane]->in[0], 16, "shared");
        const u8 *row = shared_at(*lanes[lane], lanes[lane]->in[0], 16, false);
        if (named && site.access)
            in_order(*lanes[lane], lanes[lane]->in[0], *site.access);
        if (named)
            std::memcpy(rows[lane], row, 16);
    }
    for (u32 lane = 0; lane < 32; lane++)
        for (u32 i = 0; i < matrices; i++) {
            const u32 outer = lane / 4, inner = lane % 4 * 2;
            const u16 low = transposed ? rows[8 * i + inner][outer] : rows[8 * i + outer][inner];
            const u16 high = transposed ? rows[8 * i + inner + 1][outer] : rows[8 * i + outer][inner + 1];
            lanes[lane]->out[i] = low | (u32)high << 16;
        }
}

// stmatrix: the inverse; addresses of lanes that name no row are not checked.
void store_matrix(Lanes &lanes, const Site &site) {
    const u32 matrices = site.detail[0];
    const bool transposed = site.detail[1];
    for (u32 named = 0; named < 8 * matrices; named++) {
        const u32 matrix = named / 8, row = named % 8;
        const u64 address = lanes[named]->in[0];
        aligned_to(address, 16, "shared");
        u8 *to = shared_at(*lanes[named], address, 16, true);
        if (site.access)
            in_order(*lanes[named], address, *site.access);
        for (u32 column = 0; column < 8; column++) {
            const u32 outer = transposed ? column : row, inner = transposed ? row : column;
            const u16 element = (u16)(lanes[outer * 4 + inner / 2]->in[1 + matrix] >> inner % 2 * 16);
            std::memcpy(to + 2 * column, &element, 2);
        }
    }
}

void shuffle(Lanes &lanes, const Site &site, u32 members) {
    for (u32 lane = 0; lane < 32; lane++) {
        if (!(members >> lane & 1))
            continue;
        Thread &t = *lanes[lane];
        const u32 by = t.in[1] & 31, clamp = t.in[2] & 31, segment = t.in[2] >> 8 & 31;
        const u32 most = (lane & segment) | (clamp & ~segment), least = lane & segment;
        s32 from = 0;
        bool within = false;
        switch (site.detail[0]) {
        case SHUFFLE_UP:
            from = (s32)lane - (s32)by, within = from >= (s32)most;
            break;
        case SHUFFLE_DOWN:
            from = lane + by, within = from <= (s32)most;
            break;
        case SHUFFLE_BUTTERFLY:
            from = lane ^ by, within = from <= (s32)most;
            break;
        default:
            from = least | (by & ~segment), within = from <= (s32)most;
        }
        if (!within)
            from = lane;
        if (!(members >> from & 1))
            fault("invalid", "%s: lane %u reads lane %d, which takes no part", site.text, lane, from);
        t.out[0] = (u32)lanes[from]->in[0], t.flag = within;
    }
}

void reduce(Lanes &lanes, const Site &site, u32 members) {
    const bool is_signed = site.detail[1];
    bool first = true;
    u32 sum = 0;
    for (u32 lane = 0; lane < 32; lane++) {
        if (!(members >> lane & 1))
            continue;
        const u32 x = (u32)lanes[lane]->in[0];
        const bool below = is_signed ? (s32)x < (s32)sum : x < sum;
        switch (site.detail[0]) {
        case ADD:
            sum += x;
            break;
        case MIN:
            sum = first || below ? x : sum;
            break;
        case MAX:
            sum = first || !below ? x : sum;
            break;
        case AND:
            sum = first ? x : sum & x;
            break;
        case OR:
            sum |= x;
            break;
        case XOR:
            sum ^= x;
        }
        first = false;
    }
    for (u32 lane = 0; lane < 32; lane++)
        if (members >> lane & 1)
            lanes[lane]->out[0] = sum;
}
void vote(Lanes &lanes, Collective what, u32 members) {
    u32 ballot = 0;
    for (u32 lane = 0; lane < 32; lane++)
        ballot |= (members >> lane & 1 && lanes[lane]->in[0]) ? 1u << lane : 0;
    const bool any = ballot, all = ballot == members;
    for (u32 lane = 0; lane < 32; lane++) {
        if (!(members >> lane & 1))
            continue;
        lanes[lane]->out[0] = ballot;
        lanes[lane]->flag = what == Collective::ANY ? any : what == Collective::ALL ? all : all || !any;
    }
}
} // namespace
