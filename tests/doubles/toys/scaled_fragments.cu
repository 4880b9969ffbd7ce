// One warp multiplies fragments with block scales: a lane's words are four of A, two of B, two of scales, four sums.
KERNEL(test, Params, 32, 0) {
    const gptr<u32> from = gptr<u32>(params.p[0]) + thread_index() * 12;
    u32 word[12];
    UNROLL for (int i = 0; i < 12; ++i) word[i] = load_global<4>(from + i, true).word[0];
    const u32 a[4] = {word[0], word[1], word[2], word[3]}, b[2] = {word[4], word[5]};
    const ScaleRegisters scales = {word[6], word[7]};
    const ScalePlace at = {params.n & 3, params.n >> 2 & 1, params.n >> 3};
    float d[4];
    UNROLL for (int i = 0; i < 4; ++i) d[i] = bit_cast<float>(word[8 + i]);
    if (params.mode == 0)
        mma_m16n8k32_scaled<false, false>(d, a, b, scales, at);
    if (params.mode == 1)
        mma_m16n8k32_scaled<false, true>(d, a, b, scales, at);
    if (params.mode == 2)
        mma_m16n8k32_scaled<true, false>(d, a, b, scales, at);
    if (params.mode == 3)
        mma_m16n8k32_scaled<true, true>(d, a, b, scales, at);
    if (params.mode == 4)
        mma_m16n8k64_scaled<2>(d, a, b, scales, at);
    if (params.mode == 5)
        mma_m16n8k64_scaled<4>(d, a, b, scales, at);
    UNROLL for (int i = 0; i < 4; ++i) {
        Vec<4> v;
        v.set<float>(0, d[i]);
        store_global<4>(gptr<float>(params.p[1]) + (thread_index() * 4 + i), v, true);
    }
}
