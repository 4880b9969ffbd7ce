// Operand tiles of the tensor-core family: how they lie in shared memory, and how they get there.
//
// A tile keeps its operand's orientation: rows of BLOCK_K elements where the operand is K-contiguous, else BLOCK_K
// rows of BLOCK_M or BLOCK_N elements. Rows are whole 16-byte chunks.
#pragma once
#pragma parameter MASKED 0 // families that read nothing through a window need not name it
#include "prologue.cuh"
#include "shared_rows.cuh"
#include "widen.cuh"
#include "window_pieces.cuh"

constexpr int ELEMENT = (int)sizeof(IN_TYPE);

// Where an operand is stored narrower than it is multiplied (widen.cuh), ASYNC 1 copies it as it is, and the fragments
// are widened; ASYNC 0 widens it on its way into shared memory. NARROW: bits of the narrowest element there.
template <class Source>
constexpr int held_bits = ASYNC ? 8 * (int)sizeof(Source) / per_unit<Source> : 8 * ELEMENT;
#ifdef A_STORED
constexpr int NARROW = minimum(held_bits<A_STORED>, held_bits<B_STORED>);
#else
constexpr int NARROW = held_bits<IN_TYPE>;
#endif

// One operand's tile and how THREADS threads share the copying of it: LANES threads side by side along a row,
// PASSES rows and COLUMNS pieces of VECTOR bytes each. A thread's pieces are a constant distance apart.
template <int EXTENT_, int LAYOUT, bool UNIT_, int WINDOW_, int VECTOR_, class SOURCE_ = IN_TYPE,
          bool PREPARED_ = false>
struct OperandTile {
    using Source = SOURCE_; // its elements in global memory
    static constexpr bool K_CONTIGUOUS = LAYOUT == 0, UNIT = UNIT_, PREPARED = PREPARED_;
    static constexpr int WINDOW = WINDOW_; // how the operand is read: WindowKind
    // Elements lie in units of STORED bytes, PER_UNIT in each, whose strides Params has; here they take HELD bits each.
    static constexpr int STORED = (int)sizeof(Source), PER_UNIT = per_unit<Source>, HELD = held_bits<Source>;
    static constexpr int EXTENT = EXTENT_, VECTOR = VECTOR_, EACH = VECTOR / STORED * PER_UNIT, PIECE = EACH * HELD / 8;
    static constexpr int ROWS = K_CONTIGUOUS ? EXTENT : BLOCK_K;
    static constexpr int ROW_BYTES = (K_CONTIGUOUS ? BLOCK_K : EXTENT) * HELD / 8;
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static constexpr bool SPREAD = HELD > NARROW; // read in the order of k in which the other operand is
    static constexpr SwizzleKind KIND = !SWIZZLE                       ? SWIZZLE_NONE
                                        : SPREAD                       ? (NARROW == 4 ? SWIZZLE_QUADS : SWIZZLE_WORDS)
                                        : ELEMENT == 8                 ? SWIZZLE_WORDS
                                        : ELEMENT == 16                ? (K_CONTIGUOUS ? SWIZZLE_QUADS : SWIZZLE_WORDS)
                                        : K_CONTIGUOUS || ELEMENT == 2 ? SWIZZLE_MATRIX
                                        : ELEMENT == 4                 ? SWIZZLE_WORDS
                                                                       : SWIZZLE_BYTES;
    using Rows = SharedRows<KIND, ROW_BYTES>;

    static constexpr int PIECES = ROW_BYTES / PIECE;
    static constexpr int LANES = power_of_two_in(PIECES | THREADS);
    static constexpr int LINES = THREADS / LANES; // rows per pass
    static constexpr int PACE = LANES * EACH;     // elements from column to column
    static constexpr int PASSES = divide_up(ROWS, LINES), COLUMNS = PIECES / LANES;
    static constexpr int PIECES_PER_THREAD = PASSES * COLUMNS;

    static_assert(VECTOR >= STORED, "A global access must hold at least one element.");
    static_assert(UNIT || VECTOR == STORED, "Without a unit stride, elements are copied one by one.");
    static_assert((HELD == 8 * ELEMENT && PER_UNIT == 1) || (K_CONTIGUOUS && UNIT),
                  "Fragments, and several elements in a byte, are widened of K-contiguous operands only.");
    static_assert(PIECES_PER_THREAD <= 64,
                  "More than 64 copies per thread and step: use wider accesses or more warps.");
    static_assert((K_CONTIGUOUS ? PASSES : COLUMNS) <= 32, "A thread's edge predicates must fit 32 bits.");
    static_assert(!PREPARED || (!ASYNC && same_type<Source, IN_TYPE>),
                  "What a prologue is applied to passes through registers, as it is multiplied.");
};

