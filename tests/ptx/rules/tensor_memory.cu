// Two kernels per rule of tensor memory (PTX ISA 9.7.16), as in classic.cu.
#include "tensor_memory.cuh"

// ---- allocation (9.7.16.7)

RULE(columns_of_an_allocation, 32, "invalid", "tensor") {
    allocate_and_see<1, WRONG ? 96 : 64>();
    tensor_free<1, WRONG ? 96 : 64>(memory());
    finish(params, word(params));
}
RULE(tensor_memory_of_a_multiprocessor, 32, "deadlock", "deadlock") {
    allocate_and_see<1, 512>(0);
    if (!WRONG)
        tensor_free<1, 512>(memory(0));
    allocate_and_see<1, 32>(1);
    if (WRONG)
        tensor_free<1, 512>(memory(0));
    tensor_free<1, 32>(memory(1));
    finish(params, word(params));
}
RULE(permit_to_allocate, 32, "invalid", "tensor") {
    if (WRONG)
        tensor_alloc_last<1>();
    allocate_and_see<1, 32>();
    if (!WRONG)
        tensor_alloc_last<1>();
    tensor_free<1, 32>(memory());
    finish(params, word(params));
}
RULE(columns_of_a_free, 32, "invalid", "tensor") {
    allocate_and_see<1, 64>();
    tensor_free<1, WRONG ? 32 : 64>(memory());
    finish(params, word(params));
}
RULE(end_without_a_free, 32, "invalid", "tensor") {
    allocate_and_see<1, 64>();
    if (!WRONG)
        tensor_free<1, 64>(memory());
    finish(params, word(params));
}
RULE(lanes_of_an_allocation, 32, "divergent|uninitialised", "uninitialised") {
    if (!WRONG || thread_index() < 16)
        allocate_and_see<1, 64>();
    tensor_free<1, 64>(memory());
    finish(params, word(params));
}
RULE(order_of_an_address, 64, "race|uninitialised", "race") {
    if (thread_index() < 32)
        tensor_alloc<1, 64>(where());
    if (!WRONG)
        barrier();
    const u32 address = memory();
    barrier();
    if (thread_index() < 32)
        tensor_free<1, 64>(address);
    finish(params, word(params));
}
RULE(free_after_products, 128, "race", "in_flight") {
    issue(params);
    if (!WRONG)
        observe();
    free_all();
    mbarrier_wait(mbarrier(1), 0);
    finish(params, word(params));
}
RULE(free_after_loads, 128, "race", "race") {
    Sums sums;
    issue(params);
    observe();
    load(sums);
    if (!WRONG)
        barrier();
    if (thread_index() / 32 == 3)
        tensor_free<1, COLUMNS>(memory());
    finish(params, (float (&)[4])sums);
}

// ---- the operands of products (9.7.16.4, 9.7.16.10.9)

RULE(columns_of_a_product, 128, "out_of_bounds", "tensor") {
    begin(params);
    if (first())
        umma<1, half_t>(memory() + (WRONG ? 16 : 0), described(0), described(2), instructed(), false);
    show(params);
}
RULE(sums_of_nothing, 128, "uninitialised", "uninitialised") {
    begin(params);
    if (first()) {
        if (!WRONG)
            multiply();
        multiply(true);
    }
    show(params);
}
RULE(lane_of_a_product, 128, "invalid", "tensor") {
    begin(params);
    if (first())
        umma<1, half_t>(memory() + (WRONG ? 32 << 16 : 0), described(0), described(2), instructed(), false);
    show(params);
}
RULE(rows_of_an_instruction, 128, "invalid", "invalid") {
    multiply_as(params, instructed(WRONG ? 256 : 128));
}
RULE(steps_of_columns, 128, "invalid", "uninitialised") {
    multiply_as(params, instructed() - (WRONG ? 1 << 17 : 0));
}
RULE(type_of_an_instruction, 128, "invalid", "results") {
    multiply_as(params, WRONG ? instruction_descriptor<bfloat16_t, half_t>(128, COLUMNS, false, false) : instructed());
}
RULE(sums_of_an_instruction, 128, "invalid", "invalid") {
    multiply_as(params, instructed() ^ (WRONG ? 3 << 4 : 0));
}
RULE(kind_of_an_instruction, 128, "invalid", "invalid") {
    multiply_as(params, instructed() | (WRONG ? 2 << 7 | 2 << 10 : 0));
}
RULE(reserved_bits_of_an_instruction, 128, "invalid", "invalid") {
    multiply_as(params, instructed() | (WRONG ? 1 << 29 : 0));
}
RULE(version_of_a_descriptor, 128, "invalid", "invalid") {
    multiply_as(params, instructed(), described(0) ^ (WRONG ? (u64)1 << 46 : 0));
}
RULE(swizzle_of_a_descriptor, 128, "invalid", "not_executed") {
    multiply_as(params, instructed(), described(0) ^ (WRONG ? (u64)3 << 61 : 0));
}
RULE(rows_of_a_descriptor, 128, "invalid", "results") {
    multiply_as(params, instructed(), described(0, WRONG ? 128 : 32));
}
RULE(extent_of_a_tile, 128, "out_of_bounds", "out_of_bounds") {
    multiply_as(params, instructed(), tensor_descriptor(matrix_descriptor(tile(0), 16, WRONG ? 65536 : 1024)));
}
RULE(transposed_floats, 128, "invalid", "not_executed") {
    begin(params);
    if (first())
        umma<1, float>(memory(), described(0), described(2),
                       instruction_descriptor<float, float>(128, COLUMNS, WRONG, false), false);
    show(params);
}

