// Attention on warpgroup products: how Q, K and V are copied to shared memory.
//
// Shared memory: at 0 the mbarriers, from 1024 on the block's rows of Q, then a ring of STAGES tiles of BLOCK_K keys,
// of K and V in the order in which they are multiplied: the first tile of K, then each further one with the tile of V
// before it, and the last tile of V; then, with MASK_STAGES, tiles of the mask (attention_mask_ring.cuh). A tile is a
// sequence of boxes of 64 elements of a head, with swizzled rows of 128 bytes. Elements past the head's size and rows
// past the keys are zero; with RAGGED rows past the keys of a sequence may be those of the next one.
#pragma once
#include "attention_work.cuh"
#include "hopper_ring.cuh"
#include "shared_rows.cuh"

// Params, and what the host encodes for each launch (programs/core/tensor_maps.py).
struct MappedParams : Params {
    TensorMap q_map, k_map, v_map;
#if MASK_STAGES
    TensorMap mask_map;
#endif
};
static_assert(sizeof(MappedParams) == 896 + 128 * (3 + (MASK_STAGES > 0)), "MappedParams is Params and the maps.");

constexpr int UNIT = 64, ATOM = 1024; // elements to a row of a box; bytes of eight rows: the swizzle repeats
// Boxes of Q have all heads of a group of each of their queries: up to SPARE rows more than a tile.
constexpr int SPARE = 8;
constexpr int BOXES = divide_up(HEAD, UNIT), QUERY_BOX = (BLOCK_Q + SPARE) * 128, TILE_BOX = BLOCK_K * 128;
constexpr int QUERIES = ATOM, RING = QUERIES + BOXES * QUERY_BOX, SLOT_BYTES = BOXES * TILE_BOX;

DEVICE sptr<u64> queries_full() {
    return shared_base().as<u64>() + 2 * STAGES;
}
// Arrivals at this mbarrier let a warpgroup issue its products.
DEVICE sptr<u64> turn_of(int group) {
    return shared_base().as<u64>() + (2 * STAGES + 1 + group);
}
// Arrivals at this mbarrier report that values after a sequence's last key have become zeros.
DEVICE sptr<u64> values_cleared() {
    return shared_base().as<u64>() + (2 * STAGES + 1 + CONSUMERS);
}
DEVICE sptr<u8> tile_in(int slot) {
    return shared_base() + (RING + slot * SLOT_BYTES);
}

#if MASK_STAGES
#include "attention_mask_ring.cuh"
#endif

// One thread: makes the mbarriers. The barrier of the block must follow.
DEVICE void make_ring() {
    UNROLL for (int slot = 0; slot < STAGES; ++slot) {
        mbarrier_init(full(slot), 1);
        mbarrier_init(empty(slot), 4 * CONSUMERS);
    }
    mbarrier_init(queries_full(), 1);
    if constexpr (CONSUMERS > 1)
        UNROLL for (int group = 0; group < CONSUMERS; ++group) mbarrier_init(turn_of(group), 4);
    if constexpr (RAGGED)
        mbarrier_init(values_cleared(), 4 * CONSUMERS);
#if MASK_STAGES
    make_mask_ring();
#endif
    mbarrier_fence();
}

// One lane of each warp gives a buffer back.
DEVICE void release(int slot) {
    if ((thread_index() & 31) == 0)
        mbarrier_arrive(empty(slot));
}

#if RAGGED
// All lanes of a warp have the same work, which the compiler does not see where they have found it by shuffles: slots
// of the ring, and with them descriptors, would be taken from every lane.
DEVICE void share_work(Work &work) {
    work.row = warp_uniform(work.row), work.end = warp_uniform(work.end), work.rows = warp_uniform(work.rows);
    work.key_begin = warp_uniform(work.key_begin), work.key_end = warp_uniform(work.key_end);
    work.seen = warp_uniform(work.seen), work.seen_from = warp_uniform(work.seen_from);
    work.first_query = warp_uniform(work.first_query), work.first_key = warp_uniform(work.first_key);
    work.keys = warp_uniform(work.keys), work.place = warp_uniform(work.place);
}

// Multiplying warps: values of the tile from `key` on, the last one, become zeros after the sequence's last key. Their
// weights are zero, but the copy may have brought infinities of the next sequence. `turn` is after that tile's keys.
DEVICE void clear_values(const Work &work, i32 key, Turn turn, int steps) {
    const i32 keys = work.keys - key;
    if (!within(keys, BLOCK_K))
        return;
    cover("cleared");
    if (within(1, steps)) // the next tile of keys comes first
        turn.next();
    mbarrier_wait(full(turn.slot), turn.parity);
    constexpr int PIECES = 128 / 16; // of a row
    UNROLL for (int box = 0; box < BOXES; ++box) for (i32 piece = keys * PIECES + thread_index();
                                                      within(piece, BLOCK_K * PIECES); piece += 128 * CONSUMERS)
        store_shared(tile_in(turn.slot) + (box * TILE_BOX + piece * 16), Vec<16>::zero());
    proxy_fence();
    warp_barrier();
    if ((thread_index() & 31) == 0)
        mbarrier_arrive(values_cleared());
    mbarrier_wait(values_cleared(), 0);
}
#endif

// Warpgroups issue their products in turn, beginning with the first warpgroup; `round` counts a warpgroup's turns.
DEVICE void take_turn(int group, u32 round) {
    if constexpr (CONSUMERS > 1)
        mbarrier_wait(turn_of(group), (round & 1) ^ (u32)(group == 0));
}
DEVICE void pass_turn(int group, u32 &round) {
    if (CONSUMERS > 1 && (thread_index() & 31) == 0)
        mbarrier_arrive(turn_of(group + 1 == CONSUMERS ? 0 : group + 1));
    ++round;
}

// The slabs of the staged epilogue take the place of Q and the ring, after all warpgroups have finished multiplying.
DEVICE void leave_ring() {
    if constexpr (EPILOGUE_STAGED)
        barrier();
}

// Coordinate of the batch entry along an axis of an operand's tensor map: an axis of stride 0 has a single entry.
DEVICE i32 entry_along(i64 stride, i32 index) {
    return stride == 0 ? 0 : index;
}

// The elected thread of a warp requests Q, and the tiles of K and V as buffers become free.
DEVICE void produce(const MappedParams &params, const Work &work, int steps) {
    if (!elect_one() || !within(0, steps))
        return;
    const i32 group = params.batch_inner[1], head = work.batch.index[1], entry = work.batch.index[0];
    mbarrier_expect(queries_full(), BOXES * divide_up(BLOCK_Q, group) * group * 128);
    const i32 first_query = work.row / group + (RAGGED ? work.first_query : 0);
    i32 q_at[5] = {0, 0, first_query, entry_along(params.a_batch[1], head), entry_along(params.a_batch[0], entry)};
    UNROLL for (int box = 0; box < BOXES; ++box) {
        copy_tensor(shared_base() + (QUERIES + box * QUERY_BOX), params.q_map, q_at, queries_full());
        q_at[0] += UNIT;
    }
    const i32 last = work.key_begin + (steps - 1) * BLOCK_K + (RAGGED ? work.first_key : 0);
    i32 k_at[5] = {0, last, entry_along(params.b_batch[1], head), entry_along(params.b_batch[0], entry), 0};
    i32 v_at[5] = {0, last, entry_along(params.d_batch[1], head), entry_along(params.d_batch[0], entry), 0};
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
