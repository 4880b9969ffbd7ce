// Instructions of sm_90a: mbarriers, tensor copies (TMA), products of warpgroups (wgmma), and the exchange of registers
// between warpgroups. As in intrinsics.cuh, every function has two bodies; the models are in the emulator's
// gensor_emulator_hopper.h.
//
//   TensorMap                                        128 bytes in Params, from the host (devices/tensor_maps.py)
//   elect_one()                                      true in one lane of the warp, always the same; all lanes call it.
//                                                    The compiler then knows that one thread takes the branch, and
//                                                    emits a tensor copy without a loop over the active threads
//   mbarrier_init(sptr<u64>, arrivals)               by one thread, before mbarrier_fence() and the block's barrier
//   mbarrier_fence()                                 makes initialised mbarriers visible to other threads and to copies
//   mbarrier_arrive(sptr<u64>)                       one arrival; releases what this thread (after an instruction of
//                                                    the whole warp: its warp) did before
//   mbarrier_expect(sptr<u64>, bytes)                one arrival; copies will complete these bytes in this phase
//   mbarrier_wait(sptr<u64>, parity)                 waits until the phase of this parity is complete; a new
//                                                    mbarrier counts as having completed one of parity 1
//   copy_tensor(sptr<u8>, TensorMap, i32[5], sptr<u64>)   copies a box from these coordinates on, the first along the
//                                                    unit stride, to a multiple of 1024 bytes; zeros outside the
//                                                    tensor. Rows have 128 bytes; the 16-byte chunk number c of row r
//                                                    is stored at c ^ r % 8
//   copy_pixels(sptr<u8>, TensorMap, i32[4], i32[2], sptr<u64>)   the same with an im2col map: rows are pixels of the
//                                                    map's pixel box from (channel, column, row, image) on, column by
//                                                    column, row by row, image by image. The second coordinates are a
//                                                    distance in columns and rows from each pixel to the one read
//   copy_tensor(..., blocks)  copy_pixels(..., blocks)   the same to this address in each block of the cluster whose
//                                                    bit in `blocks` is set; the mbarriers of these blocks count bytes
//   mbarrier_arrive_at(sptr<u64>, block)             one arrival at the mbarrier of this address in a block of the
//                                                    cluster
//   cluster_barrier()                                a barrier of all threads of the cluster
//   cluster_begin()                                  the same, but makes only initialised mbarriers visible: the first
//                                                    barrier of a cluster, without a fence of all global memory
//   prefetch_map(TensorMap)                          a hint: loads the map before the first copy needs it
//   store_tensor(TensorMap, sptr<u8>, i32[5])        stores a box, laid out in shared memory as by a copy, to these
//                                                    coordinates on, asynchronously; nothing outside the tensor. By one
//                                                    thread, after a proxy_fence() of all threads that wrote the box
//                                                    and a synchronisation with these threads
//   store_tensor_commit()  store_tensor_wait<N>()    waits until all but this thread's latest N groups have been read
//                                                    from shared memory
//   store_matrix(sptr<u8> row, u32 (&r)[4])          stmatrix of four matrices of 8 x 8 elements of 16 bits: lane
//                                                    8 * m + i gives the address of row i of matrix m, lane 4 * i + j
//                                                    holds its elements 2 * j and 2 * j + 1 in r[m]; the inverse of
//                                                    load_matrix
//   proxy_fence()                                    orders this thread's stores to shared memory before later reads by
//                                                    copies and products
//   CLUSTERED_KERNEL(name, Params, threads, min_blocks, blocks)   KERNEL with clusters of `blocks` successive blocks
//   wgmma_fence()                                    before the first product of a group
//   wgmma<TA, TB, KEPT>(T (&d)[N / 2], u64 a, u64 b, A, B)   d = KEPT * d + A * B, 64 rows times N columns over
//                                                    32 bytes of k. A and B are half_t or bfloat16_t for both operands;
//                                                    e4m3_t or e5m2_t for each; float (read as tf32) or i8 for both.
//                                                    i8 has i32 sums. TA, TB: M, N is contiguous instead of k (only
//                                                    for 16-bit types).
//                                                    d[4 * j + 2 * h + c] is row 16 * (warp % 4) + lane / 4 + 8 * h,
//                                                    column 8 * j + lane % 4 * 2 + c, as in mma.sync. Sums of 8-bit
//                                                    floats have 14 bits (tolerance.py)
//   wgmma_held<TB, KEPT>(float (&d)[N / 2], u32 (&a)[4], u64 b, T)   the same with A in registers, as in mma.sync: a[i]
//                                                    is row lane / 4 + 8 * (i % 2) of the warp's 16, k from
//                                                    lane % 4 * 2 + 8 * (i / 2) on (of float k is lane % 4 + 4 *
//                                                    (i / 2)). T is half_t, bfloat16_t or float (as tf32). The
//                                                    registers must keep their values until the product is done
//   wgmma_hold(T (&d)[SUMS])                         no instruction: the compiler moves no use of these sums across it
//   wgmma_commit()   wgmma_wait<N>()                 waits until all but the latest N groups of products are done; then
//                                                    their sums and tiles can be used
//   give_registers<FROM, TO>()  take_registers<FROM, TO>()   setmaxnreg, by every warp of a warpgroup; FROM is the
//                                                    number of registers per thread at launch
#pragma once
#include "intrinsics.cuh"
#include "widen.cuh"

