template <int BYTES>
DEVICE void each(const Params &p) {
    const sptr<u8> s = shared_base();
    const Vec<16> zero = Vec<16>::zero();
    for (int i = 0; i < p.n; ++i) {
        int at = load_global<4>(gptr<int>(p.p[0]) + (i * 32 + thread_index()), true).template get<int>(0);
        if (!within(-1, at))
            continue;
        if (p.mode < 100)
            load_shared<BYTES>(s + at);
        if (p.mode >= 100 && p.mode < 200)
            store_shared<BYTES>(s + at, Vec<BYTES>::zero());
        if constexpr (BYTES >= 4)
            if (p.mode >= 200)
                copy_async<BYTES>(s + at, gptr<u8>(p.p[1]), true);
    }
}
KERNEL(test, Params, 32, 0) {
    const int bytes = params.mode % 100;
    if (bytes == 1)
        each<1>(params);
    if (bytes == 2)
        each<2>(params);
    if (bytes == 4)
        each<4>(params);
    if (bytes == 8)
        each<8>(params);
    if (bytes == 16)
        each<16>(params);
}
KERNEL(rows, Params, 32, 0) {
    u32 r[4];
    for (int i = 0; i < params.n; ++i) {
        int at = load_global<4>(gptr<int>(params.p[0]) + (i * 32 + thread_index()), true).get<int>(0);
        load_matrix<4, false>(r, shared_base() + at);
    }
}
KERNEL(branches, Params, 32, 0) {
    const int lane = thread_index();
    const sptr<u8> s = shared_base();
    if (lane < 16)
        load_shared<4>(s + lane * 128); // 16 words of one bank: 15 conflicts
    else
        load_shared<4>(s + lane * 4);  // none
    for (int i = 0; i < lane % 4; ++i) // 24, 16 and 8 lanes, rows of one bank: 23, 15 and 7 conflicts
        load_shared<4>(s + lane * 128 + i * 4);
    load_shared<4>(s + lane * 4); // one instruction again, although the lanes took different branches: none
    warp_barrier();
    load_shared<4>(s + lane % 2 * 128); // 1
}
