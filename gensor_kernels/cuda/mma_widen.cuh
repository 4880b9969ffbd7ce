// Fragments of operands that lie in shared memory as they are stored, some of them narrower than they are multiplied.
//
// The narrow operand is read as any other, 32 bytes of k at a time: a lane gets 4 bytes, whose elements it widens to
// those of k that it has in a fragment. These are others than ldmatrix gives of 16-bit elements, so the wide operand,
// if one is, is read in the same order of k, 8 bytes per lane and row. The order within a step does not change a sum.
#pragma once
#include "mma_fragments.cuh"

constexpr int PART_COUNT = ELEMENT / NARROW; // fragments along k in a step of K_STEP

// A read of 8 bytes per lane takes 2 chunks along 4 rows.
template <class Shape, int COUNT, int REGISTERS>
struct SpreadLoader {
    using Rows = typename Shape::Rows;
    static constexpr int WORDS = REGISTERS * PART_COUNT, HALVES = REGISTERS / 2; // halves: 8 rows of A or columns of B
    static constexpr int UNITS = Rows::ROW_BYTES / 32, ALIKE = Rows::SPAN / 2 > 1 ? Rows::SPAN / 2 : 1;
    static constexpr int PERIOD = ALIKE < UNITS ? ALIKE : UNITS; // reads along k after which offsets repeat
    int base[PERIOD];

    MEMBER explicit SpreadLoader(int first) {
        const int lane = thread_index() & 31;
        UNROLL for (int i = 0; i < PERIOD; ++i) base[i] = Rows::offset(first + (lane >> 2), i * 32 + (lane & 3) * 8);
    }
    MEMBER void load(u32 (&words)[COUNT][WORDS], sptr<u8> tile, int step) const {
        UNROLL for (int i = 0; i < COUNT; ++i) UNROLL for (int part = 0; part < PART_COUNT; ++part)
            UNROLL for (int half = 0; half < HALVES; ++half) {
                const int unit = step * PART_COUNT + part, row = i * HALVES * 8 + half * 8;
                const int at = base[unit % PERIOD] + unit / PERIOD * PERIOD * 32 + row * Rows::ROW_BYTES;
                const Vec<8> pair = load_shared<8>(tile + at);
                words[i][(part * 2 + 0) * HALVES + half] = pair.word[0];
                words[i][(part * 2 + 1) * HALVES + half] = pair.word[1];
            }
    }
};

template <class Shape, int COUNT, int REGISTERS, bool SPREAD = Shape::SPREAD>
struct LoaderOf {
    using Type = FragmentLoader<Shape, COUNT, REGISTERS>;
    static constexpr int WORDS = REGISTERS; // of a fragment as it is read
};
template <class Shape, int COUNT, int REGISTERS>
struct LoaderOf<Shape, COUNT, REGISTERS, true> {
    using Type = SpreadLoader<Shape, COUNT, REGISTERS>;
    static constexpr int WORDS = Type::WORDS;
};

// Fragment `part` of what was read of a row of A (REGISTERS 4) or a column of B (2).
template <class Shape, int REGISTERS, int WORDS>
DEVICE void take_part(u32 (&fragment)[REGISTERS], const u32 (&words)[WORDS], int part) {
    constexpr int HALVES = REGISTERS / 2;
    UNROLL for (int half = 0; half < HALVES; ++half) {
        if constexpr (Shape::SPREAD) {
            UNROLL for (int i = 0; i < 2; ++i) fragment[i * HALVES + half] = words[(part * 2 + i) * HALVES + half];
        } else {
            u32 pairs[2];
            widen_word(words[part * HALVES + half], pairs, typename Shape::Source{}, IN_TYPE{});
            UNROLL for (int i = 0; i < 2; ++i) fragment[i * HALVES + half] = pairs[i];
        }
    }
}
