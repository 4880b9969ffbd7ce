// Loads one operand's part of a step from global memory through registers to a shared tile [BLOCK_K][ROW].
//
// A tile has EXTENT rows of A or columns of B ("entries" below) and BLOCK_K elements of k. The operand's contiguous
// axis is loaded VECTOR bytes at a time; where that axis is k, the tile is transposed while it is stored. A tile may
// consist of several planes, one after another (product_forms.cuh).
#pragma once
#include "prepared.cuh"
#include "product_forms.cuh"
#include "widen.cuh"
#include "window_pieces.cuh"

DEVICE constexpr int greatest_common_divisor(int a, int b) {
    return b == 0 ? a : greatest_common_divisor(b, a % b);
}
// The largest power of two that divides `a`.
DEVICE constexpr int power_of_two_in(int a) {
    return a & -a;
}

// Assigns a tile's elements to threads, and defines their layout in the shared tile.
template <int EXTENT_, int VECTOR_, bool TRANSPOSED_, int WINDOW_, bool CONJUGATE_, class SOURCE_, bool PREPARED_>
struct TileShape {
    using Source = SOURCE_; // elements of the operand in global memory
    static constexpr int EXTENT = EXTENT_, VECTOR = VECTOR_;
    static constexpr int WINDOW = WINDOW_; // how the operand is read: WindowKind
    static constexpr bool TRANSPOSED = TRANSPOSED_, CONJUGATE = CONJUGATE_, PREPARED = PREPARED_;
    static constexpr int WORD = int(sizeof(TileWord));
    static constexpr int ELEMENTS = VECTOR / int(sizeof(Source)); // per global load
    static constexpr int INNER = TRANSPOSED ? BLOCK_K : EXTENT;   // extent of the contiguous axis
    static constexpr int OUTER = TRANSPOSED ? EXTENT : BLOCK_K;
    // Threads along the contiguous axis: when transposed, just enough to read whole 32-byte sectors, because they store
    // to the same column; otherwise as many as fit.
    static constexpr int LANES =
        greatest_common_divisor(INNER / ELEMENTS, TRANSPOSED ? minimum(8, 32 / VECTOR) : THREADS);
    static constexpr int LINES = THREADS / LANES; // threads along the other axis
    static constexpr int PACE = LANES * ELEMENTS; // distance of a thread's loads along the contiguous axis
    static constexpr int INNER_LOADS = INNER / PACE;
    static constexpr int OUTER_LOADS = (OUTER + LINES - 1) / LINES;
    static constexpr int LOADS = INNER_LOADS * OUTER_LOADS; // per thread and step
    static constexpr bool RAGGED = OUTER % LINES != 0;      // some threads' last loads are past the tile
    static constexpr int ROW = EXTENT + (TRANSPOSED && PAD ? 4 : 0);
    static constexpr int PLANE_WORDS = (BLOCK_K * ROW * WORD + 127) / 128 * 128 / WORD, WORDS = PLANES * PLANE_WORDS;
    // Swizzle: flips bits of the column, so that lanes that store to the same column use all banks of a wavefront (128
    // bytes). SPAN keeps the flipped column inside the row.
    static constexpr bool SWIZZLED = TRANSPOSED && !PAD;
    static constexpr int WAVEFRONT = 128 / WORD;
    static constexpr int SPAN = minimum(WAVEFRONT, power_of_two_in(EXTENT));

    DEVICE int flip(int k) { return SWIZZLED ? (int)((u32)k / ELEMENTS % LANES * (WAVEFRONT / LANES) % SPAN) : 0; }
    // The column of entry `entry + constant` in row k. The constant is an immediate offset if possible.
    DEVICE int column(int entry, int constant, int k) {
        return constant % SPAN == 0 ? (entry ^ flip(k)) + constant : (entry + constant) ^ flip(k);
    }
    // Whether a thread's load number `pass` across lines is inside the tile; it may still be outside the operand.
    DEVICE bool in_tile(int line, int pass) { return !RAGGED || within(line + pass * LINES, OUTER); }
};

// The addresses of a thread's loads of a matrix. The constructor does all divisions and 64-bit multiplications; a step
// then needs one 64-bit addition per line.
template <class Shape>
struct MatrixPieces {
    using Source = typename Shape::Source;
    gptr<Source> source;                 // this thread's first element of the next step
    i64 inner_step, outer_step, advance; // strides in elements: of its loads, of its lines, of steps

