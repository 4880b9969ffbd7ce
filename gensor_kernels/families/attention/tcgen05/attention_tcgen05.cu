// C = softmax(scale * Q K^T + mask) V on Blackwell's products in tensor memory (tcgen05, sm_100a), batched, for heads
// of any size up to 256.
//
// A block computes up to BLOCK_Q rows, tiles of 128 rows of CONSUMERS = BLOCK_Q / 128 warpgroups, with warps in three
// roles, which only mbarriers connect. One thread requests tensor copies (TMA) of Q and of tiles of keys and values, as
// in attention_wgmma.cu (attention_requests.cuh). One thread issues the products of all tiles of rows. A warpgroup
// loads its scores from tensor memory, and stores their weights, in 16 bits, in the place of the scores: there they are
// the left operand of the second product, whose sums stay in tensor memory too. While a warpgroup computes its softmax,
// the products of the other one run (Zadouri et al., FlashAttention-4, 2026). Sums are brought into the measure of a
// new largest score only if it exceeds the old one by more than 8 powers of two, or with polynomials, which end at 2,
// by more than one: weights stay below 256, and the division by their total ends in the same result.
// Rows, splits, masks, the order of tiles, diagonals, sinks and logarithms are as in attention_wgmma.cu.
//
// Shared bytes = 1024 + max(BOXES * 128 * (BLOCK_Q + 8 + STAGES * BLOCK_KEYS) + MASK_STAGES * MASK_BYTES,
//                           EPILOGUE_STAGED ? BLOCK_Q / 2 * HEAD * 4 : 0)

#pragma parameter IN_TYPE half_t  // elements of Q, K and V: half_t, bfloat16_t
#pragma parameter OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float
#pragma parameter ACC_TYPE float  // accumulators
#pragma parameter C_UNIT 1        // 1: elements of a head of C have stride 1; 0: the stride is in Params
#pragma parameter C_VECTOR 16     // bytes per global access of C
#pragma parameter MASK 0 // 0: no mask; 1: scores where it is not 0 are kept; 2: it is added to the scaled scores
#pragma parameter MASK_TYPE float   // elements of the mask: i8 with MASK 1, else half_t, bfloat16_t, float
#pragma parameter MASK_UNIT 1       // 1: keys are adjacent in it
#pragma parameter MASK_VECTOR 4     // bytes per global access of it: one element or two
#pragma parameter MASK_STAGES 0     // shared tiles of the mask; 0: each thread reads its elements from global memory
#pragma parameter SLIDING 0         // 1: a window also limits the first key that a query sees
#pragma parameter SOFTCAP 0         // 1: scores have a soft cap
#pragma parameter SINKS 0           // 1: there are sinks
#pragma parameter SINK_TYPE float   // elements of the sinks: half_t, bfloat16_t, float
#pragma parameter LSE 0             // 1: logarithms of the denominators are stored
#pragma parameter HEAD 128          // elements of a head that are multiplied; the real size may be less
#pragma parameter BLOCK_Q 256       // rows of a block's tiles
#pragma parameter BLOCK_KEYS 128    // keys of one step of the main loop
#pragma parameter SCORE_TILES 1     // tiles of scores of a warpgroup in tensor memory
#pragma parameter STAGES 3          // shared tiles of K or V
#pragma parameter RAGGED 0          // 1: sequences have different numbers of queries
#pragma parameter KEYS_IN 0         // 0: as many keys for every batch entry; 1: sequences one after the other
#pragma parameter LONGEST_FIRST 0   // 1: the longest blocks of several entries start first (attention_order.cuh)
#pragma parameter POLYNOMIALS 0     // eighths of the exponentials that are polynomials (attention_powers.cuh)
#pragma parameter SPLIT 0           // 1: blocks store partial sums in the workspace, attention_combine finishes
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 1      // blocks per SM promised to the compiler

enum MaskKind { MASK_NONE, MASK_KEPT, MASK_ADDED };
enum KeysKind { KEYS_DENSE, KEYS_PACKED, KEYS_PAGED };
// The names of the shared headers. A warp has 32 rows, 16 at a time.
constexpr int BLOCK_K = BLOCK_KEYS, WARP_M = 16, WARP_N = HEAD, FRAGMENTS_M = 1, FRAGMENTS_N = HEAD / 8;
constexpr int CONSUMERS = BLOCK_Q / 128, THREADS = 128 * (CONSUMERS + 1);
constexpr bool WHOLE_QUERIES = true; // rows of a block are all heads of a group of its queries
constexpr int SLABS = 1024;          // offset of the slabs of the staged epilogue in shared memory

