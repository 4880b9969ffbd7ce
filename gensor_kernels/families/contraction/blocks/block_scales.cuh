// Operands in block-scaled formats: B(k, n) is a number of 8 bits or 4 times the scale of its column and of GROUP
// values of k (operators/products/quantised.py). A is in 16 bits, or in the same format, with scales of its rows.
//
// A unit, 32 values of k, is two widened fragments, of whose k every lane has 8 adjacent ones (mma_widen.cuh), or one
// of 8-bit floats. MX formats have one scale for a unit, any power of two: the sums of a unit are scaled. NVFP4 has one
// for each half of a unit, thus one for all values of a lane; numbers times scales, of 2 and 4 significant bits, are
// exact in both 16-bit types: the fragments are scaled.
#pragma once
#include "widen.cuh"

// A power of two, 2^(bits - 127), or NaN, 255 (OCP Microscaling Formats Specification, E8M0).
struct e8m0_t {
    u8 bits;
};
// Two numbers in a byte, the first in its lower half: a sign, two bits of exponent, one of significand (E2M1).
struct e2m1x2_t {
    u8 bits;
};
template <>
constexpr int per_unit<e2m1x2_t> = 2;

DEVICE float widen(e8m0_t value) {
    const u32 bits = value.bits;
    return bit_cast<float>(bits == 0 ? 0x00400000u : bits == 255 ? 0x7fc00000u : bits << 23);
}

// Elements (0, 4), (1, 5), (2, 6), (3, 7) of four bytes. The bits of a number below the sign, as the last ones of an
// exponent and the first one of a significand, are a 16-bit float that is 2^14 (bfloat16_t: 2^126) times smaller.
template <class To>
DEVICE void widen_word(u32 word, u32 (&pairs)[4], e2m1x2_t, To) {
    constexpr bool HALF = same_type<To, half_t>;
    UNROLL for (int i = 0; i < 4; ++i) {
        const u32 pair = word >> 4 * i, sign = pair << 12 & 0x80008000u;
        const u32 small = HALF ? pair << 9 & 0x0e000e00u : pair << 6 & 0x01c001c0u;
        pairs[i] = fma_pair(sign | small, HALF ? 0x74007400u : 0x7e807e80u, 0x80008000u, To{});
    }
}

#include "mma_pipeline.cuh"

constexpr bool SCALES_FRAGMENTS = GROUP == 16, SCALES_A = !same_type<A_STORED, IN_TYPE>;
constexpr bool WIDENS_FRAGMENTS = NARROW < 8 * MULTIPLIED;
// Values of k of a unit; units of a step of k, and fragments along k of a unit.
constexpr int UNIT = 32, UNITS = K_STEP / UNIT, UNIT_PARTS = PART_COUNT / UNITS;

// The scales of a lane's rows of A or columns of B, one unit ahead: OWN of each of COUNT fragments of ENTRIES, which
// are APART. Nothing is loaded without USED.
template <bool USED, int COUNT, int ENTRIES, int OWN, int APART>
struct BlockScales {
    static constexpr int GROUPS = UNIT / GROUP;
    gptr<u8> source; // of the first row or column, of the unit after the present one
    i64 scale_entry, scale_group;
    int entries, groups; // from the lane's first one on
    u32 next[COUNT];

    MEMBER BlockScales(const Params &params, const Tile &tile, u64 scales, i64 scale_entry, i64 scale_group, int first,
                       int extent)
        : scale_entry(scale_entry), scale_group(scale_group) {
        const int group = tile.k_begin / GROUP + (SCALES_FRAGMENTS ? (thread_index() & 3) >> 1 : 0);
        source = gptr<u8>(scales) + (first * scale_entry + group * scale_group);
        entries = extent - first, groups = divide_up(params.k, GROUP) - group;
        load();
    }
    MEMBER void load() {
        UNROLL for (int j = 0; j < COUNT; ++j) {
            next[j] = 0;
            UNROLL for (int i = 0; USED && i < OWN; ++i) {
                const int entry = j * ENTRIES + i * APART;
                const bool inside = within(entry, entries) && within(0, groups);
                next[j] |= load_global<1>(source + entry * scale_entry, inside).word[0] << 8 * i;
            }
        }
    }
    // Returns the scales of the next unit, a byte each, and loads those of the one after it.
    MEMBER void take(u32 (&now)[COUNT]) {
        UNROLL for (int j = 0; j < COUNT; ++j) now[j] = next[j];
        source = source + GROUPS * scale_group, groups -= GROUPS;
        load();
    }
};
using ScalesA = BlockScales<SCALES_A, FRAGMENTS_M, 16, 2, 8>;
using ScalesB = BlockScales<true, FRAGMENTS_N, 8, SCALES_FRAGMENTS ? 1 : 2, 1>;

// The math of a warp, with the interface of WarpMath.
struct BlockMath {
    LoadA::Type load_a;
    LoadB::Type load_b;
    Accumulators accumulators[1];
    Fragments fragments[2];
    ScalesA scales_a;
    ScalesB scales_b;
    int read; // byte offset of the stage being computed

