// The GPU bodies of the intrinsics that touch memory, order it or multiply matrices; intrinsics.cuh documents them.
// "volatile" keeps loads where the kernel issues them: a load ahead of time must not move down to its first use.
#pragma once

#define KERNEL(name, Params, threads, min_blocks)                                                                      \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks) name(const __grid_constant__ Params params)

#define cover(name)

DEVICE int thread_index() {
    return (int)threadIdx.x;
}
DEVICE int block_index() {
    return (int)blockIdx.x;
}
DEVICE int grid_size() {
    return (int)gridDim.x;
}

DEVICE u32 unknown(u32 value) {
    u32 same;
    asm volatile("mov.u32 %0, %1;" : "=r"(same) : "r"(value));
    return same;
}

extern __shared__ __align__(1024) u8 dynamic_shared_memory[];
DEVICE sptr<u8> shared_base() {
    return sptr<u8>((u32)__cvta_generic_to_shared(dynamic_shared_memory));
}

// How read-only data is loaded. Where a launch starts before the previous one has ended (EARLY), the L1 may hold
// sectors from before that one's stores: loads go past it.
#if EARLY
#define READ_ONLY ".cg.L2::128B"
#define READ_ONLY_PART ".cg"
#else
#define READ_ONLY ".nc.L2::128B"
#define READ_ONLY_PART ".nc"
#endif

template <int BYTES, class T>
DEVICE Vec<BYTES> load_global(gptr<T> p, bool predicate) {
    Vec<BYTES> v = Vec<BYTES>::zero();
    if constexpr (BYTES == 16) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %5, 0;\n"
                     "  @p ld.global" READ_ONLY ".v4.u32 {%0, %1, %2, %3}, [%4]; }"
                     : "+r"(v.word[0]), "+r"(v.word[1]), "+r"(v.word[2]), "+r"(v.word[3])
                     : "l"(p.address), "r"((int)predicate));
    } else if constexpr (BYTES == 8) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0;\n  @p ld.global" READ_ONLY ".v2.u32 {%0, %1}, [%2]; }"
                     : "+r"(v.word[0]), "+r"(v.word[1])
                     : "l"(p.address), "r"((int)predicate));
    } else if constexpr (BYTES == 4) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p ld.global" READ_ONLY ".u32 %0, [%1]; }"
                     : "+r"(v.word[0])
                     : "l"(p.address), "r"((int)predicate));
    } else if constexpr (BYTES == 2) {
        u16 bits = 0;
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p ld.global" READ_ONLY_PART ".u16 %0, [%1]; }"
                     : "+h"(bits)
                     : "l"(p.address), "r"((int)predicate));
        v.word[0] = bits;
    } else {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p ld.global" READ_ONLY_PART ".u8 %0, [%1]; }"
                     : "+r"(v.word[0])
                     : "l"(p.address), "r"((int)predicate));
    }
    return v;
}

template <int BYTES, class T>
DEVICE void store_global(gptr<T> p, Vec<BYTES> v, bool predicate) {
    if constexpr (BYTES == 16) {
        asm volatile(
            "{ .reg .pred p; setp.ne.s32 p, %5, 0;\n  @p st.global.v4.u32 [%4], {%0, %1, %2, %3}; }" ::"r"(v.word[0]),
            "r"(v.word[1]), "r"(v.word[2]), "r"(v.word[3]), "l"(p.address), "r"((int)predicate)
            : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %3, 0;\n  @p st.global.v2.u32 [%2], {%0, %1}; }" ::"r"(v.word[0]),
                     "r"(v.word[1]), "l"(p.address), "r"((int)predicate)
                     : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p st.global.u32 [%1], %0; }" ::"r"(v.word[0]),
                     "l"(p.address), "r"((int)predicate)
                     : "memory");
    } else if constexpr (BYTES == 2) {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p st.global.u16 [%1], %0; }" ::"h"((u16)v.word[0]),
                     "l"(p.address), "r"((int)predicate)
                     : "memory");
    } else {
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %2, 0;\n  @p st.global.u8 [%1], %0; }" ::"r"(v.word[0]),
                     "l"(p.address), "r"((int)predicate)
                     : "memory");
    }
}

template <int LEVEL, class T>
DEVICE void prefetch_line(gptr<T> p, bool predicate) {
    static_assert(LEVEL == 1 || LEVEL == 2, "Lines are fetched to the L1 or the L2.");
    if constexpr (LEVEL == 1)
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0;\n  @p prefetch.global.L1 [%0]; }" ::"l"(p.address),
                     "r"((int)predicate));
    else
        asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0;\n  @p prefetch.global.L2 [%0]; }" ::"l"(p.address),
                     "r"((int)predicate));
}

