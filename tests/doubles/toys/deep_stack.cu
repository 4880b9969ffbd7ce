template <int DEPTH>
#ifndef __CUDACC__
__attribute__((noinline))
#endif
float deep(int n) {
    float a[SIZE];
    for (int i = 0; i < SIZE; ++i)
        a[i] = (float)(i * n);
    float sum = 0;
    if constexpr (DEPTH > 0)
        sum += deep<DEPTH - 1>(n + 1);
    for (int i = 0; i < SIZE; ++i)
        sum += a[i * 7 % SIZE] * i;
    return sum;
}
KERNEL(test, Params, 64, 0) {
    float sum = deep<2>(params.n);
    Vec<4> v;
    v.set<float>(0, sum);
    store_global<4>(gptr<float>(params.p[0]) + thread_index(), v, true);
}
