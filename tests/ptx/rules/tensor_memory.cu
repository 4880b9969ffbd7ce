// Two kernels per rule of tensor memory (PTX ISA 9.7.16), as in classic.cu: 128 rows times 64 columns over the first 16
// elements of k, in rows of 128 bytes. Two copies of 64 rows are A, one is B.
#define MAPPED
#include "rules.cuh"
#include "blackwell.cuh"

constexpr int BOX = 8192, COLUMNS = 64;

DEVICE sptr<u64> mbarrier(int i) {
    return shared_base().as<u64>() + i;
}
DEVICE sptr<u32> where(int i = 0) {
    return (shared_base() + 512).as<u32>() + i;
}
DEVICE sptr<u8> tile(int i) {
    return shared_base() + (1024 + i * BOX);
}
DEVICE u64 described(int i, int byte = 0) {
    return tensor_descriptor(matrix_descriptor(tile(i) + byte, 16, 1024));
}
DEVICE u32 instructed(int rows = 128, int columns = COLUMNS) {
    return instruction_descriptor<half_t, half_t>(rows, columns, false, false);
}
DEVICE u32 memory(int i = 0) {
    return load_shared<4>(where(i)).word[0];
}
DEVICE void copy_tiles(const Arguments &params, int i = 0) {
    const i32 at[5] = {0, 0, 0, 0, 0};
    mbarrier_expect(mbarrier(i), 3 * BOX);
    copy_tensor(tile(0), params.a_map, at, mbarrier(i));
    copy_tensor(tile(1), params.a_map, at, mbarrier(i));
    copy_tensor(tile(2), params.b_map, at, mbarrier(i));
}
// Allocates tensor memory and lets the first thread copy the tiles.
DEVICE void begin(const Arguments &params) {
    if (thread_index() == 0) {
        mbarrier_init(mbarrier(0), 1);
        mbarrier_init(mbarrier(1), 1);
        mbarrier_init(mbarrier(2), 1);
        mbarrier_init(mbarrier(3), 4);
        mbarrier_fence();
    }
    if (thread_index() < 32)
        tensor_alloc<1, COLUMNS>(where());
    barrier();
    if (thread_index() == 0)
        copy_tiles(params);
}
DEVICE void multiply(bool kept = false) {
    umma<1, half_t>(memory(), described(0), described(2), instructed(), kept);
}
// The address of this warp's lanes.
DEVICE u32 own_lanes(int i = 0) {
    return memory(i) + ((u32)thread_index() / 32 % 4 << 21);
}
typedef float Sums[COLUMNS / 2];
DEVICE void load(Sums &sums) {
    tensor_load<COLUMNS>(sums, own_lanes());
    tensor_load_wait(sums);
    tensor_fence_before();
}
// Waits for the commit at this mbarrier, and loads.
DEVICE void fetch(Sums &sums, int i = 1, u32 parity = 0) {
    mbarrier_wait(mbarrier(i), parity);
    tensor_fence_after();
    load(sums);
}
DEVICE void end(const Params &params, const Sums &sums) {
    barrier();
    if (thread_index() < 32)
        tensor_free<1, COLUMNS>(memory());
    const float some[4] = {sums[0], sums[7], sums[18], sums[31]};
    finish(params, some);
}

RULE(fence_after_a_commit, 128) {
    Sums sums;
    begin(params);
    if (thread_index() == 0) {
        mbarrier_wait(mbarrier(0), 0);
        multiply();
        multiply(true);
        umma_commit<1>(mbarrier(1));
    }
    mbarrier_wait(mbarrier(1), 0);
    if (!WRONG)
        tensor_fence_after();
    load(sums);
    end(params, sums);
}
