template <class From, class To>
DEVICE void each(const Params &p) {
    for (int i = thread_index(); i < p.n; i += 32) {
        Vec<sizeof(To)> v;
        auto x = load_global<sizeof(From)>(gptr<From>(p.p[0]) + i, true);
        v.template set<To>(0, convert<To>(x.template get<From>(0)));
        store_global<sizeof(To)>(gptr<To>(p.p[1]) + i, v, true);
    }
}
template <class From>
DEVICE void all(const Params &p) {
    if (p.mode == 0)
        each<From, double>(p);
    if (p.mode == 1)
        each<From, float>(p);
    if (p.mode == 2)
        each<From, half_t>(p);
    if (p.mode == 3)
        each<From, bfloat16_t>(p);
    if (p.mode == 4)
        each<From, i8>(p);
    if (p.mode == 5)
        each<From, i32>(p);
}
#define FROM(name, type)                                                                                               \
    KERNEL(name, Params, 32, 0) {                                                                                      \
        all<type>(params);                                                                                             \
    }
FROM(from_double, double)
FROM(from_float, float)
FROM(from_half, half_t)
FROM(from_bfloat16, bfloat16_t)
FROM(from_i8, i8)
FROM(from_i32, i32)
