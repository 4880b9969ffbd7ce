// C = softmax(scale * Q K^T + mask) V on the tensor cores (mma.sync), batched, for heads of any size up to 256.
//
// A block computes BLOCK_Q rows with BLOCK_Q / WARP_Q warps and loops over the keys in steps of BLOCK_KEYS with an
// online softmax: it keeps each row's largest score, sum of weights and weighted sum of V, and rescales both sums when
// the largest score grows (Milakov and Gimelshein, arXiv 1805.02867; Dao, FlashAttention-2, arXiv 2307.08691). K and V
// pass through a ring of 2 * STAGES shared tiles, by cp.async (ASYNC 1) or through registers (ASYNC 0). Query heads
// that share a head of K and V are rows of one tile. Query i sees the keys below i + diagonal: Params decides at run
// time whether attention is causal. Tiles that no row sees are skipped.
// SLIDING 1: query i sees the keys from i + first_diagonal on (Params); the tiles before them are skipped as well.
// SOFTCAP 1: scaled scores s become softcap * tanh(s / softcap), softcap from Params, before the mask.
// RAGGED 1: Q and C hold the rows of all sequences, one after the other; KEYS_IN 1: K and V do the same; KEYS_IN 2: a
// sequence's keys are in pages, which a table lists (attention_sequence.cuh).
// SPLIT 1: each block takes one part of the keys, for few queries, and attention_combine combines the parts.
// SINKS 1: each query head has one more logit, without a value, in the denominator of its softmax. LSE 1: the
// logarithms of the denominators are stored (attention_finish.cuh).
//
// Shared bytes = max((BLOCK_Q + 2 * STAGES * BLOCK_KEYS) * HEAD * 2, EPILOGUE_STAGED ? WARPS * 16 * HEAD * 4 : 0)
// Bank conflicts: none with SWIZZLE 1. With EPILOGUE_STAGED 0, C is stored at most two outputs at a time.

#pragma parameter IN_TYPE half_t  // elements of Q, K and V: half_t, bfloat16_t
#pragma parameter OUT_TYPE half_t // elements of C: half_t, bfloat16_t, float
#pragma parameter ACC_TYPE float  // accumulators
#pragma parameter INSTRUCTION 0   // 0 m16n8k16, 1 m16n8k8 (half_t)
#pragma parameter Q_UNIT 1        // 1: elements of a head of Q have stride 1; 0: the stride is in Params
#pragma parameter K_UNIT 1        // the same for K
#pragma parameter V_UNIT 1        // the same for V
#pragma parameter C_UNIT 1        // the same for C
#pragma parameter Q_VECTOR 16     // bytes per global access of Q
#pragma parameter K_VECTOR 16     // bytes per global access of K
#pragma parameter V_VECTOR 16     // bytes per global access of V
#pragma parameter C_VECTOR 16     // bytes per global access of C
#pragma parameter MASK 0          // 0: no mask; 1: keeps the scores where it is not 0; 2: is added to the scaled scores
#pragma parameter MASK_TYPE float // elements of the mask: i8 with MASK 1, else half_t, bfloat16_t, float
#pragma parameter MASK_UNIT 1     // 1: keys are adjacent in the mask
#pragma parameter MASK_VECTOR 4   // bytes per global access of the mask: one element or two
#pragma parameter SLIDING 0       // 1: a window also limits the first key that a query sees
#pragma parameter RAGGED 0        // 1: sequences have different numbers of queries
#pragma parameter KEYS_IN 0       // 0: all batch entries have k keys; 1: sequences one after the other; 2: pages
#pragma parameter SOFTCAP 0       // 1: scores have a soft cap
#pragma parameter SINKS 0         // 1: there are sinks
#pragma parameter SINK_TYPE float // elements of the sinks: half_t, bfloat16_t, float
#pragma parameter LSE 0           // 1: logarithms of the denominators are stored
#pragma parameter HEAD 64         // elements of a head in the tiles; the real size may be less
#pragma parameter BLOCK_Q 64      // rows per block
#pragma parameter BLOCK_KEYS 64   // keys of one step of the main loop
#pragma parameter WARP_Q 16       // rows per warp
#pragma parameter STAGES 1        // pairs of shared tiles of K and V
#pragma parameter ASYNC 1         // 1: cp.async; 0: through registers
#pragma parameter SWIZZLE 1       // 0: shared rows are not permuted and have bank conflicts
#pragma parameter Q_REGISTERS 1   // 1: a warp keeps its rows of Q in registers; 0: it reads them from shared memory
#pragma parameter SPLIT 0         // 1: blocks store partial sums in the workspace, attention_combine finishes
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 0      // blocks per SM promised to the compiler; 0 = none