// Where a thread's pieces of an operand come from. Everything that needs a division or a 64-bit product happens in the
// constructor; a step costs one 64-bit addition per row.
template <class Shape>
struct MatrixPieces {
    using Source = typename Shape::Source;
    gptr<Source> source; // this thread's first element of the next step
    i64 row_step, column_step, advance;

    // `operand` points at (0, 0) of the batch entry; the tile starts at `first` of its rows of A or columns of B, and
    // at k_begin; this thread at `start` and `k`.
    MEMBER MatrixPieces(const Params &, gptr<Source> operand, int start, int, int k, i64 stride, i64 k_stride) {
        const i64 row_stride = Shape::K_CONTIGUOUS ? stride : k_stride;
        const i64 column_stride = Shape::UNIT ? 1 : Shape::K_CONTIGUOUS ? k_stride : stride;
        const i64 row = Shape::K_CONTIGUOUS ? start : k, column = Shape::K_CONTIGUOUS ? k : start;
        source = operand + (row * row_stride + column / Shape::PER_UNIT * column_stride);
        row_step = Shape::LINES * row_stride;
        column_step = Shape::PACE / Shape::PER_UNIT * column_stride;
        advance = BLOCK_K / Shape::PER_UNIT * (Shape::K_CONTIGUOUS ? column_stride : row_stride);
    }
    // Calls visit(pass, column, address, predicate, channel) for each piece of a step, and goes on to the next.
    template <class Visit>
    MEMBER void for_each(const Params &, const Visit &visit) {
        gptr<Source> row = source;
        UNROLL for (int pass = 0; pass < Shape::PASSES; ++pass) {
            UNROLL for (int column = 0; column < Shape::COLUMNS; ++column)
                visit(pass, column, row + column * column_step, true, 0);
            row = row + row_step;
        }
        source = source + advance;
    }
};

// A thread's place in the copying of one operand.
template <class Shape>
struct TileCopy {
    using Source = typename Shape::Source;
    int line, k_first; // its first row in the tile, and its first k within a step
    using Windowed = WindowPieces<Shape, Shape::K_CONTIGUOUS, Shape::PASSES, Shape::COLUMNS, MASKED>;
    typename PiecesOf<Shape::WINDOW != WINDOW_NONE, MatrixPieces<Shape>, Windowed>::Type pieces;
    int last;   // end of k in the operand
    u32 inside; // bit per piece along M or N: not past the operand's edge
    u32 target; // its first byte in the shared tile, where rows repeat their permutation from pass to pass
    Vec<Shape::VECTOR> staged[ASYNC ? 1 : Shape::PIECES_PER_THREAD];
    Preparing<Shape::PREPARED, Shape::PIECES_PER_THREAD, Shape::WINDOW != WINDOW_NONE,
              Shape::K_CONTIGUOUS ? Shape::COLUMNS : Shape::PASSES, Shape::K_CONTIGUOUS ? Shape::EACH : 1,
              Shape::K_CONTIGUOUS>
        preparing;

    static constexpr bool ENDS_KNOWN = Shape::WINDOW != WINDOW_NONE && Windowed::ENDS_KNOWN;

    static MEMBER int own_line() { return thread_index() / Shape::LANES; }
    static MEMBER int own_column() { return thread_index() % Shape::LANES * Shape::EACH; }

    // `operand` points at (0, 0) of the batch entry; the tile starts at `first` of `extent` rows of A or columns of
    // B, and at k_begin; k ends at k_end.
    MEMBER TileCopy(const Params &params, const Batch &batch, gptr<Source> operand, int first, int extent, i64 stride,
                    int k_begin, int k_end, i64 k_stride)
        : line(own_line()), k_first(Shape::K_CONTIGUOUS ? own_column() : own_line()),
          pieces(params, operand, first + (Shape::K_CONTIGUOUS ? own_line() : own_column()), extent, k_begin + k_first,
                 stride, k_stride),
          last(k_end), preparing(params, batch) {
        [[maybe_unused]] const int start = first + (Shape::K_CONTIGUOUS ? line : own_column());
        target = (u32)Shape::Rows::offset(line, thread_index() % Shape::LANES * Shape::PIECE);
        inside = 0;
        if constexpr (!ENDS_KNOWN) {
            UNROLL for (int i = 0; i < (Shape::K_CONTIGUOUS ? Shape::PASSES : Shape::COLUMNS); ++i) inside |=
                (u32)within(start + i * (Shape::K_CONTIGUOUS ? Shape::LINES : Shape::PACE), extent) << i;
        }
    }

