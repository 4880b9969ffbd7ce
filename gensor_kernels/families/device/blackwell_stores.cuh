// Instructions of sm_100a and sm_103a that store registers to tensor memory, and products whose A is there (tcgen05;
// PTX ISA, chapter 9.7.16). As in blackwell.cuh, every function has two bodies.
//
//   tensor_store<COLUMNS>(float (&d)[COLUMNS / 2], u32 to)   starts storing 16 lanes by COLUMNS columns, a multiple of
//                                                    16, from this lane on: the inverse of tensor_load
//   tensor_store_pairs<COLUMNS>(u32 (&d)[COLUMNS / 2], u32 to)   the same of columns that each have two elements of 16
//                                                    bits: d[2 * j + h] is lane `to` + lane / 4 + 8 * h, column
//                                                    4 * j + lane % 4, as the sums of tensor_load two by two;
//                                                    COLUMNS is a multiple of 8
//   tensor_store_wait()                              waits for all stores of the thread
//   umma_held<BLOCKS, A>(u32 d, u32 a, u64 b, u32 instruction, bool kept)   umma with A, of 16 bits, in tensor memory:
//                                                    row r is lane r, elements 2 * i and 2 * i + 1 of k are column
//                                                    a + i
#pragma once
#include "blackwell.cuh"

#ifdef __CUDACC__

template <int BLOCKS, class A>
DEVICE void umma_held(u32 d, u32 a, u64 b, u32 instruction, bool kept) {
    static_assert(sizeof(A) == 2, "A in tensor memory has elements of 16 bits.");
    asm volatile("{ .reg .pred p; setp.ne.u32 p, %4, 0;\n"
                 "  tcgen05.mma.cta_group::%5.kind::f16 [%0], [%1], %2, %3, p; }" ::"r"(d),
                 "r"(a), "l"(b), "r"(instruction), "r"((u32)kept), "n"(BLOCKS)
                 : "memory");
}

#define STORED_4(c, i) c(d[i]), c(d[(i) + 1]), c(d[(i) + 2]), c(d[(i) + 3])
#define STORED_8(c, i) STORED_4(c, i), STORED_4(c, (i) + 4)
#define STORED_REGISTERS_32                                                                                            \
    "{%1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, " \
    "%25, %26, %27, %28, %29, %30, %31, %32};"
DEVICE void tensor_store_64(const float *d, u32 to) {
    asm volatile("tcgen05.st.sync.aligned.16x256b.x8.b32 [%0], " STORED_REGISTERS_32 ::"r"(to), STORED_8("f", 0),
                 STORED_8("f", 8), STORED_8("f", 16), STORED_8("f", 24)
                 : "memory");
}
DEVICE void tensor_store_16(const float *d, u32 to) {
    asm volatile("tcgen05.st.sync.aligned.16x256b.x2.b32 [%0], {%1, %2, %3, %4, %5, %6, %7, %8};" ::"r"(to),
                 STORED_8("f", 0)
                 : "memory");
}
DEVICE void tensor_store_pairs_64(const u32 *d, u32 to) {
    asm volatile("tcgen05.st.sync.aligned.16x128b.x16.b32 [%0], " STORED_REGISTERS_32 ::"r"(to), STORED_8("r", 0),
                 STORED_8("r", 8), STORED_8("r", 16), STORED_8("r", 24)
                 : "memory");
}
DEVICE void tensor_store_pairs_8(const u32 *d, u32 to) {
    asm volatile("tcgen05.st.sync.aligned.16x128b.x2.b32 [%0], {%1, %2, %3, %4};" ::"r"(to), STORED_4("r", 0)
                 : "memory");
}
#undef STORED_REGISTERS_32
#undef STORED_8
#undef STORED_4

template <int COLUMNS>
DEVICE void tensor_store(const float (&d)[COLUMNS / 2], u32 to) {
    static_assert(COLUMNS % 16 == 0, "A store has whole pieces of 16 columns.");
    UNROLL for (int i = 0; i < COLUMNS / 64; ++i) tensor_store_64(d + 32 * i, to + 64 * i);
    UNROLL for (int i = COLUMNS / 64 * 4; i < COLUMNS / 16; ++i) tensor_store_16(d + 8 * i, to + 16 * i);
}
template <int COLUMNS>
DEVICE void tensor_store_pairs(const u32 (&d)[COLUMNS / 2], u32 to) {
    static_assert(COLUMNS % 8 == 0, "A store of pairs has whole pieces of 8 columns.");
    UNROLL for (int i = 0; i < COLUMNS / 64; ++i) tensor_store_pairs_64(d + 32 * i, to + 64 * i);
    UNROLL for (int i = COLUMNS / 64 * 8; i < COLUMNS / 8; ++i) tensor_store_pairs_8(d + 4 * i, to + 8 * i);
}
DEVICE void tensor_store_wait() {
    asm volatile("tcgen05.wait::st.sync.aligned;" ::: "memory");
}

#endif
