// A warp's share of a product of slices: passes over pairs of them, exact sums, and what stands in where they do not
// suffice.
#pragma once
#include "mma_pipeline.cuh"
#include "slices.cuh"
#include "vote.cuh"

// Leading bits of a row times those of a column, summed, from which on what is left out, at most 1.52 * 2^-60 of a term
// of the largest elements, and the roundings of sums stay within the bound of double sums
// (operators/tolerance_sliced.py).
constexpr i32 LEAST_LEADING = 512;

using DoubleSums = double[FRAGMENTS_M][FRAGMENTS_N][4];

// Steps of all passes, one behind the other: first the leading bits, then pairs (s, t), s + t falling.
struct SlicePasses {
    Pipeline pipeline;
    gptr<i8> first_a, first_b; // this thread's first element of slice 1
    i64 slice_a, slice_b;      // elements from slice to slice
    i32 pitch, steps;          // k of a pass, and steps of it
    i32 left;                  // steps of this pass not yet asked for
    i32 diagonal, s;           // s + t of the next pass, and s

    MEMBER SlicePasses(const Params &params, const Tile &tile) : pipeline(params, tile) {
        pitch = slice_pitch(params), steps = divide_up(pitch, BLOCK_K);
        slice_a = (i64)params.m * pitch, slice_b = (i64)params.n * pitch;
        pipeline.a = TileCopy<TileA>(params, tile.batch, slices_of(params, false, tile.entry), tile.row, params.m,
                                     pitch, 0, pitch, 1);
        pipeline.b = TileCopy<TileB>(params, tile.batch, slices_of(params, true, tile.entry), tile.column, params.n,
                                     pitch, 0, pitch, 1);
        first_a = pipeline.a.pieces.source, first_b = pipeline.b.pieces.source;
        read(SLICES + 1, SLICES + 1);
        diagonal = SLICES + 1, s = 1;
    }
    MEMBER void read(i32 of_a, i32 of_b) {
        pipeline.a.pieces.source = first_a + (of_a - 1) * slice_a;
        pipeline.b.pieces.source = first_b + (of_b - 1) * slice_b;
        pipeline.k_left = pitch, left = steps;
    }
    // Asks for the next step; behind the last pass these are zeros.
    MEMBER void request(const Params &params) {
        if (left == 0 && diagonal >= 2) {
            read(s, diagonal - s);
            if (++s == diagonal)
                --diagonal, s = 1;
        }
        pipeline.request(params);
        --left;
    }
};

struct SlicedMath {
    const Tile &tile;
    int row, column; // the warp's place in the tile
    SlicePasses passes;
    WarpMath math;
    DoubleSums sums;

    MEMBER SlicedMath(const Params &params, const Tile &tile, int row, int column)
        : tile(tile), row(row), column(column), passes(params, tile), math(params, tile, row, column), sums{} {}

