// Two kernels per rule of products of warpgroups (PTX ISA 9.7.15), as in classic.cu: 64 rows times 64 columns over the
// first 16 elements of k, in rows of 128 bytes.
#define MAPPED
#include "rules.cuh"

constexpr int BOX = 8192;

DEVICE sptr<u64> full(int i = 0) {
    return shared_base().as<u64>() + i;
}
DEVICE sptr<u8> tile(int i) {
    return shared_base() + (1024 + i * BOX);
}
DEVICE void request(const Arguments &params) {
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (thread_index() == 0) {
        mbarrier_init(full(0), 1);
        mbarrier_init(full(1), 1);
        mbarrier_fence();
    }
    barrier();
    if (thread_index() == 0) {
        mbarrier_expect(full(), 2 * BOX);
        copy_tensor(tile(0), params.a_map, at, full());
        copy_tensor(tile(1), params.b_map, at, full());
    }
}
DEVICE void fetch(const Arguments &params) {
    request(params);
    mbarrier_wait(full(), 0);
}
DEVICE u64 described(int i, int byte = 0) {
    return matrix_descriptor(tile(i) + byte, 16, 1024);
}
typedef float Sums[32];
DEVICE void multiply(Sums &sums, int byte = 0) {
    wgmma<0, 0, 1>(sums, described(0, byte), described(1), half_t{}, half_t{});
}
// The compiler does not move uses of the sums across this fence.
DEVICE void fence(Sums &sums) {
    wgmma_hold(sums);
    wgmma_fence();
}
DEVICE void show(const Params &params, Sums &sums) {
    wgmma_hold(sums);
    const float some[4] = {sums[0], sums[7], sums[18], sums[31]};
    finish(params, some);
}

RULE(fence_before_products, 128, "race", "unfenced") {
    Sums sums = {};
    fetch(params);
    wgmma_hold(sums);
    if (!WRONG)
        wgmma_fence();
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(sums_of_another_shape, 128, "race", "in_flight") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<WRONG ? 1 : 0>();
    fence(sums);
    wgmma<0, 0, 1>((float (&)[16])sums, described(0), described(1), half_t{}, half_t{});
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(waits_for_products, 128, "race", "in_flight") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<WRONG ? 1 : 0>();
    show(params, sums);
}
RULE(factors_of_a_product, 128, "race", "unseen") {
    Sums sums = {};
    u32 factors[4] = {0, 0, 0, 0};
    fetch(params);
    wgmma_hold(factors);
    fence(sums);
    wgmma_held<0, 1>(sums, factors, described(1), half_t{});
    wgmma_commit();
    if (WRONG)
        factors[2] = 0x3c003c00;
    wgmma_wait<0>();
    wgmma_hold(factors);
    show(params, sums);
}
RULE(groups_of_products, 128, "race", "in_flight") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    if (!WRONG)
        wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(rows_of_a_matrix_descriptor, 128, "invalid", "results") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums, WRONG ? 128 : 32);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(extent_of_a_matrix, 128, "out_of_bounds", "out_of_bounds") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    wgmma<0, 0, 1>(sums, matrix_descriptor(tile(0), 16, WRONG ? 65536 : 1024), described(1), half_t{}, half_t{});
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(products_behind_copies, 128, "race", "in_flight") {
    Sums sums = {};
    request(params);
    if (!WRONG)
        mbarrier_wait(full(), 0);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    mbarrier_wait(full(), 0);
    show(params, sums);
}
RULE(fence_before_a_product_reads, 128, "race", "unfenced") {
    Sums sums = {};
    fetch(params);
    store_shared(tile(0) + thread_index() * 16, word(params));
    if (!WRONG)
        proxy_fence();
    barrier();
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(barrier_before_a_product_reads, 128, "race", "unordered|race") {
    Sums sums = {};
    fetch(params);
    store_shared(tile(0) + (thread_index() ^ 64) * 16, word(params));
    proxy_fence();
    if (!WRONG)
        barrier();
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
// Stores to a tile; after a fence, warps signal their stores to one another with an mbarrier.
DEVICE void store_and_signal(const Arguments &params, bool fenced, bool together) {
    if (thread_index() == 0)
        mbarrier_init(full(2), 4);
    fetch(params);
    store_shared(tile(0) + (thread_index() ^ 64) * 16, word(params));
    if (fenced)
        proxy_fence();
    if (together)
        warp_barrier();
    if ((thread_index() & 31) == 0)
        mbarrier_arrive(full(2));
    mbarrier_wait(full(2), 0);
}
RULE(arrivals_before_a_product_reads, 128, "race", "unordered|race") {
    Sums sums = {};
    store_and_signal(params, true, !WRONG);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(copies_behind_stores, 128, "race", "unfenced") {
    Sums sums = {};
    store_and_signal(params, !WRONG, true);
    if (thread_index() == 0) {
        const i32 at[5] = {0, 0, 0, 0, 0};
        mbarrier_expect(full(1), BOX);
        copy_tensor(tile(0), params.a_map, at, full(1));
    }
    mbarrier_wait(full(1), 0);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(copies_behind_products, 128, "race", "in_flight") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<WRONG ? 1 : 0>();
    barrier();
    const i32 at[5] = {0, 32, 0, 0, 0};
    if (thread_index() == 0) {
        mbarrier_expect(full(1), BOX);
        copy_tensor(tile(0), params.a_map, at, full(1));
    }
    wgmma_wait<0>();
    mbarrier_wait(full(1), 0);
    show(params, sums);
}
RULE(warps_of_a_warpgroup, 128, "divergent", "divergent") {
    Sums sums = {};
    fetch(params);
    if (!WRONG || thread_index() < 96) {
        fence(sums);
        multiply(sums);
        wgmma_commit();
        wgmma_wait<0>();
    }
    show(params, sums);
}
RULE(commits_of_a_warpgroup, 128, "divergent", "divergent") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    if (!WRONG || thread_index() < 96)
        wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(descriptors_of_a_warpgroup, 128, "divergent", "invalid") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums, WRONG && thread_index() >= 96 ? 32 : 0);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
RULE(lanes_of_a_product, 128, "invalid", "invalid") {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums, WRONG && thread_index() % 32 == 7 ? 32 : 0);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
// The wrong kernel is launched with 64 threads.
RULE(four_warps_to_a_warpgroup, 128, "divergent", "divergent", wrong_threads = 64) {
    Sums sums = {};
    fetch(params);
    fence(sums);
    multiply(sums);
    wgmma_commit();
    wgmma_wait<0>();
    show(params, sums);
}