// ---- what a product reads in shared memory

RULE(products_after_copies, 128, "race", "in_flight") {
    make_mbarriers();
    allocate();
    if (first()) {
        request(params);
        if (!WRONG)
            mbarrier_wait(mbarrier(0), 0);
        multiply();
    }
    mbarrier_wait(mbarrier(0), 0);
    show(params);
}
RULE(tiles_of_a_product, 128, "uninitialised", "uninitialised") {
    make_mbarriers();
    allocate();
    if (first()) {
        request(params, WRONG ? 2 : 3);
        mbarrier_wait(mbarrier(0), 0);
        multiply();
    }
    show(params);
}
RULE(stores_before_a_product, 128, "race", "unfenced") {
    begin(params);
    mbarrier_wait(mbarrier(0), 0);
    store_shared(tile(0) + thread_index() * 16, word(params));
    if (!WRONG)
        proxy_fence();
    barrier();
    if (first())
        multiply();
    show(params);
}
RULE(copies_after_products, 128, "race", "in_flight") {
    begin(params);
    if (first()) {
        const i32 at[5] = {0, 32, 0, 0, 0};
        multiply();
        umma_commit<1>(mbarrier(2));
        if (!WRONG)
            mbarrier_wait(mbarrier(2), 0);
        mbarrier_expect(mbarrier(0), BOX);
        copy_tensor(tile(0), params.a_map, at, mbarrier(0));
        mbarrier_wait(mbarrier(0), 1);
        mbarrier_wait(mbarrier(2), 0);
    }
    show(params);
}

// ---- commits, fences and the order of products (9.7.16.6)

