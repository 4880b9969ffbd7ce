// Uses every intrinsic, except those that the architecture does not have.
#define SM80 (!defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800)
template <int BYTES>
DEVICE void move(const Params &p, sptr<u8> s) {
    const bool inside = within(thread_index(), p.n);
    store_shared<BYTES>(s + thread_index() * 16, load_global<BYTES>(gptr<u8>(p.p[0]) + thread_index() * 16, inside));
    warp_barrier();
    barrier();
    const Vec<BYTES> v = load_shared<BYTES>(s + (thread_index() ^ 1) * 16);
    store_global<BYTES>(gptr<u8>(p.p[1]) + thread_index() * 16, v, inside);
    barrier();
}
KERNEL(test, Params, 32, 1) {
    cover("full_tile");
    const sptr<u8> s = shared_base();
    if (params.mode == 1)
        move<1>(params, s);
    if (params.mode == 2)
        move<2>(params, s);
    if (params.mode == 4)
        move<4>(params, s);
    if (params.mode == 8)
        move<8>(params, s);
    if (params.mode == 16)
        move<16>(params, s);
    if (params.mode)
        return;
    u32 r4[4] = {}, r2[2] = {}, r1[1] = {};
    store_shared<16>(s + thread_index() * 16, Vec<16>::zero());
    barrier();
    const sptr<u8> row = s + thread_index() * 16;
    load_matrix<4, true>(r4, row), load_matrix<4, false>(r4, row), load_matrix<2, true>(r2, row);
    load_matrix<2, false>(r2, row), load_matrix<1, true>(r1, row), load_matrix<1, false>(r1, row);
    float d[4] = {};
    i32 e[4] = {}, f[2] = {};
    mma_m16n8k8(d, r2, r1), mma_m8n8k16_s8(f, r1, r1);
#if SM80
    barrier();
    copy_async<4>(s, gptr<u8>(params.p[0]), within(40, params.n));
    copy_async<8>(s + 16, gptr<u8>(params.p[0]), within(40, params.n));
    copy_async<16>(s + 32, gptr<u8>(params.p[0]), within(40, params.n));
    copy_async_commit(), copy_async_wait<0>();
    mma_m16n8k16(d, r4, r2, half_t{}), mma_m16n8k16(d, r4, r2, bfloat16_t{}), mma_m16n8k8_tf32(d, r4, r2);
    mma_m16n8k32_s8(e, r4, r2);
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 890
    mma_m16n8k32_f8<true, false>(d, r4, r2);
#endif
    d[0] += bit_cast<float>(round_tf32(bit_cast<u32>(d[1])));
#endif
    double x = exp_((double)d[0]) + erf_((double)d[1]) + tanh_((double)d[2]) + fma_(1.0, 2.0, (double)d[3]);
    x += log_((double)d[0]) + sqrt_((double)d[1]) + min_(max_(x, 1.0), 2.0);
    float y = exp_(d[0]) + erf_(d[1]) + tanh_(d[2]) + fma_(1.0f, 2.0f, d[3]) + log_(d[0]) + sqrt_(d[1]) +
              exp2_(maximum_(d[0], d[1])) + min_(max_(d[0], d[1]), d[2]);
    e[0] += (i32)(pack_pair(d[0], d[1], half_t{}) ^ pack_pair(d[2], d[3], bfloat16_t{}));
    y += shuffle_xor(y, 1), x += shuffle_xor(x, 2);
    Vec<16> v = Vec<16>::zero();
    v.set<float>(0, y), v.set<i32>(1, e[0] + f[0] + block_index() + grid_size()), v.set<double>(1, x);
    store_global<16>(gptr<float>(params.p[1]), v, within(thread_index(), 1));
}
