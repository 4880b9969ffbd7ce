// Operand tiles of the tensor-core families: their layout in shared memory, and how they are copied to it.
//
// A tile keeps the orientation of its operand. If the operand is K-contiguous, its rows have BLOCK_K elements;
// otherwise it has BLOCK_K rows of BLOCK_M or BLOCK_N elements. Rows are whole 16-byte chunks.
#pragma once
#pragma parameter MASKED 0 // the default of families without windows
#pragma parameter A_STORED IN_TYPE
#pragma parameter B_STORED IN_TYPE
#include "prologue.cuh"
#include "shared_rows.cuh"
#include "widen.cuh"
#include "window_pieces.cuh"

constexpr int ELEMENT = (int)sizeof(IN_TYPE);

// Bits of an element in shared memory. If an operand is stored in a narrower type than it is multiplied in (widen.cuh),
// ASYNC 1 copies it unchanged and widens its fragments, and ASYNC 0 widens it before it is stored to shared memory.
template <class Source>
constexpr int held_bits = ASYNC ? 8 * (int)sizeof(Source) / per_unit<Source> : 8 * ELEMENT;
constexpr int NARROW = minimum(held_bits<A_STORED>, held_bits<B_STORED>); // those of the narrower operand

// The tile of an operand, and its distribution to THREADS threads: LANES threads copy adjacent pieces of a row, and
// each thread copies PASSES rows times COLUMNS pieces of VECTOR bytes, which are a constant distance apart.
template <int EXTENT_, int LAYOUT, bool UNIT_, int WINDOW_, int VECTOR_, class SOURCE_ = IN_TYPE,
          bool PREPARED_ = false>
struct OperandTile {
    using Source = SOURCE_; // its elements in global memory
    static constexpr bool K_CONTIGUOUS = LAYOUT == 0, UNIT = UNIT_, PREPARED = PREPARED_;
    static constexpr int WINDOW = WINDOW_; // how the operand is read: WindowKind
    // Global memory has units of STORED bytes and PER_UNIT elements, and Params has the strides of units. In shared
    // memory, an element has HELD bits.
    static constexpr int STORED = (int)sizeof(Source), PER_UNIT = per_unit<Source>, HELD = held_bits<Source>;
    static constexpr int EXTENT = EXTENT_, VECTOR = VECTOR_, EACH = VECTOR / STORED * PER_UNIT, PIECE = EACH * HELD / 8;
    static constexpr int ROWS = K_CONTIGUOUS ? EXTENT : BLOCK_K;
    static constexpr int ROW_BYTES = (K_CONTIGUOUS ? BLOCK_K : EXTENT) * HELD / 8;
    static constexpr int BYTES = ROWS * ROW_BYTES;
    static constexpr bool SPREAD = HELD > NARROW; // read in the order of k of the narrow operand
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
};

// The addresses of a thread's pieces of an operand. The constructor does all divisions and 64-bit products, so that a
// step costs one 64-bit addition per row.
template <class Shape>
struct MatrixPieces {
    using Source = typename Shape::Source;
    gptr<Source> source; // this thread's first element of the next step
    i64 row_step, column_step, advance;

    // `operand` points at (0, 0) of the batch entry. The thread starts at row of A or column of B `start`, and at `k`.
    MEMBER MatrixPieces(const Params &, gptr<Source> operand, int start, int, int k, i64 stride, i64 k_stride) {
        const i64 row_stride = Shape::K_CONTIGUOUS ? stride : k_stride;
        const i64 column_stride = Shape::UNIT ? 1 : Shape::K_CONTIGUOUS ? k_stride : stride;
        const i64 row = Shape::K_CONTIGUOUS ? start : k, column = Shape::K_CONTIGUOUS ? k : start;
        source = operand + (row * row_stride + column / Shape::PER_UNIT * column_stride);
        row_step = Shape::LINES * row_stride;
        column_step = Shape::PACE / Shape::PER_UNIT * column_stride;
        advance = BLOCK_K / Shape::PER_UNIT * (Shape::K_CONTIGUOUS ? column_stride : row_stride);
    }
    // Calls visit(pass, column, address, predicate, channel) for each piece of a step, and advances to the next step.
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

// Copies a thread's pieces of an operand to shared memory.
template <class Shape>
struct TileCopy {
    using Source = typename Shape::Source;
    int line, k_first; // the thread's first row in the tile, and its first k within a step
    using Windowed = WindowPieces<Shape, Shape::K_CONTIGUOUS, Shape::PASSES, Shape::COLUMNS, MASKED>;
    typename PiecesOf<Shape::WINDOW != WINDOW_NONE, MatrixPieces<Shape>, Windowed>::Type pieces;
    int last;   // end of k in the operand
    u32 inside; // bit per piece along M or N: not past the operand's edge
    u32 target; // the thread's first byte in the shared tile, for use where all passes have the same permutation
    Vec<Shape::VECTOR> staged[ASYNC ? 1 : Shape::PIECES_PER_THREAD];
    Preparing<Shape::PREPARED, Shape::PIECES_PER_THREAD, Shape::WINDOW != WINDOW_NONE,
              Shape::K_CONTIGUOUS ? Shape::COLUMNS : Shape::PASSES, Shape::K_CONTIGUOUS ? Shape::EACH : 1,
              Shape::K_CONTIGUOUS>
        preparing;

