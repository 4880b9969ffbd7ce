// Products in tensor memory over 128 bytes of k, for each kind: 128 rows times 64 columns of one block, 256 times 128
// of a pair. Boxes are copied as they are, so that the host lays out the tiles. The sums are stored row by row.
struct MappedParams : Params {
    TensorMap a_map, b_map;
};

template <int BLOCKS, class T, class A, class B, bool A_ACROSS, bool B_ACROSS>
DEVICE void multiply(const MappedParams &params) {
    constexpr int COLUMNS = 64 * BLOCKS, PANEL = 8192;
    const sptr<u64> full = shared_base().as<u64>(), done = full + 1;
    const sptr<u32> where = (done + 1).as<u32>();
    const sptr<u8> a = shared_base() + 1024, b = a + 2 * PANEL;
    const int block = BLOCKS == 2 ? block_index() : 0, warp = thread_index() / 32, lane = thread_index() % 32;
    if (thread_index() == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(done, 1);
        mbarrier_fence();
    }
    if (warp == 1)
        tensor_alloc<BLOCKS, 256>(where);
    if (BLOCKS == 2)
        cluster_barrier();
    else
        barrier();
    const u32 memory = load_shared<4>(where).word[0] + 16;
    if (thread_index() == 0) {
        const i32 upper[5] = {0, block * 128, 0, 0, 0}, lower[5] = {0, block * 128 + 64, 0, 0, 0};
        const i32 columns[5] = {0, block * 64, 0, 0, 0};
        if (block == 0)
            mbarrier_expect(full, 3 * PANEL * BLOCKS);
        if constexpr (BLOCKS == 2) {
            copy_tensor_of_pair(a, params.a_map, upper, full);
            copy_tensor_of_pair(a + PANEL, params.a_map, lower, full);
            copy_tensor_of_pair(b, params.b_map, columns, full);
        } else {
            copy_tensor(a, params.a_map, upper, full);
            copy_tensor(a + PANEL, params.a_map, lower, full);
            copy_tensor(b, params.b_map, columns, full);
        }
    }
    if (thread_index() == 0 && block == 0) {
        mbarrier_wait(full, 0);
        for (int k = 0; k < 4; ++k) {
            const u64 of_a = matrix_descriptor(a + k * (A_ACROSS ? 2048 : 32), A_ACROSS ? PANEL : 16, 1024);
            const u64 of_b = matrix_descriptor(b + k * (B_ACROSS ? 2048 : 32), B_ACROSS ? PANEL : 16, 1024);
            umma<BLOCKS, A>(memory, tensor_descriptor(of_a), tensor_descriptor(of_b),
                            instruction_descriptor<A, B>(128 * BLOCKS, COLUMNS, A_ACROSS, B_ACROSS), k > 0);
        }
        umma_commit<BLOCKS>(done);
    }
    mbarrier_wait(done, 0);
    tensor_fence_after();
    for (int half = 0; half < 2; ++half) {
        T sums[COLUMNS / 2];
        tensor_load<COLUMNS>(sums, memory + ((u32)(warp * 32 + half * 16) << 16));
        tensor_load_wait(sums);
        for (int i = 0; i < COLUMNS / 2; ++i) {
            const int row = block * 128 + warp * 32 + half * 16 + lane / 4 + i / 2 % 2 * 8;
            Vec<4> value = Vec<4>::zero();
            value.word[0] = bit_cast<u32>(sums[i]);
            store_global<4>(gptr<T>(params.c) + (row * COLUMNS + i / 4 * 8 + lane % 4 * 2 + i % 2), value, true);
        }
    }
    tensor_fence_before();
    barrier();
    if (warp == 1)
        tensor_free<BLOCKS, 256>(memory - 16);
}

#define ONE(name, ...)                                                                                                 \
    KERNEL(name, MappedParams, 128, 1) {                                                                               \
        multiply<1, __VA_ARGS__>(params);                                                                              \
    }
#define PAIR(name, ...)                                                                                                \
    CLUSTERED_KERNEL(name, MappedParams, 128, 1, 2) {                                                                  \
        multiply<2, __VA_ARGS__>(params);                                                                              \
    }
ONE(halves, float, half_t, half_t, false, false)
ONE(halves_across, float, half_t, half_t, true, true)
ONE(brains, float, bfloat16_t, bfloat16_t, false, true)
ONE(floats, float, float, float, false, false)
ONE(e4m3, float, e4m3_t, e4m3_t, false, false)
ONE(e5m2_e4m3, float, e5m2_t, e4m3_t, false, false)
ONE(integers, i32, i8, i8, false, false)
PAIR(pair_halves, float, half_t, half_t, true, false)
PAIR(pair_e4m3_e5m2, float, e4m3_t, e5m2_t, false, false)
PAIR(pair_integers, i32, i8, i8, false, false)