RULE(wait_for_a_commit, 128, "race", "race") {
    Sums sums;
    issue(params);
    if (WRONG)
        barrier();
    else
        mbarrier_wait(mbarrier(1), 0);
    tensor_fence_after();
    load(sums);
    mbarrier_wait(mbarrier(1), 0);
    end(params, sums);
}
RULE(products_of_a_commit, 128, "race", "race") {
    begin(params);
    if (first()) {
        multiply();
        if (WRONG)
            umma_commit<1>(mbarrier(1));
        multiply(true);
        if (!WRONG)
            umma_commit<1>(mbarrier(1));
    }
    Sums sums;
    observe();
    load(sums);
    if (first())
        umma_commit<1>(mbarrier(2));
    observe(2);
    end(params, sums);
}
RULE(thread_of_a_commit, 128, "race", "race") {
    begin(params);
    if (first())
        multiply();
    barrier();
    Sums sums;
    if (thread_index() == (WRONG ? 1 : 0))
        umma_commit<1>(mbarrier(1));
    observe();
    load(sums);
    if (first())
        umma_commit<1>(mbarrier(2));
    observe(2);
    end(params, sums);
}
RULE(mbarrier_of_a_commit, 128, "invalid", "mbarrier") {
    begin(params);
    if (first())
        multiply();
    if (first() && WRONG)
        umma_commit<1>(mbarrier(6));
    show(params);
}
RULE(end_with_a_commit_on_its_way, 128, "race", "in_flight") {
    begin(params);
    if (first())
        multiply();
    show(params);
    if (first())
        umma_commit<1>(mbarrier(2));
    if (!WRONG)
        mbarrier_wait(mbarrier(2), 0);
}
RULE(fence_after_a_commit, 128, "race", "race") {
    Sums sums;
    issue(params);
    mbarrier_wait(mbarrier(1), 0);
    if (!WRONG)
        tensor_fence_after();
    load(sums);
    end(params, sums);
}
RULE(fence_of_every_lane, 128, "race", "race") {
    Sums sums;
    issue(params);
    mbarrier_wait(mbarrier(1), 0);
    if (!WRONG || thread_index() % 32 != 5)
        tensor_fence_after();
    load(sums);
    end(params, sums);
}
RULE(shape_of_products_in_order, 128, "race", "race") {
    begin(params);
    if (first()) {
        multiply();
        if (!WRONG) {
            umma_commit<1>(mbarrier(2));
            observe(2);
        }
        multiply(false, instructed(128, 32));
    }
    show(params);
}
RULE(products_of_two_threads, 128, "race", "race") {
    begin(params);
    if (first()) {
        multiply();
        umma_commit<1>(mbarrier(2));
    }
    if (thread_index() == 64)
        mbarrier_wait(mbarrier(0), 0);
    if (!WRONG)
        observe(2);
    if (thread_index() == 64) {
        multiply(true);
        umma_commit<1>(mbarrier(1));
    }
    mbarrier_wait(mbarrier(2), 0);
    observe();
    Sums sums;
    load(sums);
    end(params, sums);
}

// ---- loads (9.7.16.8)

RULE(lanes_of_a_warp, 128, "out_of_bounds", "tensor") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, WRONG ? memory() : own_lanes());
    wait_for(sums);
    end(params, sums);
}
RULE(halves_of_lanes, 128, "out_of_bounds", "tensor") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, own_lanes() + ((WRONG ? 8 : 16) << 16));
    wait_for(sums);
    end(params, sums);
}
RULE(columns_of_a_load, 128, "out_of_bounds", "tensor") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, own_lanes() + (WRONG ? 16 : 0));
    wait_for(sums);
    end(params, sums);
}
RULE(sums_that_nothing_wrote, 128, "uninitialised", "uninitialised") {
    Sums sums;
    begin(params);
    if (first()) {
        multiply(false, instructed(128, WRONG ? 32 : COLUMNS));
        umma_commit<1>(mbarrier(1));
    }
    observe();
    load(sums);
    end(params, sums);
}
RULE(members_of_a_load, 128, "divergent|deadlock", "divergent") {
    Sums sums;
    issue(params);
    observe();
    if (!WRONG || thread_index() != 5)
        load(sums);
    end(params, sums);
}
RULE(address_of_a_load, 128, "invalid", "invalid") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<16>((float (&)[8])sums, own_lanes() + (WRONG && thread_index() % 32 == 5 ? 16 : 0));
    wait_for(sums);
    finish(params, (float (&)[4])sums);
    free_all();
}
RULE(wait_for_a_load, 128, "results", "in_flight") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, own_lanes());
    if (!WRONG)
        wait_for(sums);
    finish(params, (float (&)[4])sums);
    wait_for(sums);
    free_all();
}
RULE(registers_of_a_load, 128, "race", "results") {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, own_lanes());
    if (WRONG)
        sums[7] = 3;
    wait_for(sums);
    end(params, sums);
}
// Loads, and lets the first thread overwrite the sums after four warps have arrived.
template <bool WAITED, bool BEFORE, bool ALL, bool SYNCHRONISED, bool AFTER>
DEVICE void overwrite(const Arguments &params) {
    Sums sums;
    issue(params);
    observe();
    tensor_load<COLUMNS>(sums, own_lanes());
    if (WAITED)
        tensor_load_wait(sums);
    if (BEFORE && (ALL || thread_index() % 32 == 0))
        tensor_fence_before();
    warp_barrier();
    if (thread_index() % 32 == 0)
        mbarrier_arrive(mbarrier(3));
    if (first()) {
        if (SYNCHRONISED)
            mbarrier_wait(mbarrier(3), 0);
        if (AFTER)
            tensor_fence_after();
        multiply();
        umma_commit<1>(mbarrier(2));
    }
    if (!WAITED)
        tensor_load_wait(sums);
    tensor_fence_before();
    mbarrier_wait(mbarrier(2), 0);
    end(params, sums);
}
RULE(wait_before_an_arrival, 128, "race", "race") {
    overwrite<!WRONG, true, true, true, true>(params);
}
RULE(fence_before_an_arrival, 128, "race", "race") {
    overwrite<true, !WRONG, true, true, true>(params);
}
RULE(fence_of_every_lane_that_loads, 128, "race", "race") {
    overwrite<true, true, !WRONG, true, true>(params);
}
RULE(products_after_loads, 128, "race", "race") {
    overwrite<true, true, true, !WRONG, true>(params);
}
RULE(fence_before_a_product, 128, "race", "race") {
    overwrite<true, true, true, true, !WRONG>(params);
}

