// Attention: which part of the problem a block has, and the weight of a score. The kernels of all attention families
// include it.
//
// It uses BLOCK_Q, MASK and WHOLE_QUERIES.
#pragma once
#include "epilogue.cuh"

// The part of the output that one block computes: BLOCK_Q rows of a batch entry and a head of K and V, over one part
// of the keys. Rows are (query, query head of the group that shares this head), the latter being the inner digit:
// neighbouring rows see nearly the same keys, and a decoding step of many heads fills the rows of a fragment.
struct Work {
    i32 row, end, rows;     // its first row, the one behind its last, and the entry's rows
    i32 entry, part;        // number of (batch entry, head of K and V), and of the part of the keys
    i32 key_begin, key_end; // keys of this part that some row of the block sees
    i32 seen;               // every row of the block sees the keys below
    Batch batch;
};

// Keys that a query sees.
DEVICE i32 visible(const Params &params, i32 query) {
    return minimum(params.k, query + params.attention.diagonal);
}

// Rows of a block: with WHOLE_QUERIES as many as whole queries have, each of them in all heads of the group.
DEVICE i32 rows_of_block(const Params &params) {
    return WHOLE_QUERIES ? BLOCK_Q - BLOCK_Q % params.batch_inner[1] : BLOCK_Q;
}

DEVICE void cover_work(const Params &params, const Work &work, i32 part_end) {
    if (work.row + rows_of_block(params) > work.rows)
        cover("edge_q");
    else
        cover("full_q");
    if (work.key_end < part_end && work.key_end < params.k)
        cover("skipped");
}

// Block number -> work: entries outermost, then the parts, then the tiles of rows. The last rows come first: where
// attention is causal they see most.
DEVICE Work decode_work(const Params &params) {
    const u32 tiles = (u32)params.tiles_m, block = (u32)block_index(), outer = block / tiles;
    const i32 group = params.batch_inner[1];
    Work work;
    work.entry = (i32)(outer / (u32)params.split);
    work.part = (i32)(outer % (u32)params.split);
    work.batch = Batch{{work.entry / params.batch_inner[0], work.entry % params.batch_inner[0], 0}};
    work.rows = params.m * group;
    work.row = (i32)(tiles - 1 - block % tiles) * rows_of_block(params);
    work.end = minimum(work.row + rows_of_block(params), work.rows);
    work.seen = visible(params, work.row / group);
    work.key_begin = work.part * params.k_per_split;
    const i32 part_end = work.key_begin + params.k_per_split;
    work.key_end = minimum(part_end, visible(params, (work.end - 1) / group));
    cover_work(params, work, part_end);
    return work;
}

DEVICE float minus_infinity() {
    return bit_cast<float>(0xff800000u);
}

// The unit of scores in powers of 2: they are scaled beforehand only where a mask is added to them.
DEVICE float score_unit(const Params &params) {
    const float log2_e = 1.44269504088896340736f;
    return MASK == MASK_ADDED ? log2_e : params.attention.scale * log2_e;
}

// The weight exp(x - top) where `unit` is the unit of x in powers of 2. With a mask to be added, x may be as large as a
// float can be, so that its product with the unit would overflow.
DEVICE float weight_of(float x, float top, float unit) {
    return exp2_(MASK == MASK_ADDED ? (x - top) * unit : fma_(x, unit, -top * unit));
}
