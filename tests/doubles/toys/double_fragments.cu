template <int N>
DEVICE void load(double (&r)[N], u64 address) {
    UNROLL for (int i = 0; i < N; ++i) r[i] =
        load_global<8>(gptr<double>(address) + (thread_index() * N + i), true).template get<double>(0);
}
template <int M, int A, int B, class Product>
DEVICE void multiply(const Params &params, const Product &product) {
    double d[M], a[A], b[B];
    load(a, params.p[0]), load(b, params.p[1]), load(d, params.p[2]);
    product(d, a, b);
    UNROLL for (int i = 0; i < M; ++i) {
        Vec<8> v;
        v.set<double>(0, d[i]);
        store_global<8>(gptr<double>(params.p[3]) + (thread_index() * M + i), v, true);
    }
}
KERNEL(test, Params, 32, 0) {
    if (params.mode == 0)
        multiply<2, 1, 1>(params, [](auto &d, auto &a, auto &b) { mma_m8n8k4_f64(d, a, b); });
    if (params.mode == 1)
        multiply<4, 4, 2>(params, [](auto &d, auto &a, auto &b) { mma_m16n8k8_f64(d, a, b); });
    if (params.mode == 2)
        multiply<4, 8, 4>(params, [](auto &d, auto &a, auto &b) { mma_m16n8k16_f64(d, a, b); });
    if (params.mode == 3)
        multiply<4, 2, 1>(params, [](auto &d, auto &a, auto &b) { mma_m16n8k4_f64(d, a, b); });
}
