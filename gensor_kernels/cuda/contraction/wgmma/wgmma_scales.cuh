// How short sums of a step are added to the sums of a tile: as they are, or with BLOCK_SCALED times the scales of the
// step. Every row of A has a scale (d) for each step of k, and so have every SCALED_COLUMNS columns of B (the fourth
// operand). Scales of the next step are on their way while a step is multiplied.
#pragma once

#if BLOCK_SCALED
constexpr int SCALED_COLUMNS = 128;
static_assert(PROMOTED && BLOCK_K == 128 && SCALED_COLUMNS % BLOCK_N == 0, "A step has one scale of B.");

struct StepScales {
    gptr<float> of_a, of_b; // of the scales that are asked for next
    i64 row_stride, a_stride, b_stride;
    int rows, steps; // from the first row of this thread on, and of k from the next step on
    bool columns;    // whether the tile has any
    float a[TILES_M][2], b, factor[TILES_M][2];

    // Of the rows of this thread: two for each of its tiles of 64 rows, from `row` of the block's tile on.
    MEMBER StepScales(const Params &params, const Tile &tile, int row) {
        const int lane = thread_index() & 31, first = tile.row + row + (thread_index() >> 5 & 3) * 16 + (lane >> 2);
        const int step = tile.k_begin / BLOCK_K;
        row_stride = params.d_m, a_stride = params.d_n, b_stride = params.groups.zero_group;
        rows = params.m - first, steps = divide_up(params.k, BLOCK_K) - step;
        of_a = gptr<float>(params.d) + (first * row_stride + step * a_stride);
        of_b =
            gptr<float>(params.groups.zeros) + (tile.column / SCALED_COLUMNS * params.groups.zero_n + step * b_stride);
        columns = tile.column < params.n;
        load();
    }
    // The scales that have come are those of this step; the scales of the next step are asked for.
    MEMBER void begin_step() {
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) factor[i][half] =
            a[i][half] * b;
        of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;
        load();
    }
    MEMBER void add(TileSums &sums, const TileSums &products, int i) const {
        UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[v] = fma_(products[v], factor[i][v >> 1 & 1], sums[v]);
    }

    MEMBER void load() {
        const bool left = within(0, steps);
        b = load_global<4>(of_b, left && columns).template get<float>(0);
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const int at = i * 64 + half * 8;
            a[i][half] = load_global<4>(of_a + at * row_stride, left && within(at, rows)).template get<float>(0);
        }
    }
};
#else
struct StepScales {
    MEMBER StepScales(const Params &, const Tile &, int) {}
    MEMBER void begin_step() {}
    MEMBER void add(TileSums &sums, const TileSums &products, int) const {
        UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) sums[v] = sums[v] + products[v];
    }
};
#endif