// An ordinary load: the read-only path may return values from before the launch.
template <int BYTES, class T>
DEVICE Vec<BYTES> load_written(gptr<T> p) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "What was written is loaded in words.");
    Vec<BYTES> v;
    if constexpr (BYTES == 16)
        asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "l"(p.address)
                     : "memory");
    else if constexpr (BYTES == 8)
        asm volatile("ld.global.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "l"(p.address) : "memory");
    else
        asm volatile("ld.global.u32 %0, [%1];" : "=r"(v.word[0]) : "l"(p.address) : "memory");
    return v;
}

DEVICE void give_flag(gptr<u64> flag, u64 value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(flag.address), "l"(value) : "memory");
}
DEVICE void take_flag(gptr<u64> flag, u64 value) {
    u64 found;
    do {
        asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(found) : "l"(flag.address) : "memory");
    } while (found != value);
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(flag.address), "l"((u64)0) : "memory");
}

template <int BYTES, class T>
DEVICE Vec<BYTES> load_shared(sptr<T> p) {
    Vec<BYTES> v;
    if constexpr (BYTES == 16 && sizeof(part_t<T>) == 8) { // loads register pairs: no moves to pair them
        u64 low, high;
        asm volatile("ld.shared.v2.b64 {%0, %1}, [%2];" : "=l"(low), "=l"(high) : "r"(p.address) : "memory");
        v.set(0, low), v.set(1, high);
    } else if constexpr (BYTES == 16) {
        asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.word[0]), "=r"(v.word[1]), "=r"(v.word[2]), "=r"(v.word[3])
                     : "r"(p.address)
                     : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(v.word[0]), "=r"(v.word[1]) : "r"(p.address) : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("ld.shared.u32 %0, [%1];" : "=r"(v.word[0]) : "r"(p.address) : "memory");
    } else if constexpr (BYTES == 2) {
        u16 bits;
        asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(p.address) : "memory");
        v.word[0] = bits;
    } else {
        asm volatile("ld.shared.u8 %0, [%1];" : "=r"(v.word[0]) : "r"(p.address) : "memory");
    }
    return v;
}

template <int BYTES, class T>
DEVICE void store_shared(sptr<T> p, Vec<BYTES> v) {
    if constexpr (BYTES == 16 && sizeof(part_t<T>) == 8) {
        const u64 low = v.template get<u64>(0), high = v.template get<u64>(1);
        asm volatile("st.shared.v2.b64 [%2], {%0, %1};" ::"l"(low), "l"(high), "r"(p.address) : "memory");
    } else if constexpr (BYTES == 16) {
        asm volatile("st.shared.v4.u32 [%4], {%0, %1, %2, %3};" ::"r"(v.word[0]), "r"(v.word[1]), "r"(v.word[2]),
                     "r"(v.word[3]), "r"(p.address)
                     : "memory");
    } else if constexpr (BYTES == 8) {
        asm volatile("st.shared.v2.u32 [%2], {%0, %1};" ::"r"(v.word[0]), "r"(v.word[1]), "r"(p.address) : "memory");
    } else if constexpr (BYTES == 4) {
        asm volatile("st.shared.u32 [%1], %0;" ::"r"(v.word[0]), "r"(p.address) : "memory");
    } else if constexpr (BYTES == 2) {
        asm volatile("st.shared.u16 [%1], %0;" ::"h"((u16)v.word[0]), "r"(p.address) : "memory");
    } else {
        asm volatile("st.shared.u8 [%1], %0;" ::"r"(v.word[0]), "r"(p.address) : "memory");
    }
}

// A source size of zero makes the instruction write zeros without reading.
template <int BYTES, class T, class U>
DEVICE void copy_async(sptr<T> to, gptr<U> from, u32 predicate) {
    static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "cp.async has 4, 8 or 16 bytes.");
    // The statement selects the size itself: outside of it, the compiler would compute the size with shifts.
    if constexpr (BYTES == 16) {
        asm volatile("{ .reg .pred p; .reg .u32 size; setp.ne.s32 p, %2, 0; selp.u32 size, 16, 0, p;\n"
                     "  cp.async.cg.shared.global.L2::128B [%0], [%1], 16, size; }" ::"r"(to.address),
                     "l"(from.address), "r"(predicate)
                     : "memory");
    } else {
        asm volatile("{ .reg .pred p; .reg .u32 size; setp.ne.s32 p, %3, 0; selp.u32 size, %2, 0, p;\n"
                     "  cp.async.ca.shared.global.L2::128B [%0], [%1], %2, size; }" ::"r"(to.address),
                     "l"(from.address), "n"(BYTES), "r"(predicate)
                     : "memory");
    }
}
DEVICE void copy_async_commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int N>
DEVICE void copy_async_wait() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

