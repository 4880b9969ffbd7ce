// Products of 8-bit floats: the short sums of a step are added to the sums of a tile as they are, or with BLOCK_SCALED
// times the scales of the step. Then every row of A has a scale (d) for each step of k, and so has every group of
// SCALED_COLUMNS columns of B (the fourth operand); the columns of a tile may belong to two groups. The scales of the
// next step are loaded while a step is multiplied.
#pragma once
#include "shared_rows.cuh"
#include "wgmma_ring.cuh"

// Columns of B that share a scale, and the number of scales of a tile's columns at most.
constexpr int SCALED_COLUMNS = 128;
constexpr int SCALES_OF_B =
    divide_up(SCALED_COLUMNS - minimum(power_of_two_in(BLOCK_N), SCALED_COLUMNS) + BLOCK_N, SCALED_COLUMNS);

#if BLOCK_SCALED
struct StepScales {
    gptr<float> of_a, of_b; // the scales that are loaded next
    i64 row_stride, a_stride, b_stride, panel_stride;
    int rows, panels, steps; // left from this thread's first row, the first column's panel and the next step on
    int border;              // the first column of the tile that has the second scale
    float a[TILES_M][2], b[SCALES_OF_B], factor[TILES_M][2][SCALES_OF_B];

    // Scales of this thread's rows: two for each of its tiles of 64 rows, from `row` of the block's tile on.
    MEMBER StepScales(const Params &params, const Tile &tile, int row) {
        const int lane = thread_index() & 31, first = tile.row + row + (thread_index() >> 5 & 3) * 16 + (lane >> 2);
        const int step = tile.k_begin / BLOCK_K, panel = tile.column / SCALED_COLUMNS;
        row_stride = params.d_m, a_stride = params.d_n, b_stride = params.groups.zero_group;
        panel_stride = params.groups.zero_n, border = SCALED_COLUMNS - (tile.column & (SCALED_COLUMNS - 1));
        rows = params.m - first, steps = divide_up(params.k, BLOCK_K) - step;
        panels = divide_up(params.n, SCALED_COLUMNS) - panel;
        of_a = gptr<float>(params.d) + (first * row_stride + step * a_stride);
        of_b = gptr<float>(params.groups.zeros) + (panel * panel_stride + step * b_stride);
        load();
    }
    // Takes the loaded scales for this step, and loads those of the next step.
    MEMBER void begin_step() {
        UNROLL for (int i = 0; i < TILES_M; ++i) UNROLL for (int half = 0; half < 2; ++half)
            UNROLL for (int which = 0; which < SCALES_OF_B; ++which) factor[i][half][which] = a[i][half] * b[which];
        of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;
        load();
    }
    // A tile begins at a multiple of 16 columns, so 16 columns, of which each thread has four, share a scale.
    MEMBER void add(TileSums &sums, const TileSums &products, int i) const {
        UNROLL for (int v = 0; v < BLOCK_N / 2; ++v) {
            const int half = v >> 1 & 1, last = SCALES_OF_B - 1;
            const bool first = !last || (v >> 3) * 16 < border;
            sums[v] = fma_(products[v], first ? factor[i][half][0] : factor[i][half][last], sums[v]);
        }
    }

    MEMBER void load() {
        const bool left = within(0, steps);
        UNROLL for (int which = 0; which < SCALES_OF_B; ++which) b[which] =
            load_global<4>(of_b + which * panel_stride, left && within(which, panels)).template get<float>(0);
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

// Issues the products of tile i of a step.
DEVICE void multiply_short(TileSums &products, u64 a, u64 b, int i) {
    multiply<0>(products, a, b, i, 0);
    UNROLL for (int k = K_STEP; k < BLOCK_K; k += K_STEP) multiply<1>(products, a, b, i, k);
}

// The products of a step, in one short sum for each tile.
DEVICE void multiply_promoted(Sums &sums, TileSums &products, u64 a, u64 b, StepScales &scales) {
    scales.begin_step();
    UNROLL for (int i = 0; i < TILES_M; ++i) {
        form_short_sums(products, [&] { multiply_short(products, a, b, i); });
        scales.add(sums[i], products, i);
    }
}

#if OVERLAPPED
// The main loop with two sets of short sums, which tiles of 64 rows use in turn: one is added while the next tile is
// multiplied, of this step or of the next one. A round is two steps of an odd number of tiles or one of an even number,
// so that the set of each of its tiles is known at compile time. A step that is left over comes first, by itself.
// Products of a round's first tile are issued in the round before, and waited for at its end: ptxas would serialize all
// products if any were on their way from one iteration to the next.
constexpr int ROUND_STEPS = 1 + TILES_M % 2, ROUND_TILES = ROUND_STEPS * TILES_M;

struct OverlappedSteps {
    Sums &sums;
    const u64 a, b;
    Turn &turn; // the step that is multiplied next
    StepScales &scales;
    TileSums products[2];
    int slot = 0, before = 0; // buffers of the step whose products were issued last, and of the step before it

    // Waits until the buffer of the next step is full.
    MEMBER void take() {
        before = slot, slot = turn.slot;
        mbarrier_wait(full(slot), turn.parity);
        turn.next();
    }
    // Issues the products of tile `at` of a round as one group.
    MEMBER void begin(int at) {
        const int i = at % TILES_M;
        if (i == 0)
            take();
        wgmma_hold(products[at % 2]);
        wgmma_fence();
        multiply_short(products[at % 2], further(a, slot * SLOT_BYTES), further(b, slot * SLOT_BYTES), i);
        wgmma_commit();
    }
    // Waits until only NEWER groups run that were issued after those of tile `at`.
    template <int NEWER>
    MEMBER void end(int at) {
        wgmma_wait<NEWER>();
        wgmma_hold(products[at % 2]);
    }
    // Adds the short sums of tile `at`, whose products have ended. A step's last tile gives its buffer back.
    MEMBER void add(int at, int buffer) {
        const int i = at % TILES_M;
        if (i == 0)
            scales.begin_step();
        if (i == TILES_M - 1)
            release(buffer);
        scales.add(sums[i], products[at % 2], i);
    }
    // Issues the products of all tiles of a round but the first, and adds the sums of all but the last.
    MEMBER void most_of_round() {
        UNROLL for (int at = 1; at < ROUND_TILES; ++at) {
            begin(at);
            if (at > 1)
                end<1>(at - 1);
            add(at - 1, before);
        }
    }
    MEMBER void run(int steps) {
        if (steps % ROUND_STEPS) {
            cover("odd_step");
            take();
            multiply_promoted(sums, products[0], further(a, slot * SLOT_BYTES), further(b, slot * SLOT_BYTES), scales);
            release(slot);
        }
        if (!within(0, steps / ROUND_STEPS))
            return;
        begin(0);
        end<0>(0);
        ROLLED for (int left = steps / ROUND_STEPS; within(1, left); --left) {
            cover("steady");
            most_of_round();
            begin(0);
            end<1>(ROUND_TILES - 1);
            add(ROUND_TILES - 1, before);
            end<0>(0);
        }
        cover("drain");
        most_of_round();
        end<0>(ROUND_TILES - 1);
        add(ROUND_TILES - 1, slot);
    }
};
#endif
