// Attention on products in tensor memory: requests of Q, K and V.
//
// Where whole queries, in all heads of a group, would leave rows of a tile without one, the host divides the group into
// parts (cost.py): the middle batch axis of Params has an entry for each part, which is a group of its own for all but
// this header. Keys and values are those of the whole group.
#pragma once
#include "attention_ring.cuh"

// Parts into which the heads of a group are divided.
DEVICE i32 parts_of_group(const Params &params) {
    return params.advance[0];
}

// The elected thread of a warp requests Q, and the tiles of K and V as buffers become free.
DEVICE void request_tiles(const MappedParams &params, const Work &work, int steps) {
    if (!elect_one() || !within(0, steps))
        return;
    const i32 group = params.batch_inner[1], part = work.batch.index[1], entry = work.batch.index[0];
    const i32 kv_head = part / parts_of_group(params), first = RAGGED ? work.first_query : 0;
    if (kv_head < part)
        cover("parted");
    mbarrier_expect(queries_full(), BOXES * divide_up(BLOCK_Q, group) * group * 128);
    i32 q_at[5] = {0, 0, work.row / group + first, entry_along(params.a_batch[1], part),
                   entry_along(params.a_batch[0], entry)};
    UNROLL for (int box = 0; box < BOXES; ++box) {
        copy_tensor(shared_base() + (QUERIES + box * QUERY_BOX), params.q_map, q_at, queries_full());
        q_at[0] += UNIT;
    }
    const i32 last = work.key_begin + (steps - 1) * BLOCK_K + (RAGGED ? work.first_key : 0);
    i32 k_at[5] = {0, last, entry_along(params.b_batch[1], kv_head), entry_along(params.b_batch[0], entry), 0};
    i32 v_at[5] = {0, last, entry_along(params.d_batch[1], kv_head), entry_along(params.d_batch[0], entry), 0};
    Turn turn;
    const auto request = [&](const TensorMap &map, i32(&at)[5]) {
        mbarrier_wait(empty(turn.slot), turn.parity ^ 1);
        mbarrier_expect(full(turn.slot), SLOT_BYTES);
        UNROLL for (int box = 0; box < BOXES; ++box) {
            copy_tensor(tile_in(turn.slot) + box * TILE_BOX, map, at, full(turn.slot));
            at[0] += UNIT;
        }
        at[0] = 0;
        at[1] -= BLOCK_K;
        turn.next();
    };
    request(params.k_map, k_at);
#if MASK_STAGES
    request_mask(params, work, 0, last);
#endif
    for (int step = 1; within(step, steps); ++step) {
        if (2 * step > STAGES)
            cover("refill");
        request(params.k_map, k_at);
        request(params.v_map, v_at);
#if MASK_STAGES
        request_mask(params, work, step, last - step * BLOCK_K);
#endif
    }
    request(params.v_map, v_at);
}
