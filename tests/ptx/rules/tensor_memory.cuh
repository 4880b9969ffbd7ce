// Functions of the kernels of tensor memory: 128 rows times 64 columns over the first 16 elements of k, in rows of 128
// bytes; of a pair of blocks, 256 rows times 128 columns. In each block, two copies of 64 rows are A, one is B.
#pragma once
#define MAPPED
#include "rules.cuh"
#include "blackwell_clusters.cuh"
#include "blackwell_scales.cuh"

#define PAIR_RULE(name, threads, ...) RULE_OF(CLUSTERED_KERNEL, name, threads, 1, 2)
#define PAIRS_RULE(name, threads, ...) RULE_OF(CLUSTERED_KERNEL, name, threads, 1, 4)

constexpr int BOX = 8192, COLUMNS = 64;

// 0: the tiles are there; 1, 2: products are complete; 3: four warps have loaded; 4: both blocks have their tiles.
DEVICE sptr<u64> mbarrier(int i) {
    return shared_base().as<u64>() + i;
}
DEVICE sptr<u32> where(int i = 0) {
    return (shared_base() + 512).as<u32>() + i;
}
DEVICE sptr<u8> tile(int i) {
    return shared_base() + (1024 + i * BOX);
}
DEVICE u64 described(int i, int byte = 0) {
    return tensor_descriptor(matrix_descriptor(tile(i) + byte, 16, 1024));
}
DEVICE u32 instructed(int rows = 128, int columns = COLUMNS) {
    return instruction_descriptor<half_t, half_t>(rows, columns, false, false);
}
DEVICE u32 memory(int i = 0) {
    return load_shared<4>(where(i)).word[0];
}
// The address of the lanes of this warp.
DEVICE u32 own_lanes(int i = 0) {
    return memory(i) + ((u32)thread_index() / 32 % 4 << 21);
}
DEVICE bool first() {
    return thread_index() == 0;
}

template <int BLOCKS, int NUMBER>
DEVICE void allocate_and_see(int i = 0) {
    tensor_alloc<BLOCKS, NUMBER>(where(i));
    warp_barrier();
}
template <int BLOCKS = 1>
DEVICE void make_mbarriers() {
    if (first()) {
        for (int i = 0; i < 5; ++i)
            mbarrier_init(mbarrier(i), i == 3 ? 4 : i == 4 ? 2 : 1);
        mbarrier_fence();
    }
    if (BLOCKS == 2)
        cluster_begin();
    else
        barrier();
}
template <int BLOCKS = 1>
DEVICE void allocate() {
    if (thread_index() < 32)
        tensor_alloc<BLOCKS, COLUMNS * BLOCKS>(where());
    barrier();
}
DEVICE void request(const Arguments &params, int boxes = 3) {
    const i32 at[5] = {0, 0, 0, 0, 0};
    mbarrier_expect(mbarrier(0), boxes * BOX);
    for (int i = 0; i < boxes; ++i)
        copy_tensor(tile(i), i < 2 ? params.a_map : params.b_map, at, mbarrier(0));
}
// Allocates tensor memory, and lets the first thread copy the tiles.
DEVICE void begin(const Arguments &params) {
    make_mbarriers();
    allocate();
    if (first()) {
        request(params);
        mbarrier_wait(mbarrier(0), 0);
    }
}
DEVICE void copy_halves(const Arguments &params) {
    const i32 at[5] = {0, 0, 0, 0, 0};
    if (first() && block_index() == 0)
        mbarrier_expect(mbarrier(0), 6 * BOX);
    for (int i = 0; i < 3 && first(); ++i)
        copy_tensor_of_pair(tile(i), i < 2 ? params.a_map : params.b_map, at, mbarrier(0));
}
DEVICE void begin_pair(const Arguments &params) {
    make_mbarriers<2>();
    allocate<2>();
    copy_halves(params);
    if (first() && block_index() == 0)
        mbarrier_wait(mbarrier(0), 0);
}
DEVICE void multiply(bool kept = false, u32 instruction = instructed(), u64 a = described(0)) {
    umma<1, half_t>(memory(), a, described(2), instruction, kept);
}
// The same, then one product and its commit.
DEVICE void issue(const Arguments &params) {
    begin(params);
    if (first()) {
        multiply();
        umma_commit<1>(mbarrier(1));
    }
}
typedef float Sums[COLUMNS / 2];
DEVICE void wait_for(Sums &sums) {
    tensor_load_wait(sums);
    tensor_fence_before();
}
DEVICE void load(Sums &sums) {
    tensor_load<COLUMNS>(sums, own_lanes());
    wait_for(sums);
}
// Waits for a commit.
DEVICE void observe(int i = 1) {
    mbarrier_wait(mbarrier(i), 0);
    tensor_fence_after();
}
template <int BLOCKS = 1>
DEVICE void free_all() {
    barrier();
    if (thread_index() < 32)
        tensor_free<BLOCKS, COLUMNS * BLOCKS>(memory());
}
template <int BLOCKS = 1>
DEVICE void end(const Params &params, const Sums &sums) {
    free_all<BLOCKS>();
    const float some[4] = {sums[0], sums[7], sums[18], sums[31]};
    finish(params, some);
}
// One product, its commit, and loads.
DEVICE void show(const Arguments &params) {
    Sums sums;
    if (first())
        umma_commit<1>(mbarrier(1));
    observe();
    load(sums);
    end(params, sums);
}
// What a rule is about, where it is an operand of a product of the first thread.
DEVICE void multiply_as(const Arguments &params, u32 instruction, u64 a = described(0)) {
    begin(params);
    if (first())
        multiply(false, instruction, a);
    show(params);
}