    MEMBER BlockMath(const Params &params, const Tile &tile, int row, int column)
        : load_a(row), load_b(column), accumulators{},
          scales_a(params, tile, params.groups.zeros, params.groups.zero_n, params.groups.zero_group,
                   tile.row + row + lane_of_four(), params.m),
          scales_b(params, tile, params.d, params.d_n, params.d_m,
                   tile.column + column + (SCALES_FRAGMENTS ? lane_of_four() : (thread_index() & 3) * 2), params.n),
          read(0) {}

    static MEMBER int lane_of_four() { return (thread_index() & 31) >> 2; }

    MEMBER void begin() { load(0, 0); }
    MEMBER void load(int buffer, int k) {
        load_a.load(fragments[buffer].a, shared_base() + read, k);
        load_b.load(fragments[buffer].b[0], shared_base() + (read + TileA::BYTES), k);
    }

    // Multiplies the stage whose first fragments are loaded, and loads the first fragments of the next stage, where
    // there are registers before the last ones of this stage are multiplied.
    template <class Request>
    MEMBER void compute(Pipeline &pipeline, const Request &request) {
        request();
        unrolled<K_STEPS>([&](int k) {
            const bool last = k == K_STEPS - 1, ahead = DOUBLE_FRAGMENTS && (!last || K_STEPS % 2 == 0);
            const int now = DOUBLE_FRAGMENTS ? k % 2 : 0, next = last || !DOUBLE_FRAGMENTS ? 0 : (k + 1) % 2;
            if (!ahead)
                multiply_step(fragments[now]);
            if (last) {
                pipeline.receive();
                read = Pipeline::next_stage(read);
            }
            load(next, last ? 0 : k + 1);
            if (ahead)
                multiply_step(fragments[now]);
        });
    }
    MEMBER void multiply_step(const Fragments &step) {
        UNROLL for (int unit = 0; unit < UNITS; ++unit) {
            u32 rows[FRAGMENTS_M], columns[FRAGMENTS_N];
            scales_a.take(rows);
            scales_b.take(columns);
            if constexpr (SCALES_FRAGMENTS) {
                UNROLL for (int part = unit * UNIT_PARTS; part < (unit + 1) * UNIT_PARTS; ++part)
                    multiply_part(accumulators[0], step, part, rows, columns);
            } else {
                Accumulators sums = {};
                UNROLL for (int part = unit * UNIT_PARTS; part < (unit + 1) * UNIT_PARTS; ++part)
                    multiply_part(sums, step, part, rows, columns);
                add_scaled(sums, rows, columns);
            }
            cover("group");
        }
    }
    // Multiplies one of the fragments along k of a step, with SCALES_FRAGMENTS after scaling it.
    static MEMBER void multiply_part(Accumulators &sums, const Fragments &step, int part,
                                     const u32 (&rows)[FRAGMENTS_M], const u32 (&columns)[FRAGMENTS_N]) {
        if constexpr (WIDENS_FRAGMENTS) {
            u32 a[4], b[FRAGMENTS_N][2];
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
                take_part<TileB>(b[j], step.b[0][j], part);
                if constexpr (SCALES_FRAGMENTS)
                    UNROLL for (int i = 0; i < 2; ++i) b[j][i] = scaled(b[j][i], columns[j], 0);
            }
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
                take_part<TileA>(a, step.a[i], part);
                if constexpr (SCALES_FRAGMENTS && SCALES_A)
                    UNROLL for (int r = 0; r < 4; ++r) a[r] = scaled(a[r], rows[i], r & 1);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) multiply(sums[i][j], a, b[j]);
            }
        } else {
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
                multiply(sums[i][j], step.a[i], step.b[0][j]);
        }
    }
    // Multiplies a pair by one of the scales of a word.
    static MEMBER u32 scaled(u32 pair, u32 scales, int which) {
        u32 both[2];
        widen_word(byte_permute(scales, 0, which * 0x1111), both, e4m3_t{}, IN_TYPE{});
        return fma_pair(pair, both[0], 0x80008000u, IN_TYPE{});
    }
    MEMBER void add_scaled(Accumulators &sums, const u32 (&rows)[FRAGMENTS_M], const u32 (&columns)[FRAGMENTS_N]) {
        if constexpr (SCALES_A)
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
                const float factor = widen(e8m0_t{(u8)(rows[i] >> 8 * half)});
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 2 * half; r < 2 * half + 2; ++r)
                    sums[i][j][r] = sums[i][j][r] * factor;
            }
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int c = 0; c < 2; ++c) {
            const float factor = widen(e8m0_t{(u8)(columns[j] >> 8 * c)});
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int r = c; r < 4; r += 2)
                accumulators[0][i][j][r] = fma_(sums[i][j][r], factor, accumulators[0][i][j][r]);
        }
    }
};
