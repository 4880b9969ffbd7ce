// Instructions of sm_100a and sm_103a: tensor memory, and products of a block or a pair of blocks (tcgen05; PTX ISA,
// chapter 9.7.16). As in intrinsics.cuh, every function has two bodies; the models are in the emulator's
// gensor_emulator_blackwell.h. mbarriers and tensor copies are those of hopper.cuh.
//
// A multiprocessor has tensor memory of 128 lanes by 512 columns of 32 bits. An address has the lane in its upper and
// the column in its lower 16 bits. BLOCKS is 1, or 2 for a pair: the two blocks of a cluster, whose products read the
// shared memory of both and write the tensor memory of both. All these instructions of a kernel have the same BLOCKS.
//
//   tensor_alloc<BLOCKS, COLUMNS>(sptr<u32> to)      by the lanes of a warp: allocates columns (32, 64, 128, 256 or
//                                                    512) and stores their address. Waits until other blocks have freed
//                                                    enough. A warp of each block of a pair does so together: both wait
//                                                    for each other and get one address; the next two do so too
//   tensor_alloc_last<BLOCKS>()                      no further allocation by this block: others need not wait for it
//   tensor_free<BLOCKS, COLUMNS>(u32 memory)         before the block exits, once no instruction uses these columns
//   umma<BLOCKS, A>(u32 d, u64 a, u64 b, u32 instruction, bool kept)   d = kept * d + A * B over 32 bytes of k, by one
//                                                    thread, of a pair by one of the first block. Runs asynchronously;
//                                                    a thread's products of one d and shape run in their order, and
//                                                    commits after all of its products. a and b are descriptors
//                                                    (tensor_descriptor) of tiles in shared memory: rows
//                                                    of A and, of a pair, half the columns of B in each block, at
//                                                    equal addresses. A names the kind: half_t or bfloat16_t; float
//                                                    (as tf32); e4m3_t or e5m2_t, in any combination; i8 (sm_100a
//                                                    only). Row r of the block's 128 is lane r, column c is column
//                                                    d + c: floats, or i32
//   instruction_descriptor<A, B>(rows, columns, a_across, b_across)   rows and columns of a product: 128 of one block,
//                                                    256 of a pair; 16 to 256 in steps of 16, of a pair of 32.
//                                                    Across: M or N is contiguous, not k (only for 16-bit types)
//   umma_commit<BLOCKS>(sptr<u64> barrier)           one arrival at this mbarrier, of a pair in both blocks, once all
//                                                    products so far of this thread are done. Releases what the thread
//                                                    did before, as tensor_fence_before() does
//   tensor_load<COLUMNS>(T (&d)[COLUMNS / 2], u32 from)   starts loading 16 lanes by COLUMNS columns from this lane on,
//                                                    by all lanes of a warp; d is laid out as the sums of wgmma and
//                                                    mma.sync: d[4 * j + 2 * h + c] is lane `from` + lane / 4 + 8 * h,
//                                                    column 8 * j + lane % 4 * 2 + c. Warp w has lanes 32 * (w % 4) to
//                                                    32 * (w % 4) + 31. COLUMNS is a multiple of 16
//   tensor_load_wait(T (&d)[N])                      waits for all loads of the thread; then d can be used
//   tensor_fence_before()                            orders this thread's tensor-memory instructions before what it
//                                                    synchronises with next: an arrival, a barrier
//   tensor_fence_after()                             orders what this thread has synchronised with, a wait or a
//                                                    barrier, before its next tensor-memory instructions
//   fma_floats(float *d, const float *a, float b)    d[i] = a[i] * b + d[i] of two floats, one instruction
//   copy_tensor_of_pair(sptr<u8>, TensorMap, i32[5], sptr<u64>)   copy_tensor to this block; the mbarrier of this
//                                                    address in the first block of the pair counts the bytes
//   copy_pixels_of_pair(...)                         the same of copy_pixels
#pragma once
#include "hopper.cuh"

// The descriptor of a tile for tcgen05: that of wgmma, with the version of the format in bits 46 to 48 (table
// "Shared memory descriptor"; the swizzle's code of 3 bits from bit 61 on is 2 for rows of 128 bytes).
DEVICE u64 tensor_descriptor(u64 descriptor) {
    return descriptor | (u64)1 << 46;
}

// Codes of element types in an instruction descriptor (table "Instruction descriptor"), which each kind has for itself.
template <class T>
constexpr u32 UMMA_CODE = 0; // half_t, e4m3_t
template <>
constexpr u32 UMMA_CODE<bfloat16_t> = 1;
template <>
constexpr u32 UMMA_CODE<float> = 2; // tf32
template <>
constexpr u32 UMMA_CODE<i8> = 1; // signed
template <>
constexpr u32 UMMA_CODE<e5m2_t> = 1;

// The bits of rows and columns, which the kinds have in common.
DEVICE constexpr u32 product_size(int rows, int columns) {
    return (u32)(columns >> 3) << 17 | (u32)(rows >> 4) << 24;
}
template <class A, class B>
DEVICE constexpr u32 instruction_descriptor(int rows, int columns, bool a_across, bool b_across) {
    const u32 sums = same_type<A, i8> ? 2 : 1; // i32, or float
    return sums << 4 | UMMA_CODE<A> << 7 | UMMA_CODE<B> << 10 | (u32)a_across << 15 | (u32)b_across << 16 |
           product_size(rows, columns);
}

