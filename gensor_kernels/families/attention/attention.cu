// C = softmax(scale * Q K^T + mask) V on the tensor cores (mma.sync), batched, for heads of any size up to 256.
//
// A block computes BLOCK_Q rows with BLOCK_Q / WARP_Q warps and walks over the keys BLOCK_KEYS at a time with an online
// softmax: it keeps the largest score of each row, the sum of weights and the weighted sum of V, and rescales them when
// a larger score comes (Milakov and Gimelshein, arXiv 1805.02867; Dao, FlashAttention-2, arXiv 2307.08691). K and V
// travel through a ring of 2 * STAGES shared tiles, by cp.async (ASYNC 1) or through registers (ASYNC 0). Query heads
// that share a head of K and V are rows of one tile. Query i sees the keys below i + diagonal (Params), a number that
// makes attention causal or not at run time; tiles that no row sees are skipped.
// SLIDING 1: query i sees the keys from i + first_diagonal on (Params); tiles in front of them are skipped, too.
// SOFTCAP 1: scaled scores s become softcap * tanh(s / softcap), softcap from Params, before the mask.
// RAGGED 1: rows of Q and C are those of all sequences, one after the other; KEYS_IN 1: K and V likewise; KEYS_IN 2: a
// sequence's keys lie in pages, which a table names (attention_sequence.cuh).
// SPLIT 1: blocks take one part of the keys each and attention_combine finishes, for few queries.
//
// Legal Programs (WARPS = BLOCK_Q / WARP_Q, O = bytes of OUT_TYPE):
//   IN_TYPE half_t with INSTRUCTION 0 or 1, bfloat16_t with 0; OUT_TYPE half_t, bfloat16_t, float
//   INSTRUCTION 0 and ASYNC 1 need sm_80; 1 runs from sm_75 on
//   HEAD, BLOCK_Q, BLOCK_KEYS, WARP_Q % 16 == 0, HEAD <= 256, BLOCK_Q % WARP_Q == 0, WARPS <= 32
//   WARP_Q * (HEAD + BLOCK_KEYS) <= 6656 (spills beyond)
//   X_VECTOR in 2, 4, 8, 16; X_UNIT 0 needs X_VECTOR == 2; MASK_VECTOR one or two elements, one with MASK_UNIT 0
//   ASYNC 1: 1 <= STAGES <= 4, K_VECTOR and V_VECTOR >= 4; ASYNC 0: STAGES == 1
//   copies of a thread per tile of K or V (OperandTile in mma_tiles.cuh, rows of HEAD elements) <= 64, along HEAD <= 32
//   O <= C_VECTOR <= 16; C_UNIT 0 needs C_VECTOR == O; EPILOGUE_STAGED 0 stores two adjacent outputs at most
//   k_per_split % BLOCK_KEYS == 0
//   KEYS_IN 1 and 2 need SLIDING 1; KEYS_IN 1 needs RAGGED 1, RAGGED 1 needs KEYS_IN 1 or 2 and MASK 0
//
// Shared bytes = max((BLOCK_Q + 2 * STAGES * BLOCK_KEYS) * HEAD * 2, EPILOGUE_STAGED ? WARPS * 16 * HEAD * 4 : 0)
//
// Bank conflicts: none with SWIZZLE 1. Global accesses: Q, K and V move X_VECTOR bytes at a time, C moves C_VECTOR and
// parts 16 (with EPILOGUE_STAGED 0 at most two outputs), the mask MASK_VECTOR.

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
#pragma parameter MASK 0 // 0: no mask; 1: scores where it is not 0 are kept; 2: it is added to the scaled scores
#pragma parameter MASK_TYPE float   // its elements: i8 where MASK is 1, else half_t, bfloat16_t, float
#pragma parameter MASK_UNIT 1       // 1: keys are adjacent in it
#pragma parameter MASK_VECTOR 4     // bytes per global access of it: one element or two
#pragma parameter SLIDING 0         // 1: the keys that a query sees begin somewhere, too
#pragma parameter RAGGED 0          // 1: sequences have different numbers of queries
#pragma parameter KEYS_IN 0         // 0: as many keys for every batch entry; 1: sequences one after the other; 2: pages
#pragma parameter SOFTCAP 0         // 1: scores have a soft cap
#pragma parameter HEAD 64           // elements of a head as the tiles hold them; the real size may be less
#pragma parameter BLOCK_Q 64        // rows per block
#pragma parameter BLOCK_KEYS 64     // keys of one step of the main loop
#pragma parameter WARP_Q 16         // rows per warp
#pragma parameter STAGES 1          // pairs of shared tiles of K and V
#pragma parameter ASYNC 1           // 1: cp.async; 0: through registers
#pragma parameter SWIZZLE 1         // 0: shared rows as they come, with bank conflicts
#pragma parameter Q_REGISTERS 1     // 1: a warp keeps its rows of Q in registers; 0: it reads them from shared memory
#pragma parameter SPLIT 0           // 1: blocks write what they have to the workspace, attention_combine finishes
#pragma parameter EPILOGUE_STAGED 1 // 0: results are stored from registers; 1: through shared memory, in wide accesses
#pragma parameter EPILOGUE_CODES 0  // 0: operations from Params; else a compile-time list, see epilogue.cuh
#pragma parameter MIN_BLOCKS 0      // blocks per SM promised to the compiler; 0 = none

