// Rows of a tile in shared memory, and permutations of their 16-byte chunks that avoid bank conflicts.
#pragma once
#include "types.cuh"

DEVICE constexpr int power_of_two_in(int value) {
    return value & -value;
}
DEVICE constexpr int divide_up(int a, int b) {
    return (a + b - 1) / b;
}

// The permutation of the chunks of a row: chunk c of row r is stored at c ^ flip(r).
//
// Shared memory serves 8 chunks (128 bytes) at once if they differ modulo 8. With C chunks per row, r * C mod 8 repeats
// every 8 / gcd(C, 8) rows. This number of rows does not conflict, and `flip` differs between the repetitions:
//   SWIZZLE_MATRIX    8 consecutive rows, one chunk of each (ldmatrix): gcd(C, 8) values of flip, one per repetition
//   SWIZZLE_WORDS     4 consecutive rows, two adjacent chunks of each (32-bit loads of 8 columns x 4 rows): even values
//   SWIZZLE_BYTES     every fourth row of 16, half a chunk of each (i8 read across its rows)
//   SWIZZLE_QUADS     2 consecutive rows, four adjacent chunks of each (16 bytes per lane), if 8 divides C
// flip is less than the largest power of two that divides C, so that a permuted chunk stays in its row. Copies of
// consecutive chunks stay conflict-free, because each aligned group of them is only permuted.
enum SwizzleKind { SWIZZLE_MATRIX, SWIZZLE_WORDS, SWIZZLE_BYTES, SWIZZLE_QUADS, SWIZZLE_NONE };

template <SwizzleKind KIND, int ROW_BYTES_>
struct SharedRows {
    static constexpr int ROW_BYTES = ROW_BYTES_, CHUNKS = ROW_BYTES / 16;
    static_assert(ROW_BYTES % 16 == 0, "A shared row must be whole 16-byte chunks.");
    static constexpr int FREE = power_of_two_in(CHUNKS | 8);                      // gcd(C, 8)
    static constexpr int SHIFT = KIND == SWIZZLE_MATRIX  ? 4 / FREE - (FREE == 1) // log2(8 / FREE)
                                 : KIND == SWIZZLE_WORDS ? FREE != 8
                                 : KIND == SWIZZLE_QUADS ? 0
                                                         : 2;
    static constexpr int VALUES = KIND == SWIZZLE_MATRIX  ? FREE
                                  : KIND == SWIZZLE_WORDS ? (FREE == 1 ? 1 : FREE / 2)
                                  : KIND == SWIZZLE_BYTES ? minimum(FREE, 4)
                                  : KIND == SWIZZLE_QUADS ? (FREE == 8 ? 2 : 1)
                                                          : 1;
    static constexpr int SCALE = KIND == SWIZZLE_WORDS ? 2 : KIND == SWIZZLE_QUADS ? 4 : 1;
    static constexpr int SPAN = VALUES * SCALE;    // flips only move chunks within aligned groups of SPAN
    static constexpr int PERIOD = VALUES << SHIFT; // rows after which flips repeat

    static MEMBER int flip(int row) { return (row >> SHIFT & (VALUES - 1)) * SCALE; }
    // The offset of byte number `byte` of a row.
    static MEMBER int offset(int row, int byte) {
        return row * ROW_BYTES + (((byte >> 4) ^ flip(row)) << 4 | (byte & 15));
    }
};
