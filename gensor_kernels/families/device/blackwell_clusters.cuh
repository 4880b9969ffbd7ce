// Clusters of two pairs of blocks (sm_100a, sm_103a): a pair is blocks 2 * i and 2 * i + 1. As in blackwell.cuh, every
// function has two bodies; the models are in the emulator's gensor_emulator_blackwell.h.
//
//   umma_commit<BLOCKS>(sptr<u64> barrier, u32 to)   umma_commit of a pair that arrives in each block of the cluster
//                                                    whose bit in `to` is set
//   copy_tensor_of_pair(sptr<u8>, TensorMap, i32[5], sptr<u64>, int first)   copy_tensor to this block; the mbarrier of
//                                                    this address in block `first` of the cluster, the first one of
//                                                    the pair, counts the bytes
//   copy_tensor_to_pairs(..., int first, u32 blocks) the same to each block of the cluster whose bit in `blocks` is
//   set;
//                                                    the mbarriers of the first blocks of their pairs count the bytes
#pragma once
#include "blackwell.cuh"

#ifdef __CUDACC__

template <int BLOCKS>
DEVICE void umma_commit(sptr<u64> barrier, [[maybe_unused]] u32 to) {
    if constexpr (BLOCKS == 1)
        umma_commit<1>(barrier);
    else
        asm volatile("tcgen05.commit.cta_group::2.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"
                     " [%0], %1;" ::"r"(barrier.address),
                     "h"((u16)to)
                     : "memory");
}
DEVICE void copy_tensor_of_pair(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, int first) {
    asm volatile("{ .reg .b32 counter;\n"
                 "  mapa.shared::cluster.u32 counter, %2, %8;\n"
                 "  cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.cta_group::2"
                 " [%0], [%1, {%3, %4, %5, %6, %7}], [counter]; }" ::"r"(to.address),
                 "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(first)
                 : "memory");
}
DEVICE void copy_tensor_to_pairs(sptr<u8> to, const TensorMap &map, const i32 (&at)[5], sptr<u64> barrier, int first,
                                 u32 blocks) {
    asm volatile(
        "{ .reg .b32 counter;\n"
        "  mapa.shared::cluster.u32 counter, %2, %8;\n"
        "  cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
        ".multicast::cluster.cta_group::2 [%0], [%1, {%3, %4, %5, %6, %7}], [counter], %9; }" ::"r"(to.address),
        "l"(&map), "r"(barrier.address), "r"(at[0]), "r"(at[1]), "r"(at[2]), "r"(at[3]), "r"(at[4]), "r"(first),
        "h"((u16)blocks)
        : "memory");
}

#endif
