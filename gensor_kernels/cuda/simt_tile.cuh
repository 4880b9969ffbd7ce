// One operand's share of a step: from global memory through registers into a shared tile [BLOCK_K][ROW].
//
// A tile spans EXTENT rows of A or columns of B ("entries" below) and BLOCK_K of k. The operand's contiguous
// axis is loaded VECTOR bytes at a time; where that axis is k, the tile is transposed while it is stored.
#pragma once
#include "contraction.cuh"

DEVICE constexpr int greatest_common_divisor(int a, int b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}
// The largest power of two that divides `a`.
DEVICE constexpr int power_of_two_in(int a) {
    return a & -a;
}

// Who loads what, and where it lies in the shared tile.
template <int EXTENT_, int VECTOR_, bool TRANSPOSED_>
struct TileShape {
    static constexpr int EXTENT = EXTENT_, VECTOR = VECTOR_;
    static constexpr bool TRANSPOSED = TRANSPOSED_;
    static constexpr int WORD = int(sizeof(ACC_TYPE));
    static constexpr int ELEMENTS = VECTOR / int(sizeof(IN_TYPE)); // per global load
    static constexpr int INNER = TRANSPOSED ? BLOCK_K : EXTENT;    // extent of the contiguous axis
    static constexpr int OUTER = TRANSPOSED ? EXTENT : BLOCK_K;
    // Threads side by side along the contiguous axis. Transposed: just enough to use whole 32-byte sectors,
    // because their stores fall into one column; otherwise as many as fit.
    static constexpr int LANES =
        greatest_common_divisor(INNER / ELEMENTS, TRANSPOSED ? minimum(8, 32 / VECTOR) : THREADS);
    static constexpr int LINES = THREADS / LANES; // threads along the other axis
    static constexpr int PACE = LANES * ELEMENTS; // between a thread's loads along the contiguous axis
    static constexpr int INNER_LOADS = INNER / PACE;
    static constexpr int OUTER_LOADS = (OUTER + LINES - 1) / LINES;
    static constexpr int LOADS = INNER_LOADS * OUTER_LOADS; // per thread and step
    static constexpr bool RAGGED = OUTER % LINES != 0;      // some threads' last loads lie past the tile
    static constexpr int ROW = EXTENT + (TRANSPOSED && PAD ? 4 : 0);
    static constexpr int BYTES = (BLOCK_K * ROW * WORD + 127) / 128 * 128, WORDS = BYTES / WORD;
    // Swizzle: lanes that would store into one column are spread over the banks of a wavefront (128 bytes)
    // by flipping bits of the column; SPAN keeps the flipped column inside the row.
    static constexpr bool SWIZZLED = TRANSPOSED && !PAD;
    static constexpr int WAVEFRONT = 128 / WORD;
    static constexpr int SPAN = minimum(WAVEFRONT, power_of_two_in(EXTENT));
    static_assert(ELEMENTS >= 1, "A global load must bring at least one element.");
    static_assert(INNER % ELEMENTS == 0, "Global loads must fill the tile's contiguous axis.");
    static_assert(LOADS <= 32, "More than 32 global loads per thread and step: use a smaller tile or more threads.");

    DEVICE int flip(int k) { return SWIZZLED ? (int)((u32)k / ELEMENTS % LANES * (WAVEFRONT / LANES) % SPAN) : 0; }
    // Column of entry `entry + constant` in row k; the constant stays an immediate offset where it can.
    DEVICE int column(int entry, int constant, int k) {
        return constant % SPAN == 0 ? (entry ^ flip(k)) + constant : (entry + constant) ^ flip(k);
    }
    // Whether a thread's load number `pass` across lines lies in the tile (as opposed to in the operand).
    DEVICE bool in_tile(int line, int pass) { return !RAGGED || within(line + pass * LINES, OUTER); }
};

// One thread's part of loading an operand. `begin_loads` does everything that needs a division or a 64-bit
// product; a step then costs one 64-bit addition per line.
template <class Shape>
struct TileLoader {
    gptr<IN_TYPE> source;                // this thread's first element of the next step
    i64 inner_step, outer_step, advance; // elements between its loads, between its lines, between steps
    int lane, line;                      // its place among LANES x LINES threads
    int k_end;                           // end of k, counted from this thread's first k of the next step
    u32 inside;                          // bit per load along the entries' axis: not past the operand's edge
    Vec<Shape::VECTOR> staged[Shape::LOADS];
};

