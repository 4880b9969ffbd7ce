template <class T>
DEVICE void apply(const Params &p) {
    for (int i = thread_index(); i < p.n; i += 32) {
        T x = load_global<sizeof(T)>(gptr<T>(p.p[0]) + i, true).template get<T>(0);
        T y = p.mode == 0 ? exp_(x) : p.mode == 1 ? erf_(x) : p.mode == 2 ? tanh_(x) : fma_(x, x, (T)1);
        if (p.mode == 4) // functions of two arrays
            y = max_(x, load_global<sizeof(T)>(gptr<T>(p.p[2]) + i, true).template get<T>(0));
        Vec<sizeof(T)> v;
        v.template set<T>(0, y);
        store_global<sizeof(T)>(gptr<T>(p.p[1]) + i, v, true);
    }
}
KERNEL(test_float, Params, 32, 0) {
    apply<float>(params);
}
KERNEL(test_double, Params, 32, 0) {
    apply<double>(params);
}
KERNEL(test_pairs, Params, 32, 0) {
    for (int i = thread_index(); i < params.n; i += 32) {
        const Vec<8> pair = load_global<8>(gptr<float>(params.p[0]) + 2 * i, true);
        const float low = pair.get<float>(0), high = pair.get<float>(1);
        Vec<16> made = Vec<16>::zero();
        made.set(0, pack_pair(low, high, half_t{})), made.set(1, pack_pair(low, high, bfloat16_t{}));
        made.set(2, maximum_(low, high)), made.set(3, exp2_(low));
        store_global<16>(gptr<u32>(params.p[1]) + 4 * i, made, true);
    }
}
KERNEL(test_tf32, Params, 32, 0) {
    for (int i = thread_index(); i < params.n; i += 32) {
        Vec<4> v;
        v.set<u32>(0, round_tf32(load_global<4>(gptr<u32>(params.p[0]) + i, true).get<u32>(0)));
        store_global<4>(gptr<u32>(params.p[1]) + i, v, true);
    }
}
