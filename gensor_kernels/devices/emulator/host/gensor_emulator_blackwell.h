// The host bodies of blackwell.cuh's intrinsics, over the emulator; see gensor_emulator.h.
#pragma once
#include "interface.h"

using emulator::tensor_fence_after;
using emulator::tensor_fence_before;
template <int BLOCKS, int COLUMNS>
DEVICE void tensor_alloc(sptr<u32> to, CALLER) {
    emulator::tensor_alloc(BLOCKS, COLUMNS, to.address, site);
}
template <int BLOCKS>
DEVICE void tensor_alloc_last(CALLER) {
    emulator::tensor_alloc_last(BLOCKS, site);
}
template <int BLOCKS, int COLUMNS>
DEVICE void tensor_free(u32 memory, CALLER) {
    emulator::tensor_free(BLOCKS, memory, COLUMNS, site);
}
template <int BLOCKS, class A>
DEVICE void umma(u32 d, u64 a, u64 b, u32 instruction, bool kept, CALLER) {
    emulator::tensor_multiply(BLOCKS, GROUP_ELEMENT<A>, d, a, b, instruction, {0, 0, 0}, kept, site);
}
template <int BLOCKS, int SCALES>
DEVICE void umma_scaled(u32 d, u64 a, u64 b, u32 instruction, u32 a_scales, u32 b_scales, bool kept, CALLER) {
    static_assert(SCALES == 1 || SCALES == 2 || SCALES == 4, "Rows of 32 bytes have one, two or four scales.");
    constexpr auto KIND = SCALES == 1 ? emulator::GROUP_E4M3 : emulator::GROUP_E2M1;
    emulator::tensor_multiply(BLOCKS, KIND, d, a, b, instruction, {SCALES, a_scales, b_scales}, kept, site);
}
template <int BLOCKS>
DEVICE void tensor_copy_scales(u32 to, u64 from, CALLER) {
    emulator::tensor_copy_scales(BLOCKS, to, from, site);
}
DEVICE void mbarrier_arrive_in_pair(sptr<u64> barrier, int first = 0, CALLER) {
    emulator::mbarrier_arrive_at(barrier.address, first, false, site);
}
DEVICE void mbarrier_wait_in_pair(sptr<u64> barrier, u32 parity, CALLER) {
    emulator::mbarrier_wait(barrier.address, parity, true, site);
}
template <int BLOCKS>
DEVICE void umma_commit(sptr<u64> barrier, u32 to = 3, CALLER) {
    emulator::tensor_commit(BLOCKS, barrier.address, to, site);
}
template <int COLUMNS, class T>
DEVICE void tensor_load(T (&d)[COLUMNS / 2], u32 from, CALLER) {
    static_assert(COLUMNS % 16 == 0, "A load has whole pieces of 16 columns.");
    emulator::tensor_load((u32 *)d, COLUMNS, from, site);
}
template <class T, int N>
DEVICE void tensor_load_wait(T (&)[N], CALLER) {
    emulator::tensor_load_wait(site);
}
DEVICE void fma_floats(float *d, const float *a, float b) {
    d[0] = fma_(a[0], b, d[0]), d[1] = fma_(a[1], b, d[1]);
}
template <int BLOCKS, class A>
DEVICE void umma_held(u32 d, u32 a, u64 b, u32 instruction, bool kept, CALLER) {
    static_assert(sizeof(A) == 2, "A in tensor memory has elements of 16 bits.");
    emulator::tensor_multiply_held(BLOCKS, GROUP_ELEMENT<A>, d, a, b, instruction, kept, site);
}
template <int COLUMNS>
DEVICE void tensor_store(const float (&d)[COLUMNS / 2], u32 to, CALLER) {
    static_assert(COLUMNS % 16 == 0, "A store has whole pieces of 16 columns.");
    emulator::tensor_store((const u32 *)d, COLUMNS, emulator::MOVE_256B, to, site);
}
template <int COLUMNS>
DEVICE void tensor_store_pairs(const u32 (&d)[COLUMNS / 2], u32 to, CALLER) {
    static_assert(COLUMNS % 8 == 0, "A store of pairs has whole pieces of 8 columns.");
    emulator::tensor_store(d, COLUMNS, emulator::MOVE_128B, to, site);
}
DEVICE void tensor_store_wait(CALLER) {
    emulator::tensor_store_wait(site);
}
DEVICE void copy_tensor_of_pair(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, int first = 0,
                                CALLER) {
    const u32 here = emulator::OF_PAIR | emulator::ONLY_HERE | (u32)first * emulator::FIRST;
    emulator::copy_tensor(to.address, &map, barrier.address, at, here, site);
}
DEVICE void copy_tensor_to_pairs(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, int first,
                                 u32 blocks, CALLER) {
    const u32 there = emulator::OF_PAIR | blocks | (u32)first * emulator::FIRST;
    emulator::copy_tensor(to.address, &map, barrier.address, at, there, site);
}
DEVICE void copy_pixels_of_pair(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2],
                                sptr<u64> barrier, CALLER) {
    emulator::copy_pixels(to.address, &map, barrier.address, at, moved, emulator::OF_PAIR | emulator::ONLY_HERE, site);
}