    // `operand` points to entry 0, k 0 of the batch entry; the thread's loads start at `entry` and `k`.
    MEMBER MatrixPieces(const Params &, gptr<Source> operand, int entry, int, int k, i64 entry_stride, i64 k_stride) {
        constexpr bool BY_LINE = Shape::TRANSPOSED; // entries run across lines, k along lanes
        source = operand + (entry * entry_stride + k * k_stride);
        inner_step = Shape::PACE * (BY_LINE ? k_stride : entry_stride);
        outer_step = Shape::LINES * (BY_LINE ? entry_stride : k_stride);
        advance = BLOCK_K * k_stride;
    }
    // Calls visit(outer, inner, address, predicate, channel) for each load of a step and advances to the next step.
    template <class Visit>
    MEMBER void for_each(const Params &, const Visit &visit) {
        gptr<Source> line = source;
        UNROLL for (int o = 0; o < Shape::OUTER_LOADS; ++o) {
            UNROLL for (int i = 0; i < Shape::INNER_LOADS; ++i) visit(o, i, line + i * inner_step, true, 0);
            line = line + outer_step;
        }
        // Where the lines are exactly the step's rows, the next step begins after the last line.
        source = !Shape::TRANSPOSED && !Shape::RAGGED ? line : source + advance;
    }
};

// Loads one thread's part of an operand's tiles.
template <class Shape>
struct TileLoader {
    using Source = typename Shape::Source;
    int lane, line; // the thread's position among LANES x LINES threads
    using Windowed = WindowPieces<Shape, Shape::TRANSPOSED, Shape::OUTER_LOADS, Shape::INNER_LOADS, MASKED>;
    typename PiecesOf<Shape::WINDOW != WINDOW_NONE, MatrixPieces<Shape>, Windowed>::Type pieces;
    static constexpr bool ENDS_KNOWN = Shape::WINDOW != WINDOW_NONE && Windowed::ENDS_KNOWN;
    int k_end;  // end of k, counted from this thread's first k of the next step
    int last;   // end of k in the operand
    u32 inside; // bit per load along the entries' axis: the load is inside the operand
    Vec<Shape::VECTOR> staged[Shape::LOADS];
    Preparing<Shape::PREPARED, Shape::LOADS, Shape::WINDOW != WINDOW_NONE,
              Shape::TRANSPOSED ? Shape::INNER_LOADS : Shape::OUTER_LOADS, Shape::TRANSPOSED ? Shape::ELEMENTS : 1,
              Shape::TRANSPOSED>
        preparing;

    static MEMBER int own_lane() { return (int)((u32)thread_index() % Shape::LANES); }
    static MEMBER int own_line() { return (int)((u32)thread_index() / Shape::LANES); }
    // The thread's first entry and its first k in the tile.
    static MEMBER int first_entry() { return Shape::TRANSPOSED ? own_line() : own_lane() * Shape::ELEMENTS; }
    static MEMBER int first_k() { return Shape::TRANSPOSED ? own_lane() * Shape::ELEMENTS : own_line(); }

    // `operand` points to entry 0, k 0 of the batch entry; the tile starts at `entry` (of `entries`) and at k_begin.
    MEMBER TileLoader(const Params &params, const Tile &tile, gptr<Source> operand, int entry, int entries,
                      i64 entry_stride, i64 k_stride)
        : lane(own_lane()), line(own_line()),
          pieces(params, operand, entry + first_entry(), entries, tile.k_begin + first_k(), entry_stride, k_stride),
          k_end(tile.k_end - tile.k_begin - first_k()), last(tile.k_end), inside(0), preparing(params, tile.batch) {
        constexpr bool BY_LINE = Shape::TRANSPOSED;
        if constexpr (!ENDS_KNOWN) {
            UNROLL for (int i = 0; i < (BY_LINE ? Shape::OUTER_LOADS : Shape::INNER_LOADS); ++i) inside |=
                u32(within(entry + first_entry() + i * (BY_LINE ? Shape::LINES : Shape::PACE), entries)) << i;
        }
    }