#include "attention_requests.cuh"
#include "attention_rows.cuh"

#include "attention_finish.cuh"
#include "attention_mask.cuh"

#if MASK && !MASK_STAGES
using RowsMask = MaskTile;
#endif

// Registers of each thread at entry, and after the exchange.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = 48;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);
// The warps that request tiles, and that issue products.
constexpr int REQUESTS = 4 * CONSUMERS, MULTIPLIES = REQUESTS + 1;

// Gives a buffer back once its products are done. A commit orders products before the next copy, but not the stores of
// clear_values, which this thread knows of by the arrivals of weights.
DEVICE void empty_buffer(int slot) {
    umma_commit<1>(empty(slot));
    if constexpr (RAGGED)
        mbarrier_arrive(empty(slot));
}

// Issues the products of a block, in one thread, which has few registers: with all loops unrolled, descriptors would be
// computed long before their products.
struct Products {
    static constexpr u32 OF_SCORES = instruction_descriptor<IN_TYPE, IN_TYPE>(128, BLOCK_K, false, false);
    static constexpr u32 OF_VALUES = instruction_descriptor<IN_TYPE, IN_TYPE>(128, HEAD, false, true);
    const u32 memory;
    u64 queries, first_keys, first_values; // descriptors

    MEMBER explicit Products(u32 memory) : memory(memory) {
        queries = tensor_descriptor(matrix_descriptor(shared_base() + QUERIES, 16, ATOM));
        first_keys = tensor_descriptor(matrix_descriptor(tile_in(0), 16, ATOM));
        first_values = tensor_descriptor(matrix_descriptor(tile_in(0), TILE_BOX, ATOM));
    }

    // Scores of a warpgroup's rows.
    MEMBER void multiply_keys(int group, int step, int slot) const {
        const u64 q = further(queries, group * 128 * 128), k = further(first_keys, slot * SLOT_BYTES);
        UNROLL_BY_4 for (int i = 0; i < HEAD / K_STEP; ++i) {
            const int box = i * K_STEP / UNIT, byte = i * K_STEP % UNIT * 2;
            umma<1, IN_TYPE>(scores_in(memory, group, step), further(q, box * QUERY_BOX + byte),
                             further(k, box * TILE_BOX + byte), OF_SCORES, i > 0);
        }
        end_products(group, slot, scores_full(group, step));
    }
    // Sums of a warpgroup's rows, with a step's weights.
    MEMBER void multiply_values(int group, int step, int slot) const {
        const u64 v = further(first_values, slot * SLOT_BYTES);
        UNROLL_BY_4 for (int i = 0; i < BLOCK_K / K_STEP; ++i)
            umma_held<1, IN_TYPE>(sums_in(memory, group), scores_in(memory, group, step) + i * (K_STEP / 2),
                                  further(v, i * K_STEP * 128), OF_VALUES, step + i > 0);
        end_products(group, slot, sums_full(group, step));
    }
    // The last warpgroup's give the buffer back, before their results are complete, after which the block may end.
    static MEMBER void end_products(int group, int slot, sptr<u64> results) {
        if (group == CONSUMERS - 1)
            empty_buffer(slot);
        umma_commit<1>(results);
    }
};

// Waits until the sums with a step's weights are complete.
DEVICE void await_sums(int group, int step) {
    mbarrier_wait(sums_full(group, step), parity_of(step));
    tensor_fence_after();
}

