// Two kernels per rule of stores to tensor memory, and of products whose A is there (PTX ISA 9.7.16), as in classic.cu.
#include "tensor_memory.cuh"

#include "blackwell_stores.cuh"

constexpr int NARROW = 32; // columns of sums; A has the eight after them
typedef float NarrowSums[NARROW / 2];

DEVICE void store_rows(u32 place, int halves = 2) {
    const u32 pairs[4] = {0x3c003c00, 0x40003c00, 0x3c004000, 0x3c00};
    for (int half = 0; half < halves; ++half)
        tensor_store_pairs<8>(pairs, place + (half << 20));
}
DEVICE void multiply_held(u32 instruction = instructed(128, NARROW)) {
    umma_held<1, half_t>(memory(), memory() + NARROW, described(2), instruction, false);
    umma_commit<1>(mbarrier(1));
}
DEVICE void load_narrow(NarrowSums &sums) {
    tensor_load<NARROW>(sums, own_lanes());
    tensor_load_wait(sums);
    tensor_fence_before();
}
DEVICE void end_narrow(const Params &params, const NarrowSums &sums) {
    free_all();
    const float some[4] = {sums[0], sums[7], sums[10], sums[15]};
    finish(params, some);
}
// Stores A, and lets the first thread multiply.
DEVICE void multiply_stored_first(const Arguments &params) {
    begin(params);
    store_rows(own_lanes() + NARROW);
    tensor_store_wait();
    tensor_fence_before();
    barrier();
    if (first()) {
        tensor_fence_after();
        multiply_held();
    }
}
// Stores A, multiplies after all four warps have arrived, and loads the sums.
template <bool WAITED, bool BEFORE, bool SYNCHRONISED, bool AFTER>
DEVICE void multiply_stored(const Arguments &params, int halves = 2, u32 instruction = instructed(128, NARROW)) {
    NarrowSums sums;
    begin(params);
    store_rows(own_lanes() + NARROW, halves);
    if (WAITED)
        tensor_store_wait();
    if (BEFORE)
        tensor_fence_before();
    warp_barrier();
    if (thread_index() % 32 == 0)
        mbarrier_arrive(mbarrier(3));
    if (first()) {
        if (SYNCHRONISED)
            mbarrier_wait(mbarrier(3), 0);
        if (AFTER)
            tensor_fence_after();
        multiply_held(instruction);
    }
    if (!WAITED)
        tensor_store_wait();
    observe();
    load_narrow(sums);
    end_narrow(params, sums);
}
RULE(wait_for_stores, 128, "race", "race") {
    multiply_stored<!WRONG, true, true, true>(params);
}
RULE(fence_after_stores, 128, "race", "race") {
    multiply_stored<true, !WRONG, true, true>(params);
}
RULE(products_after_stores, 128, "race", "race") {
    multiply_stored<true, true, !WRONG, true>(params);
}
RULE(fence_before_a_held_product, 128, "race", "race") {
    multiply_stored<true, true, true, !WRONG>(params);
}
RULE(lanes_that_nothing_stored, 128, "uninitialised", "uninitialised") {
    multiply_stored<true, true, true, true>(params, WRONG ? 1 : 2);
}
RULE(held_rows_across, 128, "invalid", "invalid") {
    multiply_stored<true, true, true, true>(params, 2,
                                            instruction_descriptor<half_t, half_t>(128, NARROW, WRONG, false));
}
RULE(lanes_of_a_store, 128, "out_of_bounds", "tensor") {
    begin(params);
    store_rows(WRONG ? memory() : own_lanes());
    tensor_store_wait();
    tensor_fence_before();
    free_all();
    mbarrier_wait(mbarrier(0), 0);
    finish(params, word(params));
}
RULE(columns_of_a_store, 128, "out_of_bounds", "tensor") {
    begin(params);
    store_rows(own_lanes() + (WRONG ? COLUMNS - 4 : 0));
    tensor_store_wait();
    tensor_fence_before();
    free_all();
    mbarrier_wait(mbarrier(0), 0);
    finish(params, word(params));
}
RULE(end_with_a_store_on_its_way, 128, "race", "race|in_flight") {
    begin(params);
    store_rows(own_lanes());
    if (!WRONG)
        tensor_store_wait();
    tensor_fence_before();
    free_all();
    mbarrier_wait(mbarrier(0), 0);
    finish(params, word(params));
}
// Four warps store columns of sums, or of A, after a product.
template <bool ORDERED>
DEVICE void store_after_a_product(const Arguments &params, int column) {
    NarrowSums sums;
    multiply_stored_first(params);
    if (ORDERED)
        observe();
    store_rows(own_lanes() + column);
    tensor_store_wait();
    observe();
    load_narrow(sums);
    end_narrow(params, sums);
}
RULE(stores_after_sums, 128, "race", "race") {
    store_after_a_product<!WRONG>(params, 0);
}
RULE(stores_after_held_rows_were_read, 128, "race", "race") {
    store_after_a_product<!WRONG>(params, NARROW);
}
RULE(loads_after_own_stores, 128, "race", "race") {
    NarrowSums sums;
    multiply_stored_first(params);
    observe();
    store_rows(own_lanes());
    if (!WRONG)
        tensor_store_wait();
    tensor_load<NARROW>(sums, own_lanes());
    tensor_load_wait(sums);
    tensor_store_wait();
    tensor_fence_before();
    end_narrow(params, sums);
}
RULE(stores_after_own_loads, 128, "race", "race|in_flight") {
    NarrowSums sums;
    multiply_stored_first(params);
    observe();
    tensor_load<NARROW>(sums, own_lanes());
    if (!WRONG)
        tensor_load_wait(sums);
    store_rows(own_lanes());
    tensor_store_wait();
    tensor_load_wait(sums);
    tensor_fence_before();
    end_narrow(params, sums);
}
RULE(free_after_stores, 128, "race|out_of_bounds", "race") {
    NarrowSums sums;
    multiply_stored_first(params);
    observe();
    load_narrow(sums);
    store_rows(own_lanes());
    tensor_store_wait();
    tensor_fence_before();
    if (!WRONG)
        barrier();
    if (thread_index() / 32 == 3)
        tensor_free<1, COLUMNS>(memory());
    finish(params, (float (&)[4])sums);
}
