// The host bodies of hopper.cuh's intrinsics, over the emulator; see gensor_emulator.h.
#pragma once
#include "interface.h"

using emulator::cluster_barrier;
using emulator::cluster_begin;
using emulator::elect_one;
using emulator::mbarrier_fence;
using emulator::proxy_fence;
using emulator::store_tensor_commit;
using emulator::wgmma_commit;
using emulator::wgmma_fence;
DEVICE void mbarrier_init(sptr<u64> barrier, int arrivals, CALLER) {
    emulator::mbarrier_init(barrier.address, arrivals, site);
}
DEVICE void mbarrier_arrive(sptr<u64> barrier, CALLER) {
    emulator::mbarrier_arrive(barrier.address, site);
}
DEVICE void mbarrier_expect(sptr<u64> barrier, int bytes, CALLER) {
    emulator::mbarrier_expect(barrier.address, bytes, site);
}
DEVICE void mbarrier_wait(sptr<u64> barrier, u32 parity, CALLER) {
    emulator::mbarrier_wait(barrier.address, parity, false, site);
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, CALLER) {
    emulator::copy_tensor(to.address, &map, barrier.address, at, emulator::ONLY_HERE, site);
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, u32 blocks, CALLER) {
    emulator::copy_tensor(to.address, &map, barrier.address, at, blocks, site);
}
DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2], sptr<u64> barrier,
                        CALLER) {
    emulator::copy_pixels(to.address, &map, barrier.address, at, moved, emulator::ONLY_HERE, site);
}
DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2], sptr<u64> barrier,
                        u32 blocks, CALLER) {
    emulator::copy_pixels(to.address, &map, barrier.address, at, moved, blocks, site);
}
DEVICE void mbarrier_arrive_at(sptr<u64> barrier, int block, CALLER) {
    emulator::mbarrier_arrive_at(barrier.address, block, true, site);
}
DEVICE void prefetch_map(const TensorMap &map, CALLER) {
    emulator::prefetch_map(&map, site);
}
#define CLUSTERED_KERNEL(name, Params, threads, min_blocks, blocks)                                                    \
    EMULATOR_EXPORT int emulator_cluster_##name() {                                                                    \
        return (blocks);                                                                                               \
    }                                                                                                                  \
    KERNEL(name, Params, threads, min_blocks)
DEVICE void store_tensor(const TensorMap &map, sptr<u8> from, const i32 (&at)[5], CALLER) {
    emulator::store_tensor(&map, from.address, at, site);
}
template <int N>
DEVICE void store_tensor_wait() {
    static_assert(N >= 0, "A wait leaves so many groups.");
    emulator::store_tensor_wait(N);
}
DEVICE void store_matrix(sptr<u8> row, const u32 (&r)[4], CALLER) {
    emulator::store_matrix(row.address, r, site);
}
template <int N>
DEVICE void wgmma_wait(CALLER) {
    static_assert(N >= 0, "A wait leaves so many groups.");
    emulator::group_wait(N, site);
}
template <class T>
constexpr emulator::GroupElement GROUP_ELEMENT = emulator::GROUP_HALF;
template <>
constexpr emulator::GroupElement GROUP_ELEMENT<bfloat16_t> = emulator::GROUP_BFLOAT16;
template <>
constexpr emulator::GroupElement GROUP_ELEMENT<float> = emulator::GROUP_TF32;
template <>
constexpr emulator::GroupElement GROUP_ELEMENT<i8> = emulator::GROUP_INT8;
template <>
constexpr emulator::GroupElement GROUP_ELEMENT<e4m3_t> = emulator::GROUP_E4M3;
template <>
constexpr emulator::GroupElement GROUP_ELEMENT<e5m2_t> = emulator::GROUP_E5M2;
template <bool A_TRANSPOSED, bool B_TRANSPOSED, bool KEPT, class T, int SUMS, class A, class B>
DEVICE void wgmma(T (&d)[SUMS], u64 a, u64 b, A, B, CALLER) {
    static_assert(sizeof(A) == 2 || (!A_TRANSPOSED && !B_TRANSPOSED), "Only 16-bit rows of k are multiplied.");
    static_assert(SUMS % (sizeof(A) == 2 ? 4 : 8) == 0 && SUMS <= 128,
                  "A product has up to 256 columns, in steps of 8 of 16-bit types, of 16 of others.");
    static_assert(__is_same(T, i32) == __is_same(A, i8), "Integers accumulate in i32, the others in float.");
    emulator::multiply_group({SUMS * 2, GROUP_ELEMENT<A>, GROUP_ELEMENT<B>, A_TRANSPOSED, B_TRANSPOSED, KEPT, false}, d,
                             a, nullptr, b, site);
}
template <bool B_TRANSPOSED, bool KEPT, int SUMS, class T>
DEVICE void wgmma_held(float (&d)[SUMS], const u32 (&a)[4], u64 b, T, CALLER) {
    static_assert(sizeof(T) == 2 || (__is_same(T, float) && !B_TRANSPOSED),
                  "Registers hold elements of 16 bits, or TF32.");
    static_assert(SUMS % 8 == 0 && SUMS <= 128, "A product has 16 to 256 columns, in steps of 16.");
    emulator::multiply_group({SUMS * 2, GROUP_ELEMENT<T>, GROUP_ELEMENT<T>, false, B_TRANSPOSED, KEPT, true}, d, 0, a,
                             b, site);
}
template <class T, int SUMS>
DEVICE void wgmma_hold(T (&)[SUMS]) {}
template <int FROM, int TO>
DEVICE void give_registers(CALLER) {
    static_assert(TO <= FROM, "Giving registers leaves fewer.");
    emulator::exchange_registers(FROM, TO, site);
}
template <int FROM, int TO>
DEVICE void take_registers(CALLER) {
    static_assert(TO >= FROM, "Taking registers leaves more.");
    emulator::exchange_registers(FROM, TO, site);
}
