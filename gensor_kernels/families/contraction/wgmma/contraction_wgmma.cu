// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]), batched, by Hopper's warpgroup products (wgmma, sm_90a).
//
// A block computes BLOCK_M x BLOCK_N outputs with CONSUMERS + 1 warpgroups of four warps. One thread of the first
// warpgroup requests tiles of A and B by tensor copies (TMA), which fill a ring of STAGES buffers; mbarriers report
// when a buffer is full or empty (wgmma_ring.cuh). The other warpgroups multiply the tiles and store their rows of C
// through the epilogue (tma_store.cuh); they also take over registers of the first one (setmaxnreg). Copies read
// zeros past the edges of A and B. The 128-byte rows of a buffer are swizzled, so there are no bank conflicts.
//
// PERSISTENT  a block computes several tiles. The ring does not stop between them: tiles of A and B are on their way
//             while results are stored. With STREAM a block computes shares of tiles (wgmma_stream.cuh). With 3 each
//             warpgroup is some steps later than the one before it, and multiplies while that one stores its results.
// CLUSTER     two adjacent blocks share the tiles of one operand: each requests one half, which is copied to both.
// A_WINDOW    a convolution: rows of A are pixels under the taps of a filter, which copies find in the image
//             (tma_requests.cuh). With B_WINDOW columns of B are the pixels, of an image that an earlier launch
//             packed (contraction_packed_wgmma.cu) or divided (contraction_floats_wgmma.cu).
// GATE        a block computes BLOCK_M x BLOCK_N / 2 outputs: the first half of the columns of a product belongs to the
//             gate, the second half to the other matrix (gate.cuh).
// PARTS 3     floats are multiplied as three bfloat16 parts each (wgmma_floats.cuh).
//
// Shared bytes = 1024 + max(STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K * size of A_STORED * PARTS, slabs), slabs =
// EPILOGUE_STAGED ? CONSUMERS * 256 * WARP_N : STORE_COPIES ? CONSUMERS * 16384 : 0; with PERSISTENT the sum of both.
#pragma parameter IN_TYPE half_t    // elements of A and B: half_t, bfloat16_t, float (as tf32), i8
#pragma parameter A_STORED IN_TYPE  // stored elements of A: IN_TYPE; or e4m3_t or e5m2_t where IN_TYPE is half_t
#pragma parameter B_STORED IN_TYPE  // the same for B
#pragma parameter OUT_TYPE half_t   // elements of C: half_t, bfloat16_t, float, i32, i8
#pragma parameter ACC_TYPE float    // accumulators: float; i32 for i8 operands
#pragma parameter A_LAYOUT 0        // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1        // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_WINDOW 0        // 1: A is an image under a window whose k is (filter row, filter column, channel)
#pragma parameter B_WINDOW 0        // 1: the same for B, of a packed image
#pragma parameter PARTS 1           // 3: each element of A and B is a sum of three stored numbers
#pragma parameter GATE 0            // the EpilogueCode of a gated product's function; 0: a plain product
#pragma parameter GATE_BIAS 0       // 1: a bias is added to both products first
#pragma parameter BLOCK_SCALED 0    // 1: A has a scale per row and 128 elements of k, B one per 128 x 128
#pragma parameter OVERLAPPED 0      // 1: sums of 8-bit floats are added while the next products run
#pragma parameter NORM 0            // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter C_UNIT 1          // 1: the columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16       // bytes per global access of C
#pragma parameter BLOCK_M 128       // rows of C per block
#pragma parameter BLOCK_N 128       // columns of C per block; with GATE twice as many, of both matrices
#pragma parameter BLOCK_K 64        // extent of one step of the main loop along k
#pragma parameter STAGES 4          // shared buffers
#pragma parameter CONSUMERS 2       // warpgroups that multiply
#pragma parameter PERSISTENT 0      // 1: a block computes several tiles; 2: its warpgroups take turns; 3: are apart
#pragma parameter STREAM 0          // 1: blocks, all resident, share the steps of k of all tiles (stream_k.cuh)
#pragma parameter CLUSTER 0         // 1: two blocks adjacent along m share tiles of B; 2: along n, tiles of A
#pragma parameter SPLIT 0           // 1: blocks write partial sums to the workspace, contraction_reduce adds them
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter STORE_COPIES 0    // 1: through shared memory, by tensor copies
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1      // blocks per SM that launch bounds promise

constexpr bool ALTERNATING = PERSISTENT == 2;
constexpr int THREADS = 128 * (CONSUMERS + 1), TILES_M = BLOCK_M / (64 * (ALTERNATING ? 1 : CONSUMERS));
#include "wgmma_scales.cuh"
#if PARTS > 1
#include "wgmma_floats.cuh"
#endif
#include "tma_requests.cuh"
#if PARTS > 1
#include "tma_recompute.cuh"
#endif
#include "tma_store.cuh"
#include "tma_walk.cuh"
#include "wgmma_stream.cuh"
#include "norm.cuh"

// Registers of each thread at entry; afterwards of the threads that request tiles, and of those that multiply.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = CONSUMERS == 3 ? 32 : 40;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);

// Prepares the block before it reads global memory, while the launch before this one may still run.
DEVICE void set_up(const MappedParams &params) {
    if constexpr (SPLIT)
        launch_dependents();
    if (warp_uniform(thread_index() / 32) == 0 && elect_one()) {
        prefetch_maps(params);
        make_ring();
    }
    if constexpr (CLUSTER)
        cluster_begin();
    else
        barrier();
}

