// Matrix fragments of the tensor-core family: shared tile -> registers -> mma.sync.
//
// Every instruction but those of doubles (mma_doubles.cuh) is used in one shape: a step of 32 bytes of k, 16 rows of A
// in four registers, 8 columns of B in two. With g = lane / 4 and t = lane % 4, register i of A holds 4 bytes of k from
// 16 * (i / 2) + 4 * t on, of row g + 8 * (i % 2); register i of B holds those from 16 * i + 4 * t on, of column g. An
// accumulator holds columns 2 * t and 2 * t + 1 of rows g (first two) and g + 8. The sm_75 instructions do a half or a
// quarter of that each.
#pragma once
#include "mma_doubles.cuh"

constexpr int K_STEP_BYTES = (DOUBLES ? 4 * ELEMENT : 32) * FOURS, K_STEP = K_STEP_BYTES * 8 / NARROW;
constexpr int K_STEPS = BLOCK_K / K_STEP;
static_assert(!DOUBLES || BLOCK_K % K_STEP == 0, "A step of k is whole fragments of the instruction.");
constexpr int FRAGMENTS_M = WARP_M / 16, FRAGMENTS_N = WARP_N / 8;

#if INSTRUCTION < 6 || INSTRUCTION == 9
DEVICE void multiply(SUM_TYPE (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if INSTRUCTION == 0
    mma_m16n8k16(d, a, b, IN_TYPE{});
#elif INSTRUCTION == 1
    const u32 a_first[2] = {a[0], a[1]}, a_second[2] = {a[2], a[3]}, b_first[1] = {b[0]}, b_second[1] = {b[1]};
    mma_m16n8k8(d, a_first, b_first);
    mma_m16n8k8(d, a_second, b_second);
#elif INSTRUCTION == 2
    mma_m16n8k8_tf32(d, a, b);
#elif INSTRUCTION == 3
    mma_m16n8k32_s8(d, a, b);
#elif INSTRUCTION == 5
    mma_m16n8k16(d, a, b, bfloat16_t{});
#elif INSTRUCTION == 9
    mma_m16n8k32_f8<same_type<A_STORED, e5m2_t>, same_type<B_STORED, e5m2_t>>(d, a, b);
#else
    UNROLL for (int half = 0; half < 2; ++half) {
        i32 rows[2] = {d[2 * half], d[2 * half + 1]};
        UNROLL for (int k = 0; k < 2; ++k) {
            const u32 a_part[1] = {a[2 * k + half]}, b_part[1] = {b[k]};
            mma_m8n8k16_s8(rows, a_part, b_part);
        }
        d[2 * half] = rows[0], d[2 * half + 1] = rows[1];
    }
#endif
}
#endif

// Reads one operand's fragments for a warp. COUNT fragments of ENTRIES rows (A: 16) or columns (B: 8) each, of
// REGISTERS (A: 4, B: 2) 8 x 16-byte matrices; B's are read two at a time. The odd one of B is read first, by a read of
// two matrices: its upper lanes point at the next fragment, or at the same one where it is alone, because sm_75 asks
// for valid addresses from all lanes.
template <class Shape, int COUNT, int REGISTERS>
struct FragmentLoader {
    using Rows = typename Shape::Rows;
    static constexpr int ENTRIES = REGISTERS * 4, WARP = COUNT * ENTRIES;
    static constexpr bool BY_MATRIX = Shape::K_CONTIGUOUS || ELEMENT == 2;
    static constexpr bool ODD = BY_MATRIX && REGISTERS == 2 && COUNT % 2 == 1;
    static_assert(!ODD || !Shape::K_CONTIGUOUS || 8 % Rows::PERIOD == 0, "Fragments lie alike behind the odd one.");
    // A read takes UNIT_BYTES along the shared row: the 2 chunks of a step of k, the 2 chunks of 16 entries, or 8
    // entries loaded plainly. Reads a multiple of SPAN chunks apart are permuted alike, so that their offsets repeat
    // after PERIOD reads; across the rows they do if warps start at such multiples, too.
    static constexpr int UNIT_BYTES = BY_MATRIX ? 32 : 8 * ELEMENT;
    static constexpr int UNITS =
        Shape::K_CONTIGUOUS ? Rows::ROW_BYTES / K_STEP_BYTES : divide_up(WARP * ELEMENT, UNIT_BYTES);
    static constexpr int ALIKE = Rows::SPAN * 16 > UNIT_BYTES ? Rows::SPAN * 16 / UNIT_BYTES : 1;
    static constexpr bool REPEATS = Shape::K_CONTIGUOUS || WARP * ELEMENT % (Rows::SPAN * 16) == 0;
    static constexpr int PERIOD = REPEATS && ALIKE < UNITS ? ALIKE : UNITS;
    int base[PERIOD]; // this lane's byte offsets in the shared tile

    MEMBER explicit FragmentLoader(int first) {
        const int lane = thread_index() & 31, low = lane & 7, bit3 = lane >> 3 & 1, bit4 = lane >> 4;
        // Matrices in the order of the registers: A alternates entries first, B alternates k first.
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

    // The first group of 8 entries that a read of matrices takes.
    static MEMBER constexpr int first_of(int read) { return 2 * read - (ODD && read > 0 ? 1 : 0); }

    // Offset of unit `unit` along the shared row.
    MEMBER int along(int unit) const { return base[unit % PERIOD] + unit / PERIOD * PERIOD * UNIT_BYTES; }

    // Byte offset of this lane's row of the matrices of one read.
    MEMBER int place(int read, int step) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return along(step) + first_of(read) * 8 * Rows::ROW_BYTES;
        else // an odd count repeats where chunks are not permuted only
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
#if INSTRUCTION == 2
        UNROLL for (int i = 0; i < COUNT; ++i) UNROLL for (int r = 0; r < REGISTERS; ++r) fragments[i][r] =
            round_tf32(fragments[i][r]);
#endif
    }

    // Fragment i of A, or of what ldmatrix cannot read, as it is in shared memory.
    MEMBER void load_one(u32 (&fragment)[REGISTERS], sptr<u8> tile, int step, int i) const {
        if constexpr (BY_MATRIX)
            load_matrix<REGISTERS, !Shape::K_CONTIGUOUS>(fragment, tile + place(i, step));
        else
            load_plainly(fragment, tile, step, i);
    }

    // M- or N-contiguous floats and i8: ldmatrix transposes 16-bit elements only, so elements are loaded one by one.
    MEMBER void load_plainly(u32 (&fragment)[REGISTERS], sptr<u8> tile, int step, int i) const {
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
