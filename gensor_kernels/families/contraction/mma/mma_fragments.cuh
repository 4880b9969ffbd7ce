// Matrix fragments of the tensor-core families: how they are read from shared tiles and multiplied (mma.sync).
//
// All instructions but those of doubles (mma_doubles.cuh) are used in one shape: 16 rows of A in four registers times 8
// columns of B in two, over 32 bytes of k. With g = lane / 4 and t = lane % 4, register i of A holds 4 bytes of row
// g + 8 * (i % 2), from byte 16 * (i / 2) + 4 * t of k on; register i of B holds 4 bytes of column g, from byte
// 16 * i + 4 * t on. The accumulators are columns 2 * t and 2 * t + 1 of row g, then of row g + 8. An instruction of
// sm_75 computes a half or a quarter of this shape.
#pragma once
#include "mma_doubles.cuh"

constexpr int K_STEP_BYTES = (DOUBLES ? 4 * ELEMENT : 32) * FOURS, K_STEP = K_STEP_BYTES * 8 / NARROW;
constexpr int K_STEPS = BLOCK_K / K_STEP;
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;

template <class Sum, int WORDS_A, int WORDS_B>
DEVICE void multiply(Sum (&d)[4], const u32 (&a)[WORDS_A], const u32 (&b)[WORDS_B]) {
    if constexpr (DOUBLES) {
        double left[WORDS_A / 2], right[WORDS_B / 2];
        unpack_doubles(left, a);
        unpack_doubles(right, b);
        multiply_doubles(d, left, right);
    } else if constexpr (INSTRUCTION == 0) {
        mma_m16n8k16(d, a, b, IN_TYPE{});
    } else if constexpr (INSTRUCTION == 1) {
        const u32 a_first[2] = {a[0], a[1]}, a_second[2] = {a[2], a[3]}, b_first[1] = {b[0]}, b_second[1] = {b[1]};
        mma_m16n8k8(d, a_first, b_first);
        mma_m16n8k8(d, a_second, b_second);
    } else if constexpr (INSTRUCTION == 2) {
        mma_m16n8k8_tf32(d, a, b);
    } else if constexpr (INSTRUCTION == 3) {
        mma_m16n8k32_s8(d, a, b);
    } else if constexpr (INSTRUCTION == 5) {
        mma_m16n8k16(d, a, b, bfloat16_t{});
    } else if constexpr (INSTRUCTION == 9) {
        mma_m16n8k32_f8<same_type<A_STORED, e5m2_t>, same_type<B_STORED, e5m2_t>>(d, a, b);
    } else {
        UNROLL for (int half = 0; half < 2; ++half) {
            Sum rows[2] = {d[2 * half], d[2 * half + 1]};
            UNROLL for (int k = 0; k < 2; ++k) {
                const u32 a_part[1] = {a[2 * k + half]}, b_part[1] = {b[k]};
                mma_m8n8k16_s8(rows, a_part, b_part);
            }
            d[2 * half] = rows[0], d[2 * half + 1] = rows[1];
        }
    }
}

// Reads COUNT fragments of an operand for a warp. A fragment has ENTRIES rows of A (16) or columns of B (8), in
// REGISTERS matrices of 8 x 16 bytes (A: 4, B: 2), and two fragments of B are read at once. If their number is odd, the
// first one is read by itself. The upper lanes of that read point at the next fragment, or at the same one if there is
// no other, because sm_75 requires valid addresses from all lanes.
template <class Shape, int COUNT, int REGISTERS>
struct FragmentLoader {
    using Rows = typename Shape::Rows;
    static constexpr int ENTRIES = REGISTERS * 4, WARP = COUNT * ENTRIES;
    static constexpr bool BY_MATRIX = Shape::K_CONTIGUOUS || ELEMENT == 2;
    static constexpr bool ODD = BY_MATRIX && REGISTERS == 2 && COUNT % 2 == 1;
    static_assert(!ODD || !Shape::K_CONTIGUOUS || 8 % Rows::PERIOD == 0,
                  "Fragments after the odd one have one permutation.");
    // A read takes UNIT_BYTES along the shared row: the 2 chunks of a step of k, the 2 chunks of 16 entries, or 8
    // single elements. The swizzle repeats after SPAN chunks, so that offsets repeat after PERIOD reads; for rows of
    // entries, this requires that warps start at multiples of SPAN chunks.
    static constexpr int UNIT_BYTES = BY_MATRIX ? 32 : 8 * ELEMENT;
    static constexpr int UNITS =
        Shape::K_CONTIGUOUS ? Rows::ROW_BYTES / K_STEP_BYTES : divide_up(WARP * ELEMENT, UNIT_BYTES);
    static constexpr int ALIKE = Rows::SPAN * 16 > UNIT_BYTES ? Rows::SPAN * 16 / UNIT_BYTES : 1;
    static constexpr bool REPEATS = Shape::K_CONTIGUOUS || WARP * ELEMENT % (Rows::SPAN * 16) == 0;
    static constexpr int PERIOD = REPEATS && ALIKE < UNITS ? ALIKE : UNITS;
    int base[PERIOD]; // this lane's byte offsets in the shared tile

