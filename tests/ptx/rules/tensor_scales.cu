// Two kernels per rule of scales in tensor memory (PTX ISA 9.7.16.9 and 9.7.16.10.7), as in classic.cu: of products of
// 32 columns, after whose sums the scales are.
#include "tensor_memory.cuh"

DEVICE void copy_scales(int column, u64 from = described(0, 16)) {
    tensor_copy_scales<1>(memory() + column, from);
}
DEVICE void multiply_scaled(u32 instruction = scaled_descriptor<1>(128, 32, 1, 2), int column = 32) {
    umma_scaled<1, 1>(memory(), described(0), described(2), instruction, memory() + column, memory() + 36, false);
}
template <int BLOCKS = 1>
DEVICE void show_scaled(const Arguments &params) {
    if (first() && block_index() == 0)
        umma_commit<BLOCKS>(mbarrier(1));
    observe();
    Sums sums = {};
    tensor_load<32>((float (&)[16])sums, own_lanes());
    wait_for(sums);
    end<BLOCKS>(params, sums);
}
DEVICE void multiply_scaled_as(const Arguments &params, u32 instruction, int column = 32) {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36);
        multiply_scaled(instruction, column);
    }
    show_scaled(params);
}
RULE(type_of_scales, 128, "invalid", "invalid") {
    multiply_scaled_as(params, scaled_descriptor<1>(128, 32, 1, 2) ^ (WRONG ? 1 << 23 : 0));
}
RULE(type_of_scaled_numbers, 128, "invalid", "results") {
    multiply_scaled_as(params, scaled_descriptor<1>(128, 32, 1, 2) | (WRONG ? 5 << 7 : 0));
}
RULE(columns_of_scales, 128, "out_of_bounds|uninitialised", "tensor") {
    multiply_scaled_as(params, scaled_descriptor<1>(128, 32, 1, 2), WRONG ? 62 : 32);
}
RULE(sums_are_no_scales, 128, "invalid", "results") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36);
        multiply_scaled();
        multiply_scaled(scaled_descriptor<1>(128, 32, 1, 2), WRONG ? 0 : 32);
    }
    show_scaled(params);
}
RULE(byte_of_scales, 128, "invalid", "invalid") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36);
        umma_scaled<1, 2>(memory(), described(0), described(2), scaled_descriptor<2>(128, 32, WRONG ? 1 : 2, 0),
                          memory() + 32, memory() + 36, false);
    }
    show_scaled(params);
}
RULE(scales_that_nothing_copied, 128, "uninitialised", "uninitialised") {
    begin(params);
    if (first()) {
        copy_scales(32);
        if (!WRONG)
            copy_scales(36);
        multiply_scaled();
    }
    show_scaled(params);
}
RULE(columns_of_a_copy, 128, "out_of_bounds", "tensor") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36);
        copy_scales(WRONG ? 61 : 60);
        multiply_scaled();
    }
    show_scaled(params);
}
RULE(swizzle_of_scales, 128, "invalid", "not_executed") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36, WRONG ? described(0, 16) ^ (u64)3 << 61 : scales_descriptor(tile(0) + 512));
        multiply_scaled();
    }
    show_scaled(params);
}
RULE(tile_of_scales, 128, "uninitialised|out_of_bounds", "uninitialised") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36, scales_descriptor(tile(0) + (WRONG ? 3 * BOX : 512)));
        multiply_scaled();
    }
    show_scaled(params);
}
RULE(scales_of_another_thread, 128, "race", "race") {
    begin(params);
    if (thread_index() == 64) {
        mbarrier_wait(mbarrier(0), 0);
        copy_scales(32);
        copy_scales(36);
        umma_commit<1>(mbarrier(2));
    }
    if (first()) {
        if (WRONG)
            mbarrier_wait(mbarrier(2), 0);
        else
            observe(2);
        multiply_scaled();
    }
    mbarrier_wait(mbarrier(2), 0);
    show_scaled(params);
}
RULE(copies_after_scaled_products, 128, "race", "race") {
    begin(params);
    if (first()) {
        copy_scales(32);
        copy_scales(36);
        multiply_scaled();
        umma_commit<1>(mbarrier(2));
    }
    if (thread_index() == 64) {
        mbarrier_wait(mbarrier(0), 0);
        if (WRONG)
            mbarrier_wait(mbarrier(2), 0);
        else
            observe(2);
        copy_scales(36);
        umma_commit<1>(mbarrier(3));
        mbarrier_arrive(mbarrier(3));
        mbarrier_arrive(mbarrier(3));
        mbarrier_arrive(mbarrier(3));
    }
    mbarrier_wait(mbarrier(2), 0);
    observe(3);
    show_scaled(params);
}
RULE(tiles_after_copies_of_scales, 128, "race", "in_flight") {
    begin(params);
    if (first()) {
        copy_scales(32, described(1, 16));
        copy_scales(36);
        umma_commit<1>(mbarrier(2));
        if (!WRONG)
            mbarrier_wait(mbarrier(2), 0);
        const i32 at[5] = {0, 0, 0, 0, 0};
        mbarrier_expect(mbarrier(0), BOX);
        copy_tensor(tile(1), params.a_map, at, mbarrier(0));
        mbarrier_wait(mbarrier(0), 1);
        multiply_scaled();
        mbarrier_wait(mbarrier(2), 0);
    }
    show_scaled(params);
}
DEVICE void store_scales(const Arguments &params, bool fenced, bool together) {
    begin(params);
    if (thread_index() / 32 == 1) {
        store_shared(tile(3) + thread_index() % 32 * 16, Vec<16>::zero());
        if (fenced)
            proxy_fence();
    }
    if (together)
        barrier();
    if (first()) {
        copy_scales(32, scales_descriptor(tile(3)));
        copy_scales(36);
        multiply_scaled();
    }
    show_scaled(params);
}
RULE(fence_after_stored_scales, 128, "race|uninitialised", "unfenced") {
    store_scales(params, !WRONG, true);
}
RULE(barrier_after_stored_scales, 128, "race|uninitialised", "unordered|race|uninitialised") {
    store_scales(params, true, !WRONG);
}

// Both blocks of a pair store scales, which a thread of the first block copies.
DEVICE void store_scales_of_a_pair(const Arguments &params, bool wide_arrival, bool wide_wait) {
    begin_pair(params);
    if (thread_index() / 32 == 1) {
        store_shared(tile(3) + thread_index() % 32 * 16, Vec<16>::zero());
        proxy_fence();
        warp_barrier();
        if (thread_index() == 32)
            wide_arrival ? mbarrier_arrive_in_pair(mbarrier(4)) : mbarrier_arrive_at(mbarrier(4), 0);
    }
    if (first() && block_index() == 0) {
        wide_wait ? mbarrier_wait_in_pair(mbarrier(4), 0) : mbarrier_wait(mbarrier(4), 0);
        for (int column = 32; column <= 36; column += 4)
            tensor_copy_scales<2>(memory() + column, scales_descriptor(tile(3)));
        umma_scaled<2, 1>(memory(), described(0), described(2), scaled_descriptor<1>(256, 32, 1, 2), memory() + 32,
                          memory() + 36, false);
    }
    show_scaled<2>(params);
}
PAIR_RULE(scope_of_an_arrival, 128, "race", "race") {
    store_scales_of_a_pair(params, !WRONG, true);
}
PAIR_RULE(scope_of_a_wait, 128, "race", "race") {
    store_scales_of_a_pair(params, true, !WRONG);
}
