// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]), batched, by Blackwell's products in tensor memory (tcgen05,
// sm_100a).
//
// A block computes tiles of 128 x BLOCK_N outputs, one after the other, with eight warps in three roles, which only
// mbarriers connect. One thread of warp 0 requests tiles of A and B by tensor copies (TMA) into a ring of STAGES buffers
// (tma_walk.cuh). One thread of warp 1 issues products, which read the buffers and add to sums in tensor memory; when a
// step's products are done, its buffer becomes empty. Warps 4 to 7 load the sums and store their rows of C through the
// epilogue (tma_store.cuh). Tensor memory has the sums of two tiles: one is stored while the next is multiplied.
//
// PAIR   the two blocks of a cluster multiply as one: 256 rows, of which each block has 128, by BLOCK_N columns, of which
//        each block fetches one half. A thread of the first block issues all products.
// GATE   a block computes 128 x BLOCK_N / 2 outputs: the first half of the columns of a product belongs to the gate, the
//        second half to the other matrix (gate.cuh).
//
// Shared bytes = 1024 + STAGES * (BLOCK_M + BLOCK_N / (PAIR ? 2 : 1)) * BLOCK_K * size of A_STORED + slabs, slabs =
// EPILOGUE_STAGED ? 256 * WARP_N : STORE_COPIES ? 16384 : 0.
#pragma parameter IN_TYPE half_t    // elements of A and B: half_t, bfloat16_t, float (as tf32), i8
#pragma parameter A_STORED IN_TYPE  // stored elements of A: IN_TYPE; or e4m3_t or e5m2_t where IN_TYPE is half_t
#pragma parameter B_STORED IN_TYPE  // the same for B
#pragma parameter OUT_TYPE half_t   // elements of C: half_t, bfloat16_t, float, i32, i8
#pragma parameter ACC_TYPE float    // sums: float; i32 for i8 operands
#pragma parameter A_LAYOUT 0        // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1        // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_WINDOW 0        // 1: A is an image under a window whose k is (filter row, filter column, channel)
#pragma parameter B_WINDOW 0        // images are rows only
#pragma parameter PARTS 1           // each element is one stored number
#pragma parameter GATE 0            // the EpilogueCode of a gated product's function; 0: a plain product
#pragma parameter GATE_BIAS 0       // 1: a bias is added to both products first
#pragma parameter NORM 0            // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter C_UNIT 1          // 1: the columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16       // bytes per global access of C
#pragma parameter BLOCK_M 128       // rows of C per block
#pragma parameter BLOCK_N 256       // columns of C per block or pair; with GATE twice as many, of both matrices
#pragma parameter BLOCK_K 64        // extent of one step of the main loop along k
#pragma parameter STAGES 4          // shared buffers
#pragma parameter PAIR 0            // 1: two blocks adjacent along m multiply as one
#pragma parameter SPLIT 0           // 1: blocks write partial sums to the workspace, contraction_reduce adds them
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter STORE_COPIES 0    // 1: through shared memory, by tensor copies
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1      // blocks per SM that launch bounds promise

constexpr int THREADS = 256, PERSISTENT = 1, CLUSTER = PAIR ? 1 : 0;
constexpr int TILES_M = 1; // 16 rows of a warp at a time

#include "blackwell.cuh"
#include "tma_requests.cuh"
#include "tma_store.cuh"
#include "tma_walk.cuh"
#include "norm.cuh"

constexpr int BLOCKS = PAIR ? 2 : 1;
constexpr u32 PRODUCT = instruction_descriptor<A_STORED, B_STORED>(BLOCK_M * BLOCKS, BLOCK_N, !TileA::K_CONTIGUOUS,
                                                                   !TileB::K_CONTIGUOUS);
// Columns of tensor memory: of a tile's sums, and of two tiles'.
constexpr int SUM_COLUMNS = BLOCK_N > 128 ? 256 : BLOCK_N > 64 ? 128 : BLOCK_N > 32 ? 64 : BLOCK_N > 16 ? 32 : 16;
constexpr int MEMORY_COLUMNS = 2 * SUM_COLUMNS;

// mbarriers after those of the ring: the sums of a tile are complete; they have been loaded. Then the address of the
// tensor memory.
DEVICE sptr<u64> sums_full(int which) {
    return shared_base().as<u64>() + (2 * STAGES + which);
}
DEVICE sptr<u64> sums_empty(int which) {
    return shared_base().as<u64>() + (2 * STAGES + 2 + which);
}
DEVICE sptr<u32> memory_address() {
    return (shared_base().as<u64>() + (2 * STAGES + 4)).as<u32>();
}

// Initializes the mbarriers, in one thread. A commit arrives at each empty buffer and at complete sums once, in both
// blocks of a pair; the storing warps of both arrive at the sums of the first.
DEVICE void make_barriers() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), 1);
    }
    UNROLL for (int which = 0; which < 2; ++which) {
        mbarrier_init(sums_full(which), 1);
        mbarrier_init(sums_empty(which), 4 * BLOCKS);
    }
    mbarrier_fence();
}

