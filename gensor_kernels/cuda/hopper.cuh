// What only sm_90a has: mbarriers with tensor copies (TMA), products of warpgroups (wgmma), registers that change
// hands. As in intrinsics.cuh every one of these has two bodies; the models are in the emulator's
// gensor_emulator_hopper.h.
//
//   TensorMap                                        128 bytes the host fills in (devices/tensor_maps.py); in Params
//   mbarrier_init(sptr<u64>, arrivals)               by one thread; then mbarrier_fence() and the block's barrier
//   mbarrier_fence()                                 initialised mbarriers become visible to others and to copies
//   mbarrier_arrive(sptr<u64>)                       one arrival; releases what this thread (and, behind an instruction
//                                                    of the whole warp, its warp) did before
//   mbarrier_expect(sptr<u64>, bytes)                one arrival, and bytes that copies will bring in this phase
//   mbarrier_wait(sptr<u64>, parity)                 until the phase of this parity is over; a new mbarrier counts as
//                                                    one whose phase of parity 1 is
//   copy_tensor(sptr<u8>, TensorMap, i32[5], sptr<u64>)   a box from these coordinates on, the first along the unit
//                                                    stride; zeros outside the tensor. Rows of 128 bytes, the 16-byte
//                                                    chunks of row r at chunk ^ r % 8; to a multiple of 1024 bytes
//   wgmma_fence()                                    before the first product of a group
//   wgmma_m64k16<TA, TB>(float (&d)[N / 2], u64 a, u64 b, T)   d += A * B, 64 x 16 times 16 x N, T half_t or
//                                                    bfloat16_t; TA, TB: M, N is contiguous instead of k. Sum
//                                                    8 * j + 4 * h + 2 * (lane / 4 % 2) ... lies as in mma.sync: d[4 *
//                                                    j
//                                                    + 2 * h + c] is row 16 * (warp % 4) + lane / 4 + 8 * h, column
//                                                    8 * j + lane % 4 * 2 + c
//   wgmma_hold(float (&d)[SUMS])                     no instruction: other code that uses these sums stays on its side
//   wgmma_commit()   wgmma_wait<N>()                 all but the latest N groups are done: sums and tiles can be
//   touched give_registers<FROM, TO>()  take_registers<FROM, TO>()   setmaxnreg, by every warp of a warpgroup alike;
//   FROM is
//                                                    what the launch gave each thread
#pragma once
#include "intrinsics.cuh"

struct alignas(64) TensorMap {
    u64 opaque[16];
};

// A tile in shared memory, 128 bytes to a row and swizzled as tensor copies do. K-contiguous: eight rows of M or N lie
// in 1024 bytes, the next eight `stride` behind. Else the rows are those of k: the next eight `stride` behind, and the
// next 64 elements of M or N `leading` behind.
DEVICE u64 matrix_descriptor(sptr<u8> tile, int leading, int stride) {
    return (u64)(tile.address >> 4 & 0x3fff) | (u64)(leading >> 4) << 16 | (u64)(stride >> 4) << 32 | (u64)1 << 62;
}

#ifdef __CUDACC__

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

