// C[m, n] = A[m, k] @ B[k, n], row-major float16 with float32 sums; copies of 16 bytes, XOR-swizzled tiles.
#ifndef BUG
#define BUG 0
#endif
#ifndef BLOCK_M
#define BLOCK_M 128
#endif
#ifndef BLOCK_N
#define BLOCK_N 128
#endif
constexpr int BLOCK_K = 32, WARP_M = 64, WARP_N = 32, STAGES = 3;
constexpr int THREADS = BLOCK_M / WARP_M * (BLOCK_N / WARP_N) * 32;
constexpr int A_BYTES = BLOCK_M * BLOCK_K * 2, B_BYTES = BLOCK_K * BLOCK_N * 2;
constexpr int MI = WARP_M / 16, NI = WARP_N / 8;
enum {
    NONE,
    NO_BARRIER,
    SHORT_WAIT,
    NO_SWIZZLE,
    NO_GUARD,
    ODD_ADDRESS,
    DIVERGENT,
    DEADLOCK,
    HANG,
    UNWRITTEN,
    READ_ONLY,
    SHARED_BOUND,
    TWICE,
    OTHER_BARRIER
};

struct Params {
    u64 a, b, c;
    int m, n, k, pad;
};

DEVICE int swizzle_a(int row, int chunk) {
    return BUG == NO_SWIZZLE ? chunk : chunk ^ ((row >> 1) & 3);
}
DEVICE int swizzle_b(int row, int chunk) {
    return (chunk & ~7) | ((chunk ^ (BUG == NO_SWIZZLE ? 0 : row)) & 7);
}

DEVICE void load_tiles(sptr<u8> to_a, sptr<u8> to_b, const Params &p, int m0, int n0, int k0) {
    int tid = thread_index();
    UNROLL for (int i = tid; i < BLOCK_M * (BLOCK_K / 8); i += THREADS) {
        int row = i / (BLOCK_K / 8), chunk = i % (BLOCK_K / 8);
        bool inside = within(m0 + row, p.m) && within(k0 + chunk * 8, p.k);
        copy_async<16>(to_a + row * BLOCK_K * 2 + swizzle_a(row, chunk) * 16,
                       gptr<half_t>(p.a) + ((i64)(m0 + row) * p.k + k0 + chunk * 8 + (BUG == ODD_ADDRESS)),
                       inside || BUG == NO_GUARD);
    }
    UNROLL for (int i = tid; i < BLOCK_K * (BLOCK_N / 8); i += THREADS) {
        int row = i / (BLOCK_N / 8), chunk = i % (BLOCK_N / 8);
        bool inside = within(k0 + row, p.k) && within(n0 + chunk * 8, p.n);
        if (BUG != UNWRITTEN || row)
            copy_async<16>(to_b + row * BLOCK_N * 2 + swizzle_b(row, chunk) * 16,
                           gptr<half_t>(p.b) + ((i64)(k0 + row) * p.n + n0 + chunk * 8), inside);
    }
}

DEVICE void multiply(float (&sum)[MI][NI][4], sptr<u8> a, sptr<u8> b, int wm, int wn) {
    int lane = thread_index() % 32;
    UNROLL for (int kk = 0; kk < BLOCK_K / 16; ++kk) {
        u32 fa[MI][4], fb[NI / 2][4];
        UNROLL for (int i = 0; i < MI; ++i) {
            int row = wm + i * 16 + lane % 16;
            load_matrix<4, false>(fa[i], a + row * BLOCK_K * 2 + swizzle_a(row, kk * 2 + lane / 16) * 16);
        }
        UNROLL for (int j = 0; j < NI / 2; ++j) {
            int row = kk * 16 + lane % 16;
            load_matrix<4, true>(fb[j], b + row * BLOCK_N * 2 + swizzle_b(row, (wn + j * 16) / 8 + lane / 16) * 16);
        }
        UNROLL for (int i = 0; i < MI; ++i) UNROLL for (int j = 0; j < NI; ++j) {
            u32 pair[2] = {fb[j / 2][j % 2 * 2], fb[j / 2][j % 2 * 2 + 1]};
            if (BUG == DIVERGENT && i == 1 && lane < 16)
                continue;
            mma_m16n8k16(sum[i][j], fa[i], pair, half_t{});
        }
    }
}

KERNEL(gemm, Params, THREADS, 0) {
    const int tiles_n = (params.n + BLOCK_N - 1) / BLOCK_N, steps = (params.k + BLOCK_K - 1) / BLOCK_K;
    const int m0 = block_index() / tiles_n * BLOCK_M, n0 = block_index() % tiles_n * BLOCK_N;
    const int lane = thread_index() % 32, warp = thread_index() / 32;
    const int wm = warp % (BLOCK_M / WARP_M) * WARP_M, wn = warp / (BLOCK_M / WARP_M) * WARP_N;
    const sptr<u8> a = shared_base(), b = a + STAGES * A_BYTES;
    float sum[MI][NI][4] = {};
    if (BUG == DEADLOCK && thread_index() == 3)
        return;
    if (BUG == OTHER_BARRIER && warp == 1)
        barrier();
    UNROLL for (int s = 0; s < STAGES - 1; ++s) {
        if (within(s, steps))
            load_tiles(a + s * A_BYTES, b + s * B_BYTES, params, m0, n0, s * BLOCK_K);
        copy_async_commit();
    }
    for (int t = 0; t < steps || BUG == HANG; ++t) {
        copy_async_wait<BUG == SHORT_WAIT ? STAGES - 1 : STAGES - 2>();
        if (BUG != NO_BARRIER)
            barrier();
        const int next = t + STAGES - 1;
        if (within(next, steps)) {
            cover("steady");
            load_tiles(a + next % STAGES * A_BYTES, b + next % STAGES * B_BYTES, params, m0, n0, next * BLOCK_K);
        } else {
            cover("drain");
        }
        copy_async_commit();
        multiply(sum, a + t % STAGES * A_BYTES, b + t % STAGES * B_BYTES, wm, wn);
    }
    if (BUG == SHARED_BOUND)
        load_shared<4>(a + STAGES * (A_BYTES + B_BYTES));
    UNROLL for (int i = 0; i < MI; ++i) UNROLL for (int j = 0; j < NI; ++j) UNROLL for (int q = 0; q < 4; ++q) {
        int row = m0 + wm + i * 16 + lane / 4 + q / 2 * 8, column = n0 + wn + j * 8 + lane % 4 * 2 + q % 2;
        Vec<2> v;
        v.set<half_t>(0, convert<half_t>(sum[i][j][q]));
        i64 place = (i64)row * params.n + (BUG == TWICE ? column & ~1 : column);
        store_global<2>(gptr<half_t>(BUG == READ_ONLY ? params.a : params.c) + place, v,
                        within(row, params.m) && within(column, params.n));
    }
}