DEVICE void meet() {
    if constexpr (PAIR)
        cluster_barrier();
    else
        barrier();
}

// Prepares the block before it reads global memory, while the launch before this one may still run. Returns the address
// of its tensor memory.
DEVICE u32 set_up(const MappedParams &params) {
    if constexpr (SPLIT)
        launch_dependents();
    const int warp = warp_uniform(thread_index() / 32);
    if (warp == 0 && elect_one()) {
        prefetch_maps(params);
        make_barriers();
    }
    if (warp == 1) {
        tensor_alloc<BLOCKS, MEMORY_COLUMNS>(memory_address());
        tensor_alloc_last<BLOCKS>();
    }
    meet();
    return load_shared<4>(memory_address()).template get<u32>(0);
}

// The address of a tile's sums: tiles use both halves in turn.
DEVICE u32 sums_of(u32 memory, int before) {
    return memory + (u32)(before & 1) * SUM_COLUMNS;
}

// One thread issues the products of all steps of a tile, once the sums of the tile before last have been loaded. With
// RAGGED_ROWS all lanes of its warp search for the group of a tile.
DEVICE void multiply_tiles(const MappedParams &params, u32 memory) {
    const bool elected = elect_one();
    if (!RAGGED_ROWS && !elected)
        return;
    const u64 a = tensor_descriptor(TileA::descriptor(tiles(0), 0));
    const u64 b = tensor_descriptor(TileB::descriptor(tiles(0) + TileA::BYTES, 0));
    Turn turn;
    walk_tiles(params, [&](const Tile &tile, int before, const TileShare &) {
        if (!elected)
            return;
        const int steps = steps_of(params, tile).count;
        mbarrier_wait(sums_empty(before & 1), (u32)(before >> 1 & 1) ^ 1);
        for (int step = 0; within(step, steps); ++step) {
            if (step + 1 < steps)
                cover("steady");
            else
                cover("drain");
            mbarrier_wait(full(turn.slot), turn.parity);
            tensor_fence_after();
            const u64 slot_a = further(a, turn.slot * SLOT_BYTES), slot_b = further(b, turn.slot * SLOT_BYTES);
            UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP)
                umma<BLOCKS, A_STORED>(sums_of(memory, before), further(slot_a, TileA::k_offset(k)),
                                       further(slot_b, TileB::k_offset(k)), PRODUCT, step > 0 || k > 0);
            umma_commit<BLOCKS>(empty(turn.slot));
            turn.next();
        }
        umma_commit<BLOCKS>(sums_full(before & 1));
    });
}

// Reports that this warp has loaded the sums of a tile, to the block that issues the products.
DEVICE void free_sums(int which) {
    tensor_fence_before();
    warp_barrier();
    if ((thread_index() & 31) == 0) {
        if constexpr (PAIR)
            mbarrier_arrive_at(sums_empty(which), 0);
        else
            mbarrier_arrive(sums_empty(which));
    }
}

// Four warps store the rows of every tile, 16 of a warp's 32 at a time.
DEVICE void store_tiles(const MappedParams &params, u32 memory) {
    const int own = warp_uniform(thread_index() >> 5 & 3); // rows 32 * own to 32 * own + 31
    walk_tiles(params, [&](const Tile &tile, int before, const TileShare &) {
        UNROLL for (int half = 0; half < 2; ++half) prefetch_tile(params, tile, (own + half) * 16);
        const bool multiplied = within(0, steps_of(params, tile).count);
        mbarrier_wait(sums_full(before & 1), (u32)(before >> 1 & 1));
        tensor_fence_after();
        ROLLED for (int half = 0; half < 2; ++half) {
            Sums sums = {};
            if (multiplied) {
                tensor_load<BLOCK_N>(sums[0], sums_of(memory, before) + ((u32)(own * 32 + half * 16) << 16));
                tensor_load_wait(sums[0]);
            }
            if (half == 1)
                free_sums(before & 1);
            gate_sums(params, tile, sums);
            finish_group(params, tile, (own + half) * 16, sums);
        }
    });
    wait_for_stores();
}

#if PAIR
#define TCGEN05_KERNEL(name) CLUSTERED_KERNEL(name, MappedParams, THREADS, MIN_BLOCKS, PEERS)
#else
#define TCGEN05_KERNEL(name) KERNEL(name, MappedParams, THREADS, MIN_BLOCKS)
#endif

TCGEN05_KERNEL(contraction_tcgen05) {
    const u32 memory = set_up(params);
    const int warp = warp_uniform(thread_index() / 32);
    if (warp == 0)
        produce_tiles(params);
    else if (warp == 1 && (!PAIR || rank_in_cluster() == 0))
        multiply_tiles(params, memory);
    else if (warp >= 4)
        store_tiles(params, memory);
    tensor_fence_before();
    meet();
    if (warp == 1) {
        tensor_fence_after();
        tensor_free<BLOCKS, MEMORY_COLUMNS>(memory);
    }
}
