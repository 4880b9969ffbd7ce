template <class T>
DEVICE void apply(const Params &p) {
    for (int i = thread_index(); i < p.n; i += 32) {
        const T a = load_global<sizeof(T)>(gptr<T>(p.p[0]) + i, true).template get<T>(0);
        Vec<sizeof(T)> v;
        v.template set<T>(0, max_(a, load_global<sizeof(T)>(gptr<T>(p.p[1]) + i, true).template get<T>(0)));
        store_global<sizeof(T)>(gptr<T>(p.p[2]) + i, v, true);
    }
}
KERNEL(test_float, Params, 32, 0) {
    apply<float>(params);
}
KERNEL(test_double, Params, 32, 0) {
    apply<double>(params);
}