#ifdef __CUDACC__

template <int BLOCKS, int COLUMNS>
DEVICE void tensor_alloc(sptr<u32> to) {
    asm volatile("tcgen05.alloc.cta_group::%2.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(to.address), "n"(COLUMNS),
                 "n"(BLOCKS)
                 : "memory");
}
template <int BLOCKS>
DEVICE void tensor_alloc_last() {
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::%0.sync.aligned;" ::"n"(BLOCKS) : "memory");
}
template <int BLOCKS, int COLUMNS>
DEVICE void tensor_free(u32 memory) {
    asm volatile("tcgen05.dealloc.cta_group::%2.sync.aligned.b32 %0, %1;" ::"r"(memory), "n"(COLUMNS), "n"(BLOCKS)
                 : "memory");
}

#define UMMA(kind)                                                                                                     \
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0;\n"                                                             \
                 "  tcgen05.mma.cta_group::%5.kind::" kind " [%0], %1, %2, %3, p; }" ::"r"(d),                         \
                 "l"(a), "l"(b), "r"(instruction), "r"((u32)kept), "n"(BLOCKS)                                         \
                 : "memory")
template <int BLOCKS, class A>
DEVICE void umma(u32 d, u64 a, u64 b, u32 instruction, bool kept) {
    if constexpr (sizeof(A) == 2)
        UMMA("f16");
    else if constexpr (same_type<A, float>)
        UMMA("tf32");
    else if constexpr (same_type<A, i8>)
        UMMA("i8");
    else
        UMMA("f8f6f4");
}
#undef UMMA

template <int BLOCKS>
DEVICE void umma_commit(sptr<u64> barrier) {
    if constexpr (BLOCKS == 1)
        asm volatile(
            "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier.address)
            : "memory");
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
                     " [%0], %1;" ::"r"(barrier.address),
                     "h"((u16)3)
                     : "memory");
}

// 64 columns, or 16.
#define TENSOR_4(c, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define TENSOR_8(c, i) TENSOR_4(c, i), TENSOR_4(c, (i) + 4)
#define TENSOR_LOADS(T, c)                                                                                             \
    DEVICE void tensor_load_64(T *d, u32 from) {                                                                       \
        asm volatile("tcgen05.ld.sync.aligned.16x256b.x8.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12,"  \
                     " %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30,"      \
                     " %31}, [%32];"                                                                                   \
                     : TENSOR_8(c, 0), TENSOR_8(c, 8), TENSOR_8(c, 16), TENSOR_8(c, 24)                                \
                     : "r"(from));                                                                                     \
    }                                                                                                                  \
    DEVICE void tensor_load_16(T *d, u32 from) {                                                                       \
        asm volatile("tcgen05.ld.sync.aligned.16x256b.x2.b32 {%0, %1, %2, %3, %4, %5, %6, %7}, [%8];"                  \
                     : TENSOR_8(c, 0)                                                                                  \
                     : "r"(from));                                                                                     \
    }
TENSOR_LOADS(float, "=f")
TENSOR_LOADS(i32, "=r")
#undef TENSOR_LOADS
#undef TENSOR_8
#undef TENSOR_4

template <int COLUMNS, class T>
DEVICE void tensor_load(T (&d)[COLUMNS / 2], u32 from) {
    static_assert(COLUMNS % 16 == 0, "A load has whole pieces of 16 columns.");
    // Two loops: one whose step changes is not unrolled, and d would be in local memory.
    UNROLL for (int i = 0; i < COLUMNS / 64; ++i) tensor_load_64(d + 32 * i, from + 64 * i);
    UNROLL for (int i = COLUMNS / 64 * 4; i < COLUMNS / 16; ++i) tensor_load_16(d + 8 * i, from + 16 * i);
}
template <class T, int N>
DEVICE void tensor_load_wait(T (&d)[N]) {
    asm volatile("tcgen05.wait::ld.sync.aligned;" ::: "memory");
    wgmma_hold(d);
}

DEVICE void tensor_fence_before() {
    asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
}
DEVICE void tensor_fence_after() {
    asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
}

DEVICE void fma_floats(float *d, const float *a, float b) {
    asm("{ .reg .b64 a, b, d;\n"
        "  mov.b64 a, {%2, %3};\n"
        "  mov.b64 b, {%4, %4};\n"
        "  mov.b64 d, {%0, %1};\n"
        "  fma.rn.f32x2 d, a, b, d;\n"
        "  mov.b64 {%0, %1}, d; }"
        : "+f"(d[0]), "+f"(d[1])
        : "f"(a[0]), "f"(a[1]), "f"(b));
}

DEVICE void copy_tensor_of_pair(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier) {
    asm volatile("{ .reg .b32 there;\n"
                 "  mapa.shared::cluster.u32 there, %2, 0;\n"
                 "  cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [there]; }" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
}
DEVICE void copy_pixels_of_pair(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2],
                                sptr<u64> barrier) {
    asm volatile("{ .reg .b32 there;\n"
                 "  mapa.shared::cluster.u32 there, %2, 0;\n"
                 "  cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.cta_group::2"
                 " [%0], [%1, {%3, %4, %5, %6}], [there], {%7, %8}; }" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "h"((u16)moved[0]),
                 "h"((u16)moved[1])
                 : "memory");
}

#else
#include <gensor_emulator_blackwell.h>
#endif