    MEMBER explicit FragmentLoader(int first) {
        const int lane = thread_index() & 31, low = lane & 7, bit3 = lane >> 3 & 1, bit4 = lane >> 4;
        // The matrices have the order of the registers: A alternates entries first, B alternates k first.
        const int entry_half = REGISTERS == 4 ? bit3 : ODD && COUNT == 1 ? 0 : bit4;
        const int k_half = REGISTERS == 4 ? bit4 : bit3;
        UNROLL for (int i = 0; i < PERIOD; ++i) {
            if constexpr (Shape::K_CONTIGUOUS)
                base[i] = Rows::offset(first + low + 8 * entry_half, (2 * i + k_half) * 16);
            else if constexpr (BY_MATRIX)
                base[i] = Rows::offset(low + 8 * k_half, (first / 8 + first_of(i) + entry_half) * 16);
            else
                base[i] = Rows::offset((lane & 3) * (4 / ELEMENT), (first + 8 * i + (lane >> 2)) * ELEMENT);
        }
    }

    // Returns the first group of 8 entries that a read of matrices takes.
    static MEMBER constexpr int first_of(int read) { return 2 * read - (ODD && read > 0 ? 1 : 0); }

    // Returns the offset of unit `unit` along the shared row.
    MEMBER int along(int unit) const { return base[unit % PERIOD] + unit / PERIOD * PERIOD * UNIT_BYTES; }

    // Returns the byte offset of this lane's row of the matrices of a read.
    MEMBER int place(int read, int step) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return along(step) + first_of(read) * 8 * Rows::ROW_BYTES;
        else // the offsets of an odd count repeat only without a swizzle
            return base[read % PERIOD] + (first_of(read) - first_of(read % PERIOD)) * 16 + step * 16 * Rows::ROW_BYTES;
    }

    MEMBER void load(u32 (&fragments)[COUNT][REGISTERS], sptr<u8> tile, int step) const {
        if constexpr (BY_MATRIX && REGISTERS == 2) {
            if constexpr (ODD)
                load_matrix<2, !Shape::K_CONTIGUOUS>(fragments[0], tile + place(0, step));
            UNROLL for (int i = ODD; i < COUNT; i += 2) {
                u32 pair[4];
                load_matrix<4, !Shape::K_CONTIGUOUS>(pair, tile + place((i + 1) / 2, step));
                fragments[i][0] = pair[0], fragments[i][1] = pair[1];
                fragments[i + 1][0] = pair[2], fragments[i + 1][1] = pair[3];
            }
        } else {
            UNROLL for (int i = 0; i < COUNT; ++i) load_one(fragments[i], tile, step, i);
        }
        if constexpr (INSTRUCTION == 2)
            UNROLL for (int i = 0; i < COUNT; ++i) UNROLL for (int r = 0; r < REGISTERS; ++r) fragments[i][r] =
                round_tf32(fragments[i][r]);
    }

    // Reads fragment i of A, or of an operand that ldmatrix cannot read, and leaves its elements unchanged.
    MEMBER void load_one(u32 (&fragment)[REGISTERS], sptr<u8> tile, int step, int i) const {
        if constexpr (BY_MATRIX)
            load_matrix<REGISTERS, !Shape::K_CONTIGUOUS>(fragment, tile + place(i, step));
        else
            load_elements(fragment, tile, step, i);
    }

    // Reads a fragment of M- or N-contiguous float or i8 element by element: ldmatrix transposes only 16-bit elements.
    MEMBER void load_elements(u32 (&fragment)[REGISTERS], sptr<u8> tile, int step, int i) const {
        UNROLL for (int r = 0; r < REGISTERS; ++r) {
            const int unit = REGISTERS == 4 ? 2 * i + (r & 1) : i, k_half = REGISTERS == 4 ? r >> 1 : r;
            const int at = along(unit) + (step * K_STEP + k_half * (K_STEP / 2)) * Rows::ROW_BYTES;
            u32 word = 0;
            UNROLL for (int e = 0; e < 4 / ELEMENT; ++e) {
                const Vec<ELEMENT> element = load_shared<ELEMENT>(tile + (at + e * Rows::ROW_BYTES));
                word |= element.word[0] << (8 * ELEMENT * e & 31);
            }
            fragment[r] = word;
        }
    }
};
