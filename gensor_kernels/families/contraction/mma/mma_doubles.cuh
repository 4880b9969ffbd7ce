// Fragments of doubles and of complex numbers of doubles (INSTRUCTION 6 m16n8k16, 7 m16n8k8, 8 m8n8k4, 10 m16n8k4), and
// how a warp reads them from shared memory.
//
// A fragment of A holds the registers of FOURS products m16n8k4 in order. With g = lane / 4 and t = lane % 4, elements
// 2 * i and 2 * i + 1 are those of rows g and g + 8 at k = 4 * i + t. Element i of a fragment of B is that of column g
// at k = 4 * i + t. The wider instructions take these registers unchanged. Accumulators have the layout of float ones.
#pragma once
#include "mma_tiles.cuh"

constexpr int FOURS = INSTRUCTION == 6 ? 4 : INSTRUCTION == 7 ? 2 : 1; // products m16n8k4 in an instruction
constexpr bool DOUBLES = ELEMENT >= 8;                                 // real or complex
#pragma parameter SUM_TYPE ACC_TYPE // accumulators of the matrix instructions, where they differ from the outputs' sums

template <int COUNT, int WORDS>
DEVICE void unpack_doubles(double (&to)[COUNT], const u32 (&from)[WORDS]) {
    static_assert(WORDS == 2 * COUNT, "A double is two words.");
    UNROLL for (int i = 0; i < COUNT; ++i) to[i] = bit_cast<double>((u64)from[2 * i + 1] << 32 | from[2 * i]);
}

template <int COUNT_A, int COUNT_B>
DEVICE void multiply_doubles(double (&d)[4], const double (&left)[COUNT_A], const double (&right)[COUNT_B]) {
    if constexpr (INSTRUCTION == 6) {
        mma_m16n8k16_f64(d, left, right);
    } else if constexpr (INSTRUCTION == 7) {
        mma_m16n8k8_f64(d, left, right);
    } else if constexpr (INSTRUCTION == 10) {
        mma_m16n8k4_f64(d, left, right);
    } else {
        UNROLL for (int half = 0; half < 2; ++half) {
            double row[2] = {d[2 * half], d[2 * half + 1]};
            const double own[1] = {left[half]};
            mma_m8n8k4_f64(row, own, right);
            d[2 * half] = row[0], d[2 * half + 1] = row[1];
        }
    }
}

// Reads COUNT fragments of an operand for a warp, element by element. A fragment has 8 * ROWS rows of A or columns of
// B. OperandTile::KIND places the elements that half a warp (for complex numbers a quarter) reads at once, at four
// adjacent k of four (two) entries, in different banks.
template <class Shape, int COUNT, int REGISTERS>
struct DoubleLoader {
    using Rows = typename Shape::Rows;
    static constexpr int ROWS = REGISTERS / 2, EACH = ELEMENT / 4, WORDS = ROWS * FOURS * EACH;
    // A unit is 8 entries or 4 values of k along a shared row. The swizzle repeats after ALIKE units.
    static constexpr int UNIT_BYTES = (Shape::K_CONTIGUOUS ? 4 : 8) * ELEMENT;
    static constexpr int UNITS = Shape::K_CONTIGUOUS ? BLOCK_K / 4 : COUNT * ROWS;
    static constexpr int ALIKE = Rows::SPAN * 16 > UNIT_BYTES ? Rows::SPAN * 16 / UNIT_BYTES : 1;
    static constexpr bool REPEATS = Shape::K_CONTIGUOUS || COUNT * ROWS * 8 * ELEMENT % (Rows::SPAN * 16) == 0;
    static constexpr int PERIOD = REPEATS && ALIKE < UNITS ? ALIKE : UNITS;
    int base[PERIOD]; // this lane's byte offsets in the shared tile

    MEMBER explicit DoubleLoader(int first) {
        const int g = (thread_index() & 31) >> 2, t = thread_index() & 3;
        UNROLL for (int i = 0; i < PERIOD; ++i) base[i] = Shape::K_CONTIGUOUS
                                                              ? Rows::offset(first + g, i * UNIT_BYTES + t * ELEMENT)
                                                              : Rows::offset(t, i * UNIT_BYTES + (first + g) * ELEMENT);
    }
    // Byte offset of this lane's element in a group of 8 entries at a group of 4 values of k.
    MEMBER int place(int entry, int four) const {
        const int along = Shape::K_CONTIGUOUS ? four : entry;
        const int across = Shape::K_CONTIGUOUS ? entry * 8 : four * 4;
        return base[along % PERIOD] + along / PERIOD * PERIOD * UNIT_BYTES + across * Rows::ROW_BYTES;
    }
    MEMBER void load(u32 (&fragments)[COUNT][WORDS], sptr<u8> tile, int step) const {
        UNROLL for (int i = 0; i < COUNT; ++i) UNROLL for (int four = 0; four < FOURS; ++four)
            UNROLL for (int row = 0; row < ROWS; ++row) {
            const Vec<ELEMENT> loaded = load_shared<ELEMENT>(tile + place(i * ROWS + row, step * FOURS + four));
            UNROLL for (int w = 0; w < EACH; ++w) fragments[i][(four * ROWS + row) * EACH + w] = loaded.word[w];
        }
    }
};
