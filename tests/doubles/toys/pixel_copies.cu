// One block per piece of pixels, tap and piece of channels: one copy, times filters that select its channels.
#ifndef ASTRAY
#define ASTRAY 0
#endif
#ifndef FARTHER
#define FARTHER 0
#endif
struct MappedParams : Params {
    TensorMap image, filters;
};
constexpr int ROWS = 64, UNIT = 64;

KERNEL(test, MappedParams, 128, 0) {
    const Window &window = params.window;
    const int pieces = (window.ks[1] + UNIT - 1) / UNIT, taps = params.k / window.ks[1];
    const int channel = block_index() % pieces * UNIT, tap = block_index() / pieces % taps;
    const int first = block_index() / pieces / taps * ROWS, row = first / window.rows[1];
    const i32 at[4] = {channel, first % window.rows[1] * window.step[1] - window.pad[1] + ASTRAY,
                       row % window.rows[0] * window.step[0] - window.pad[0], row / window.rows[0]};
    const i32 moved[2] = {tap % window.ks[0] * window.dilation[1], tap / window.ks[0] * window.dilation[0] + FARTHER};
    const sptr<u64> full = shared_base().as<u64>();
    const i32 filter[5] = {channel, 0, tap, 0, 0};
    const sptr<u8> tile = shared_base() + 1024, other = tile + ROWS * 128;
    if (thread_index() == 0) {
        mbarrier_init(full, 1);
        mbarrier_fence();
    }
    barrier();
    if (thread_index() == 0) {
        mbarrier_expect(full, (ROWS + UNIT) * 128);
        copy_pixels(tile, params.image, at, moved, full);
        copy_tensor(other, params.filters, filter, full);
    }
    mbarrier_wait(full, 0);
    float sums[UNIT / 2] = {};
    wgmma_fence();
    for (int k = 0; k < 4; ++k)
        wgmma<0, 0, 1>(sums, matrix_descriptor(tile, 16, 1024) + k * 2, matrix_descriptor(other, 16, 1024) + k * 2,
                       half_t{}, half_t{});
    wgmma_commit();
    wgmma_wait<0>();
    for (int i = 0; i < UNIT / 2; ++i) {
        const int lane = thread_index() % 32, pixel = thread_index() / 32 * 16 + lane / 4 + i / 2 % 2 * 8;
        Vec<2> value;
        value.set<half_t>(0, convert<half_t>(sums[i]));
        const i64 place = ((i64)block_index() * ROWS + pixel) * UNIT + i / 4 * 8 + lane % 4 * 2 + i % 2;
        store_global<2>(gptr<half_t>(params.c) + place, value, true);
    }
}
