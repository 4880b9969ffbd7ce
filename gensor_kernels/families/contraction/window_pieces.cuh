// A thread's pieces of an operand tile that is read through a window (window_walk.cuh): PASSES pieces that are
// Shape::LINES apart times COLUMNS pieces that are Shape::PACE apart. ROWS: passes are entries and columns are values
// of k; otherwise, the reverse.
#pragma once
#include "packed.cuh"

template <class Shape, bool ROWS, int PASSES, int COLUMNS, bool BY_MASK>
struct WindowPieces {
    using Walk = WindowWalk<Shape::WINDOW, ROWS ? PASSES : COLUMNS, ROWS ? Shape::LINES : Shape::PACE,
                            ROWS ? COLUMNS : PASSES, ROWS ? Shape::PACE : Shape::LINES, BLOCK_K, BY_MASK>;
    static constexpr bool ENDS_KNOWN = Walk::ENDS_KNOWN;
    Walk walk;

    // `operand` points at element 0 of the batch entry; the thread starts at `entry` (of `extent`) and at `k`.
    MEMBER WindowPieces(const Params &params, gptr<IN_TYPE> operand, int entry, int extent, int k, i64, i64)
        : walk(window_of(params), operand, entry, k, extent, depth_of(params).all) {}
    // Calls visit(pass, column, address, predicate, channel) for each piece of a step, and advances to the next step.
    template <class Visit>
    MEMBER void for_each(const Params &params, const Visit &visit) {
        walk.for_each(window_of(params), [&](int entry, int k, gptr<IN_TYPE> from, bool inside, i32 channel) {
            visit(ROWS ? entry : k, ROWS ? k : entry, from, inside, channel);
        });
    }
};

template <bool WINDOWED, class Matrix, class Windowed>
struct PiecesOf {
    using Type = Matrix;
};
template <class Matrix, class Windowed>
struct PiecesOf<true, Matrix, Windowed> {
    using Type = Windowed;
};