// Reports that the next warpgroup may multiply: all that this one reads of its tile has been copied.
DEVICE void pass_turn() {
    if (ALTERNATING && (thread_index() & 31) == 0)
        mbarrier_arrive(turn_of(thread_index() / 128 % CONSUMERS));
}

// The main loop: a warpgroup multiplies the tiles of `steps` steps, from row `row` of the block's tile on. The products
// of a step run while those of the next step are issued; then the buffer of the earlier step is released. Without any
// step there is no wait for products: if both paths met before a wait, the compiler would copy sums that products still
// write, and serialize the products.
DEVICE void multiply_steps(Sums &sums, int steps, int row, Turn &turn, [[maybe_unused]] StepScales scales) {
    if (!within(0, steps)) {
        if constexpr (ALTERNATING)
            warp_barrier(); // all lanes have waited for this turn; with a step, products synchronize the lanes
        pass_turn();
        return;
    }
    const u64 a = TileA::descriptor(tiles(0), row), b = TileB::descriptor(tiles(0) + TileA::BYTES, 0);
#if OVERLAPPED
    OverlappedSteps{sums, a, b, turn, scales, {}}.run(steps);
    pass_turn();
#else
    [[maybe_unused]] TileSums products = {};
    int before = 0, step = 0;
    do {
        if (step + 1 < steps)
            cover("steady");
        else
            cover("drain");
        mbarrier_wait(full(turn.slot), turn.parity);
        const u64 slot_a = further(a, turn.slot * SLOT_BYTES), slot_b = further(b, turn.slot * SLOT_BYTES);
        if constexpr (SHORT_SUMS) {
#if PARTS > 1
            multiply_parts(sums, products, slot_a, slot_b, scales);
#else
            multiply_promoted(sums, products, slot_a, slot_b, scales);
#endif
            release(turn.slot);
        } else {
            multiply_step(sums, slot_a, slot_b);
            wgmma_wait<1>();
            hold(sums);
            if (within(0, step))
                release(before);
        }
        before = turn.slot;
        turn.next();
    } while (within(++step, steps));
    pass_turn();
    if constexpr (!SHORT_SUMS) {
        wgmma_wait<0>();
        hold(sums);
        if constexpr (PERSISTENT)
            release(before);
    }
#endif
}

// Lets the warpgroups before this one multiply some steps of a tile first: waits until the buffer of a later step is
// full. It becomes so without this warpgroup, which has released all buffers.
DEVICE void stay_apart(int group, int steps, Turn later) {
    const int apart = minimum(group * (STAGES - 1) / (CONSUMERS - (CONSUMERS > 1)), steps - 1);
    if (apart > 0) {
        later.skip(apart);
        mbarrier_wait(full(later.slot), later.parity);
    }
}

// A warpgroup computes its rows of every tile, or ALTERNATING all rows of every CONSUMERS-th tile: then it stores its
// results while another warpgroup multiplies.
DEVICE void multiply_tiles(const MappedParams &params, int group) {
    const int row = ALTERNATING ? 0 : group * 64 * TILES_M;
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int before, const TileShare &share) {
        const int steps = steps_of(params, tile).count;
        if (ALTERNATING && before % CONSUMERS != group) {
            cover("another_group");
            turn.skip(steps);
            return;
        }
        if constexpr (ALTERNATING)
            mbarrier_wait(turn_of(group), (u32)(before / CONSUMERS & 1) ^ (group == 0));
        if constexpr (!STREAM)
            prefetch_tile(params, tile, row);
        if constexpr (PERSISTENT == 3)
            stay_apart(group, steps, turn);
        Sums sums = {};
        multiply_steps(sums, steps, row, turn, StepScales(params, tile, row));
        if (!join_shares(params, share, sums))
            return;
#if PARTS > 1
        finish_float_sums(params, tile, row, sums);
#endif
        sync_before_slabs();
        gate_sums(params, tile, sums);
        finish_group(params, tile, row, sums);
    });
    wait_for_stores();
}

// The work of a block: the first warp of warpgroup 0 requests tiles, the other warpgroups multiply them.
DEVICE void compute_tiles(const MappedParams &params) {
    const int group = warp_uniform(thread_index() / 128); // a uniform number keeps descriptors in uniform registers
    if (group == 0) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp_uniform(thread_index() / 32) == 0)
            produce_tiles(params);
        sync_before_slabs();
        sync_before_exit();
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        multiply_tiles(params, group - 1);
        sync_before_exit();
    }
}

#if CLUSTER
#define WGMMA_KERNEL(name) CLUSTERED_KERNEL(name, MappedParams, THREADS, MIN_BLOCKS, PEERS)
#else
#define WGMMA_KERNEL(name) KERNEL(name, MappedParams, THREADS, MIN_BLOCKS)
#endif

#ifdef AFTER_ANOTHER // the name of a main launch that waits for an earlier one
WGMMA_KERNEL(AFTER_ANOTHER) {
    set_up(params);
    grid_dependency_wait();
    compute_tiles(params);
}
#else
WGMMA_KERNEL(contraction_wgmma) {
    set_up(params);
    compute_tiles(params);
}
#endif