    MEMBER void multiply_slices(const Params &params) {
        ROLLED for (int s = 0; s < AHEAD; ++s) passes.request(params);
        passes.pipeline.receive();
        math.begin();
        multiply_pairs(params, 1);
        if (any_lost(params)) {
            cover("again");
            sum_plainly(params);
            return;
        }
        clear();
        ROLLED for (int diagonal = SLICES + 1; diagonal >= 2; --diagonal) {
            multiply_pairs(params, diagonal - 1);
            add_diagonal(bit_cast<double>((u64)(1023 + 2 - SLICE_BITS * diagonal) << 52));
        }
        scale(params);
    }
    MEMBER void multiply_pairs(const Params &params, int pairs) {
        ROLLED for (int step = 0; within(step, pairs * passes.steps); ++step) {
            math.compute(passes.pipeline, [&]() { passes.request(params); });
        }
    }
    template <class Visit>
    static MEMBER void for_each(const Visit &visit) {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int j = 0; j < FRAGMENTS_N; ++j)
            UNROLL for (int r = 0; r < 4; ++r) visit(i, j, r);
    }
    MEMBER void clear() {
        for_each([&](int i, int j, int r) { math.accumulators[0][i][j][r] = 0; });
    }
    // Adds the sums of the pairs of one s + t, which count in units of `unit`.
    MEMBER void add_diagonal(double unit) {
        for_each([&](int i, int j, int r) {
            sums[i][j][r] = fma_((double)math.accumulators[0][i][j][r], unit, sums[i][j][r]);
        });
        clear();
    }

    // This lane's rows (of fragment i, half h) and columns (of fragment j, c).
    MEMBER i32 own_row(int i, int h) const { return tile.row + row + i * 16 + h * 8 + ((thread_index() & 31) >> 2); }
    MEMBER i32 own_column(int j, int c) const { return tile.column + column + j * 8 + (thread_index() & 3) * 2 + c; }
    // Exponents of them; rows and columns beyond the edges are empty.
    MEMBER void load_exponents(const Params &params, i32 (&of_a)[FRAGMENTS_M][2], i32 (&of_b)[FRAGMENTS_N][2]) const {
        const gptr<i32> from_a = exponents_of(params, false, tile.entry),
                        from_b = exponents_of(params, true, tile.entry);
        UNROLL for (int h = 0; h < 2; ++h) {
            UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) of_a[i][h] = exponent(from_a, own_row(i, h), params.m);
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) of_b[j][h] = exponent(from_b, own_column(j, h), params.n);
        }
    }
    static MEMBER i32 exponent(gptr<i32> from, i32 line, i32 extent) {
        const bool inside = within(line, extent);
        const i32 found = load_global<4>(from + line, inside).template get<i32>(0);
        return inside ? found : EMPTY;
    }

    // Whether slices do not suffice for an output of any warp of the block. Every thread gets the same answer.
    MEMBER bool any_lost(const Params &params) {
        i32 of_a[FRAGMENTS_M][2], of_b[FRAGMENTS_N][2];
        load_exponents(params, of_a, of_b);
        bool lost = false;
        for_each([&](int i, int j, int r) {
            const i32 a = of_a[i][r / 2], b = of_b[j][r % 2];
            const bool nothing = a == EMPTY || b == EMPTY, few = math.accumulators[0][i][j][r] < LEAST_LEADING;
            lost |= a == UNBOUNDED || b == UNBOUNDED || (few && !nothing);
        });
        return barrier_any(lost);
    }

    // Times powers of two, in two steps, because a single one may leave the range.
    MEMBER void scale(const Params &params) {
        i32 of_a[FRAGMENTS_M][2], of_b[FRAGMENTS_N][2];
        load_exponents(params, of_a, of_b);
        for_each([&](int i, int j, int r) {
            const i32 e = of_a[i][r / 2] + of_b[j][r % 2], bounded = e > 2044 ? 2044 : e < -2044 ? -2044 : e;
            const i32 half = bounded / 2;
            sums[i][j][r] = sums[i][j][r] * power_of_two(half) * power_of_two(bounded - half);
        });
    }
    static MEMBER double power_of_two(i32 exponent) { return bit_cast<double>((u64)(1023 + exponent) << 52); }

    // The sums by multiply-adds of doubles in the order of k.
    MEMBER void sum_plainly(const Params &params) {
        const gptr<double> from_a = gptr<double>(params.a) + batch_offset(params.a_batch, tile.batch);
        const gptr<double> from_b = gptr<double>(params.b) + batch_offset(params.b_batch, tile.batch);
        ROLLED for (i32 k = 0; within(k, params.k); ++k) {
            double a[FRAGMENTS_M][2], b[FRAGMENTS_N][2];
            UNROLL for (int h = 0; h < 2; ++h) {
                UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) a[i][h] =
                    element(from_a + k * params.a_k, own_row(i, h), params.a_m, params.m);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) b[j][h] =
                    element(from_b + k * params.b_k, own_column(j, h), params.b_n, params.n);
            }
            for_each([&](int i, int j, int r) { sums[i][j][r] = fma_(a[i][r / 2], b[j][r % 2], sums[i][j][r]); });
        }
    }
    static MEMBER double element(gptr<double> from, i32 line, i64 step, i32 extent) {
        return load_global<8>(from + line * step, within(line, extent)).template get<double>(0);
    }
};
