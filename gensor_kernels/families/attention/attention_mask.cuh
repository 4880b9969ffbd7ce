// Attention: which scores count. Keys past the edge, after the diagonal or before the window do not count; a mask
// tensor removes scores or is added to them.
#pragma once
#include "attention_work.cuh"

// Whether some row of the block does not see all keys of a tile.
DEVICE bool is_cut(const Work &work, i32 key) {
#if SLIDING
    if (within(key, work.seen_from))
        return true;
#endif
    return within(work.seen, key + BLOCK_K);
}

// Sets scores of keys that a row does not see to minus infinity. `row` is the warp's first row, `key` the tile's first.
DEVICE void restrict_scores(const Params &params, const Work &work, WarpMath &math, i32 row, i32 key) {
    const int lane = thread_index() & 31, g = lane >> 2, t = lane & 3;
    if (key + BLOCK_K > keys_of(params, work))
        cover("edge_k");
    else if (SLIDING && key < work.seen_from)
        cover("window");
    else
        cover("diagonal");
    UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
        const i32 query = (row + i * 16 + g + 8 * half) / params.batch_inner[1];
        const i32 limit = visible(params, work, query) - key;
#if SLIDING
        const i32 begin = query + first_diagonal(params, work) - key;
#endif
        UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) {
            float &score = math.score(i, j, 2 * half + e);
            score = within(j * 8 + t * 2 + e, limit) ? score : minus_infinity();
#if SLIDING
            score = within(j * 8 + t * 2 + e, begin) ? minus_infinity() : score;
#endif
        }
    }
}

#if MASK
// A lane's elements of the mask for a tile of keys. They are loaded before the scores are computed.
struct MaskTile {
    static constexpr int EACH = MASK_VECTOR / (int)sizeof(MASK_TYPE), PIECES = 2 / EACH;
    gptr<MASK_TYPE> from[FRAGMENTS_M][2]; // rows of the mask
    u32 inside;                           // bit per row: not past the last one
    Vec<MASK_VECTOR> raw[FRAGMENTS_M][2][KEY_FRAGMENTS][PIECES];

    MEMBER MaskTile(const Params &params, const Work &work, i32 row) : inside(0) {
        const Attention &own = params.attention;
        const gptr<MASK_TYPE> mask = gptr<MASK_TYPE>(own.mask) + batch_offset(own.mask_batch, work.batch);
        const i32 group = params.batch_inner[1], g = (thread_index() & 31) >> 2;
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half) {
            const i32 mine = row + i * 16 + g + 8 * half;
            from[i][half] = mask + (mine / group * own.mask_m + mine % group * own.mask_batch[2]);
            inside |= (u32)within(mine, work.rows) << (2 * i + half);
        }
    }

    MEMBER void load(const Params &params, i32 key) {
        const i32 first = key + (thread_index() & 3) * 2;
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half)
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int p = 0; p < PIECES; ++p) {
            const i32 column = first + j * 8 + p * EACH;
            const bool there = (inside >> (2 * i + half) & 1) && within(column, params.k);
            const i64 place = MASK_UNIT ? column : column * params.attention.mask_k;
            raw[i][half][j][p] = load_global<MASK_VECTOR>(from[i][half] + place, there);
        }
    }

    MEMBER void apply(const Params &params, WarpMath &math) const {
        UNROLL for (int i = 0; i < FRAGMENTS_M; ++i) UNROLL for (int half = 0; half < 2; ++half)
            UNROLL for (int j = 0; j < KEY_FRAGMENTS; ++j) UNROLL for (int e = 0; e < 2; ++e) {
            const MASK_TYPE value = raw[i][half][j][e / EACH].template get<MASK_TYPE>(e % EACH);
            float &score = math.score(i, j, 2 * half + e);
            score = masked(params, score, value);
        }
    }
};
#endif
