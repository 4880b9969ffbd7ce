// C[m, n] = epilogue(sum over k of A[m, k] * B[k, n]), batched, by Blackwell's products in tensor memory (tcgen05,
// sm_100a).
//
// A block computes tiles of 128 x BLOCK_N outputs, one after the other, with eight warps in three roles, which only
// mbarriers connect. One thread of warp 0 requests tiles of A and B by tensor copies (TMA) into a ring of STAGES
// buffers (tma_walk.cuh). One thread of warp 1 issues products, which read the buffers and add to sums in tensor
// memory; when a step's products are done, its buffer becomes empty. Warps 4 to 7 load the sums and store their rows of
// C through the epilogue (tma_store.cuh). Tensor memory has the sums of two tiles: one is stored while the next is
// multiplied.
//
// PAIR   the two blocks of a cluster multiply as one: 256 rows, of which each block has 128, by BLOCK_N columns, of
// which
//        each block fetches one half. A thread of the first block issues all products.
// PAIRS  a cluster has two pairs, side by side along m or n, which fetch tiles of B or A for each other
// (tcgen05_pairs.cuh).
// PARTS 3  floats are multiplied as three bfloat16 parts each (float_parts.cuh): products form short sums, which the
//        storing warps add to sums in registers. Tensor memory has four of them.
// BLOCK_SCALED  so are products of 8-bit floats: each step has a short sum, which is added times its scales. Eight
//        warps store, each 16 rows, with registers of the other warps.
// GATE   a block computes 128 x BLOCK_N / 2 outputs: the first half of the columns of a product belongs to the gate,
// the
//        second half to the other matrix (gate.cuh).
// ROW_SCALES  both operands are block-scaled: warps 2 and 3 copy their scales (tcgen05_scales.cuh). Of
//        numbers of four bits, k counts bytes.
//
// Shared bytes = 1024 + STAGES * (BLOCK_M + BLOCK_N / (PAIR ? 2 : 1)) * BLOCK_K * size of A_STORED + slabs, slabs =
// EPILOGUE_STAGED ? CONSUMERS * 256 * WARP_N : STORE_COPIES ? CONSUMERS * 16384 : 0; and with ROW_SCALES 2 *
// SECTORS_BYTES.
#pragma parameter IN_TYPE half_t    // elements of A and B: half_t, bfloat16_t, float (as tf32), i8
#pragma parameter A_STORED IN_TYPE  // stored elements of A: IN_TYPE; where it is half_t e4m3_t, e5m2_t, or e2m1x2_t
#pragma parameter B_STORED IN_TYPE  // the same for B
#pragma parameter OUT_TYPE half_t   // elements of C: half_t, bfloat16_t, float, i32, i8
#pragma parameter ACC_TYPE float    // sums: float; i32 for i8 operands
#pragma parameter A_LAYOUT 0        // contiguous axis of A: 0 = K, 1 = M
#pragma parameter B_LAYOUT 1        // contiguous axis of B: 0 = K, 1 = N
#pragma parameter A_WINDOW 0        // 1: A is an image under a window whose k is (filter row, filter column, channel)
#pragma parameter B_WINDOW 0        // 1: the same for B, of a packed or divided image
#pragma parameter PARTS 1           // 3: each element of A and B is a sum of three stored numbers
#pragma parameter ROW_SCALES 0      // scales of 32 bytes of k: 1 of 8-bit floats, 2 or 4 of e2m1x2_t; 0: none
#pragma parameter GATE 0            // the EpilogueCode of a gated product's function; 0: a plain product
#pragma parameter GATE_BIAS 0       // 1: a bias is added to both products first
#pragma parameter BLOCK_SCALED 0    // 1: A has a scale per row and 128 elements of k, B one per 128 x 128
#pragma parameter NORM 0            // 1 or 2: a second launch normalises rows (norm.cuh) by sums in the workspace
#pragma parameter C_UNIT 1          // 1: the columns of C are adjacent; 0: their stride is in Params
#pragma parameter C_VECTOR 16       // bytes per global access of C
#pragma parameter BLOCK_M 128       // rows of C per block
#pragma parameter BLOCK_N 256       // columns of C per block or pair; with GATE twice as many, of both matrices
#pragma parameter BLOCK_K 64        // extent of one step of the main loop along k
#pragma parameter STAGES 4          // shared buffers
#pragma parameter CONSUMERS 1       // times four warps that store: each has 32 rows, or with 2 of them 16
#pragma parameter PAIR 0            // 1: two blocks adjacent along m multiply as one
#pragma parameter PAIRS 0           // 1: two pairs along m share tiles of B; 2: along n, tiles of A
#pragma parameter SPLIT 0           // 1: blocks write partial sums to the workspace, contraction_reduce adds them
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter STORE_COPIES 0    // 1: through shared memory, by tensor copies
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1      // blocks per SM that launch bounds promise

