// Fragments of operands that are narrower in shared memory than in the product.
//
// ldmatrix reads 32 bytes of k of the narrow operand, 4 bytes per lane, and the lane widens them to the elements of its
// fragments. A lane thus holds other values of k than after an ldmatrix of 16-bit elements. The wide operand, if there
// is one, is therefore read in the same order of k, 8 bytes per lane and row. This order does not change a sum.
#pragma once
#include "mma_fragments.cuh"

constexpr int MULTIPLIED = INSTRUCTION == 9 ? 1 : ELEMENT; // bytes of an element in a fragment
constexpr int PART_COUNT = 8 * MULTIPLIED / NARROW;        // fragments along k in a step of K_STEP
constexpr int WORD_PARTS = 16 / NARROW > 2 ? 2 : 1;        // of these, from the elements of four bytes

// Reads the wide operand: 4 * PART_COUNT bytes per lane, and PART_COUNT chunks of a row, at once.
template <class Shape, int COUNT, int REGISTERS>
struct SpreadLoader {
    using Rows = typename Shape::Rows;
    static constexpr int WORDS = REGISTERS * PART_COUNT, HALVES = REGISTERS / 2; // halves: 8 rows of A or columns of B
    static constexpr int LANE_BYTES = 4 * PART_COUNT, UNIT_BYTES = 4 * LANE_BYTES;
    static constexpr int UNITS = Rows::ROW_BYTES / UNIT_BYTES,
                         ALIKE = Rows::SPAN > PART_COUNT ? Rows::SPAN / PART_COUNT : 1;
    static constexpr int PERIOD = ALIKE < UNITS ? ALIKE : UNITS; // reads along k after which offsets repeat
    int base[PERIOD];

    MEMBER explicit SpreadLoader(int first) {
        const int lane = thread_index() & 31;
        UNROLL for (int i = 0; i < PERIOD; ++i) base[i] =
            Rows::offset(first + (lane >> 2), i * UNIT_BYTES + (lane & 3) * LANE_BYTES);
    }
    MEMBER void load(u32 (&words)[COUNT][WORDS], sptr<u8> tile, int step) const {
        UNROLL for (int i = 0; i < COUNT; ++i) UNROLL for (int half = 0; half < HALVES; ++half)
            UNROLL for (int read = 0; read < 2; ++read) {
            const int unit = step * 2 + read, row = i * HALVES * 8 + half * 8;
            const int at = base[unit % PERIOD] + unit / PERIOD * PERIOD * UNIT_BYTES + row * Rows::ROW_BYTES;
            const Vec<LANE_BYTES> loaded = load_shared<LANE_BYTES>(tile + at);
            UNROLL for (int w = 0; w < PART_COUNT; ++w) words[i][(read * PART_COUNT + w) * HALVES + half] =
                ordered_word(loaded, w);
        }
    }
    // Returns word w in the order in which words of the narrow operand are widened.
    static MEMBER u32 ordered_word(const Vec<LANE_BYTES> &loaded, int w) {
        if constexpr (PART_COUNT == 2)
            return loaded.word[w];
        else
            return byte_permute(loaded.word[w / 2], loaded.word[2 + w / 2], w % 2 == 0 ? 0x5410 : 0x7632);
    }
};

template <class Shape, int COUNT, int REGISTERS, bool SPREAD = Shape::SPREAD, bool OF_DOUBLES = DOUBLES>
struct LoaderOf {
    using Type = FragmentLoader<Shape, COUNT, REGISTERS>;
    static constexpr int WORDS = REGISTERS; // of a fragment as it is read
};
template <class Shape, int COUNT, int REGISTERS>
struct LoaderOf<Shape, COUNT, REGISTERS, true> {
    using Type = SpreadLoader<Shape, COUNT, REGISTERS>;
    static constexpr int WORDS = Type::WORDS;
};
template <class Shape, int COUNT, int REGISTERS>
struct LoaderOf<Shape, COUNT, REGISTERS, false, true> {
    using Type = DoubleLoader<Shape, COUNT, REGISTERS>;
    static constexpr int WORDS = Type::WORDS;
};

// Takes fragment `part` from the words read for a fragment of A (REGISTERS 4) or B (2).
template <class Shape, int REGISTERS, int WORDS>
DEVICE void take_part(u32 (&fragment)[REGISTERS], const u32 (&words)[WORDS], int part) {
    constexpr int HALVES = REGISTERS / 2;
    UNROLL for (int half = 0; half < HALVES; ++half) {
        if constexpr (Shape::SPREAD) {
            UNROLL for (int i = 0; i < 2; ++i) fragment[i * HALVES + half] = words[(part * 2 + i) * HALVES + half];
        } else {
            u32 pairs[2 * WORD_PARTS];
            widen_word(words[part / WORD_PARTS * HALVES + half], pairs, typename Shape::Source{}, IN_TYPE{});
            UNROLL for (int i = 0; i < 2; ++i) fragment[i * HALVES + half] = pairs[part % WORD_PARTS * 2 + i];
        }
    }
}
