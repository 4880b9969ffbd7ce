// Attention: the part of the problem that a block computes, and the weight of a score. The kernels of all attention
// families include it.
//
// It uses BLOCK_Q, BLOCK_K, MASK, SLIDING, SOFTCAP, RAGGED, KEYS_IN, WHOLE_QUERIES and LONGEST_FIRST.
#pragma once
#include "attention_order.cuh"
#include "epilogue.cuh"
#include "ragged.cuh"
#include "shared_rows.cuh"

// The part of the output that one block computes: BLOCK_Q rows of a batch entry and a head of K and V, over one part
// of the keys. Rows are (query, query head of the group that shares this head), the latter being the inner digit:
// neighbouring rows see nearly the same keys, and a decoding step of many heads fills the rows of a fragment.
struct Work {
    i32 row, end, rows;     // its first row, the end of its rows, and the rows of its batch entry
    i32 entry, part;        // index of (batch entry, head of K and V), and of the part of the keys
    i32 key_begin, key_end; // keys of this part that some row of the block sees
    i32 seen;               // end of the keys that every row of the block sees
    i32 seen_from;          // with SLIDING: the first of these keys
    Batch batch;
    // Fields for sequences of different lengths (attention_sequence.cuh).
    i32 first_query, first_key; // its first query in Q and its first key in K and V
    i32 keys;                   // number of its keys
    i32 place;                  // the key that belongs to query 0
    i32 sequence;
};

// Rows per block; with WHOLE_QUERIES a multiple of the heads of a group.
DEVICE i32 rows_of_block(const Params &params) {
    return WHOLE_QUERIES ? BLOCK_Q - BLOCK_Q % params.batch_inner[1] : BLOCK_Q;
}

#include "attention_sequence.cuh"

DEVICE void cover_work(const Params &params, const Work &work, bool skipped) {
    if (work.row + rows_of_block(params) > work.rows)
        cover("edge_q");
    else
        cover("full_q");
    if (skipped)
        cover("skipped");
}

// The block's part of the keys that its queries see, `first` to `last`. Steps start at multiples of BLOCK_K.
DEVICE void decode_keys(const Params &params, Work &work, i32 first, i32 last) {
    const i32 all = visible(params, work, last);
    work.seen = visible(params, work, first);
#if SLIDING
    // Parts are those of the keys that the block sees: a window may be shorter than a part of all keys.
    const i32 from = first + first_diagonal(params, work), begin = from > 0 ? from / BLOCK_K * BLOCK_K : 0;
    const i32 steps = all > begin ? divide_up(all - begin, BLOCK_K) : 0;
    const i32 part = divide_up(steps, params.split) * BLOCK_K;
    work.seen_from = last + first_diagonal(params, work);
    work.key_begin = begin + work.part * part;
    work.key_end = minimum(work.key_begin + part, all);
    cover_work(params, work, all < keys_of(params, work));
    if (begin > 0)
        cover("skipped_window");
#else
    work.key_begin = work.part * params.k_per_split;
    const i32 end = work.key_begin + params.k_per_split;
    work.key_end = minimum(end, all);
    cover_work(params, work, work.key_end < end && work.key_end < params.k);
#endif
}

// Block number -> work: entries outermost, then the parts, then the tiles of rows. The last rows come first: where
// attention is causal they see most. Tiles of packed sequences are outermost: the longest tiles of all heads, not of
// one, run before the shorter ones.
DEVICE Work decode_work(const Params &params) {
    const u32 tiles = (u32)params.tiles_m, block = ordered(params, (u32)block_index()), outer = block / tiles;
    const i32 group = params.batch_inner[1];
    Work work;
#if RAGGED
    const u32 heads = (u32)params.batch_inner[0], each = block / heads;
    work.entry = (i32)(block % heads);
    work.part = (i32)(each % (u32)params.split);
#else
    work.entry = (i32)(outer / (u32)params.split);
    work.part = (i32)(outer % (u32)params.split);
#endif
    work.batch = Batch{{work.entry / params.batch_inner[0], work.entry % params.batch_inner[0], 0}};
    work.rows = params.m * group;
    work.row = (i32)(tiles - 1 - block % tiles) * rows_of_block(params);
#if RAGGED
    decode_rows(params, work, (i32)(each / (u32)params.split));
    if (work.rows == 0)
        return work;
#endif
#if KEYS_IN
    decode_sequence(params, work);
#endif
    work.end = minimum(work.row + rows_of_block(params), work.rows);
    decode_keys(params, work, work.row / group, (work.end - 1) / group);
    return work;
}

DEVICE float minus_infinity() {
    return bit_cast<float>(0xff800000u);
}

constexpr float LOG2_E = 1.44269504088896340736f;

// The factor of scores in registers. With a soft cap C these are sigmoid(2 s / C): the scaled score s becomes
// C tanh(s / C) = 2 C sigmoid(2 s / C) - C, and the last term does not change the softmax.
DEVICE float score_scale(const Params &params) {
    return SOFTCAP ? 2.0f * params.attention.softcap : params.attention.scale;
}
// The factor of Q K^T in the exponent of 2 of that sigmoid, 1 / (1 + exp2(factor * score)).
DEVICE float cap_factor(const Params &params) {
    return -2.0f * LOG2_E * params.attention.scale / params.attention.softcap;
}

// The unit of scores in powers of 2: they are scaled beforehand only where a mask is added to them.
DEVICE float score_unit(const Params &params) {
    return MASK == MASK_ADDED ? LOG2_E : score_scale(params) * LOG2_E;
}

#if MASK
// A score after the mask: removed where it is 0, or with it added.
DEVICE float masked(const Params &params, float score, MASK_TYPE mask) {
    if constexpr (MASK == MASK_KEPT)
        return widen(mask) == 0 ? minus_infinity() : score;
    else
        return fma_(score, score_scale(params), (float)widen(mask));
}
#endif

// The weight exp(x - top) where `unit` is the unit of x in powers of 2. With a mask of bfloat16_t or float to be added,
// x may be as large as a float can be, so that the product of the largest one with the unit would overflow.
DEVICE float weight_of(float x, float top, float unit) {
    constexpr bool LARGE = MASK == MASK_ADDED && !same_type<MASK_TYPE, half_t>;
    return exp2_(LARGE ? (x - top) * unit : fma_(x, unit, -top * unit));
}
