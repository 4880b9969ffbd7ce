// Attention on warpgroup products: a mask that passes through shared memory (MASK_STAGES above 0).
//
// Shared memory holds MASK_STAGES tiles of the mask after the ring of K and V. The thread that requests K and V
// requests them too: tile number i, that of the i-th tile of keys, is in buffer i % MASK_STAGES. A tile is a sequence
// of boxes of 128 bytes of keys. Its rows are those of the block, whole queries with all heads of their group; an axis
// along which the mask is broadcast has one row only. Loads of single pairs from global memory, which read as many
// lines as a warp has rows, took longer than the products (MaskTile).
#pragma once

constexpr int MASK_BOXES = divide_up(BLOCK_K * (int)sizeof(MASK_TYPE), 128), MASK_BOX = (BLOCK_Q + SPARE) * 128;
constexpr int MASKS = RING + STAGES * SLOT_BYTES, MASK_BYTES = MASK_BOXES * MASK_BOX;

// mbarriers of tile number `tile`, after those of packed sequences, and the parity of its phase.
DEVICE sptr<u64> mask_full(u32 tile) {
    return shared_base().as<u64>() + (2 * STAGES + 2 + CONSUMERS + 2 * (int)(tile % MASK_STAGES));
}
DEVICE sptr<u64> mask_empty(u32 tile) {
    return mask_full(tile) + 1;
}
DEVICE u32 mask_parity(u32 tile) {
    return tile / MASK_STAGES & 1;
}
DEVICE sptr<u8> mask_in(u32 tile) {
    return shared_base() + (MASKS + (int)(tile % MASK_STAGES) * MASK_BYTES);
}

DEVICE void make_mask_ring() {
    UNROLL for (u32 tile = 0; tile < MASK_STAGES; ++tile) {
        mbarrier_init(mask_full(tile), 1);
        mbarrier_init(mask_empty(tile), 4 * CONSUMERS);
    }
}

// Rows of the mask per query: the heads of a group, or one.
DEVICE i32 mask_members(const Params &params) {
    return params.attention.mask_batch[2] == 0 ? 1 : params.batch_inner[1];
}

// The elected thread requests the tile for the keys from `key` on.
DEVICE void request_mask(const MappedParams &params, const Work &work, u32 tile, i32 key) {
    const Attention &own = params.attention;
    const i32 group = params.batch_inner[1];
    i32 at[5] = {key, 0, own.mask_m == 0 ? 0 : work.row / group, own.mask_batch[1] == 0 ? 0 : work.batch.index[1],
                 own.mask_batch[0] == 0 ? 0 : work.batch.index[0]};
    const i32 rows = mask_members(params) * (own.mask_m == 0 ? 1 : divide_up(BLOCK_Q, group));
    mbarrier_wait(mask_empty(tile), mask_parity(tile) ^ 1);
    mbarrier_expect(mask_full(tile), MASK_BOXES * 128 * rows);
    UNROLL for (int box = 0; box < MASK_BOXES; ++box) {
        copy_tensor(mask_in(tile) + box * MASK_BOX, params.mask_map, at, mask_full(tile));
        at[0] += 128 / (int)sizeof(MASK_TYPE);
    }
    if (tile >= MASK_STAGES)
        cover("mask_refill");
}

// A lane's reads of the mask, in chunks of 16 bytes. Elements of 2 bytes are read by ldmatrix, 16 keys of 16 rows at
// once, which hands them out as accumulators are; others pair by pair, as neighbouring accumulators of a row. The rows
// of eight lanes have their chunks in different banks. Four pairs of 4-byte elements fill two chunks, in which an odd
// row would meet the even one before: odd rows read fragment j ^ 2 where even ones read fragment j.
struct CopiedMask {
    static constexpr int BYTES = sizeof(MASK_TYPE), FRAGMENTS = BLOCK_K / 8, IN_BOX = 16 / BYTES;
    static constexpr bool BY_MATRIX = BYTES == 2;
    static constexpr int ROWS = BY_MATRIX ? 1 : 2;
    int place[ROWS]; // byte of fragment 0 in a tile: of the lane's row of matrices, or of its pair in either row
    u32 odd[ROWS];   // all bits of an odd row's, of 4-byte elements
    u32 tile;

    MEMBER CopiedMask(const Params &params, const Work &work, i32 row) : tile(0) {
        const i32 group = params.batch_inner[1], members = mask_members(params);
        const int lane = thread_index() & 31, pair = BY_MATRIX ? lane >> 4 << 4 : (lane & 3) * (2 * BYTES);
        UNROLL for (int half = 0; half < ROWS; ++half) {
            const i32 mine = row - work.row + (BY_MATRIX ? lane & 15 : (lane >> 2) + 8 * half);
            const i32 line =
                (params.attention.mask_m == 0 ? 0 : mine / group * members) + (members == 1 ? 0 : mine % group);
            place[half] = line * 128 + (pair ^ (line & 7) << 4);
            odd[half] = 0u - (u32)(line & 1);
        }
    }

    // The place of fragment j, given that of fragment 0: within a chunk there is no carry.
    static MEMBER int fragment(int first, int j) {
        const int byte = j % IN_BOX * (8 * BYTES);
        return ((first ^ (byte & 0x70)) + (byte & 15)) + j / IN_BOX * MASK_BOX;
    }

    MEMBER void load(const Params &, i32) {}

    // Applies the next tile to the scores, and gives its buffer back.
    template <class Math>
    MEMBER void apply(const Params &params, Math &math) {
        const sptr<u8> from = mask_in(tile);
        mbarrier_wait(mask_full(tile), mask_parity(tile));
        if constexpr (BY_MATRIX) {
            UNROLL for (int j = 0; j < FRAGMENTS; j += 2) {
                u32 pairs[4]; // rows g and g + 8 of fragment j, then those of the next one
                load_matrix<4, false>(pairs, from + fragment(place[0], j));
                UNROLL for (int each = 0; each < 4; ++each)
                    mask_pair(params, math, j + each / 2, each % 2, Vec<4>{{pairs[each]}});
            }
        } else {
            UNROLL for (int half = 0; half < 2; ++half) UNROLL for (int j = 0; j < FRAGMENTS; ++j) {
                if (BYTES < 4 || j / 4 * 4 + 4 > FRAGMENTS) {
                    mask_pair(params, math, j, half, load_shared<2 * BYTES>(from + fragment(place[half], j)));
                } else if (j % 4 < 2) {
                    const int first = place[half] ^ (int)(odd[half] & 64);
                    Pair a = load_shared<2 * BYTES>(from + fragment(first, j));
                    Pair b = load_shared<2 * BYTES>(from + fragment(first, j + 2));
                    UNROLL for (int word = 0; word < Pair::WORDS; ++word) {
                        const u32 swapped = (a.word[word] ^ b.word[word]) & odd[half];
                        a.word[word] ^= swapped, b.word[word] ^= swapped;
                    }
                    mask_pair(params, math, j, half, a);
                    mask_pair(params, math, j + 2, half, b);
                }
            }
        }
        warp_barrier();
        if ((thread_index() & 31) == 0)
            mbarrier_arrive(mask_empty(tile));
        ++tile;
    }

    using Pair = Vec<2 * BYTES>;
    template <class Math>
    static MEMBER void mask_pair(const Params &params, Math &math, int j, int half, const Pair &pair) {
        UNROLL for (int e = 0; e < 2; ++e) {
            float &score = math.score(0, j, 2 * half + e);
            score = masked(params, score, pair.template get<MASK_TYPE>(e));
        }
    }
};