enum MaskKind { MASK_NONE, MASK_KEPT, MASK_ADDED };
enum KeysKind { KEYS_DENSE, KEYS_PACKED, KEYS_PAGED };
enum BlockOrder { LONGEST_FIRST = 0 };
// Names that the shared headers use: in the second product, k are the keys and n the elements of a head.
constexpr int BLOCK_K = BLOCK_KEYS, WARP_M = WARP_Q, WARP_N = HEAD, THREADS = 32 * (BLOCK_Q / WARP_Q);

constexpr bool WHOLE_QUERIES = false; // a block may begin in the middle of the heads of a query
constexpr int SLABS = 0;              // offset of the slabs of the staged epilogue in shared memory

// Whether copies are requested before the products, not between them: H100 kernels have been timed in this order.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define COPIES_FIRST 1
#else
#define COPIES_FIRST 0
#endif

#include "attention_math.cuh"

#include "attention_finish.cuh"
#include "attention_mask.cuh"

KERNEL(attention, Params, THREADS, MIN_BLOCKS) {
    if constexpr (SPLIT)
        launch_dependents();
    const Work work = decode_work(params);
#if RAGGED
    if (work.rows == 0)
        return;
#endif
    const int steps = divide_up(work.key_end - work.key_begin, BLOCK_K);
    const int warp_row = (thread_index() >> 5) * WARP_Q, row = work.row + warp_row;
    const float unit = score_unit(params);
#if SOFTCAP
    const float bend = cap_factor(params);
#endif
    Pipeline pipeline(params, work);
    copy_queries(params, work);
    UNROLL for (int s = 0; s < STAGES; ++s) {
        pipeline.request_keys(params);
        if (s + 1 < STAGES)
            pipeline.request_values(params);
    }
    WarpMath math(warp_row);
#if MASK
    MaskTile mask(params, work, row);
#endif
    sptr<u8> tile = pipeline.receive(pipeline.keys);
    math.keep_queries();
    i32 key = work.key_begin;
    for (int step = 0; within(step, steps); ++step) {
        if constexpr (COPIES_FIRST)
            pipeline.request_values(params);
#if MASK
        mask.load(params, key);
#endif
        math.multiply_keys(tile, [&] {
            if constexpr (!COPIES_FIRST)
                pipeline.request_values(params);
        });
#if SOFTCAP
        math.cap_scores(bend);
#endif
#if MASK
        mask.apply(params, math);
#endif
        if (is_cut(work, key))
            restrict_scores(params, work, math, row, key);
        else
            cover("full_block");
        math.weigh(unit);
        tile = pipeline.receive(pipeline.values);
        if constexpr (COPIES_FIRST)
            pipeline.request_keys(params);
        math.multiply_values(tile, [&] {
            if constexpr (!COPIES_FIRST)
                pipeline.request_keys(params);
        });
        tile = pipeline.receive(pipeline.keys);
        key += BLOCK_K;
    }
    math.gather_totals();
#if SPLIT
    store_totals(params, work, row, math);
#else
    end_totals(params, work, row, math);
    math.divide();
#endif
#if EPILOGUE_STAGED // the slabs take the place of Q and the tiles
    if constexpr (ASYNC)
        copy_async_wait<0>();
    barrier();
#endif
    finish_warp(params, work, row, math);
}
