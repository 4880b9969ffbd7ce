// Sums in registers of the short sums of each step, which storing warps load from tensor memory: added as they are, or
// with BLOCK_SCALED times the scales of the step. Then every row of A has a scale (d) for each step of k, and so has
// every group of SCALED_COLUMNS columns of B (the fourth operand); the columns of a tile may belong to two groups. The
// scales of the next step are loaded while the short sums of a step are added.
#pragma once
#include "shared_rows.cuh"
#include "tma_tiles.cuh"

// Columns of B that share a scale, and the number of scales of a tile's columns at most. Tiles begin at multiples of
// their columns, so that the columns of a piece share a scale.
constexpr int SCALED_COLUMNS = 128;
constexpr int SCALES_OF_B =
    divide_up(SCALED_COLUMNS - minimum(power_of_two_in(BLOCK_N), SCALED_COLUMNS) + BLOCK_N, SCALED_COLUMNS);
constexpr int PIECE = minimum(power_of_two_in(BLOCK_N), BLOCK_N > 192 ? 32 : 64); // of a load

// Halves of 16 rows that a storing warp has of the 32 rows that it can load, and the first one.
constexpr int HALVES = 2 / CONSUMERS;
DEVICE int first_half() {
    return CONSUMERS > 1 ? warp_uniform(thread_index() >> 7) - 1 : 0;
}

// Registers of each thread at entry; afterwards, with eight storing warps, of the others, and of these.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = 40, TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);

#if BLOCK_SCALED
struct StepScales {
    gptr<float> of_a, of_b; // the scales that are loaded next
    i64 eighth_row, a_stride, b_stride, panel_stride;
    int rows, panels, steps; // left from this thread's first row, the first column's panel and the next step on
    int border;              // the first column of the tile that has the second scale
    float a[2], b[SCALES_OF_B], factors[2][SCALES_OF_B];

    // Scales of this thread's two rows of the 16 from `row` of the block's tile on.
    MEMBER StepScales(const Params &params, const Tile &tile, int row) {
        const int first = tile.row + row + (thread_index() >> 5 & 3) * 16 + (thread_index() >> 2 & 7);
        const int step = tile.k_begin / BLOCK_K, panel = tile.column / SCALED_COLUMNS;
        eighth_row = 8 * params.d_m, a_stride = params.d_n, b_stride = params.groups.zero_group;
        panel_stride = params.groups.zero_n;
        border = BLOCK_N % SCALED_COLUMNS ? SCALED_COLUMNS - tile.column % SCALED_COLUMNS : SCALED_COLUMNS;
        rows = params.m - first, steps = divide_up(params.k, BLOCK_K) - step;
        panels = divide_up(params.n, SCALED_COLUMNS) - panel;
        of_a = gptr<float>(params.d) + (first * params.d_m + step * a_stride);
        of_b = gptr<float>(params.groups.zeros) + (panel * panel_stride + step * b_stride);
        load();
    }
    // Takes the loaded scales for this step, and loads those of the next step.
    MEMBER void begin_step() {
        UNROLL for (int half = 0; half < 2; ++half) UNROLL for (int which = 0; which < SCALES_OF_B; ++which)
            factors[half][which] = a[half] * b[which];
        of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;
        load();
    }
    // Adds two short sums of a row, of a piece from `column` on; `half`: of the second row.
    MEMBER void add(float *sums, const float *products, int column, int half) const {
        const float factor = column < border ? factors[half][0] : factors[half][SCALES_OF_B - 1];
        fma_floats(sums, products, factor);
    }

    MEMBER void load() {
        const bool left = within(0, steps);
        UNROLL for (int which = 0; which < SCALES_OF_B; ++which) b[which] =
            load_global<4>(of_b + which * panel_stride, left && within(which, panels)).template get<float>(0);
        UNROLL for (int half = 0; half < 2; ++half) a[half] =
            load_global<4>(of_a + half * eighth_row, left && within(8 * half, rows)).template get<float>(0);
    }
};
#else
struct StepScales {
    MEMBER StepScales(const Params &, const Tile &, int) {}
    MEMBER void begin_step() {}
    MEMBER void add(float *sums, const float *products, int, int) const {
        UNROLL for (int v = 0; v < 2; ++v) sums[v] = sums[v] + products[v];
    }
};
#endif
