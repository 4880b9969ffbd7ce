// A thread's pieces of an operand's tile that is read through a window (window_walk.cuh), where a family has PASSES
// pieces Shape::LINES apart and COLUMNS pieces Shape::PACE apart. ROWS: the passes are entries and the columns values
// of k.
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
    // Calls visit(pass, column, address, predicate, channel) for each piece of a step, and goes on to the next.
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
