// Operands in block-scaled formats: B(k, n) is a number of 8 bits or 4 times the scale of its column and of GROUP
// values of k (operators/products/quantised.py). A is in 16 bits, or in the same format, with scales of its rows.
//
// A unit, 32 values of k, is two widened fragments, of whose k every lane has 8 adjacent ones (mma_widen.cuh), or one
// of 8-bit floats. MX formats have one scale for a unit, any power of two: the sums of a unit are scaled. NVFP4 has one
// for each half of a unit, thus one for all values of a lane; numbers times scales, of 2 and 4 significant bits, are
// exact in both 16-bit types: the fragments are scaled. AS_STORED, the tensor cores take numbers and scales as they
// are. Without scales (GROUP 0) all are 1: GeForce parts multiply 8-bit floats at twice the rate in this way.
//
// Scales pass through shared memory after the operands, in words of up to four adjacent ones along k.
#pragma once
#include "block_scaled.cuh"
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

constexpr bool SCALES_FRAGMENTS = GROUP == 16, SCALES_B = GROUP > 0;
constexpr bool SCALES_A = SCALES_B && !same_type<A_STORED, IN_TYPE>;
constexpr bool WIDENS_FRAGMENTS = NARROW < 8 * MULTIPLIED;
// Values of k of a unit; units of a step of k, and fragments along k of a unit.
constexpr int UNIT = 32, UNITS = K_STEP / UNIT, UNIT_PARTS = PART_COUNT / UNITS;
// Scales of an entry, a row of A or a column of B, in a stage, in a word, and in a step of k.
constexpr int PER_SCALE = SCALES_B ? GROUP : UNIT; // values of k
constexpr int STAGE_SCALES = BLOCK_K / PER_SCALE, STEP_SCALES = K_STEP / PER_SCALE;
constexpr int WORD_SCALES = minimum(4, STAGE_SCALES);

// The scales of a stage in shared memory: word w of entry i is word w * ENTRIES + i.
template <bool USED, int ENTRIES>
struct ScaleTile {
    static constexpr int WORDS = STAGE_SCALES / WORD_SCALES, BYTES = USED ? ENTRIES * STAGE_SCALES : 0;
    static constexpr int LINES = THREADS / WORDS; // entries of a pass: neighbouring threads copy words of an entry
    static constexpr int PASSES = USED ? divide_up(ENTRIES, LINES) : 0;
    // Whether cp.async copies a word: scales are adjacent, at multiples of four bytes, and end with a word.
    static constexpr bool COPIED = SCALE_VECTOR == 4 && WORD_SCALES == 4;

    gptr<u8> source; // this thread's first word of the next stage
    i64 scale_entry, scale_group;
    int entries, groups; // from this word on

    MEMBER ScaleTile(const Tile &tile, const Params &params, u64 scales, i64 scale_entry, i64 scale_group, int first,
                     int extent)
        : scale_entry(scale_entry), scale_group(scale_group) {
        const int entry = first + own_line(), group = tile.k_begin / PER_SCALE + own_word() * WORD_SCALES;
        source = gptr<u8>(scales) + (entry * scale_entry + group * scale_group);
        entries = extent - entry, groups = divide_up(params.k, PER_SCALE) - group;
    }
    static MEMBER int own_line() { return thread_index() / WORDS; }
    static MEMBER int own_word() { return thread_index() % WORDS; }

    // Copies the next stage's scales; those past an edge become zeros.
    MEMBER void request(sptr<u8> tile) {
        UNROLL for (int pass = 0; pass < PASSES; ++pass) {
            if (ENTRIES % LINES != 0 && !within(own_line() + pass * LINES, ENTRIES))
                continue;
            const bool inside = within(pass * LINES, entries) && within(0, groups);
            const gptr<u8> from = source + pass * LINES * scale_entry;
            const sptr<u8> to = tile + (own_word() * ENTRIES + own_line() + pass * LINES) * WORD_SCALES;
            if constexpr (COPIED) {
                copy_async<4>(to, from, inside);
            } else {
                Vec<WORD_SCALES> word = Vec<WORD_SCALES>::zero();
                UNROLL for (int i = 0; i < WORD_SCALES; ++i)
                    word.set(i, (u8)load_global<1>(from + i * scale_group, inside && within(i, groups)).word[0]);
                store_shared(to, word);
            }
        }
        source = source + STAGE_SCALES * scale_group, groups -= STAGE_SCALES;
    }
};

