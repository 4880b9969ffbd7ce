// Two kernels per rule of mbarriers, tensor copies, clusters and the exchange of registers, as in classic.cu.
//
// The maps of a and c describe 64 rows of 128 bytes, which are one box.
#define MAPPED
#include "rules.cuh"

constexpr int BOX = 8192;

DEVICE sptr<u64> mbarrier(int i = 0) {
    return shared_base().as<u64>() + i;
}
DEVICE sptr<u8> tile(int i = 0) {
    return shared_base() + (1024 + i * BOX);
}
DEVICE void make_mbarriers(int arrivals = 1) {
    if (thread_index() == 0) {
        mbarrier_init(mbarrier(0), arrivals);
        mbarrier_init(mbarrier(1), arrivals);
        mbarrier_fence();
    }
    barrier();
}
// Lets the first thread request a whole box.
DEVICE void request(const Arguments &params, sptr<u8> to, int i = 0, int bytes = BOX) {
    if (thread_index() != 0)
        return;
    const i32 at[5] = {0, 0, 0, 0, 0};
    mbarrier_expect(mbarrier(i), bytes);
    copy_tensor(to, params.a_map, at, mbarrier(i));
}
// ---- mbarriers (PTX ISA 9.7.13.15)

RULE(count_of_an_mbarrier, 32, "invalid", "mbarrier") {
    make_mbarriers(WRONG ? 1 << 20 : (1 << 20) - 1);
    finish(params, word(params));
}
RULE(alignment_of_an_mbarrier, 32, "misaligned", "misaligned") {
    if (thread_index() == 0)
        mbarrier_init(sptr<u64>(shared_base().address + (WRONG ? 4 : 8)), 1);
    barrier();
    finish(params, word(params));
}
RULE(one_life_of_an_mbarrier, 32, "invalid", "in_flight") {
    make_mbarriers();
    if (thread_index() == 0)
        mbarrier_init(mbarrier(WRONG ? 0 : 2), 1);
    barrier();
    finish(params, word(params));
}
RULE(mbarrier_that_was_initialised, 32, "invalid", "mbarrier") {
    make_mbarriers();
    if (thread_index() == 0)
        mbarrier_arrive(mbarrier(WRONG ? 2 : 1));
    barrier();
    finish(params, word(params));
}
RULE(memory_of_an_mbarrier, 32, "invalid", "in_flight") {
    make_mbarriers();
    if (thread_index() == 0)
        store_shared(shared_base() + (WRONG ? 8 : 16), Vec<8>::zero());
    barrier();
    finish(params, word(params));
}
RULE(wait_before_the_next_phase, 32, "invalid", "mbarrier") {
    make_mbarriers();
    if (thread_index() == 0) {
        mbarrier_arrive(mbarrier());
        if (!WRONG)
            mbarrier_wait(mbarrier(), 0);
        mbarrier_arrive(mbarrier());
        mbarrier_wait(mbarrier(), 1);
    }
    barrier();
    finish(params, word(params));
}
RULE(parity_of_a_phase, 32, "invalid", "mbarrier") {
    make_mbarriers();
    mbarrier_wait(mbarrier(), WRONG ? 3 : 1);
    finish(params, word(params));
}
RULE(bytes_of_a_phase, 32, "invalid", "transaction") {
    make_mbarriers();
    if (thread_index() == 0) {
        if (WRONG)
            mbarrier_expect(mbarrier(), 1 << 20);
        else
            request(params, tile());
    }
    if (!WRONG)
        mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(bytes_that_nobody_brings, 32, "deadlock", "deadlock") {
    make_mbarriers();
    request(params, tile(), 0, WRONG ? BOX + 16 : BOX);
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(bytes_of_all_copies, 32, "race", "in_flight|transaction") {
    make_mbarriers();
    request(params, tile(), 0, WRONG ? 0 : BOX);
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(fence_behind_an_initialisation, 32, "race", "mbarrier") {
    if (thread_index() == 0) {
        mbarrier_init(mbarrier(), 1);
        if (!WRONG)
            mbarrier_fence();
    }
    barrier();
    request(params, tile());
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}

// ---- Tensor copies (5.5, 9.7.9.27.1)

RULE(alignment_of_a_tile, 32, "misaligned", "misaligned") {
    make_mbarriers();
    request(params, tile() + (WRONG ? 64 : 1024));
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(extent_of_a_tile, 32, "out_of_bounds", "out_of_bounds") {
    make_mbarriers();
    const sptr<u8> last = shared_base() + (SHARED - BOX + (WRONG ? 1024 : 0));
    request(params, last);
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(tile_over_an_mbarrier, 32, "invalid", "in_flight") {
    make_mbarriers();
    const sptr<u8> to = WRONG ? shared_base() : tile();
    request(params, to);
    mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}
RULE(loads_behind_a_copy, 32, "race", "in_flight") {
    make_mbarriers();
    request(params, tile());
    if (!WRONG)
        mbarrier_wait(mbarrier(), 0);
    const Vec<16> found = load_shared<16>(tile() + thread_index() * 16);
    mbarrier_wait(mbarrier(), 0);
    finish(params, found);
}
RULE(copies_behind_loads, 32, "race", "race|in_flight") {
    make_mbarriers();
    request(params, tile(), 0);
    mbarrier_wait(mbarrier(0), 0);
    const Vec<16> found = load_shared<16>(tile() + thread_index() * 16);
    if (!WRONG)
        warp_barrier();
    request(params, tile(), 1);
    mbarrier_wait(mbarrier(1), 0);
    finish(params, found);
}
RULE(tile_of_two_copies, 32, "race", "in_flight") {
    make_mbarriers();
    if (thread_index() == 0) {
        request(params, tile(), 0);
        request(params, tile(WRONG ? 0 : 1), 1);
    }
    mbarrier_wait(mbarrier(0), 0);
    mbarrier_wait(mbarrier(1), 0);
    finish(params, word(params));
}
RULE(end_with_a_copy_on_its_way, 32, "race", "in_flight") {
    make_mbarriers();
    request(params, tile());
    if (!WRONG)
        mbarrier_wait(mbarrier(), 0);
    finish(params, word(params));
}

// ---- Tensor stores and proxies (9.7.9.25.2, 9.7.9.27.1, 9.7.13.4)

DEVICE void fill(const Params &params) {
    for (int row = 0; row < 16; ++row)
        store_shared(tile() + (row * 32 + thread_index()) * 16,
                     load_global<16>(given(params, row * 512 + thread_index() * 16), true));
}
DEVICE void send(const Arguments &params) {
    const i32 at[5] = {0, 0, 0, 0, 0};
    store_tensor(params.c_map, tile(), at);
    store_tensor_commit();
}
RULE(fence_before_a_tensor_store, 32, "race", "unfenced") {
    make_mbarriers();
    fill(params);
    if (!WRONG)
        proxy_fence();
    barrier();
    if (thread_index() == 0) {
        send(params);
        store_tensor_wait<0>();
    }
}
RULE(source_of_a_tensor_store, 32, "race", "in_flight") {
    make_mbarriers();
    fill(params);
    proxy_fence();
    barrier();
    if (thread_index() == 0) {
        send(params);
        store_tensor_wait<WRONG ? 1 : 0>();
        store_shared(tile(), Vec<16>::zero());
        store_tensor_wait<0>();
    }
}
RULE(end_with_a_tensor_store_on_its_way, 32, "race", "in_flight") {
    make_mbarriers();
    fill(params);
    proxy_fence();
    barrier();
    if (thread_index() == 0) {
        send(params);
        if (!WRONG)
            store_tensor_wait<0>();
    }
}

// ---- The elected lane of a warp, and values that its lanes share (9.7.13)

RULE(members_of_an_election, 32, "divergent", "divergent") {
    bool leads = false;
    if (!WRONG || within(thread_index(), 16))
        leads = elect_one();
    warp_barrier();
    finish(params, shuffle_xor(leads ? 1u : 0u, 31) & 0u);
}
RULE(one_value_of_a_warp, 32, "invalid", "results") {
    finish(params, (u32)warp_uniform(WRONG ? thread_index() + 7 : 38));
}

RULE(rows_of_stmatrix, 32, "misaligned", "misaligned") {
    const Vec<16> x = word(params);
    const u32 r[4] = {x.word[0], x.word[1], x.word[2], x.word[3]};
    store_shared(slot(thread_index() + 32), x);
    warp_barrier();
    store_matrix(slot(thread_index()) + (WRONG ? 8 : 0), r);
    warp_barrier();
    finish(params, load_shared<16>(slot(thread_index())));
}
RULE(aligned_stmatrix, 32, "divergent|deadlock", "divergent") {
    const Vec<16> x = word(params);
    const u32 r[4] = {x.word[0], x.word[1], x.word[2], x.word[3]};
    store_shared(slot(thread_index()), x);
    warp_barrier();
    if (!WRONG || within(thread_index(), 16))
        store_matrix(slot(thread_index()), r);
    warp_barrier();
    finish(params, load_shared<16>(slot(thread_index())));
}

// ---- Clusters (9.7.9.23, 9.7.13.3)

#define PAIRED(name, Params, threads, min_blocks) CLUSTERED_KERNEL(name, Params, threads, min_blocks, 2)
#define PAIR_RULE(name, threads, ...) RULE_OF(PAIRED, name, threads, 1)

DEVICE void make_mbarriers_of_pairs(int arrivals) {
    if (thread_index() == 0) {
        mbarrier_init(mbarrier(), arrivals);
        mbarrier_fence();
    }
    cluster_barrier();
}
PAIR_RULE(rank_in_a_cluster, 32, "invalid", "out_of_bounds") {
    make_mbarriers_of_pairs(1);
    if (thread_index() == 0)
        mbarrier_arrive_at(mbarrier(), WRONG ? 2 : 1 - block_index());
    mbarrier_wait(mbarrier(), WRONG ? 1 : 0);
    cluster_barrier();
    finish(params, word(params));
}
PAIR_RULE(blocks_that_get_a_tile, 32, "invalid", "invalid") {
    make_mbarriers_of_pairs(1);
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (thread_index() == 0) {
        mbarrier_expect(mbarrier(), BOX);
        if (block_index() == 0)
            copy_tensor(tile(), params.a_map, at, mbarrier(), WRONG ? 7 : 3);
    }
    mbarrier_wait(mbarrier(), 0);
    cluster_barrier();
    finish(params, word(params));
}
PAIR_RULE(tile_for_no_block, 32, "invalid", "invalid") {
    make_mbarriers_of_pairs(1);
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (thread_index() == 0) {
        mbarrier_expect(mbarrier(), BOX);
        copy_tensor(tile(), params.a_map, at, mbarrier(), WRONG ? 0 : 1 << block_index());
    }
    mbarrier_wait(mbarrier(), 0);
    cluster_barrier();
    finish(params, word(params));
}
PAIR_RULE(end_of_a_block_that_others_reach_for, 32, "race", "ended") {
    make_mbarriers_of_pairs(1);
    finish(params, word(params));
    if (block_index() == 0) {
        if (thread_index() == 0) {
            if (WRONG)
                take_flag(gptr<u64>(params.workspace), 1);
            mbarrier_arrive_at(mbarrier(), 1);
        }
    } else if (WRONG) {
        if (thread_index() == 0)
            give_flag(gptr<u64>(params.workspace), 1);
        return;
    } else {
        mbarrier_wait(mbarrier(), 0);
    }
    cluster_barrier();
}
PAIR_RULE(what_a_relaxed_arrival_releases, 32, "race", "race|unordered") {
    const sptr<u8> own = tile() + thread_index() * 16, other = tile() + (thread_index() ^ 1) * 16;
    store_shared(own, word(params));
    if (WRONG)
        cluster_begin();
    else
        cluster_barrier();
    finish(params, load_shared<16>(other));
}
PAIR_RULE(barrier_before_others_are_reached_for, 32, "race|invalid", "mbarrier") {
    if (thread_index() == 0) {
        mbarrier_init(mbarrier(), 1);
        mbarrier_fence();
    }
    if (WRONG)
        barrier();
    else
        cluster_barrier();
    if (thread_index() == 0)
        mbarrier_arrive_at(mbarrier(), 1 - block_index());
    mbarrier_wait(mbarrier(), 0);
    cluster_barrier();
    finish(params, word(params));
}

// ---- Exchange of registers (9.7.19.5)

RULE(registers_of_setmaxnreg, 128, "invalid", "registers") {
    make_mbarriers();
    give_registers<256, WRONG ? 36 : 40>();
    finish(params, word(params));
}
RULE(range_of_setmaxnreg, 128, "invalid", "registers") {
    make_mbarriers();
    give_registers<256, WRONG ? 16 : 24>();
    finish(params, word(params));
}
RULE(registers_of_a_launch, 256, "invalid", "unseen") {
    make_mbarriers();
    give_registers<WRONG ? 264 : 256, 40>();
    finish(params, word(params));
}
RULE(registers_that_nobody_gave, 384, "deadlock", "registers") {
    make_mbarriers();
    if (thread_index() < 128)
        give_registers<168, WRONG ? 168 : 40>();
    else
        take_registers<168, 232>();
    finish(params, word(params));
}
RULE(setmaxnreg_of_a_warpgroup, 128, "divergent", "registers") {
    make_mbarriers();
    if (!WRONG || thread_index() < 96)
        give_registers<256, 40>();
    finish(params, word(params));
}