// ---- pairs of blocks

DEVICE void issue_pair(u32 instruction = instructed(256, 128), int block = 0) {
    if (first() && block_index() == block) {
        umma<2, half_t>(memory(), described(0), described(2), instruction, false);
        umma_commit<2>(mbarrier(1));
    }
}
DEVICE void end_pair(const Arguments &params) {
    Sums sums;
    observe();
    tensor_load<COLUMNS>(sums, own_lanes() + 16 * block_index());
    wait_for(sums);
    end<2>(params, sums);
}
PAIR_RULE(rows_of_a_pair, 128, "invalid", "uninitialised") {
    begin_pair(params);
    issue_pair(instructed(WRONG ? 128 : 256, 128));
    end_pair(params);
}
PAIR_RULE(columns_of_a_pair, 128, "invalid", "results") {
    begin_pair(params);
    issue_pair(instructed(256, WRONG ? 112 : 128));
    end_pair(params);
}
PAIR_RULE(issuer_of_a_pair, 128, "invalid", "uninitialised") {
    begin_pair(params);
    issue_pair(instructed(256, 128), WRONG ? 1 : 0);
    end_pair(params);
}
PAIR_RULE(blocks_of_an_allocation, 32, "deadlock|race", "deadlock") {
    if (!WRONG || block_index() == 0)
        allocate_and_see<2, 64>();
    if (!WRONG || block_index() == 0)
        tensor_free<2, 64>(memory());
    finish(params, word(params));
}
PAIR_RULE(one_allocation_of_a_pair, 32, "divergent", "tensor") {
    if (!WRONG || block_index() == 0)
        allocate_and_see<2, 64>();
    else
        allocate_and_see<2, 32>();
    if (!WRONG || block_index() == 0)
        tensor_free<2, 64>(memory());
    else
        tensor_free<2, 32>(memory());
    finish(params, word(params));
}
PAIR_RULE(commit_of_both_blocks, 128, "race|uninitialised", "uninitialised") {
    begin_pair(params);
    issue_pair();
    Sums sums;
    if (!WRONG || block_index() == 0)
        mbarrier_wait(mbarrier(1), 0);
    tensor_fence_after();
    tensor_load<COLUMNS>(sums, own_lanes());
    tensor_load_wait(sums);
    mbarrier_wait(mbarrier(1), 0);
    tensor_fence_before();
    end<2>(params, sums);
}
PAIR_RULE(tiles_of_the_second_block, 128, "race", "race") {
    make_mbarriers<2>();
    allocate<2>();
    if (first() && WRONG)
        request(params);
    else
        copy_halves(params);
    if (first())
        mbarrier_wait(mbarrier(0), WRONG || block_index() == 0 ? 0 : 1);
    if (first())
        mbarrier_arrive_at(mbarrier(4), 0);
    if (first() && block_index() == 0)
        mbarrier_wait(mbarrier(4), 0);
    issue_pair();
    end_pair(params);
}
PAIR_RULE(tile_of_both_blocks, 128, "uninitialised", "uninitialised") {
    make_mbarriers<2>();
    allocate<2>();
    if (first() && block_index() == 0)
        mbarrier_expect(mbarrier(0), (WRONG ? 5 : 6) * BOX);
    const i32 at[5] = {0, 0, 0, 0, 0};
    for (int i = 0; i < (WRONG && block_index() ? 2 : 3) && first(); ++i)
        copy_tensor_of_pair(tile(i), i < 2 ? params.a_map : params.b_map, at, mbarrier(0));
    if (first() && block_index() == 0)
        mbarrier_wait(mbarrier(0), 0);
    issue_pair();
    end_pair(params);
}
PAIR_RULE(one_group_of_a_kernel, 128, "invalid", "tensor") {
    begin_pair(params);
    issue_pair();
    if (WRONG && first())
        umma_commit<1>(mbarrier(2));
    end_pair(params);
}
PAIR_RULE(lanes_that_left_a_cluster, 32, "divergent", "divergent") {
    allocate_and_see<2, 64>();
    cluster_barrier();
    if (!WRONG)
        warp_barrier();
    tensor_free<2, 64>(memory());
    finish(params, word(params));
}
RULE(pair_without_a_cluster, 32, "invalid", "tensor") {
    allocate_and_see<WRONG ? 2 : 1, 64>();
    tensor_free<WRONG ? 2 : 1, 64>(memory());
    finish(params, word(params));
}