enum MaskKind { MASK_NONE, MASK_KEPT, MASK_ADDED };
enum KeysKind { KEYS_DENSE, KEYS_PACKED, KEYS_PAGED };
// The names of the shared headers: the second product has k = keys and n = elements of a head.
constexpr int BLOCK_K = BLOCK_KEYS, WARP_M = WARP_Q, WARP_N = HEAD, THREADS = 32 * (BLOCK_Q / WARP_Q);

constexpr bool WHOLE_QUERIES = false; // rows of a block may begin amidst the heads of a query
constexpr int SLABS = 0;              // where the slabs of the staged epilogue lie in shared memory

// Whether copies are asked for in front of the products, not between them: the order that an H100 has been timed with.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 900
#define ASKS_FIRST 1
#else
#define ASKS_FIRST 0
#endif

#include "attention_math.cuh"

#include "attention_finish.cuh"
#include "attention_mask.cuh"

static_assert(HEAD % 16 == 0 && HEAD >= 16 && HEAD <= 256, "A head is 1 to 16 steps of 16 elements.");
static_assert(WARP_Q % 16 == 0 && BLOCK_Q % WARP_Q == 0, "Warps have whole fragments of 16 rows, blocks whole warps.");
static_assert(BLOCK_KEYS % 16 == 0, "A step is whole fragments of 16 keys.");
static_assert(WARP_Q * (HEAD + BLOCK_KEYS) <= 6656, "The scores and sums of a larger warp tile do not fit registers.");
static_assert(THREADS >= 32 && THREADS <= 1024, "A block has 1 to 32 warps.");
static_assert(ASYNC ? STAGES >= 1 && STAGES <= 4 : STAGES == 1, "cp.async takes 1 to 4 stages, registers take 1.");
static_assert(!ASYNC || (K_VECTOR >= 4 && V_VECTOR >= 4), "cp.async copies 4, 8 or 16 bytes; narrower needs ASYNC 0.");
static_assert(Q_UNIT || Q_VECTOR == ELEMENT, "Elements of Q that are not adjacent are copied one by one.");
static_assert(C_UNIT || C_VECTOR == sizeof(OUT_TYPE), "Columns of C that are not adjacent are stored one by one.");
static_assert(same_type<IN_TYPE, half_t> ? INSTRUCTION == 0 || INSTRUCTION == 1
                                         : same_type<IN_TYPE, bfloat16_t> && INSTRUCTION == 0,
              "This instruction does not multiply this type.");
static_assert(!KEYS_IN || SLIDING, "Sequences of different lengths have diagonals of their own, as windows have.");
static_assert(RAGGED ? KEYS_IN && !MASK : KEYS_IN != KEYS_PACKED, "Rows and keys are packed together, without a mask.");
static_assert(!MASK || MASK_VECTOR == sizeof(MASK_TYPE) || (MASK_UNIT && MASK_VECTOR == 2 * sizeof(MASK_TYPE)),
              "The mask is read one element or two at a time.");

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
        if constexpr (ASKS_FIRST)
            pipeline.request_values(params);
#if MASK
        mask.load(params, key);
#endif
        math.multiply_keys(tile, [&] {
            if constexpr (!ASKS_FIRST)
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
        if constexpr (ASKS_FIRST)
            pipeline.request_keys(params);
        math.multiply_values(tile, [&] {
            if constexpr (!ASKS_FIRST)
                pipeline.request_keys(params);
        });
        tile = pipeline.receive(pipeline.keys);
        key += BLOCK_K;
    }
    math.gather_totals();
#if SPLIT
    store_totals(params, work, row, math);
#else
    math.divide();
#endif
#if EPILOGUE_STAGED // the slabs lie where Q and the tiles were
    if constexpr (ASYNC)
        copy_async_wait<0>();
    barrier();
#endif
    finish_warp(params, work, row, math);
}
