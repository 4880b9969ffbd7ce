// The host bodies of hopper.cuh's intrinsics, over the emulator; see gensor_emulator.h.
#pragma once
#include "interface.h"

DEVICE bool elect_one(CALLER) {
    return emulator::elect_one(file, line);
}
DEVICE void mbarrier_init(sptr<u64> barrier, int arrivals, CALLER) {
    emulator::mbarrier_init(barrier.address, arrivals, file, line);
}
DEVICE void mbarrier_fence() {
    emulator::mbarrier_fence();
}
DEVICE void mbarrier_arrive(sptr<u64> barrier, CALLER) {
    emulator::mbarrier_arrive(barrier.address, file, line);
}
DEVICE void mbarrier_expect(sptr<u64> barrier, int bytes, CALLER) {
    emulator::mbarrier_expect(barrier.address, bytes, file, line);
}
DEVICE void mbarrier_wait(sptr<u64> barrier, u32 parity, CALLER) {
    emulator::mbarrier_wait(barrier.address, parity, file, line);
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, CALLER) {
    emulator::copy_tensor(to.address, &map, barrier.address, at, emulator::ONLY_HERE, file, line);
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, u32 blocks, CALLER) {
    emulator::copy_tensor(to.address, &map, barrier.address, at, blocks, file, line);
}
DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2], sptr<u64> barrier,
                        CALLER) {
    emulator::copy_pixels(to.address, &map, barrier.address, at, moved, emulator::ONLY_HERE, file, line);
}
DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2], sptr<u64> barrier,
                        u32 blocks, CALLER) {
    emulator::copy_pixels(to.address, &map, barrier.address, at, moved, blocks, file, line);
}
DEVICE void mbarrier_arrive_at(sptr<u64> barrier, int block, CALLER) {
    emulator::mbarrier_arrive_at(barrier.address, block, file, line);
}
DEVICE void cluster_barrier(CALLER) {
    emulator::cluster_barrier(file, line);
}
DEVICE void cluster_begin(CALLER) {
    emulator::cluster_begin(file, line);
}
DEVICE void prefetch_map(const TensorMap &map, CALLER) {
    emulator::prefetch_map(&map, file, line);
}
#define CLUSTERED_KERNEL(name, Params, threads, min_blocks, blocks)                                                    \
    EMULATOR_EXPORT int emulator_cluster_##name() {                                                                    \
        return (blocks);                                                                                               \
    }                                                                                                                  \
    KERNEL(name, Params, threads, min_blocks)
DEVICE void store_tensor(const TensorMap &map, sptr<u8> from, const i32 (&at)[5], CALLER) {
    emulator::store_tensor(&map, from.address, at, file, line);
}
DEVICE void store_tensor_commit() {
    emulator::store_tensor_commit();
}
template <int N>
DEVICE void store_tensor_wait() {
    static_assert(N >= 0, "A wait leaves so many groups.");
    emulator::store_tensor_wait(N);
}
DEVICE void store_matrix(sptr<u8> row, const u32 (&r)[4], CALLER) {
    emulator::store_matrix(row.address, r, file, line);
}
DEVICE void proxy_fence() {
    emulator::proxy_fence();
}
DEVICE void wgmma_fence(CALLER) {
    emulator::group_fence(file, line);
}
DEVICE void wgmma_commit(CALLER) {
    emulator::group_commit(file, line);
}
template <int N>
DEVICE void wgmma_wait(CALLER) {
    static_assert(N >= 0, "A wait leaves so many groups.");
    emulator::group_wait(N, file, line);
}
constexpr emulator::GroupElement group_element(half_t) {
    return emulator::GROUP_HALF;
}
constexpr emulator::GroupElement group_element(bfloat16_t) {
    return emulator::GROUP_BFLOAT16;
}
constexpr emulator::GroupElement group_element(float) {
    return emulator::GROUP_TF32;
}
constexpr emulator::GroupElement group_element(i8) {
    return emulator::GROUP_INT8;
}
constexpr emulator::GroupElement group_element(e4m3_t) {
    return emulator::GROUP_E4M3;
}
constexpr emulator::GroupElement group_element(e5m2_t) {
    return emulator::GROUP_E5M2;
}
template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool KEPT, class T, int SUMS, class A, class B>
DEVICE void wgmma(T (&d)[SUMS], u64 a, u64 b, A first, B second, CALLER) {
    static_assert(sizeof(A) == 2 || (!A_TRANSPOSED && !B_TRANSPOSED), "Only 16-bit rows of k are multiplied.");
    static_assert(SUMS % 8 == 0 && SUMS <= 128, "A product has 16 to 256 columns, in steps of 16.");
    static_assert(__is_same(T, i32) == __is_same(A, i8), "Integers accumulate in i32, the others in float.");
    emulator::multiply_group(
        {SUMS * 2, group_element(first), group_element(second), A_TRANSPOSED, B_TRANSPOSED, KEPT, false}, d, a, nullptr,
        b, file, line);
}
template <bool B_TRANSPOSED, bool KEPT, int SUMS, class T>
DEVICE void wgmma_held(float (&d)[SUMS], const u32 (&a)[4], u64 b, T type, CALLER) {
    static_assert(sizeof(T) == 2, "Registers hold 16-bit elements.");
    static_assert(SUMS % 8 == 0 && SUMS <= 128, "A product has 16 to 256 columns, in steps of 16.");
    emulator::multiply_group({SUMS * 2, group_element(type), group_element(type), false, B_TRANSPOSED, KEPT, true}, d,
                             0, a, b, file, line);
}
template <class T, int SUMS>
DEVICE void wgmma_hold(T (&)[SUMS]) {}
template <int FROM, int TO>
DEVICE void give_registers(CALLER) {
    static_assert(TO <= FROM, "Giving registers leaves fewer.");
    emulator::exchange_registers(FROM, TO, file, line);
}
template <int FROM, int TO>
DEVICE void take_registers(CALLER) {
    static_assert(TO >= FROM, "Taking registers leaves more.");
    emulator::exchange_registers(FROM, TO, file, line);
}
