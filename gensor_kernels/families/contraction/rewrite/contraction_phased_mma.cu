// A transposed convolution with a stride on the tensor cores, phase by phase: y[pixel, filter] = epilogue(sum over the
// taps of the pixel's phase and the channels). Each phase is a product of its pixels and its taps, computed as by
// contraction_mma.cu (phases.cuh).
//
// The main launch stores the sums of every phase in the workspace, in as many parts as k is split into. A second
// launch, contraction_interleave, adds the parts of each sum, applies the epilogue and stores the output at its place
// between those of other phases.
#pragma parameter SPLIT 1    // sums always pass through the workspace
#pragma parameter A_WINDOW 1 // each phase reads the image as an ordinary convolution does
#pragma parameter A_LAYOUT 0 // channels are innermost

#include "mma_options.cuh"

constexpr int WARPS_M = BLOCK_M / WARP_M, WARPS_N = BLOCK_N / WARP_N, THREADS = 32 * WARPS_M * WARPS_N;

#include "mma_floats.cuh"
#include "mma_epilogue.cuh"
#include "phases.cuh"

static_assert(ASYNC || B_LAYOUT == 0,
              "Copies through registers read lines after a step, which B by rows of n may not have.");
static_assert(SPLIT && A_WINDOW == 1 && A_LAYOUT == 0 && A_UNIT && B_UNIT,
              "Pixels are rows, their channels adjacent; sums leave through the workspace.");

// Requests the next step, and jumps if the following one is part of another tap.
DEVICE void request(const Params &params, Pipeline &pipeline, TapWalk &taps) {
    pipeline.request(params);
    pipeline.b.pieces.source = pipeline.b.pieces.source + taps.step();
}

#if INSTRUCTION == 5
// Like FloatMath::finish, with jumps between taps.
DEVICE void finish_sums(const Params &params, const Tile &tile, TapWalk taps, Math &math, int steps) {
    if (!math.any_lost())
        return math.for_each_sum([](float &sum) { sum = sum * LOWER; });
    cover("again");
    Pipeline::finish(); // as in FloatMath::sum_again
    math.for_each_sum([](float &sum) { sum = 0.0f; });
    Pipeline pipeline(params, tile);
    math.read = 0;
    ROLLED for (int s = 0; s < AHEAD; ++s) request(params, pipeline, taps);
    pipeline.receive();
    ROLLED for (int step = 0; within(step, steps); ++step) {
        request(params, pipeline, taps);
        math.add_plainly(math.accumulators[0], math.tile_b(0));
        pipeline.receive();
        math.read = Pipeline::next_stage(math.read);
    }
}
#else
DEVICE void finish_sums(const Params &params, const Tile &tile, const TapWalk &, Math &math, int steps) {
    math.finish(params, tile);
}
#endif

// Like compute_tile in contraction_mma.cu, with jumps between taps.
DEVICE void compute_phase(const Params &params, const Params &phase_params, const Tile &tile) {
    const int steps = divide_up(tile.k_end - tile.k_begin, BLOCK_K);
    const int warp = thread_index() >> 5, row = warp % WARPS_M * WARP_M, column = warp / WARPS_M * WARP_N;
    TapWalk taps = taps_of_block(params, tile);
    Pipeline pipeline(phase_params, tile);
    Math math(phase_params, tile, row, column);
    ROLLED for (int s = 0; s < AHEAD; ++s) request(phase_params, pipeline, taps);
    pipeline.receive();
    math.begin();
    for (int step = 0; within(step, steps); ++step) {
        if (step + AHEAD < steps)
            cover("steady");
        else
            cover("drain");
        math.compute(pipeline, [&]() { request(phase_params, pipeline, taps); });
    }
    finish_sums(phase_params, tile, taps_of_block(params, tile), math, steps);
    if constexpr (EPILOGUE_STAGED)
        Pipeline::finish(); // the slabs replace the tiles
    finish_warp(phase_params, tile, tile.row + row, tile.column + column, math.accumulators[0]);
}

KERNEL(contraction_phased_mma, Params, THREADS, MIN_BLOCKS) {
    launch_dependents();
    compute_block(params,
                  [&](const Params &phase_params, const Tile &tile) { compute_phase(params, phase_params, tile); });
}
