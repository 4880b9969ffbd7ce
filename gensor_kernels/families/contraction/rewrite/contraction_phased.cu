// A transposed convolution with a stride on the CUDA cores, phase by phase: y[pixel, filter] = epilogue(sum over the
// taps of the pixel's phase and the channels). Each phase is a product of its pixels and its taps, computed as by
// contraction_simt.cu (phases.cuh).
//
// The main launch stores the sums of every phase in the workspace, in as many parts as k is split into. A second
// launch, contraction_interleave, adds the parts of each sum, applies the epilogue and stores the output at its place
// between those of other phases.
#pragma parameter SPLIT 1    // sums always pass through the workspace
#pragma parameter A_WINDOW 1 // each phase reads the image as an ordinary convolution does
#pragma parameter A_LAYOUT 0 // channels are innermost

#include "simt_options.cuh"

constexpr int THREADS = BLOCK_M / THREAD_M * (BLOCK_N / THREAD_N);
static_assert(SPLIT && !EPILOGUE_STAGED, "Sums leave through the workspace.");
static_assert(A_WINDOW == 1 && A_LAYOUT == 0 && A_UNIT && B_UNIT, "Pixels are rows, their channels adjacent.");

#include "phases.cuh"
#include "simt_store.cuh"

// Like multiply_tile in contraction_simt.cu, with jumps between taps.
DEVICE void multiply_phase(const Params &params, const Tile &tile, TapWalk taps, const ThreadPlace &place,
                           Sum (&sums)[MATRICES][THREAD_M * THREAD_N]) {
    TileLoader<ShapeA> a(params, tile, entry_of_a(params, tile), tile.row, tile.end, params.a_m, 1);
    TileLoader<ShapeB> b(params, tile, entry_of_b(params, tile), tile.column, params.n, B_LAYOUT ? 1 : params.b_n,
                         B_LAYOUT ? params.b_k : 1);
    sptr<TileWord> current = shared_base().as<TileWord>(), next = current + (STAGES - 1) * TILE_WORDS;
    a.load_step(params);
    b.load_step(params);
    store_step(a, current);
    store_step(b, current + ShapeA::WORDS);
    barrier();
    for (int k = tile.k_begin; within(k, tile.k_end);) {
        k += BLOCK_K;
        if (k < tile.k_end)
            cover("steady");
        else
            cover("drain");
        b.pieces.source = b.pieces.source + taps.step();
        a.load_step(params);
        b.load_step(params);
        multiply_step(sums, current, current + ShapeA::WORDS, place);
        if (STAGES == 1)
            barrier();
        store_step(a, next);
        store_step(b, next + ShapeA::WORDS);
        barrier();
        const sptr<TileWord> read = current;
        current = next;
        next = read;
    }
}

KERNEL(contraction_phased, Params, THREADS, MIN_BLOCKS) {
    launch_dependents();
    compute_block(params, [&](const Params &phase_params, const Tile &tile) {
        const ThreadPlace place = thread_place();
        Sum sums[MATRICES][THREAD_M * THREAD_N] = {};
        multiply_phase(phase_params, tile, taps_of_block(params, tile), place, sums);
        ACC_TYPE outputs[THREAD_M * THREAD_N];
        resolve_sums(sums[0], outputs);
        store_sums_as_partials(phase_params, tile, place, outputs);
    });
}