    // Where chunk `chunk` of a piece lies in the tile; immediate offsets from `target` where the permutation allows it.
    MEMBER int place(int pass, int column, int chunk = 0) const {
        constexpr int WIDTH = Shape::LANES * Shape::PIECE; // bytes from column to column
        if constexpr (Shape::PIECE <= 16 && Shape::LINES % Shape::Rows::PERIOD == 0 &&
                      WIDTH % (Shape::Rows::SPAN * 16) == 0)
            return (int)target + pass * (Shape::LINES * Shape::ROW_BYTES) + column * WIDTH;
        else
            return Shape::Rows::offset(line + pass * Shape::LINES,
                                       thread_index() % Shape::LANES * Shape::PIECE + column * WIDTH + chunk * 16);
    }

    MEMBER bool in_tile(int pass) const {
        return (pass + 1 < Shape::PASSES || Shape::ROWS % Shape::LINES == 0) ||
               within(line + pass * Shape::LINES, Shape::ROWS);
    }

    // Calls move(pass, column, address, predicate) for each piece of the step of which `k_left` values of k remain,
    // and goes on to the next step. Pieces past an edge have a false (zero) predicate: they become zeros.
    template <class Move>
    MEMBER void for_each(const Params &params, int k_left, const Move &move) {
        preparing.begin();
        i32 open[Shape::COLUMNS];
        UNROLL for (int column = 0; column < Shape::COLUMNS; ++column) open[column] = open_pieces(column, k_left);
        pieces.for_each(params, [&](int pass, int column, gptr<Source> from, bool in_image, i32 channel) {
            if constexpr (Shape::PREPARED) {
                const int k = k_first + (Shape::K_CONTIGUOUS ? column * Shape::PACE : pass * Shape::LINES);
                preparing.request(
                    pass * Shape::COLUMNS + column, run_of(pass, column), (Shape::K_CONTIGUOUS ? pass : column) == 0,
                    Shape::WINDOW == WINDOW_NONE ? last - k_left + k : channel, within(k, k_left), in_image);
            }
            if constexpr (Shape::WINDOW == WINDOW_NONE)
                move(pass, column, from, is_open(open[column], pass));
            else
                move(pass, column, from, is_open(open[column], pass) && in_image);
        });
    }

    // Which pieces of a column are inside, in one word: a bit per pass, or the end of k, 0 for an entry past the edge.
    // A predicate of its own for every entry would occupy the few predicate registers throughout the main loop.
    MEMBER i32 open_pieces(int column, int k_left) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return within(k_first + column * Shape::PACE, k_left) ? (ENDS_KNOWN ? -1 : (i32)inside) : 0;
        else
            return ENDS_KNOWN || (inside >> column & 1) ? k_left : 0;
    }
    MEMBER u32 is_open(i32 open, int pass) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return ENDS_KNOWN ? (u32)open : (u32)open & 1u << pass;
        else
            return within(k_first, open - pass * Shape::LINES);
    }

    // Pieces of the same k are a run.
    static MEMBER int run_of(int pass, int column) { return Shape::K_CONTIGUOUS ? column : pass; }

    // ASYNC 1: starts the copies of a step into the shared tile.
    MEMBER void copy(const Params &params, int k_left, sptr<u8> tile) {
        for_each(params, k_left, [&](int pass, int column, gptr<Source> from, u32 predicate) {
            if (in_tile(pass))
                copy_async<Shape::VECTOR>(tile + place(pass, column), from, predicate);
        });
    }
    // ASYNC 0: starts the loads of a step into registers; `store` then puts them into the shared tile.
    MEMBER void load(const Params &params, int k_left) {
        for_each(params, k_left, [&](int pass, int column, gptr<Source> from, u32 predicate) {
            staged[pass * Shape::COLUMNS + column] = load_global<Shape::VECTOR>(from, predicate);
        });
    }
    MEMBER void store(sptr<u8> tile) const {
        UNROLL for (int pass = 0; pass < Shape::PASSES; ++pass) {
            if (in_tile(pass)) {
                UNROLL for (int column = 0; column < Shape::COLUMNS; ++column) {
                    const int load = pass * Shape::COLUMNS + column;
                    store_piece(tile, pass, column, preparing.prepare(load, run_of(pass, column), staged[load]));
                }
            }
        }
    }
    MEMBER void store_piece(sptr<u8> tile, int pass, int column, const Vec<Shape::VECTOR> &piece) const {
        if constexpr (same_type<Source, IN_TYPE>) {
            store_shared(tile + place(pass, column), piece);
        } else {
            constexpr int BYTES = minimum(16, Shape::PIECE);
            UNROLL for (int chunk = 0; chunk < Shape::PIECE / BYTES; ++chunk)
                store_shared(tile + place(pass, column, chunk), widened<BYTES, Source, IN_TYPE>(piece, chunk));
        }
    }
};