// Reads a lane's scales of COUNT entries, which come in runs of RUN adjacent ones, APART from run to run.
template <int ENTRIES, int COUNT, int RUN, int APART>
struct ScaleReader {
    int first, last; // bytes to the lane's first entry, and to the run of its last one, which may be another's

    MEMBER ScaleReader(int first, int last) : first(first * WORD_SCALES), last(last * WORD_SCALES) {}

    // Reads BYTES scales of each entry, from number `scale` of the stage on.
    template <int BYTES>
    MEMBER void load(u32 (&words)[COUNT], sptr<u8> tile, int scale) const {
        const int at = scale / WORD_SCALES * ENTRIES * WORD_SCALES + scale % WORD_SCALES;
        UNROLL for (int i = 0; i < COUNT; ++i) {
            const int own = (i == COUNT - 1 ? last : first) + (i / RUN * APART + i % RUN) * WORD_SCALES;
            words[i] = load_shared<BYTES>(tile + (at + own)).word[0];
        }
    }
};

constexpr int SCALES_AT = STAGES * STAGE_BYTES; // bytes of shared memory before the scales
using ScaleTileA = ScaleTile<SCALES_A, BLOCK_M>;
using ScaleTileB = ScaleTile<SCALES_B, BLOCK_N>;

// Copies the scales of both operands.
struct BlockScales {
    static constexpr int BYTES = ScaleTileA::BYTES + ScaleTileB::BYTES; // of a stage
    ScaleTileA a;
    ScaleTileB b;

    MEMBER BlockScales(const Params &params, const Tile &tile)
        : a(tile, params, params.groups.zeros, params.groups.zero_n, params.groups.zero_group, tile.row, params.m),
          b(tile, params, params.d, params.d_n, params.d_m, tile.column, params.n) {}
    MEMBER void request(sptr<u8> to) {
        a.request(to);
        b.request(to + ScaleTileA::BYTES);
    }
};

// Copies operands and scales, stage by stage.
template <class Scales>
struct ScaledPipeline {
    Pipeline operands;
    Scales scales;
    int write; // bytes from the first stage of scales to the one to fill next

    MEMBER ScaledPipeline(const Params &params, const Tile &tile)
        : operands(params, tile), scales(params, tile), write(0) {}

    MEMBER void request(const Params &params) {
        scales.request(shared_base() + (SCALES_AT + write));
        write = next_stage(write);
        operands.request(params);
    }
    static MEMBER int next_stage(int offset) {
        return offset == (STAGES - 1) * Scales::BYTES ? 0 : offset + Scales::BYTES;
    }
};

// The fragments of a step of k and their scales. Widened: of rows g and g + 8 of a fragment of A; of a fragment of B
// columns 2 * t and 2 * t + 1, whose sums are scaled, or column g. As stored: a lane has one row of two fragments of
// A, or one column of four of B, and one word for as many steps as it has scales for.
constexpr int OWN_A = !SCALES_A ? 1 : AS_STORED ? divide_up(FRAGMENTS_M, 2) : 2 * FRAGMENTS_M;
constexpr int RUN_B = AS_STORED || SCALES_FRAGMENTS ? 1 : 2;
constexpr int OWN_B = AS_STORED ? divide_up(FRAGMENTS_N, 4) : RUN_B * FRAGMENTS_N;
using ReaderA = ScaleReader<BLOCK_M, OWN_A, 1, AS_STORED ? 32 : 8>;
using ReaderB = ScaleReader<BLOCK_N, OWN_B, RUN_B, AS_STORED ? 32 : 8>;
struct ScaledFragments {
    Fragments numbers;
    u32 of_a[OWN_A], of_b[OWN_B];
};

