// The intrinsic layer: the only way in which kernels touch memory, synchronise or use matrix instructions.
// Every intrinsic has two bodies: PTX for the GPU (intrinsics_ptx.cuh, intrinsics_arithmetic.cuh), and a model for a
// CPU (the emulator's gensor_emulator.h, which has its own include path, so that both compilers get the same flattened
// text).
//
//   KERNEL(name, Params, threads, min_blocks) { ... params.m ... }
//     defines extern "C" __global__ void name(const __grid_constant__ Params params) with launch bounds (min_blocks 0:
//     not given). On the host it also defines the symbols by which the emulator finds the kernel. Params must be
//     trivially copyable. Every entry needs its own KERNEL at file scope.
//   thread_index() block_index() grid_size()        int; the grid is one-dimensional
//   shared_base()                                   sptr<u8> to dynamic shared memory, 1024-byte aligned
//   within(index, bound)                            index < bound; every predicate and bound is written with it
//   cover("name");                                  counts how often this branch runs (host only)
//   unknown(u32) -> u32                             the same value, hidden from the compiler: it neither reuses an
//                                                    earlier result for one computed from it, nor keeps that for later
//   load_global<BYTES>(gptr, predicate) -> Vec      zeros where the predicate is false; read-only data
//   store_global<BYTES>(gptr, Vec, predicate)
//   prefetch_line<LEVEL>(gptr, predicate)           a hint: loads the 128 bytes around an address of an operand into
//                                                    the L2 (LEVEL 2) or the L1 (LEVEL 1). Stores reach the L2, so that
//                                                    LEVEL 2 may come before grid_dependency_wait()
//   load_written<BYTES>(gptr) -> Vec                loads what this launch has stored; BYTES 4, 8, 16
//   give_flag(gptr<u64>, u64)                       sets a flag to this value; releases earlier stores of this thread
//                                                    (after a barrier: of its block)
//   take_flag(gptr<u64>, u64)                       waits until the flag has this value, and clears it. This thread
//                                                    (after a barrier: its block) sees what the giver released
//   load_shared<BYTES>(sptr) -> Vec    store_shared<BYTES>(sptr, Vec)
//   copy_async<BYTES>(sptr, gptr, predicate)        BYTES 4, 8, 16; writes zeros where false (0)  (sm_80)
//   copy_async_commit()   copy_async_wait<N>()      waits until all but the latest N groups have arrived   (sm_80)
//   barrier()   warp_barrier()                      order shared memory for the block / the warp
//   load_matrix<N, TRANSPOSED>(u32 (&r)[N], sptr row_address)                     ldmatrix, N = 1, 2, 4;
//                                                    all 32 lanes give a valid address, as sm_75 requires
//   mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], half_t{} or bfloat16_t{})   (sm_80)
//   mma_m16n8k8(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1])              float16
//   mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])                         (sm_80)
//   mma_m16n8k32_f8<A_E5M2, B_E5M2>(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2])   8-bit floats, e5m2 or e4m3;
//                                                    its sums have few bits (mma_eight_bit.cuh)   (sm_89)
//   mma_m16n8k32_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2])                            (sm_80)
//   mma_m8n8k16_s8(i32 (&d)[2], const u32 (&a)[1], const u32 (&b)[1])
//   mma_m8n8k4_f64(double (&d)[2], const double (&a)[1], const double (&b)[1])                    (sm_80)
//   mma_m16n8k4_f64(double (&d)[4], const double (&a)[2], const double (&b)[1])                   (sm_90)
//   mma_m16n8k8_f64: a[4], b[2]   mma_m16n8k16_f64: a[8], b[4]                                    (sm_90)
//   shuffle_xor(T, int mask) -> T                   T of 4 or 8 bytes; all lanes of the warp take part
//   warp_uniform(int) -> int                        returns its argument, which must be equal in all lanes of the warp;
//                                                    all lanes call it. The compiler then keeps the value, and values
//                                                    computed from it, in uniform registers
//   exp_ erf_ tanh_ log_ sqrt_ fma_                 float and double; sqrt_ rounds to nearest
//   multiply_(a, b)                                 float and double; rounded by itself, never fused with a sum
//   max_(a, b) min_(a, b)                           float and double; NaN where either argument is NaN
//   exp2_ reciprocal_ maximum_                      float; errors are at most 2 units in the last place (exp2_) and 1
//                                                    (reciprocal_); maximum_ ignores a NaN
//   pack_pair(float low, float high, half_t{} or bfloat16_t{}) -> u32             rounded to nearest even
//   fma_pair(u32 a, u32 b, u32 c, half_t{} or bfloat16_t{}) -> u32                a * b + c of two    (bf16: sm_80)
//   byte_permute(u32 low, u32 high, u32 selector) -> u32   four of their eight bytes, by the selector's nibbles
//   convert_e4m3_pair(u16) -> u32                   two 8-bit floats to half_t                        (sm_89)
#pragma once
#include "vectors.cuh"

// A pointer into global memory, for intrinsics only: it cannot be dereferenced.
template <class T>
struct gptr {
    u64 address;
    MEMBER explicit gptr(u64 value = 0) : address(value) {}
    MEMBER explicit gptr(const T *pointer) : address((u64)pointer) {}
    MEMBER gptr operator+(i64 elements) const { return gptr(address + (u64)(elements * (i64)sizeof(T))); }
    template <class U>
    MEMBER gptr<U> as() const {
        return gptr<U>(address);
    }
};

// A byte address in the block's shared memory.
template <class T>
struct sptr {
    u32 address;
    MEMBER explicit sptr(u32 value = 0) : address(value) {}
    MEMBER sptr operator+(int elements) const { return sptr(address + (u32)(elements * (int)sizeof(T))); }
    template <class U>
    MEMBER sptr<U> as() const {
        return sptr<U>(address);
    }
};

template <class Index, class Bound>
DEVICE bool within(Index index, Bound bound) {
    return index < bound;
}

#ifdef __CUDACC__
#include "intrinsics_ptx.cuh"
#include "intrinsics_arithmetic.cuh"
#else
#include <gensor_emulator.h>
#endif

// The bits of a float as a factor of TF32, rounded to nearest, ties away from zero. Half of the last bit that matrix
// instructions read is added; they ignore the low 13 bits, which need no clearing. A multiply-add of the float's power
// of two keeps infinities and NaN, whereas an integer addition would need a comparison, and moves half of the work to
// another pipe. Numbers below 2^-126 are truncated.
DEVICE u32 round_tf32(u32 bits) {
    return bit_cast<u32>(fma_(bit_cast<float>(bits & 0xff800000u), 1.0f / 2048.0f, bit_cast<float>(bits)));
}