struct alignas(64) TensorMap {
    u64 opaque[16];
};

// The descriptor of a tile in shared memory with rows of 128 bytes, swizzled as by tensor copies. Eight rows are 1024
// bytes, and the next eight rows start `stride` bytes after them. Rows are those of M or N where k is contiguous; else
// they are those of k, and the next 64 elements of M or N start `leading` bytes later.
DEVICE u64 matrix_descriptor(sptr<u8> tile, int leading, int stride) {
    return (u64)(tile.address >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}

#ifdef __CUDACC__

DEVICE bool elect_one() {
    u32 elected;
    asm volatile("{ .reg .pred p;\n"
                 "  elect.sync _|p, 0xffffffff;\n"
                 "  selp.b32 %0, 1, 0, p; }"
                 : "=r"(elected));
    return elected != 0;
}
DEVICE void mbarrier_init(sptr<u64> barrier, int arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier.address), "r"(arrivals) : "memory");
}
DEVICE void mbarrier_fence() {
    asm volatile("fence.mbarrier_init.release.cluster;\n  fence.proxy.async.shared::cta;" ::: "memory");
}
DEVICE void mbarrier_arrive(sptr<u64> barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier.address) : "memory");
}
DEVICE void mbarrier_expect(sptr<u64> barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier.address), "r"(bytes)
                 : "memory");
}
DEVICE void mbarrier_wait(sptr<u64> barrier, u32 parity) {
    u32 over;
    do {
        asm volatile("{ .reg .pred p;\n"
                     "  mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
                     "  selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(barrier.address), "r"(parity)
                     : "memory");
    } while (!over);
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
                 : "memory");
}

DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2],
                        sptr<u64> barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8};" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "h"((u16)moved[0]),
                 "h"((u16)moved[1])
                 : "memory");
}

#define CLUSTERED_KERNEL(name, Params, threads, min_blocks, blocks)                                                    \
    extern "C" __global__ void __cluster_dims__(blocks, 1, 1) __launch_bounds__(threads, min_blocks)                   \
        name(const __grid_constant__ Params params)

DEVICE void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;\n  barrier.cluster.wait.acquire;" ::: "memory");
}
DEVICE void cluster_begin() {
    asm volatile("barrier.cluster.arrive.relaxed.aligned;\n  barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
DEVICE void prefetch_map(const TensorMap &map) {
    asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}
// Without a scope, as in CUTLASS: the arrival releases only completed reads by products, to copies. With the scope of
// the cluster it would wait until the whole device sees every store of its thread.
DEVICE void mbarrier_arrive_at(sptr<u64> barrier, int block) {
    asm volatile("{ .reg .b32 there;\n"
                 "  mapa.shared::cluster.u32 there, %0, %1;\n"
                 "  mbarrier.arrive.shared::cluster.b64 _, [there]; }" ::"r"(barrier.address),
                 "r"(block)
                 : "memory");
}
DEVICE void copy_tensor(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, u32 blocks) {
    asm volatile("cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [%2], %8;" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]),
                 "h"((u16)blocks)
                 : "memory");
}
DEVICE void copy_pixels(sptr<u8> to, const TensorMap &map, const i32 (&at)[4], const i32 (&moved)[2], sptr<u64> barrier,
                        u32 blocks) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes.multicast::cluster"
                 " [%0], [%1, {%3, %4, %5, %6}], [%2], {%7, %8}, %9;" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "h"((u16)moved[0]),
                 "h"((u16)moved[1]), "h"((u16)blocks)
                 : "memory");
}

DEVICE void store_tensor(const TensorMap &map, sptr<u8> from, const i32 (&at)[5]) {
    asm volatile(
        "cp.async.bulk.tensor.5d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4, %5, %6}], [%1];" ::"l"(&map),
        "r"(from.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4])
        : "memory");
}
DEVICE void store_tensor_commit() {
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int N>
DEVICE void store_tensor_wait() {
    asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
DEVICE void proxy_fence() {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

DEVICE void store_matrix(sptr<u8> row, const u32 (&r)[4]) {
    asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row.address), "r"(r[0]),
                 "r"(r[1]), "r"(r[2]), "r"(r[3])
                 : "memory");
}

DEVICE void wgmma_fence() {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
DEVICE void wgmma_commit() {
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N>
DEVICE void wgmma_wait() {
    asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

template <class T, int SUMS>
DEVICE void wgmma_hold(T (&d)[SUMS]) {
    UNROLL for (int i = 0; i < SUMS; ++i) {
        if constexpr (same_type<T, float>)
            asm volatile("" : "+f"(d[i])::"memory");
        else
            asm volatile("" : "+r"(d[i])::"memory");
    }
}

template <int FROM, int TO>
DEVICE void give_registers() {
    static_assert(TO <= FROM, "Giving registers leaves fewer.");
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(TO));
}
template <int FROM, int TO>
DEVICE void take_registers() {
    static_assert(TO >= FROM, "Taking registers leaves more.");
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(TO));
}

#include "hopper_products.cuh"

#else
#include <gensor_emulator_hopper.h>
#endif
