template <int N, bool T>
DEVICE void each(const Params &p) {
    const sptr<u8> s = shared_base();
    store_shared<16>(s + thread_index() * 16, load_global<16>(gptr<u8>(p.p[0]) + thread_index() * 16, true));
    warp_barrier();
    u32 r[N];
    load_matrix<N, T>(r, s + (thread_index() ^ 1) % (8 * N) * 16);
    UNROLL for (int i = 0; i < N; ++i) {
        Vec<4> v;
        v.set<u32>(0, r[i]);
        store_global<4>(gptr<u32>(p.p[1]) + (thread_index() * N + i), v, true);
    }
}
KERNEL(test, Params, 32, 0) {
    if (params.n == 1 && params.mode == 0)
        each<1, false>(params);
    if (params.n == 1 && params.mode == 1)
        each<1, true>(params);
    if (params.n == 2 && params.mode == 0)
        each<2, false>(params);
    if (params.n == 2 && params.mode == 1)
        each<2, true>(params);
    if (params.n == 4 && params.mode == 0)
        each<4, false>(params);
    if (params.n == 4 && params.mode == 1)
        each<4, true>(params);
}
KERNEL(shuffle, Params, 32, 0) {
    float x = load_global<4>(gptr<float>(params.p[0]) + thread_index(), true).get<float>(0);
    Vec<8> v;
    v.set<double>(0, shuffle_xor((double)shuffle_xor(x, params.n), 1));
    store_global<8>(gptr<double>(params.p[1]) + thread_index(), v, true);
}