// One thread issues all products. Scores take the place of the weights of SCORE_TILES steps before, and wait for the
// product that reads these. Meanwhile the softmax of the other warpgroup or, with two tiles, of the step between runs.
DEVICE void multiply(int steps, u32 memory) {
    if (!elect_one() || !within(0, steps))
        return;
    const Products products(memory);
    Turn turn;
    mbarrier_wait(queries_full(), 0);
    mbarrier_wait(full(turn.slot), turn.parity);
    ROLLED for (int group = 0; group < CONSUMERS; ++group) products.multiply_keys(group, 0, turn.slot);
    turn.next();
    for (int step = 0; within(step, steps); ++step) {
        const Turn keys = turn;
        const bool more = within(step + 1, steps);
        if (more)
            turn.next();
        // Scores of the next step, after the sums of the step that had their place.
        const auto multiply_next = [&](int group, int before) {
            if (before >= 0 && (more || SCORE_TILES > 1)) // the last sums are those that the warpgroup waits for
                await_sums(group, before);
            if (more) {
                mbarrier_wait(full(keys.slot), keys.parity);
                products.multiply_keys(group, step + 1, keys.slot);
            }
        };
        ROLLED for (int group = 0; group < CONSUMERS; ++group) {
            if constexpr (SCORE_TILES > 1)
                multiply_next(group, step - 1);
            mbarrier_wait(weights_full(group, step), parity_of(step));
            mbarrier_wait(full(turn.slot), turn.parity);
            tensor_fence_after();
            products.multiply_values(group, step, turn.slot);
            if constexpr (SCORE_TILES == 1)
                multiply_next(group, step);
        }
        turn.next();
    }
}

// The place of 16 rows of a warp in tensor memory.
struct RowsPlace {
    int group;
    u32 memory;
    MEMBER RowsPlace(u32 memory, int group, int half)
        : group(group), memory(memory + ((u32)warp_uniform(thread_index() >> 5 & 3) << 21 | (u32)half << 20)) {}
    MEMBER u32 scores(int step) const { return scores_in(memory, group, step); }
    MEMBER u32 sums() const { return sums_in(memory, group); }
};

// Multiplies sums in tensor memory by the factors that bring them into the measure of new largest scores.
DEVICE void rescale(const WarpMath &math, const RowsPlace &place, int step) {
    constexpr int PIECE = HEAD % 64 == 0 ? 64 : 16;
    cover("rescaled");
    if constexpr (SCORE_TILES > 1) // else this step's scores came after them
        await_sums(place.group, step - 1);
    UNROLL for (int column = 0; column < HEAD; column += PIECE) {
        float piece[PIECE / 2];
        tensor_load<PIECE>(piece, place.sums() + column);
        tensor_load_wait(piece);
        UNROLL for (int v = 0; v < PIECE / 2; ++v) piece[v] *= math.kept[v / 2 % 2];
        tensor_store<PIECE>(piece, place.sums() + column);
    }
}

// Turns the scores of 16 rows into weights, from registers to tensor memory. CUT: a row does not see all keys.
template <bool CUT>
DEVICE void weigh_rows(const Params &params, const Work &work, WarpMath &math, RowsMask &mask, i32 row, i32 key,
                       float unit, const RowsPlace &place, int step) {
#if SOFTCAP
    math.cap_scores(cap_factor(params));
#endif
    mask.apply(params, math);
    if constexpr (CUT)
        restrict_scores(params, work, math, row, key);
    else
        cover("full_block");
    if (math.weigh(unit))
        rescale(math, place, step);
    u32 weights[BLOCK_K / 4];
    math.pack(weights);
    tensor_store_pairs<BLOCK_K / 2>(weights, place.scores(step));
}

// A step of a warpgroup: scores of a tile of keys become weights.
template <bool CUT>
DEVICE void pass_tile(const Params &params, const Work &work, WarpMath (&math)[2], RowsMask (&mask)[2],
                      const RowsPlace (&place)[2], int step, i32 row, i32 key, float unit) {
    const int group = place[0].group;
    UNROLL for (int half = 0; half < 2; ++half) mask[half].load(params, key);
    mbarrier_wait(scores_full(group, step), parity_of(step));
    tensor_fence_after();
    tensor_load<BLOCK_K>(math[0].scores, place[0].scores(step));
    tensor_load_wait(math[0].scores);
    tensor_load<BLOCK_K>(math[1].scores, place[1].scores(step));
    UNROLL for (int half = 0; half < 2; ++half) {
        if (half == 1)
            tensor_load_wait(math[1].scores);
        weigh_rows<CUT>(params, work, math[half], mask[half], row + 16 * half, key, unit, place[half], step);
    }
    tensor_store_wait();
    tensor_fence_before();
    warp_barrier();
    if ((thread_index() & 31) == 0)
        mbarrier_arrive(weights_full(group, step));
}