    // Issues the loads of the next step and advances. Elements past an edge or past the end of k are read as zero.
    MEMBER void load_step(const Params &params) {
        preparing.begin();
        pieces.for_each(params, [&](int o, int i, gptr<Source> from, bool in_image, i32 channel) {
            const int at = Shape::TRANSPOSED ? i * Shape::PACE : o * Shape::LINES;
            const int entry = Shape::TRANSPOSED ? o : i, load = o * Shape::INNER_LOADS + i;
            const bool in_extent = ENDS_KNOWN || (inside >> entry & 1);
            const bool k_inside = within(at, k_end);
            const bool loaded = in_extent && Shape::in_tile(line, o) && k_inside && in_image;
            staged[load] = load_global<Shape::VECTOR>(from, loaded);
            preparing.request(load, run_of(o, i), entry == 0,
                              Shape::WINDOW == WINDOW_NONE ? last - k_end + at : channel, k_inside, in_image);
        });
        k_end -= BLOCK_K;
    }
    // The number of a load's run: a run's loads have the same k.
    static MEMBER int run_of(int o, int i) { return Shape::TRANSPOSED ? i : o; }
    // The elements of load (o, i) of `load_step`, prepared.
    MEMBER Vec<Shape::VECTOR> prepared(int o, int i) const {
        const int load = o * Shape::INNER_LOADS + i;
        return preparing.prepare(load, run_of(o, i), staged[load]);
    }
};

// Stores the elements of one load along k: one word in each of ELEMENTS rows.
template <class Shape>
DEVICE void store_column(const Vec<Shape::VECTOR> &loaded, sptr<TileWord> target) {
    UNROLL for (int e = 0; e < Shape::ELEMENTS; ++e) {
        const ACC_TYPE value = convert<ACC_TYPE>(loaded.template get<typename Shape::Source>(e));
        UNROLL for (int p = 0; p < PLANES; ++p) {
            Vec<Shape::WORD> word;
            word.set(0, plane_word<TileWord, Shape::CONJUGATE>(value, p));
            store_shared(target + (p * Shape::PLANE_WORDS + e * Shape::ROW), word);
        }
    }
}

// Stores the elements of one load along a row, as many words at a time as fit in 16 bytes.
template <class Shape>
DEVICE void store_row(const Vec<Shape::VECTOR> &loaded, sptr<TileWord> target) {
    constexpr int WORDS = minimum(Shape::ELEMENTS, 16 / Shape::WORD);
    UNROLL for (int e = 0; e < Shape::ELEMENTS; e += WORDS) {
        UNROLL for (int p = 0; p < PLANES; ++p) {
            Vec<WORDS * Shape::WORD> words;
            UNROLL for (int w = 0; w < WORDS; ++w) {
                const ACC_TYPE value = convert<ACC_TYPE>(loaded.template get<typename Shape::Source>(e + w));
                words.set(w, plane_word<TileWord, Shape::CONJUGATE>(value, p));
            }
            store_shared(target + (p * Shape::PLANE_WORDS + e), words);
        }
    }
}

// Converts the elements that `load_step` loaded and stores them in the shared tile.
template <class Shape>
DEVICE void store_step(const TileLoader<Shape> &loader, sptr<TileWord> tile) {
    UNROLL for (int o = 0; o < Shape::OUTER_LOADS; ++o) {
        if (!Shape::in_tile(loader.line, o))
            continue;
        UNROLL for (int i = 0; i < Shape::INNER_LOADS; ++i) {
            const int inner = loader.lane * Shape::ELEMENTS + i * Shape::PACE;
            const Vec<Shape::VECTOR> loaded = loader.prepared(o, i);
            if constexpr (Shape::TRANSPOSED)
                store_column<Shape>(loaded,
                                    tile + (inner * Shape::ROW + Shape::column(loader.line, o * Shape::LINES, inner)));
            else
                store_row<Shape>(loaded, tile + ((loader.line + o * Shape::LINES) * Shape::ROW + inner));
        }
    }
}

// Reads a thread's THREAD entries in row k of a plane: VTHREADS groups, of which the first starts at entry `first`.
template <class Shape, int VTHREADS, int THREAD>
DEVICE void read_fragment(TileWord (&values)[THREAD], sptr<TileWord> tile, int first, int k) {
    constexpr int GROUP = THREAD / VTHREADS, APART = Shape::EXTENT / VTHREADS;
    constexpr int WORDS = minimum(power_of_two_in(GROUP), 16 / Shape::WORD);
    UNROLL for (int g = 0; g < VTHREADS; ++g) {
        UNROLL for (int e = 0; e < GROUP; e += WORDS) {
            const int column = Shape::column(first + e, g * APART, k);
            const Vec<WORDS * Shape::WORD> words = load_shared<WORDS * Shape::WORD>(tile + (k * Shape::ROW + column));
            UNROLL for (int w = 0; w < WORDS; ++w) values[g * GROUP + e + w] = words.template get<TileWord>(w);
        }
    }
}