// ---- two pairs of blocks: block 0 copies a tile, or commits, to both pairs

// There is room for the results of two blocks.
DEVICE void finish_two(const Params &params) {
    if (block_index() < 2)
        finish(params, word(params));
}
// The last step of the first block of the other pair, which ends at once where the rule is broken.
template <bool WRONG>
DEVICE void leave_or_wait(int i) {
    if (!WRONG && first() && block_index() == 2)
        mbarrier_wait(mbarrier(i), 0);
}
PAIRS_RULE(end_of_a_block_that_gets_a_tile, 128, "race", "in_flight|ended|transaction") {
    make_mbarriers<2>();
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (first() && block_index() % 2 == 0)
        mbarrier_expect(mbarrier(0), BOX);
    cluster_barrier();
    if (first() && block_index() == 0) {
        copy_tensor_to_pairs(tile(0), params.a_map, at, mbarrier(0), 0, 5);
        mbarrier_wait(mbarrier(0), 0);
    }
    leave_or_wait<WRONG>(0);
    finish_two(params);
}
PAIRS_RULE(mbarriers_of_a_tile_for_both_pairs, 128, "deadlock", "deadlock") {
    make_mbarriers<2>();
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (first() && block_index() % 2 == 0)
        mbarrier_expect(mbarrier(0), BOX);
    cluster_barrier();
    if (first() && block_index() == 0)
        copy_tensor_to_pairs(tile(0), params.a_map, at, mbarrier(0), WRONG ? 1 : 0, 10);
    if (first() && block_index() % 2 == 0)
        mbarrier_wait(mbarrier(0), 0);
    cluster_barrier();
    finish_two(params);
}
PAIRS_RULE(mbarrier_of_a_copy_of_a_pair, 128, "invalid", "invalid") {
    make_mbarriers<2>();
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (first() && block_index() == 2) {
        mbarrier_expect(mbarrier(0), BOX);
        copy_tensor_of_pair(tile(0), params.a_map, at, mbarrier(0), WRONG ? 0 : 2);
        mbarrier_wait(mbarrier(0), 0);
    }
    cluster_barrier();
    finish_two(params);
}
PAIRS_RULE(blocks_of_a_commit, 128, "invalid", "invalid") {
    make_mbarriers<2>();
    if (first() && block_index() == 0)
        umma_commit<2>(mbarrier(1), WRONG ? 16 : 15);
    if (first())
        mbarrier_wait(mbarrier(1), 0);
    cluster_barrier();
    finish_two(params);
}
PAIRS_RULE(commit_of_both_pairs, 128, "deadlock", "deadlock") {
    make_mbarriers<2>();
    if (first() && block_index() == 0)
        umma_commit<2>(mbarrier(1), WRONG ? 3 : 15);
    if (first())
        mbarrier_wait(mbarrier(1), 0);
    cluster_barrier();
    finish_two(params);
}
PAIRS_RULE(end_of_a_block_that_a_commit_reaches, 128, "race", "ended") {
    make_mbarriers<2>();
    if (first() && block_index() == 0) {
        umma_commit<2>(mbarrier(1), 5);
        mbarrier_wait(mbarrier(1), 0);
    }
    cluster_barrier(); // says nothing about the arrival in block 2
    leave_or_wait<WRONG>(1);
    finish_two(params);
}
