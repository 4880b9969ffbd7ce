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
template <int A, int B, int D, class T, class Product>
DEVICE void apply(const Params &p, Product product) {
    u32 a[A], b[B];
    T d[D];
    load(a, p.p[0]), load(b, p.p[1]), load(d, p.p[2]);
    product(d, a, b);
    store(p.p[3], d);
}
// clang-format off
#define MODE(number, A, B, D, T, ...) \
    if (params.mode == number) \
        apply<A, B, D, T>(params, [](T(&d)[D], u32(&a)[A], u32(&b)[B]) { __VA_ARGS__; });
KERNEL(test, Params, 32, 0) {
    MODE(0, 4, 2, 4, float, mma_m16n8k16(d, a, b, half_t{}))
    MODE(1, 4, 2, 4, float, mma_m16n8k16(d, a, b, bfloat16_t{}))
    MODE(2, 2, 1, 4, float, mma_m16n8k8(d, a, b))
    MODE(3, 4, 2, 4, float, mma_m16n8k8_tf32(d, a, b))
    MODE(4, 4, 2, 4, i32, mma_m16n8k32_s8(d, a, b))
    MODE(5, 1, 1, 2, i32, mma_m8n8k16_s8(d, a, b))
    MODE(6, 4, 2, 4, float, mma_m16n8k32_f8<false, false>(d, a, b))
    MODE(7, 4, 2, 4, float, mma_m16n8k32_f8<false, true>(d, a, b))
    MODE(8, 4, 2, 4, float, mma_m16n8k32_f8<true, false>(d, a, b))
    MODE(9, 4, 2, 4, float, mma_m16n8k32_f8<true, true>(d, a, b))
}
