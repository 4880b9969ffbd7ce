// Products of 8-bit floats with a float scale for every 128 values of k, of each row of A and of each panel of 128
// columns of B (operators/products/block_scaled.py). A step is 128 values of k. The products of 16 rows are summed over
// a step by themselves, then added to the sums of all steps times the product of both scales, so that one short sum of
// a row of fragments is held in addition to the long sums. All fragments of B of a step are read once, those of A one
// by one, the next before the last one is multiplied.
//
// Scales are copied to shared memory with the operands of their step: of the rows of the tile, then of the panels that
// its columns may belong to. The columns of a warp belong to one.
#pragma once
#include "block_scales.cuh"

#if FLOAT_SCALES
constexpr int SCALED_COLUMNS = 128;
constexpr int PANELS =
    divide_up(SCALED_COLUMNS - minimum(power_of_two_in(BLOCK_N), SCALED_COLUMNS) + BLOCK_N, SCALED_COLUMNS);

// Copies the scales of a step.
struct FloatScales {
    static constexpr int SCALE = sizeof(float), BYTES = (BLOCK_M + PANELS) * SCALE; // of a stage
    static constexpr int PASSES = divide_up(BLOCK_M, THREADS);
    gptr<float> of_a, of_b; // of this thread's first row and of its panel, of the next step
    i64 row_stride, a_stride, b_stride;
    int rows, steps; // from the thread's row and the next step on
    bool has_panel;

    MEMBER FloatScales(const Params &params, const Tile &tile) {
        const int row = tile.row + thread_index(), step = tile.k_begin / BLOCK_K;
        const int panel = tile.column / SCALED_COLUMNS + own_panel();
        row_stride = params.d_m, a_stride = params.d_n, b_stride = params.groups.zero_group;
        of_a = gptr<float>(params.d) + (row * row_stride + step * a_stride);
        of_b = gptr<float>(params.groups.zeros) + (panel * params.groups.zero_n + step * b_stride);
        rows = params.m - row, steps = divide_up(params.k, BLOCK_K) - step;
        has_panel = within(panel, divide_up(params.n, SCALED_COLUMNS));
    }
    // The last threads copy the scales of B.
    static MEMBER int own_panel() { return THREADS - 1 - thread_index(); }

    // Copies the next step's scales; those past an edge become zeros.
    MEMBER void request(sptr<u8> to) {
        const bool left = within(0, steps);
        UNROLL for (int pass = 0; pass < PASSES; ++pass) {
            const int row = thread_index() + pass * THREADS;
            if (BLOCK_M % THREADS == 0 || within(row, BLOCK_M))
                copy_async<SCALE>(to + row * SCALE, of_a + pass * THREADS * row_stride,
                                  left && within(pass * THREADS, rows));
        }
        if (within(own_panel(), PANELS))
            copy_async<SCALE>(to + (BLOCK_M + own_panel()) * SCALE, of_b, left && has_panel);
        of_a = of_a + a_stride, of_b = of_b + b_stride, --steps;
    }
};

// The math of a warp, with the interface of BlockMath.
struct FloatMath {
    using Copies = ScaledPipeline<FloatScales>;
    LoadA::Type load_a;
    LoadB::Type load_b;
    Accumulators accumulators[1];
    int read, read_scales; // byte offsets of the stage being computed
    int row, panel;        // byte offsets of the scales of the lane's first row, and of the warp's columns

    MEMBER FloatMath(const Tile &tile, int row, int column)
        : load_a(row), load_b(column), accumulators{}, read(0), read_scales(0),
          row((row + ((thread_index() & 31) >> 2)) * FloatScales::SCALE),
          panel((BLOCK_M + ((tile.column & (SCALED_COLUMNS - 1)) + column) / SCALED_COLUMNS) * FloatScales::SCALE) {}

    MEMBER void begin() {}

    MEMBER void compute(Copies &pipeline, const Params &params) {
        pipeline.request(params);
        const sptr<u8> tile = shared_base() + read, scales = shared_base() + (SCALES_AT + read_scales);
        u32 a[2][4], b[K_STEPS][FRAGMENTS_N][2];
        load_a.load_one(a[0], tile, 0, 0);
        UNROLL for (int k = 0; k < K_STEPS; ++k) load_b.load(b[k], tile + TileA::BYTES, k);
        const float of_b = scale(scales + panel);
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) {
            const sptr<u8> own = scales + (row + i * 16 * FloatScales::SCALE);
            const float factors[2] = {scale(own) * of_b, scale(own + 8 * FloatScales::SCALE) * of_b};
            float sums[FRAGMENTS_N][4] = {};
            UNROLL for (int k = 0; k < K_STEPS; ++k) {
                const int now = i * K_STEPS + k, next = now + 1;
                if (next < FRAGMENTS_M * K_STEPS)
                    load_a.load_one(a[next % 2], tile, next % K_STEPS, next / K_STEPS);
                UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) multiply_eight_bit(sums[j], a[now % 2], b[k][j]);
            }
            UNROLL for (int j = 0; j < FRAGMENTS_N; ++j) UNROLL for (int r = 0; r < 4; ++r) accumulators[0][i][j][r] =
                fma_(sums[j][r], factors[r / 2], accumulators[0][i][j][r]);
        }
        pipeline.operands.receive();
        read = Pipeline::next_stage(read), read_scales = Copies::next_stage(read_scales);
    }

    static MEMBER float scale(sptr<u8> from) { return load_shared<FloatScales::SCALE>(from).template get<float>(0); }
    static MEMBER void multiply_eight_bit(float (&sums)[4], const u32 (&a)[4], const u32 (&b)[2]) {
        if constexpr (AS_STORED)
            multiply_bytes(sums, a, b, ScaleRegisters{ONES, ONES}, ScalePlace{0, 0, 0});
        else
            multiply(sums, a, b);
    }
};
using ScaledMath = FloatMath;
#else
using ScaledMath = BlockMath;
#endif
