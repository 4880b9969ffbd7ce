// A warp's share of a product of slices: passes over pairs of slices with exact sums, and multiply-adds of doubles
// where slices are not exact enough.
#pragma once
#include "mma_pipeline.cuh"
#include "slices.cuh"
#include "vote.cuh"

// The smallest sum of products of leading bits for which slices are exact enough: the error, at most 1.52 * 2^-60 of
// the product of the largest elements per term, and the roundings of sums are within the bound of double sums
// (operators/tolerance_sliced.py).
constexpr i32 LEAST_LEADING = 512;

using DoubleSums = double[FRAGMENTS_M][FRAGMENTS_N][4];

// Steps of all passes in sequence: first the leading bits, then pairs (s, t) with descending s + t.
struct SlicePasses {
    Pipeline pipeline;
    gptr<i8> first_a, first_b; // this thread's first element of slice 1
    i64 slice_a, slice_b;      // elements per slice
    i32 pitch, steps;          // k and steps of a pass
    i32 steps_left;            // of this pass
    i32 diagonal, s;           // s + t of the next pass, and s

    MEMBER SlicePasses(const Params &params, const Tile &tile) : pipeline(params, tile) {
        pitch = slice_pitch(params), steps = divide_up(pitch, BLOCK_K);
        slice_a = (i64)params.m * pitch, slice_b = (i64)params.n * pitch;
        pipeline.a = TileCopy<TileA>(params, tile.batch, slices_of(params, false, tile.entry), tile.row, params.m,
                                     pitch, 0, pitch, 1);
        pipeline.b = TileCopy<TileB>(params, tile.batch, slices_of(params, true, tile.entry), tile.column, params.n,
                                     pitch, 0, pitch, 1);
        first_a = pipeline.a.pieces.source, first_b = pipeline.b.pieces.source;
        start_pass(SLICES + 1, SLICES + 1);
        diagonal = SLICES + 1, s = 1;
    }
    MEMBER void start_pass(i32 of_a, i32 of_b) {
        pipeline.a.pieces.source = first_a + (of_a - 1) * slice_a;
        pipeline.b.pieces.source = first_b + (of_b - 1) * slice_b;
        pipeline.k_left = pitch, steps_left = steps;
    }
    // Requests the next step; after the last pass, zeros.
    MEMBER void request(const Params &params) {
        if (steps_left == 0 && diagonal >= 2) {
            start_pass(s, diagonal - s);
            if (++s == diagonal)
                --diagonal, s = 1;
        }
        pipeline.request(params);
        --steps_left;
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
            sum_doubles(params);
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
    // Adds the sums of all pairs with one s + t, which are multiples of `unit`.
    MEMBER void add_diagonal(double unit) {
        for_each([&](int i, int j, int r) {
            sums[i][j][r] = fma_((double)math.accumulators[0][i][j][r], unit, sums[i][j][r]);
        });
        clear();
    }

    // This lane's rows (of fragment i, half h) and columns (of fragment j, c).
    MEMBER i32 own_row(int i, int h) const { return tile.row + row + i * 16 + h * 8 + ((thread_index() & 31) >> 2); }
    MEMBER i32 own_column(int j, int c) const { return tile.column + column + j * 8 + (thread_index() & 3) * 2 + c; }
    // Their exponents; rows and columns beyond the edges are empty.
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
        const i32 loaded = load_global<4>(from + line, inside).template get<i32>(0);
        return inside ? loaded : EMPTY;
    }

    // Whether slices are not exact enough for some output of the block. Every thread gets the same result.
    MEMBER bool any_lost(const Params &params) {
        i32 of_a[FRAGMENTS_M][2], of_b[FRAGMENTS_N][2];
        load_exponents(params, of_a, of_b);
        bool lost = false;
        for_each([&](int i, int j, int r) {
            const i32 a = of_a[i][r / 2], b = of_b[j][r % 2];
            const bool empty = a == EMPTY || b == EMPTY, small = math.accumulators[0][i][j][r] < LEAST_LEADING;
            lost |= a == UNBOUNDED || b == UNBOUNDED || (small && !empty);
        });
        return barrier_any(lost);
    }

    // Multiplies sums by powers of two, in two steps, because a single one may leave the range.
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

    // Computes the sums by multiply-adds of doubles in the order of k.
    MEMBER void sum_doubles(const Params &params) {
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