// Multiplies 8-bit floats as they are stored, with scales.
template <class Scales> // as a template: where the tensor cores do not scale, it is not compiled
DEVICE void multiply_bytes(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2], const Scales &scales,
                           ScalePlace at) {
    mma_m16n8k32_scaled<same_type<A_STORED, e5m2_t>, same_type<B_STORED, e5m2_t>>(sums, a, b, scales, at);
}
constexpr u32 ONES = 0x7f7f7f7f; // four scales of 1

// The math of a warp, with the interface of WarpMath.
struct BlockMath {
    using Copies = ScaledPipeline<BlockScales>;
    LoadA::Type load_a;
    LoadB::Type load_b;
    Accumulators accumulators[1];
    ScaledFragments fragments[2];
    ReaderA scales_a;
    ReaderB scales_b;
    int read, read_scales; // byte offsets of the stage being computed

    MEMBER BlockMath(const Tile &, int row, int column)
        : load_a(row), load_b(column), accumulators{},
          scales_a(row + own_row(2), row + own_row((FRAGMENTS_M - 1) % 2 + 1)),
          scales_b(column + own_column(4), column + own_column((FRAGMENTS_N - 1) % 4 + 1)), read(0), read_scales(0) {}

    static MEMBER int lane_of_four() { return (thread_index() & 31) >> 2; }
    static MEMBER int in_four() { return thread_index() & 3; }
    // The lane's row of a run of `fragments` of A as stored, and its column of B; without the last ones another's.
    static MEMBER int own_row(int fragments) {
        return AS_STORED ? minimum(in_four() >> 1, fragments - 1) * 16 + (in_four() & 1) * 8 + lane_of_four()
                         : lane_of_four();
    }
    static MEMBER int own_column(int fragments) {
        return AS_STORED    ? minimum(in_four(), fragments - 1) * 8 + lane_of_four()
               : RUN_B == 1 ? lane_of_four()
                            : in_four() * 2;
    }

    MEMBER void begin() { load(0, 0); }
    MEMBER void load(int buffer, int k) {
        ScaledFragments &to = fragments[buffer];
        load_a.load(to.numbers.a, shared_base() + read, k);
        load_b.load(to.numbers.b[0], shared_base() + (read + TileA::BYTES), k);
        const sptr<u8> tile = shared_base() + (SCALES_AT + read_scales);
        constexpr int READ = AS_STORED ? WORD_SCALES : STEP_SCALES;
        if (k * STEP_SCALES % READ != 0) { // the word that the previous step has
            const ScaledFragments &from = fragments[DOUBLE_FRAGMENTS ? 1 - buffer : buffer];
            UNROLL for (int i = 0; i < OWN_A; ++i) to.of_a[i] = from.of_a[i];
            UNROLL for (int i = 0; i < OWN_B; ++i) to.of_b[i] = from.of_b[i];
            return;
        }
        if constexpr (SCALES_A)
            scales_a.template load<READ>(to.of_a, tile, k * STEP_SCALES);
        if constexpr (SCALES_B)
            scales_b.template load<READ>(to.of_b, tile + ScaleTileA::BYTES, k * STEP_SCALES);
    }

