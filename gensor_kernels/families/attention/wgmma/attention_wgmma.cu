// C = softmax(scale * Q K^T + mask) V on Hopper's warpgroup products (wgmma, sm_90a), batched, for heads of any size up
// to 256.
//
// A block computes up to BLOCK_Q rows. Each of CONSUMERS = BLOCK_Q / 64 warpgroups multiplies 64 rows; an elected
// thread of a further warpgroup requests tensor copies (TMA) of Q and of tiles of BLOCK_KEYS keys and values, which
// travel through a ring of STAGES buffers (attention_ring.cuh). Scores are accumulated in registers; their weights, in
// 16 bits, are the left operand of the second product straight from registers (attention_products.cuh). A warpgroup
// issues the scores of the next tile of keys before the product with the values of the previous tile, and computes the
// softmax while that product runs. Warpgroups issue products in turn, so that the softmax of a warpgroup overlaps the
// products of another warpgroup (Shah et al., FlashAttention-3, arXiv 2407.08608). Tiles are walked from the last to
// the first: tiles that the diagonal or the edge of the keys cuts come first, and the other tiles need no comparison.
// Rows, splits, masks, the diagonal, sinks and logarithms are as in attention.cu, but a block has whole queries: as
// many as fit BLOCK_Q with all heads of their group. RAGGED 1: rows of Q and C are those of all sequences, one after
// the other, and so are K and V. Copies read past the last key of a sequence: scores of these keys are cut, and their
// values, which may be infinite, become zeros in shared memory (clear_values).
//
// Shared bytes = 1024 + max(BOXES * 128 * (BLOCK_Q + 8 + STAGES * BLOCK_KEYS) + MASK_STAGES * MASK_BYTES,
//                           EPILOGUE_STAGED ? BLOCK_Q * HEAD * 4 : 0)

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
#pragma parameter BLOCK_Q 128       // rows of a block's tile
#pragma parameter BLOCK_KEYS 128    // keys of one step of the main loop
#pragma parameter STAGES 4          // shared tiles of K or V
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
// The names of the shared headers: the second product has k = keys and n = elements of a head, a warp has 16 rows.
constexpr int BLOCK_K = BLOCK_KEYS, WARP_M = 16, WARP_N = HEAD, FRAGMENTS_M = 1, FRAGMENTS_N = HEAD / 8;
constexpr int CONSUMERS = BLOCK_Q / 64, THREADS = 128 * (CONSUMERS + 1);
constexpr bool WHOLE_QUERIES = true; // rows of a block are all heads of a group of its queries
constexpr int SLABS = 1024;          // offset of the slabs of the staged epilogue in shared memory

#include "attention_products.cuh"

#include "attention_finish.cuh"
#include "attention_mask.cuh"

// Registers of each thread at entry, and after the exchange.
constexpr int ENTRY = minimum(65536 / (THREADS * MIN_BLOCKS) / 8 * 8, 256);
constexpr int GIVEN = CONSUMERS == 3 ? 32 : 40;
constexpr int TAKEN = minimum(240, (ENTRY * (CONSUMERS + 1) - GIVEN) / CONSUMERS / 8 * 8);

// Turns the scores of the tile of keys from `key` on into exponentials. CUT: a row does not see all keys of the tile.
template <bool CUT, class Mask>
DEVICE void weigh_scores(const Params &params, const Work &work, WarpMath &math, Mask &mask, i32 row, i32 key,
                         float unit) {
#if SOFTCAP
    math.cap_scores(cap_factor(params));
#endif
    mask.apply(params, math);
    if constexpr (CUT)
        restrict_scores(params, work, math, row, key);
    else
        cover("full_block");
    math.weigh(unit);
}

// A tile of keys after another tile: its scores, and meanwhile the product of the previous tile's weights and values.
template <bool CUT, class Mask>
DEVICE void pass_tile(const Params &params, const Work &work, WarpMath &math, Mask &mask, Turn &turn, int group,
                      u32 &round, i32 row, i32 key, float unit) {
    mask.load(params, key);
    take_turn(group, round);
    math.begin_scores(turn);
    const int keys = turn.slot;
    turn.next();
    mbarrier_wait(full(turn.slot), turn.parity);
    math.begin_sums(turn);
    const int values = turn.slot;
    turn.next();
    pass_turn(group, round);
    math.end_scores();
    release(keys);
    weigh_scores<CUT>(params, work, math, mask, row, key, unit);
    // The softmax runs before this wait, while the product with the values is in flight: the compiler would move
    // the wait for that product up, but does not move it across the wait for a buffer.
    math.hold_scores();
    mbarrier_wait(full(turn.slot), turn.parity);
    math.end_sums();
    release(values);
    math.take_weights();
}

// A warpgroup's part of a block: 64 rows over all tiles of keys, from the last to the first. Without a tile there is no
// wait: if both branches joined before a wait, the compiler would copy accumulators of products in flight.
DEVICE void attend(const MappedParams &params, const Work &work, int steps, int group, i32 row, WarpMath &math) {
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
#if MASK_STAGES
    CopiedMask mask(params, work, row);
#elif MASK
    MaskTile mask(params, work, row);
#else
    NoMask mask;
#endif
    Turn turn;
    u32 round = 0;
    i32 key = work.key_begin + (steps - 1) * BLOCK_K;
    mask.load(params, key);
    mbarrier_wait(queries_full(), 0);
    mbarrier_wait(full(turn.slot), turn.parity);
    math.begin_scores(turn);
    math.end_scores_alone();
    release(turn.slot);
    turn.next();
    if (within(0, cut) || !within(0, whole))
        weigh_scores<true>(params, work, math, mask, row, key, unit);
    else
        weigh_scores<false>(params, work, math, mask, row, key, unit);
    math.take_weights();
#if RAGGED
    clear_values(work, key, turn, steps);
#endif
    mbarrier_wait(full(turn.slot), turn.parity);
    int step = 1;
    for (; within(step, cut); ++step)
        pass_tile<true>(params, work, math, mask, turn, group, round, row, key -= BLOCK_K, unit);
    for (; within(step, whole); ++step)
        pass_tile<false>(params, work, math, mask, turn, group, round, row, key -= BLOCK_K, unit);
#if SLIDING
    for (; within(step, steps); ++step)
        pass_tile<true>(params, work, math, mask, turn, group, round, row, key -= BLOCK_K, unit);
#endif
    math.begin_sums(turn);
    math.end_sums();
}

KERNEL(attention_wgmma, MappedParams, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    Work work = decode_work(params);
#if RAGGED
    if (warp_uniform(work.rows) == 0)
        return;
    share_work(work);
#endif
    const int steps = divide_up(work.key_end - work.key_begin, BLOCK_K);
    if (thread_index() == 0)
        make_ring();
    barrier();
    const int group = warp_uniform(thread_index() / 128); // else descriptors are taken from every lane
    if (group == CONSUMERS) {
        if constexpr (ENTRY < TAKEN)
            give_registers<ENTRY, GIVEN>();
        if (warp_uniform(thread_index() / 32) == 4 * CONSUMERS)
            produce(params, work, steps);
        leave_ring();
    } else {
        if constexpr (ENTRY < TAKEN)
            take_registers<ENTRY, TAKEN>();
        const i32 row = work.row + (thread_index() >> 5) * 16;
        WarpMath math(group);
        attend(params, work, steps, group, row, math);
        math.gather_totals();
#if SPLIT
        store_totals(params, work, row, math);
#else
        end_totals(params, work, row, math);
        math.divide();
#endif
        leave_ring();
        finish_warp(params, work, row, math);
    }
}