constexpr int THREADS = 128 * (CONSUMERS + 1), PERSISTENT = 1, CLUSTER = PAIR ? 1 : 0;
constexpr int TILES_M = 1; // 16 rows of a warp at a time

#include "blackwell_scales.cuh"
#include "tma_requests.cuh"
#if PARTS > 1
#include "tma_recompute.cuh"
#endif
#include "tma_store.cuh"
#include "tcgen05_pairs.cuh"
#include "norm.cuh"
#include "tcgen05_short_sums.cuh"
#if ROW_SCALES
#include "tcgen05_scales.cuh"
#else
constexpr int WORDS = 0, SCALE_COLUMNS = 0;
#endif

constexpr int BLOCKS = PAIR ? 2 : 1;
constexpr u32 PRODUCT =
    instruction_descriptor<A_STORED, B_STORED>(BLOCK_M * BLOCKS, BLOCK_N, !TileA::K_CONTIGUOUS, !TileB::K_CONTIGUOUS);
constexpr bool SHORT_PLACES = PARTS > 1 || BLOCK_SCALED;
// Columns of tensor memory: of a tile's sums; of all sums that have room, two tiles' (of one next to many scales) or
// four short sums; and of the scales after them.
DEVICE constexpr int columns_of(int least) {
    return least > 256 ? 512 : least > 128 ? 256 : least > 64 ? 128 : least > 32 ? 64 : 32;
}
constexpr int SUM_COLUMNS = ROW_SCALES ? BLOCK_N : BLOCK_N > 16 ? columns_of(BLOCK_N) : 16;
constexpr int PLACES = SHORT_PLACES && BLOCK_N <= 128 ? 4 : 2 * SUM_COLUMNS + SCALE_COLUMNS > 512 ? 1 : 2;
constexpr int MEMORY_COLUMNS = columns_of(PLACES * SUM_COLUMNS + SCALE_COLUMNS);

// mbarriers after those of the ring: the sums of a place are complete; they have been loaded. Then the address of the
// tensor memory.
DEVICE sptr<u64> sums_full(int place) {
    return shared_base().as<u64>() + (2 * STAGES + place);
}
DEVICE sptr<u64> sums_empty(int place) {
    return shared_base().as<u64>() + (2 * STAGES + PLACES + place);
}
DEVICE sptr<u32> memory_address() {
    return (shared_base().as<u64>() + (2 * STAGES + 2 * PLACES)).as<u32>();
}

// Initializes the mbarriers, in one thread. A commit arrives at complete sums once, in both blocks of a pair, and at
// each empty buffer in all blocks of the cluster; the storing warps of both arrive at the sums of the first, and those
// that copy scales at its scales.
DEVICE void make_barriers() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), PAIRS ? 2 : 1);
    }
    UNROLL for (int place = 0; place < PLACES; ++place) {
        mbarrier_init(sums_full(place), 1);
        mbarrier_init(sums_empty(place), 4 * CONSUMERS * BLOCKS);
    }
#if ROW_SCALES
    UNROLL for (int buffer = 0; buffer < 2; ++buffer) {
        mbarrier_init(scales_full(buffer), BLOCKS);
        mbarrier_init(scales_empty(buffer), 1);
    }
#endif
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

// Sums take the places of tensor memory in turn.
struct SumsPlace {
    int number = 0;
    u32 parity = 0;
    MEMBER void next() {
        if (++number == PLACES)
            number = 0, parity ^= 1;
    }
    MEMBER u32 columns(u32 memory) const { return memory + (u32)(number * SUM_COLUMNS); }
};

// Issues products in one thread: the sums of a tile, or short sums.
struct Products {
    const u32 memory;
    const u64 a = tensor_descriptor(TileA::descriptor(tiles(0), 0));
    const u64 b = tensor_descriptor(TileB::descriptor(tiles(0) + TileA::BYTES, 0));
#if ROW_SCALES
    ScaleColumns scales = {memory + PLACES * SUM_COLUMNS};
#endif
    Turn turn;
    SumsPlace place;