template <int SUMS>
DEVICE void wgmma_hold(float (&d)[SUMS]) {
    UNROLL for (int i = 0; i < SUMS; ++i) asm volatile("" : "+f"(d[i])::"memory");
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

// One overload per N: an instruction names all of its registers.
#define WGMMA_NAMES_16 "%0, %1, %2, %3, %4, %5, %6, %7"
#define WGMMA_NAMES_32 WGMMA_NAMES_16 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define WGMMA_NAMES_48 WGMMA_NAMES_32 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define WGMMA_NAMES_64 WGMMA_NAMES_48 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define WGMMA_NAMES_80 WGMMA_NAMES_64 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define WGMMA_NAMES_96 WGMMA_NAMES_80 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define WGMMA_NAMES_112 WGMMA_NAMES_96 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define WGMMA_NAMES_128 WGMMA_NAMES_112 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define WGMMA_NAMES_144 WGMMA_NAMES_128 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define WGMMA_NAMES_160 WGMMA_NAMES_144 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define WGMMA_NAMES_176 WGMMA_NAMES_160 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define WGMMA_NAMES_192 WGMMA_NAMES_176 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define WGMMA_NAMES_208 WGMMA_NAMES_192 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define WGMMA_NAMES_224 WGMMA_NAMES_208 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define WGMMA_NAMES_240 WGMMA_NAMES_224 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define WGMMA_NAMES_256 WGMMA_NAMES_240 ", %120, %121, %122, %123, %124, %125, %126, %127"
#define WGMMA_4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define WGMMA_8(i) WGMMA_4(i), WGMMA_4(i + 4)
#define WGMMA_SUMS_16 WGMMA_8(0)
#define WGMMA_SUMS_32 WGMMA_SUMS_16, WGMMA_8(8)
#define WGMMA_SUMS_48 WGMMA_SUMS_32, WGMMA_8(16)
#define WGMMA_SUMS_64 WGMMA_SUMS_48, WGMMA_8(24)
#define WGMMA_SUMS_80 WGMMA_SUMS_64, WGMMA_8(32)
#define WGMMA_SUMS_96 WGMMA_SUMS_80, WGMMA_8(40)
#define WGMMA_SUMS_112 WGMMA_SUMS_96, WGMMA_8(48)
#define WGMMA_SUMS_128 WGMMA_SUMS_112, WGMMA_8(56)
#define WGMMA_SUMS_144 WGMMA_SUMS_128, WGMMA_8(64)
#define WGMMA_SUMS_160 WGMMA_SUMS_144, WGMMA_8(72)
#define WGMMA_SUMS_176 WGMMA_SUMS_160, WGMMA_8(80)
#define WGMMA_SUMS_192 WGMMA_SUMS_176, WGMMA_8(88)
#define WGMMA_SUMS_208 WGMMA_SUMS_192, WGMMA_8(96)
#define WGMMA_SUMS_224 WGMMA_SUMS_208, WGMMA_8(104)
#define WGMMA_SUMS_240 WGMMA_SUMS_224, WGMMA_8(112)
#define WGMMA_SUMS_256 WGMMA_SUMS_240, WGMMA_8(120)
#define WGMMA_TYPE(n, types, a, b, ta, tb)                                                                             \
    asm volatile("wgmma.mma_async.sync.aligned.m64n" #n "k16.f32." types " {" WGMMA_NAMES_##n                          \
                 "}, " a ", " b ", 1, 1, 1, " ta ", " tb ";"                                                           \
                 : WGMMA_SUMS_##n                                                                                      \
                 : "l"(descriptor_a), "l"(descriptor_b), "n"(A_TRANSPOSED), "n"(B_TRANSPOSED))
#define WGMMA(n, a, b, ta, tb)                                                                                         \
    template <int A_TRANSPOSED, int B_TRANSPOSED>                                                                      \
    DEVICE void wgmma_m64k16(float (&d)[n / 2], u64 descriptor_a, u64 descriptor_b, half_t) {                          \
        WGMMA_TYPE(n, "f16.f16", a, b, ta, tb);                                                                        \
    }                                                                                                                  \
    template <int A_TRANSPOSED, int B_TRANSPOSED>                                                                      \
    DEVICE void wgmma_m64k16(float (&d)[n / 2], u64 descriptor_a, u64 descriptor_b, bfloat16_t) {                      \
        WGMMA_TYPE(n, "bf16.bf16", a, b, ta, tb);                                                                      \
    }
WGMMA(16, "%8", "%9", "%10", "%11")
WGMMA(32, "%16", "%17", "%18", "%19")
WGMMA(48, "%24", "%25", "%26", "%27")
WGMMA(64, "%32", "%33", "%34", "%35")
WGMMA(80, "%40", "%41", "%42", "%43")
WGMMA(96, "%48", "%49", "%50", "%51")
WGMMA(112, "%56", "%57", "%58", "%59")
WGMMA(128, "%64", "%65", "%66", "%67")
WGMMA(144, "%72", "%73", "%74", "%75")
WGMMA(160, "%80", "%81", "%82", "%83")
WGMMA(176, "%88", "%89", "%90", "%91")
WGMMA(192, "%96", "%97", "%98", "%99")
WGMMA(208, "%104", "%105", "%106", "%107")
WGMMA(224, "%112", "%113", "%114", "%115")
WGMMA(240, "%120", "%121", "%122", "%123")
WGMMA(256, "%128", "%129", "%130", "%131")
#undef WGMMA
#undef WGMMA_TYPE

#else
#include <gensor_emulator_hopper.h>
#endif
