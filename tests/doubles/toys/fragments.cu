// One warp loads its fragments in the order [lane][register], multiplies and stores the sums.
template <int N, class T>
DEVICE void load(T (&r)[N], u64 address) {
    UNROLL for (int i = 0; i < N; ++i) r[i] =
        load_global<4>(gptr<T>(address) + (thread_index() * N + i), true).template get<T>(0);
}
template <int N, class T>
DEVICE void store(u64 address, const T (&r)[N]) {
    UNROLL for (int i = 0; i < N; ++i) {
        Vec<4> v;
        v.set<T>(0, r[i]);
        store_global<4>(gptr<T>(address) + (thread_index() * N + i), v, true);
    }
}
KERNEL(test, Params, 32, 0) {
    u32 a4[4], b2[2], a2[2], b1[1], a1[1];
    float d[4];
    i32 e[4], f[2];
    if (params.mode != 2 && params.mode != 5)
        load(a4, params.p[0]), load(b2, params.p[1]);
    if (params.mode == 2)
        load(a2, params.p[0]), load(b1, params.p[1]);
    if (params.mode == 5)
        load(a1, params.p[0]), load(b1, params.p[1]);
    if (params.mode < 4 || params.mode > 5)
        load(d, params.p[2]);
    if (params.mode == 4)
        load(e, params.p[2]);
    if (params.mode == 5)
        load(f, params.p[2]);
    if (params.mode == 0)
        mma_m16n8k16(d, a4, b2, half_t{});
    if (params.mode == 1)
        mma_m16n8k16(d, a4, b2, bfloat16_t{});
    if (params.mode == 2)
        mma_m16n8k8(d, a2, b1);
    if (params.mode == 3)
        mma_m16n8k8_tf32(d, a4, b2);
    if (params.mode == 4)
        mma_m16n8k32_s8(e, a4, b2);
    if (params.mode == 5)
        mma_m8n8k16_s8(f, a1, b1);
    if (params.mode == 6)
        mma_m16n8k32_f8<false, false>(d, a4, b2);
    if (params.mode == 7)
        mma_m16n8k32_f8<false, true>(d, a4, b2);
    if (params.mode == 8)
        mma_m16n8k32_f8<true, false>(d, a4, b2);
    if (params.mode == 9)
        mma_m16n8k32_f8<true, true>(d, a4, b2);
    if (params.mode < 4 || params.mode > 5)
        store(params.p[3], d);
    if (params.mode == 4)
        store(params.p[3], e);
    if (params.mode == 5)
        store(params.p[3], f);
}