    // Waits until the sums that were in the place have been loaded.
    MEMBER void begin_sums() const {
        mbarrier_wait(sums_empty(place.number), place.parity ^ 1);
        if constexpr (PARTS > 1) // else the step's fence follows
            tensor_fence_after();
    }
    MEMBER void end_sums() {
        umma_commit<BLOCKS>(sums_full(place.number), blocks_of_pair());
        place.next();
    }
    // Multiplies box `part_a` of A by box `part_b` of B, from element k of each on: one product of a step.
    MEMBER void multiply(int k, bool kept, int part_a = 0, int part_b = 0) const {
        const int slot = turn.slot * SLOT_BYTES;
        const u64 of_a = further(a, slot + part_a * TileA::BOX_BYTES + TileA::k_offset(k));
        const u64 of_b = further(b, slot + part_b * TileB::BOX_BYTES + TileB::k_offset(k));
#if ROW_SCALES
        scales.template multiply<BLOCKS>(place.columns(memory), of_a, of_b, k, kept);
#else
        umma<BLOCKS, A_STORED>(place.columns(memory), of_a, of_b, PRODUCT, kept);
#endif
    }
    // All products of a step; `first`: of the tile's first one.
    MEMBER void multiply_step(bool first) {
#if PARTS > 1
        constexpr int OF_A[SMALL_PRODUCTS] = PARTS_OF_A, OF_B[SMALL_PRODUCTS] = PARTS_OF_B;
        begin_sums();
        UNROLL for (int p = 0; p < SMALL_PRODUCTS; ++p) UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP)
            multiply(k, p + k > 0, OF_A[p], OF_B[p]);
        end_sums();
        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) {
            begin_sums();
            multiply(k, false);
            if (k == BLOCK_K - K_STEP)
                empty_buffer(); // before the last sums are complete, after which the block may end
            end_sums();
        }
#else
#if ROW_SCALES
        scales.template copy<BLOCKS>();
#endif
        UNROLL for (int k = 0; k < BLOCK_K; k += K_STEP) multiply(k, !first || k > 0);
        empty_buffer();
#endif
    }
    MEMBER void empty_buffer() const { umma_commit<BLOCKS>(empty(turn.slot), ALL_BLOCKS); }
    MEMBER void multiply_tile(int steps) {
        if constexpr (!SHORT_PLACES)
            begin_sums();
        for (int step = 0; within(step, steps); ++step) {
            if (step + 1 < steps)
                cover("steady");
            else
                cover("drain");
            if constexpr (BLOCK_SCALED)
                begin_sums();
            mbarrier_wait(full(turn.slot), turn.parity);
#if ROW_SCALES
            scales.begin_step();
#endif
            tensor_fence_after();
            multiply_step(BLOCK_SCALED || step == 0);
            if constexpr (BLOCK_SCALED)
                end_sums();
#if ROW_SCALES
            scales.template end_step<BLOCKS>(step + 1 == steps);
#endif
            turn.next();
        }
        if constexpr (!SHORT_PLACES)
            end_sums();
    }
};

// One thread issues the products of all tiles. With RAGGED_ROWS all lanes of its warp search for the group of a tile.
DEVICE void multiply_tiles(const MappedParams &params, u32 memory) {
    const bool elected = elect_one();
    if (!RAGGED_ROWS && !elected)
        return;
    Products products = {memory};
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        if (elected)
            products.multiply_tile(steps_of(params, tile).count);
    });
}

// The sums that a warp loads: of rows 32 * own to 32 * own + 31 of the block.
struct Loads {
    const u32 memory;
    const int own = warp_uniform(thread_index() >> 5 & 3);
    SumsPlace place;

    MEMBER void begin() const {
        mbarrier_wait(sums_full(place.number), place.parity);
        tensor_fence_after();
    }
    // The address of column `column` of 16 rows.
    MEMBER u32 at(int half, int column) const {
        return place.columns(memory) + ((u32)(own * 32 + half * 16) << 16) + (u32)column;
    }
    // Reports that this warp has loaded the sums, to the block that issues the products.
    MEMBER void end() {
        tensor_fence_before();
        warp_barrier();
        if ((thread_index() & 31) == 0) {
            if constexpr (PAIR)
                mbarrier_arrive_at(sums_empty(place.number), first_of_pair());
            else
                mbarrier_arrive(sums_empty(place.number));
        }
        place.next();
    }
};