// `operand` points at entry 0, k 0 of this batch; the block's tile starts at `entry` (of `entries`) and `k`, and ends
// at `k_end`.
template <class Shape>
DEVICE TileLoader<Shape> begin_loads(gptr<IN_TYPE> operand, int entry, int entries, int k, int k_end, i64 entry_stride,
                                     i64 k_stride) {
    constexpr bool BY_LINE = Shape::TRANSPOSED; // entries run across lines, k along lanes
    TileLoader<Shape> loader;
    loader.lane = (int)((u32)thread_index() % Shape::LANES);
    loader.line = (int)((u32)thread_index() / Shape::LANES);
    const int along = loader.lane * Shape::ELEMENTS;
    const int first = entry + (BY_LINE ? loader.line : along);
    const int first_k = k + (BY_LINE ? along : loader.line);
    loader.k_end = k_end - first_k;
    loader.source = operand + (first * entry_stride + first_k * k_stride);
    loader.inner_step = Shape::PACE * (BY_LINE ? k_stride : entry_stride);
    loader.outer_step = Shape::LINES * (BY_LINE ? entry_stride : k_stride);
    loader.advance = BLOCK_K * k_stride;
    loader.inside = 0;
    UNROLL for (int i = 0; i < (BY_LINE ? Shape::OUTER_LOADS : Shape::INNER_LOADS); ++i) loader.inside |=
        u32(within(first + i * (BY_LINE ? Shape::LINES : Shape::PACE), entries)) << i;
    return loader;
}

// Issues the loads of the next step and moves on. What lies past an edge or past the end of k reads as zero.
template <class Shape>
DEVICE void load_step(TileLoader<Shape> &loader) {
    const int k_end = loader.k_end;
    gptr<IN_TYPE> line = loader.source;
    UNROLL for (int o = 0; o < Shape::OUTER_LOADS; ++o) {
        UNROLL for (int i = 0; i < Shape::INNER_LOADS; ++i) {
            const int at = (Shape::TRANSPOSED ? i * Shape::PACE : o * Shape::LINES);
            const bool entry_inside = (loader.inside >> (Shape::TRANSPOSED ? o : i)) & 1;
            const bool inside = entry_inside && Shape::in_tile(loader.line, o) && within(at, k_end);
            loader.staged[o * Shape::INNER_LOADS + i] =
                load_global<Shape::VECTOR>(line + i * loader.inner_step, inside);
        }
        line = line + loader.outer_step;
    }
    loader.k_end -= BLOCK_K;
    // Where the lines are exactly the step's rows, the next step begins behind the last of them.
    loader.source = !Shape::TRANSPOSED && !Shape::RAGGED ? line : loader.source + loader.advance;
}

// Elements of one load that lie along k: one word into each of ELEMENTS rows.
template <class Shape>
DEVICE void store_column(const Vec<Shape::VECTOR> &loaded, sptr<ACC_TYPE> target) {
    UNROLL for (int e = 0; e < Shape::ELEMENTS; ++e) {
        Vec<Shape::WORD> word;
        word.set(0, convert<ACC_TYPE>(loaded.template get<IN_TYPE>(e)));
        store_shared(target + e * Shape::ROW, word);
    }
}

// Elements of one load that lie along a row: as many words at a time as fit 16 bytes.
template <class Shape>
DEVICE void store_row(const Vec<Shape::VECTOR> &loaded, sptr<ACC_TYPE> target) {
    constexpr int WORDS = minimum(Shape::ELEMENTS, 16 / Shape::WORD);
    UNROLL for (int e = 0; e < Shape::ELEMENTS; e += WORDS) {
        Vec<WORDS * Shape::WORD> words;
        UNROLL for (int w = 0; w < WORDS; ++w) words.set(w, convert<ACC_TYPE>(loaded.template get<IN_TYPE>(e + w)));
        store_shared(target + e, words);
    }
}

// Converts what `load_step` brought and stores it into the shared tile.
template <class Shape>
DEVICE void store_step(const TileLoader<Shape> &loader, sptr<ACC_TYPE> tile) {
    UNROLL for (int o = 0; o < Shape::OUTER_LOADS; ++o) {
        if (!Shape::in_tile(loader.line, o))
            continue;
        UNROLL for (int i = 0; i < Shape::INNER_LOADS; ++i) {
            const int inner = loader.lane * Shape::ELEMENTS + i * Shape::PACE;
            const Vec<Shape::VECTOR> &loaded = loader.staged[o * Shape::INNER_LOADS + i];
            if constexpr (Shape::TRANSPOSED)
                store_column<Shape>(loaded,
                                    tile + (inner * Shape::ROW + Shape::column(loader.line, o * Shape::LINES, inner)));
            else
                store_row<Shape>(loaded, tile + ((loader.line + o * Shape::LINES) * Shape::ROW + inner));
        }
    }
}

// Reads a thread's THREAD entries of row k: VTHREADS groups, the first starting at entry `first`.
template <class Shape, int VTHREADS, int THREAD>
DEVICE void read_fragment(ACC_TYPE (&values)[THREAD], sptr<ACC_TYPE> tile, int first, int k) {
    constexpr int GROUP = THREAD / VTHREADS, APART = Shape::EXTENT / VTHREADS;
    constexpr int WORDS = minimum(power_of_two_in(GROUP), 16 / Shape::WORD);
    UNROLL for (int g = 0; g < VTHREADS; ++g) {
        UNROLL for (int e = 0; e < GROUP; e += WORDS) {
            const int column = Shape::column(first + e, g * APART, k);
            const Vec<WORDS * Shape::WORD> words = load_shared<WORDS * Shape::WORD>(tile + (k * Shape::ROW + column));
            UNROLL for (int w = 0; w < WORDS; ++w) values[g * GROUP + e + w] = words.template get<ACC_TYPE>(w);
        }
    }
}