DEVICE void barrier() {
    __syncthreads();
}
DEVICE void warp_barrier() {
    __syncwarp();
}

template <int N, bool TRANSPOSED, class T>
DEVICE void load_matrix(u32 (&r)[N], sptr<T> row_address) {
    static_assert(N == 1 || N == 2 || N == 4, "ldmatrix loads 1, 2 or 4 matrices.");
#define LOAD_MATRIX(shape, registers, operand, ...)                                                                    \
    if constexpr (TRANSPOSED) {                                                                                        \
        asm volatile("ldmatrix.sync.aligned.m8n8." shape ".trans.shared.b16 " registers ", [" operand "];"             \
                     : __VA_ARGS__                                                                                     \
                     : "r"(row_address.address)                                                                        \
                     : "memory");                                                                                      \
    } else {                                                                                                           \
        asm volatile("ldmatrix.sync.aligned.m8n8." shape ".shared.b16 " registers ", [" operand "];"                   \
                     : __VA_ARGS__                                                                                     \
                     : "r"(row_address.address)                                                                        \
                     : "memory");                                                                                      \
    }
    if constexpr (N == 4) {
        LOAD_MATRIX("x4", "{%0, %1, %2, %3}", "%4", "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]))
    } else if constexpr (N == 2) {
        LOAD_MATRIX("x2", "{%0, %1}", "%2", "=r"(r[0]), "=r"(r[1]))
    } else {
        LOAD_MATRIX("x1", "{%0}", "%1", "=r"(r[0]))
    }
#undef LOAD_MATRIX
}

#define MMA_FLOAT(shape, types)                                                                                        \
    asm volatile("mma.sync.aligned." shape ".row.col." types                                                           \
                 " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"                                    \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], half_t) {
    MMA_FLOAT("m16n8k16", "f32.f16.f16.f32");
}
DEVICE void mma_m16n8k16(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2], bfloat16_t) {
    MMA_FLOAT("m16n8k16", "f32.bf16.bf16.f32");
}
DEVICE void mma_m16n8k8_tf32(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    MMA_FLOAT("m16n8k8", "f32.tf32.tf32.f32");
}
template <bool A_E5M2, bool B_E5M2>
DEVICE void mma_m16n8k32_f8(float (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    if constexpr (A_E5M2 && B_E5M2)
        MMA_FLOAT("m16n8k32", "f32.e5m2.e5m2.f32");
    else if constexpr (A_E5M2)
        MMA_FLOAT("m16n8k32", "f32.e5m2.e4m3.f32");
    else if constexpr (B_E5M2)
        MMA_FLOAT("m16n8k32", "f32.e4m3.e5m2.f32");
    else
        MMA_FLOAT("m16n8k32", "f32.e4m3.e4m3.f32");
}
#undef MMA_FLOAT
DEVICE void mma_m16n8k8(float (&d)[4], const u32 (&a)[2], const u32 (&b)[1]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
DEVICE void mma_m16n8k32_s8(i32 (&d)[4], const u32 (&a)[4], const u32 (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
DEVICE void mma_m8n8k16_s8(i32 (&d)[2], const u32 (&a)[1], const u32 (&b)[1]) {
    asm volatile("mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+r"(d[0]), "+r"(d[1])
                 : "r"(a[0]), "r"(b[0]));
}
DEVICE void mma_m8n8k4_f64(double (&d)[2], const double (&a)[1], const double (&b)[1]) {
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(d[0]), "+d"(d[1])
                 : "d"(a[0]), "d"(b[0]));
}
DEVICE void mma_m16n8k4_f64(double (&d)[4], const double (&a)[2], const double (&b)[1]) {
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(b[0]));
}
DEVICE void mma_m16n8k8_f64(double (&d)[4], const double (&a)[4], const double (&b)[2]) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
                 "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}
DEVICE void mma_m16n8k16_f64(double (&d)[4], const double (&a)[8], const double (&b)[4]) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, "
                 "{%4, %5, %6, %7, %8, %9, %10, %11}, {%12, %13, %14, %15}, {%0, %1, %2, %3};"
                 : "+d"(d[0]), "+d"(d[1]), "+d"(d[2]), "+d"(d[3])
                 : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]),
                   "d"(b[1]), "d"(b[2]), "d"(b[3]));
}
