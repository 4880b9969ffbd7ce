// Products in tensor memory over 128 bytes of k, for each kind: 128 rows times 64 columns of one block, 256 times 128
// of a pair. Boxes are copied as they are, so that the host lays out the tiles. The sums are stored row by row. Of
// kinds HELD in tensor memory, each warp stores its rows of A there, and sums to which products are added. Of
// kinds with scales, A's are in the first half of another box, B's in the second one: in four columns of 16 bytes or
// (PLAIN) four pieces of 512 bytes, each for four scales of a row.
struct MappedParams : Params {
    TensorMap a_map, b_map;
};
constexpr int PANEL = 8192;

template <int BLOCKS, bool SCALED>
DEVICE void request(const MappedParams &params, sptr<u8> to, int block, sptr<u64> full) {
    if (block == 0)
        mbarrier_expect(full, (SCALED ? 4 : 3) * PANEL * BLOCKS);
    const i32 rows[4] = {block * 128, block * 128 + 64, block * 64, BLOCKS * 128 + block * 64};
    for (int i = 0; i < (SCALED ? 4 : 3); ++i) {
        const TensorMap &map = i == 2 ? params.b_map : params.a_map;
        const i32 at[5] = {0, rows[i], 0, 0, 0};
        if constexpr (BLOCKS == 2)
            copy_tensor_of_pair(to + i * PANEL, map, at, full);
        else
            copy_tensor(to + i * PANEL, map, at, full);
    }
}

template <int SCALES, bool PLAIN>
DEVICE u64 described_scales(sptr<u8> scales, int i) {
    if constexpr (PLAIN)
        return scales_descriptor(scales + i * 512);
    else
        return tensor_descriptor(matrix_descriptor(scales + i * 16, 16, 1024));
}

// By one thread.
template <int BLOCKS, class A, class B, bool A_ACROSS, bool B_ACROSS, int SCALES, bool PLAIN>
DEVICE void issue(u32 memory, sptr<u8> a) {
    constexpr int ROWS = 128 * BLOCKS, COLUMNS = 64 * BLOCKS;
    const sptr<u8> b = a + 2 * PANEL, scales = b + PANEL;
    const u32 of_rows = memory + 128, of_columns = of_rows + 4;
    for (int k = 0; k < 4; ++k) {
        const u64 of_a =
            tensor_descriptor(matrix_descriptor(a + k * (A_ACROSS ? 2048 : 32), A_ACROSS ? PANEL : 16, 1024));
        const u64 of_b =
            tensor_descriptor(matrix_descriptor(b + k * (B_ACROSS ? 2048 : 32), B_ACROSS ? PANEL : 16, 1024));
        if constexpr (SCALES > 0) {
            const int first = k * SCALES, byte = first % 4;
            if (byte == 0) {
                tensor_copy_scales<BLOCKS>(of_rows, described_scales<SCALES, PLAIN>(scales, first / 4));
                tensor_copy_scales<BLOCKS>(of_columns, described_scales<SCALES, PLAIN>(scales + PANEL / 2, first / 4));
            }
            umma_scaled<BLOCKS, SCALES>(
                memory, of_a, of_b,
                scaled_descriptor<SCALES>(ROWS, COLUMNS, byte, byte, same_type<A, e5m2_t>, same_type<B, e5m2_t>),
                of_rows, of_columns, k > 0);
        } else {
            umma<BLOCKS, A>(memory, of_a, of_b, instruction_descriptor<A, B>(ROWS, COLUMNS, A_ACROSS, B_ACROSS), k > 0);
        }
    }
}

// A's rows to columns `a`, and to columns `memory` the first sums: a quarter of the row less the column.
DEVICE void store_rows(u32 memory, u32 a, sptr<u8> tiles, int row) {
    const int lane = thread_index() % 32;
    for (int half = 0; half < 2; ++half) {
        u32 pairs[16];
        float sums[32];
        for (int i = 0; i < 32; ++i) {
            const int own = row + half * 16 + lane / 4 + i / 2 % 2 * 8, column = i / 4 * 8 + lane % 4 * 2 + i % 2;
            sums[i] = 0.25f * (float)(own - column);
        }
        for (int i = 0; i < 16; ++i) {
            const int own = row + half * 16 + lane / 4 + i % 2 * 8;
            const sptr<u8> chunk = tiles + (own * 128 + (i / 2 ^ own % 8) * 16);
            pairs[i] = load_shared<4>(chunk + lane % 4 * 4).word[0];
        }
        const u32 at = (u32)(row + half * 16) << 16;
        tensor_store<64>(sums, memory + at);
        tensor_store_pairs<32>(pairs, a + at);
    }
    tensor_store_wait();
    tensor_fence_before();
}

template <int BLOCKS, class T, class A, class B, bool A_ACROSS, bool B_ACROSS, int SCALES = 0, bool PLAIN = false,
          bool HELD = false>
DEVICE void multiply(const MappedParams &params) {
    constexpr int COLUMNS = 64 * BLOCKS;
    const sptr<u64> full = shared_base().as<u64>(), done = full + 1;
    const sptr<u32> where = (done + 1).as<u32>();
    const sptr<u8> tiles = shared_base() + 1024;
    const int block = BLOCKS == 2 ? block_index() : 0, warp = thread_index() / 32, lane = thread_index() % 32;
    if (thread_index() == 0) {
        mbarrier_init(full, 1);
        mbarrier_init(done, 1);
        mbarrier_fence();
    }
    if (warp == 1)
        tensor_alloc<BLOCKS, 256>(where);
    if (BLOCKS == 2)
        cluster_barrier(), warp_barrier();
    else
        barrier();
    const u32 memory = load_shared<4>(where).word[0] + 16;
    if (thread_index() == 0)
        request<BLOCKS, (SCALES > 0)>(params, tiles, block, full);
    if constexpr (HELD) {
        mbarrier_wait(full, 0);
        store_rows(memory, memory + 64, tiles, warp * 32);
        barrier();
        if (thread_index() == 0) {
            tensor_fence_after();
            for (int k = 0; k < 4; ++k)
                umma_held<1, A>(memory, memory + 64 + 8 * k,
                                tensor_descriptor(matrix_descriptor(tiles + 2 * PANEL + k * 32, 16, 1024)),
                                instruction_descriptor<A, B>(128, 64, false, false), true);
            umma_commit<1>(done);
        }
    } else if (thread_index() == 0 && block == 0) {
        mbarrier_wait(full, 0);
        issue<BLOCKS, A, B, A_ACROSS, B_ACROSS, SCALES, PLAIN>(memory, tiles);
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
ONE(mxfp8, float, e4m3_t, e5m2_t, false, false, 1)
ONE(mxfp4, float, u8, u8, false, false, 2)
ONE(nvfp4, float, u8, u8, false, false, 4)
ONE(nvfp4_plain, float, u8, u8, false, false, 4, true)
PAIR(pair_mxfp8, float, e5m2_t, e4m3_t, false, false, 1)
PAIR(pair_nvfp4, float, u8, u8, false, false, 4)
ONE(held_halves, float, half_t, half_t, false, false, 0, false, true)
ONE(held_brains, float, bfloat16_t, bfloat16_t, false, false, 0, false, true)