    static constexpr bool ENDS_KNOWN = Shape::WINDOW != WINDOW_NONE && Windowed::ENDS_KNOWN;

    static MEMBER int own_line() { return thread_index() / Shape::LANES; }
    static MEMBER int own_column() { return thread_index() % Shape::LANES * Shape::EACH; }

    // `operand` points at (0, 0) of the batch entry. The tile starts at row of A or column of B `first` of `extent`,
    // and covers k from k_begin to k_end.
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

    // Returns the byte offset of a chunk of a piece in the tile: `target` and a constant if the permutation allows it.
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

    // Calls move(pass, column, address, predicate) for each piece of a step, at whose beginning `k_left` values of k
    // remain, and advances to the next step. Pieces past an edge have the predicate 0 (false) and become zeros.
    template <class Move>
    MEMBER void for_each(const Params &params, int k_left, const Move &move) {
        preparing.begin();
        i32 valid[Shape::COLUMNS];
        UNROLL for (int column = 0; column < Shape::COLUMNS; ++column) valid[column] = pieces_inside(column, k_left);
        pieces.for_each(params, [&](int pass, int column, gptr<Source> from, bool in_image, i32 channel) {
            if constexpr (Shape::PREPARED) {
                const int k = k_first + (Shape::K_CONTIGUOUS ? column * Shape::PACE : pass * Shape::LINES);
                preparing.request(
                    pass * Shape::COLUMNS + column, run_of(pass, column), (Shape::K_CONTIGUOUS ? pass : column) == 0,
                    Shape::WINDOW == WINDOW_NONE ? last - k_left + k : channel, within(k, k_left), in_image);
            }
            if constexpr (Shape::WINDOW == WINDOW_NONE)
                move(pass, column, from, is_inside(valid[column], pass));
            else
                move(pass, column, from, is_inside(valid[column], pass) && in_image);
        });
    }

    // Returns in one word which pieces of a column are inside: a bit per pass; or the values of k that remain, 0 for an
    // entry past the edge. One predicate per entry would occupy the few predicate registers during the main loop.
    MEMBER i32 pieces_inside(int column, int k_left) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return within(k_first + column * Shape::PACE, k_left) ? (ENDS_KNOWN ? -1 : (i32)inside) : 0;
        else
            return ENDS_KNOWN || (inside >> column & 1) ? k_left : 0;
    }
    MEMBER u32 is_inside(i32 valid, int pass) const {
        if constexpr (Shape::K_CONTIGUOUS)
            return ENDS_KNOWN ? (u32)valid : (u32)valid & 1u << pass;
        else
            return within(k_first, valid - pass * Shape::LINES);
    }

    // Returns the run of a piece: the pieces of the same k.
    static MEMBER int run_of(int pass, int column) { return Shape::K_CONTIGUOUS ? column : pass; }

    // Starts the copies of a step into the shared tile (ASYNC 1), or the loads into registers for `store` (ASYNC 0).
    MEMBER void request(const Params &params, int k_left, sptr<u8> tile) {
        if constexpr (ASYNC)
            copy(params, k_left, tile);
        else
            load(params, k_left);
    }
    MEMBER void copy(const Params &params, int k_left, sptr<u8> tile) {
        for_each(params, k_left, [&](int pass, int column, gptr<Source> from, u32 predicate) {
            if (in_tile(pass))
                copy_async<Shape::VECTOR>(tile + place(pass, column), from, predicate);
        });
    }
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