#if PARTS > 1 || BLOCK_SCALED
// Adds the short sums of a step to the sums of a warp's rows, from those of half `first` on. A piece of 16 rows is
// loaded while the one before it is added.
DEVICE void add_short_sums(Loads &loads, int first, const StepScales &scales, Sums (&sums)[HALVES]) {
    constexpr int ROW_PIECES = BLOCK_N / PIECE, COUNT = HALVES * ROW_PIECES;
    UNROLL for (int i = 0; i < (BLOCK_SCALED ? 1 : 1 + BLOCK_K / K_STEP); ++i) {
        float piece[2][PIECE / 2];
        loads.begin();
        tensor_load<PIECE>(piece[0], loads.at(first, 0));
        UNROLL for (int p = 0; p < COUNT; ++p) {
            const int half = p / ROW_PIECES, column = p % ROW_PIECES * PIECE, next = p + 1;
            tensor_load_wait(piece[p % 2]);
            if (next < COUNT)
                tensor_load<PIECE>(piece[next % 2], loads.at(first + next / ROW_PIECES, next % ROW_PIECES * PIECE));
            else
                loads.end();
            UNROLL for (int v = 0; v < PIECE / 2; v += 2)
                scales.add(&sums[half][0][column / 2 + v], &piece[p % 2][v], column, v >> 1 & 1);
        }
    }
}
#endif

// Four or eight warps store the rows of every tile, 16 of a warp's rows at a time.
DEVICE void store_tiles(const MappedParams &params, u32 memory) {
    Loads loads = {memory};
    const int first = first_half();
    walk_tiles(params, [&](const Tile &tile, int, const TileShare &) {
        const int steps = steps_of(params, tile).count, row = (loads.own + first) * 16;
        UNROLL for (int half = 0; half < HALVES; ++half) prefetch_tile(params, tile, row + half * 16);
#if PARTS > 1 || BLOCK_SCALED
        Sums sums[HALVES] = {};
        StepScales step_scales(params, tile, row);
        for (int step = 0; within(step, steps); ++step) {
            step_scales.begin_step();
            add_short_sums(loads, first, step_scales, sums);
        }
        UNROLL for (int half = 0; half < HALVES; ++half) {
#if PARTS > 1
            finish_float_sums(params, tile, row + half * 16, sums[half]);
#endif
            finish_group(params, tile, row + half * 16, sums[half]);
        }
#else
        loads.begin();
        ROLLED for (int half = 0; half < 2; ++half) {
            Sums sums = {};
            if (within(0, steps)) {
                tensor_load<BLOCK_N>(sums[0], loads.at(half, 0));
                tensor_load_wait(sums[0]);
            }
            if (half == 1)
                loads.end();
            gate_sums(params, tile, sums);
            finish_group(params, tile, row + half * 16, sums);
        }
#endif
    });
    wait_for_stores();
}

// The work of a block.
DEVICE void compute_tiles(const MappedParams &params, u32 memory) {
    const int warp = warp_uniform(thread_index() / 32);
    if (warp >= 4) {
        if constexpr (CONSUMERS > 1)
            take_registers<ENTRY, TAKEN>();
        store_tiles(params, memory);
    } else {
        if constexpr (CONSUMERS > 1)
            give_registers<ENTRY, GIVEN>();
        if (warp == 0)
            produce_tiles(params);
        else if (warp == 1 && (!PAIR || rank_in_cluster() == 0))
            multiply_tiles(params, memory);
#if ROW_SCALES
        else if (warp >= 2)
            copy_scales(params);
#endif
    }
    meet();
    if (warp == 1) {
        warp_barrier(); // its lanes may have left the barrier one by one
        tensor_fence_after();
        tensor_free<BLOCKS, MEMORY_COLUMNS>(memory);
    }
}

#if PAIR
#define TCGEN05_KERNEL(name) CLUSTERED_KERNEL(name, MappedParams, THREADS, MIN_BLOCKS, (PAIRS ? 2 * PEERS : PEERS))
#else
#define TCGEN05_KERNEL(name) KERNEL(name, MappedParams, THREADS, MIN_BLOCKS)
#endif

#ifdef AFTER_ANOTHER // the name of a main launch that waits for an earlier one
TCGEN05_KERNEL(AFTER_ANOTHER) {
    const u32 memory = set_up(params);
    grid_dependency_wait();
    compute_tiles(params, memory);
}
#else
TCGEN05_KERNEL(contraction_tcgen05) {
    const u32 memory = set_up(params);
    compute_tiles(params, memory);
}
#endif