    // Multiplies the stage whose first fragments are loaded, and loads the first fragments of the next stage, where
    // there are registers before the last ones of this stage are multiplied.
    MEMBER void compute(Copies &pipeline, const Params &params) {
        pipeline.request(params);
        unrolled<K_STEPS>([&](int k) {
            const bool last = k == K_STEPS - 1, ahead = DOUBLE_FRAGMENTS && (!last || K_STEPS % 2 == 0);
            const int now = DOUBLE_FRAGMENTS ? k % 2 : 0, next = last || !DOUBLE_FRAGMENTS ? 0 : (k + 1) % 2;
            if (!ahead)
                multiply_step(fragments[now], k);
            if (last) {
                pipeline.operands.receive();
                read = Pipeline::next_stage(read), read_scales = Copies::next_stage(read_scales);
            }
            load(next, last ? 0 : k + 1);
            if (ahead)
                multiply_step(fragments[now], k);
        });
    }
    MEMBER void multiply_step(const ScaledFragments &step, int k) {
        if constexpr (AS_STORED) {
            multiply_as_stored(step, k * STEP_SCALES % WORD_SCALES);
            cover("group");
        } else {
            UNROLL for (int unit = 0; unit < UNITS; ++unit) {
                multiply_unit(step, unit);
                cover("group");
            }
        }
    }
    template <class Step> // as a template: other formats than this one are not compiled
    MEMBER void multiply_as_stored(const Step &step, int byte) {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
            const ScaleRegisters scales = {SCALES_A ? step.of_a[i / 2] : ONES, SCALES_B ? step.of_b[j / 4] : ONES};
            const ScalePlace at = {byte, i % 2, j % 4};
            float (&sums)[4] = accumulators[0][i][j];
            if constexpr (NARROW == 4)
                mma_m16n8k64_scaled<STEP_SCALES>(sums, step.numbers.a[i], step.numbers.b[0][j], scales, at);
            else
                multiply_bytes(sums, step.numbers.a[i], step.numbers.b[0][j], scales, at);
        }
    }
    MEMBER void multiply_unit(const ScaledFragments &step, int unit) {
        if constexpr (SCALES_FRAGMENTS) {
            UNROLL for (int part = unit * UNIT_PARTS; part < (unit + 1) * UNIT_PARTS; ++part)
                multiply_part(accumulators[0], step, part);
        } else {
            Accumulators sums = {};
            UNROLL for (int part = unit * UNIT_PARTS; part < (unit + 1) * UNIT_PARTS; ++part)
                multiply_part(sums, step, part);
            add_scaled(sums, step, unit);
        }
    }
    // Multiplies one of the fragments along k of a step, with SCALES_FRAGMENTS after scaling it.
    static MEMBER void multiply_part(Accumulators &sums, const ScaledFragments &step, int part) {
        const Fragments &numbers = step.numbers;
        if constexpr (WIDENS_FRAGMENTS) {
            u32 a[4], b[FRAGMENTS_N][2];
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) {
                take_part<TileB>(b[j], numbers.b[0][j], part);
                if constexpr (SCALES_FRAGMENTS)
                    UNROLL for (int i = 0; i < 2; ++i) b[j][i] = scaled(b[j][i], step.of_b[j], part);
            }
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
                take_part<TileA>(a, numbers.a[i], part);
                if constexpr (SCALES_FRAGMENTS && SCALES_A)
                    UNROLL for (int r = 0; r < 4; ++r) a[r] = scaled(a[r], step.of_a[2 * i + r % 2], part);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) multiply(sums[i][j], a, b[j]);
            }
        } else {
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
                multiply(sums[i][j], numbers.a[i], numbers.b[0][j]);
        }
    }
    // Multiplies a pair of fragment `part` by its scale: of a word of four, one for each half of the lanes.
    static MEMBER u32 scaled(u32 pair, u32 scales, int part) {
        const u32 which = (u32)(part / UNIT_PARTS * 2 + (in_four() >> 1)) * 0x1111;
        u32 both[2];
        widen_word(byte_permute(scales, 0, which), both, e4m3_t{}, IN_TYPE{});
        return fma_pair(pair, both[0], 0x80008000u, IN_TYPE{});
    }
    MEMBER void add_scaled(Accumulators &sums, const ScaledFragments &step, int unit) {
        if constexpr (SCALES_A)
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
                const float factor = widen(e8m0_t{(u8)(step.of_a[2 * i + half] >> 8 * unit)});
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 2 * half; r < 2 * half + 2; ++r)
                    sums[i][j][r] = sums[i][j][r] * factor;
            }
        UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int c = 0; c < 2; ++c) {
            const float factor = widen(e8m0_t{(u8)(step.of_b[2 * j + c] >> 8 * unit)});
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int r = c; r < 4; r += 2)
                accumulators[0][i][j][r] = fma_(sums[i][j][r], factor, accumulators[0][i][j][r]);
        }
    }
};
