// A thread's plane of x: its channels of its image, after the prologue where there is one.
#pragma once
#include "prologue.cuh"
#include "window_spot.cuh"

static_assert(!PROLOGUE || OPERATION == MULTIPLY, "Only what is filtered is prepared.");

// The prologue of a thread's channels. The elements of its vectors are loaded once.
template <bool ON>
struct PreparedCells {
    MEMBER PreparedCells(const Params &, const Spot &) {}
    MEMBER Cell of(const Cell &cell, bool) const { return cell; }
};
template <>
struct PreparedCells<true> {
    PrologueRuns<1, CHANNELS> runs;

    MEMBER PreparedCells(const Params &params, const Spot &spot) : runs(params, Batch{{0, 0, 0}}) {
        runs.load(0, spot.channel, spot.inside);
    }
    MEMBER Cell of(const Cell &cell, bool inside) const { return runs.template prepare<true>(0, cell, inside); }
};

struct Plane {
    gptr<IN_TYPE> first; // row 0, column 0
    PreparedCells<PROLOGUE != 0> prologue;

    MEMBER Plane(const Params &params, const Spot &spot) : first(plane_of(params, spot)), prologue(params, spot) {}
    MEMBER Cell load(i64 offset, bool inside) const { return load_cell(first + offset, inside); }
    // A loaded cell after the prologue; zero where it is not `inside` the image.
    MEMBER Cell prepared(const Cell &cell, bool inside) const { return prologue.of(cell, inside); }
};