// A warpgroup's part of a block: 128 rows over all tiles of keys, from the last to the first.
DEVICE void attend(const Params &params, const Work &work, int steps, const RowsPlace (&place)[2], i32 row,
                   WarpMath (&math)[2]) {
    if (!within(0, steps))
        return;
    const float unit = score_unit(params);
    // Number of tiles, from the last on, of which some row does not see all keys.
    const int cut = steps - minimum(steps, at_least_none(work.seen - work.key_begin) / BLOCK_K);
#if SLIDING // the front of the window cuts the tiles that are passed last
    const int whole = steps - minimum(steps, divide_up(at_least_none(work.seen_from - work.key_begin), BLOCK_K));
#else
    const int whole = steps;
#endif
    RowsMask mask[2] = {{params, work, row}, {params, work, row + 16}};
    i32 key = work.key_begin + steps * BLOCK_K;
#if RAGGED
    // The first keys are there: with two buffers, values come after them.
    mbarrier_wait(scores_full(place[0].group, 0), 0);
    Turn values;
    values.next();
    clear_values(work, key - BLOCK_K, values, steps);
#endif
    int step = 0;
    for (; within(step, cut); ++step)
        pass_tile<true>(params, work, math, mask, place, step, row, key -= BLOCK_K, unit);
    for (; within(step, whole); ++step)
        pass_tile<false>(params, work, math, mask, place, step, row, key -= BLOCK_K, unit);
#if SLIDING
    for (; within(step, steps); ++step)
        pass_tile<true>(params, work, math, mask, place, step, row, key -= BLOCK_K, unit);
#endif
    await_sums(place[0].group, steps - 1);
}

// Stores the results of 16 rows. Slabs take the place of Q: all products that read it were issued before the last
// product with V of any warpgroup, whose commit waits for them too.
DEVICE void finish_rows(const Params &params, const Work &work, WarpMath &math, i32 row, int steps, u32 sums) {
    if (within(0, steps)) {
        tensor_load<HEAD>(math.sums, sums);
        tensor_load_wait(math.sums);
    }
    math.gather_totals();
#if SPLIT
    store_totals(params, work, row, math);
#else
    end_totals(params, work, row, math);
    math.divide();
#endif
    finish_warp(params, work, row, math);
}

// Tiles of keys. Each role counts them: ptxas would keep a number that all roles have in local memory.
DEVICE int steps_of(const Work &work) {
    return divide_up(work.key_end - work.key_begin, BLOCK_K);
}

// All warps meet after their last use of tensor memory, which the one that allocated it frees.
DEVICE void free_memory(int warp, u32 memory) {
    tensor_fence_before();
    barrier();
    if (warp == MULTIPLIES) {
        warp_barrier(); // its lanes may have left the barrier one by one
        tensor_fence_after();
        tensor_free<1, MEMORY_COLUMNS>(memory);
    }
}

KERNEL(attention_tcgen05, MappedParams, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    Work work = decode_work(params);
#if RAGGED
    if (warp_uniform(work.rows) == 0)
        return;
    share_work(work);
#endif
    const int warp = warp_uniform(thread_index() / 32);
    if (thread_index() == 0)
        make_barriers();
    if (warp == MULTIPLIES) {
        tensor_alloc<1, MEMORY_COLUMNS>(memory_address());
        tensor_alloc_last<1>();
    }
    barrier();
    const u32 memory = load_shared<4>(memory_address()).template get<u32>(0);
    const int group = warp / 4;
    if (group == CONSUMERS) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp == REQUESTS)
            request_tiles(params, work, steps_of(work));
        else if (warp == MULTIPLIES)
            multiply(steps_of(work), memory);
        free_memory(warp, memory);
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        const i32 row = work.row + warp * 32, steps = steps_of(work);
        const RowsPlace place[2] = {{memory, group, 0}, {memory, group, 1}};
        WarpMath math[2];
        attend(params, work, steps, place, row, math);
        UNROLL for (int half = 0; half < 2; ++half)
            finish_rows(params, work, math[half], row + 16 * half, steps, place[half].sums());
        free_memory(warp, memory);
    }
}
