// Products of operands in block-scaled formats in tensor memory (sm_100a, sm_103a). As in blackwell.cuh, every function
// has two bodies; the models are in the emulator's gensor_emulator_blackwell.h.
//
//   umma_scaled<BLOCKS, SCALES>(u32 d, u64 a, u64 b, u32 instruction, u32 a_scales, u32 b_scales, bool kept)
//                                                    umma of rows of k in 32 bytes that have SCALES scales each: 1
//                                                    (e8m0) of 32 8-bit floats; 2 (e8m0) or 4 (e4m3 without a sign) of
//                                                    64 numbers of e2m1, two in a byte. The sums are floats. Scales are
//                                                    in tensor memory: of row r of the block's 128 in lane r % 32,
//                                                    column a_scales + r / 32; of column c, in each block of a pair, in
//                                                    lane c % 32, column b_scales + c / 32: SCALES bytes, from a byte
//                                                    on that the instruction names. All four times 32 lanes have them
//   scaled_descriptor<SCALES>(rows, columns, a_byte, b_byte, a_e5m2, b_e5m2)   that instruction, of k in both operands'
//                                                    rows; a byte is any for one scale, 0 or 2 for two, 0 for four
//   tensor_copy_scales<BLOCKS>(u32 to, u64 from)     copies 32 rows of 16 bytes of shared memory, of a pair in both
//                                                    blocks: row r to lanes r + 32 * i, columns `to` to `to` + 3. By a
//                                                    thread as products, with which it runs in order: a commit
//                                                    completes it, and products of this thread may follow at once
//   scales_descriptor(sptr<u8> scales)               512 bytes one after the other; of a tile with rows of 128 bytes as
//                                                    copies store them, tensor_descriptor describes a column of 16
//                                                    bytes
//   mbarrier_arrive_in_pair(sptr<u64>, int first)    one arrival at the mbarrier of this address in block `first` of
//   the
//                                                    cluster: releases stores to shared memory, unlike
//                                                    mbarrier_arrive_at
//   mbarrier_wait_in_pair(sptr<u64>, u32 parity)     mbarrier_wait for what threads of both blocks release
#pragma once
#include "blackwell.cuh"

// Two numbers in a byte, the first in its lower half: a sign, two bits of exponent, one of significand (E2M1).
struct e2m1x2_t {
    u8 bits;
};

// Without a swizzle; eight rows are 128 bytes, and the next eight follow (table "Shared memory descriptor").
DEVICE u64 scales_descriptor(sptr<u8> scales) {
    return tensor_descriptor((u64)(scales.address >> 4 & 0x3fff) | (u64)(128 >> 4) << 32);
}

// Tables "Instruction descriptor format" of kinds mxf8f6f4 and mxf4nvf4; e4m3 has code 0, e5m2 and e2m1 have 1.
template <int SCALES>
DEVICE constexpr u32 scaled_descriptor(int rows, int columns, int a_byte, int b_byte, bool a_e5m2 = false,
                                       bool b_e5m2 = false) {
    return (u32)b_byte << 4 | (u32)(SCALES > 1 || a_e5m2) << 7 | (u32)(SCALES > 1 || b_e5m2) << 10 |
           (u32)(SCALES < 4) << 23 | (u32)a_byte << 29 | product_size(rows, columns);
}

#ifdef __CUDACC__

#define UMMA_SCALED(kind)                                                                                              \
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %6, 0;\n"                                                             \
                 "  tcgen05.mma.cta_group::%7.kind::" kind " [%0], %1, %2, %3, [%4], [%5], p; }" ::"r"(d),             \
                 "l"(a), "l"(b), "r"(instruction), "r"(a_scales), "r"(b_scales), "r"((u32)kept), "n"(BLOCKS)           \
                 : "memory")
template <int BLOCKS, int SCALES>
DEVICE void umma_scaled(u32 d, u64 a, u64 b, u32 instruction, u32 a_scales, u32 b_scales, bool kept) {
    static_assert(SCALES == 1 || SCALES == 2 || SCALES == 4, "Rows of 32 bytes have one, two or four scales.");
    if constexpr (SCALES == 1)
        UMMA_SCALED("mxf8f6f4.block_scale.scale_vec::1X");
    else if constexpr (SCALES == 2)
        UMMA_SCALED("mxf4nvf4.block_scale.scale_vec::2X");
    else
        UMMA_SCALED("mxf4nvf4.block_scale.scale_vec::4X");
}
#undef UMMA_SCALED

template <int BLOCKS>
DEVICE void tensor_copy_scales(u32 to, u64 from) {
    asm volatile("tcgen05.cp.cta_group::%2.32x128b.warpx4 [%0], %1;" ::"r"(to), "l"(from), "n"(BLOCKS) : "memory");
}
DEVICE void mbarrier_arrive_in_pair(sptr<u64> barrier, int first = 0) {
    asm volatile("{ .reg .b32 there;\n"
                 "  mapa.shared::cluster.u32 there, %0, %1;\n"
                 "  mbarrier.arrive.release.cluster.shared::cluster.b64 _, [there]; }" ::"r"(barrier.address),
                 "r"(first)
                 : "memory");
}
DEVICE void mbarrier_wait_in_pair(sptr<u64> barrier, u32 parity) {
    u32 over;
    do {
        asm volatile("{ .reg .pred p;\n"
                     "  mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
                     "  selp.u32 %0, 1, 0, p; }"
                     : "=r"(over)
                     : "r"(barrier.address), "r"(parity)
                     : "memory");
    } while (!over);
}

#endif
