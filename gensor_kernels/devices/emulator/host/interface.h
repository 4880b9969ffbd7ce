// The interface of compiled kernels and the emulator. It uses only built-in types, so that a kernel includes no other
// file.
#pragma once

namespace emulator {

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

// The place of an instruction in the kernel's source, for fault messages; bank conflicts are counted among accesses
// of a warp's lanes with the same place.
struct Site {
    const char *file;
    int line;
    bool operator!=(const Site &other) const { return line != other.line || file != other.file; }
};

// Default arguments are evaluated where a function is called, and give the caller's line.
#define CALLER emulator::Site site = {__builtin_FILE(), __builtin_LINE()}

// The models of the matrix instructions; the order is that of matrix.h's table.
enum MatrixShape {
    M16N8K16_HALF,
    M16N8K16_BFLOAT16,
    M16N8K8_HALF,
    M16N8K8_TF32,
    M16N8K32_INT8,
    M8N8K16_INT8,
    M16N8K32_E4M3,
    M16N8K32_E4M3_E5M2,
    M16N8K32_E5M2_E4M3,
    M16N8K32_E5M2,
    M8N8K4_DOUBLE,
    M16N8K4_DOUBLE,
    M16N8K8_DOUBLE,
    M16N8K16_DOUBLE
};

// A product of block-scaled operands: scales of a row along k (one of 8-bit floats), types of these, and where a lane
// has the scales (block_scaled.cuh).
struct ScaledProduct {
    int scales;
    bool a_e5m2, b_e5m2;
    int byte, pair, lane;
};

// A product of a warpgroup, 64 rows times n columns over 32 bytes of k: element types, whether M or N is the contiguous
// axis, whether the present sums are added, and whether A is in registers.
enum GroupElement { GROUP_HALF, GROUP_BFLOAT16, GROUP_TF32, GROUP_INT8, GROUP_E4M3, GROUP_E5M2, GROUP_E2M1 };
struct GroupShape {
    int n;
    GroupElement a, b;
    bool a_transposed, b_transposed, kept, held;
};

// One cover("name") in the source. It joins the run's list when it is first passed.
struct Branch {
    const char *name;
    u64 count;
    Branch *next;
    bool linked;
};
void link_branch(Branch *branch);

int thread_index();
int block_index();
int grid_size();
u32 shared_base();

void load_global(void *to, u64 address, int bytes, Site site);
void store_global(u64 address, const void *from, int bytes, Site site);
void prefetch_line(u64 address, int level, Site site);
void load_written(void *to, u64 address, int bytes, Site site);
void load_finished(void *to, u64 address, int bytes, Site site);
void give_flag(u64 address, u64 value, Site site);
void take_flag(u64 address, u64 value, Site site);
void grid_dependency_wait();
void load_shared(void *to, u32 address, int bytes, Site site);
void store_shared(u32 address, const void *from, int bytes, Site site);
void copy_async(u32 to, u64 from, int bytes, bool predicate, Site site);
void copy_async_commit();
void copy_async_wait(int groups);
void barrier(CALLER);
bool barrier_any(bool value, CALLER);
void warp_barrier(CALLER);
void load_matrix(u32 *registers, int count, bool transposed, u32 address, Site site);
void multiply_matrix(MatrixShape shape, void *d, const u32 *a, const u32 *b, Site site);
void multiply_scaled(ScaledProduct product, float *d, const u32 *a, const u32 *b, u32 scales_a, u32 scales_b,
                     Site site);
void mbarrier_init(u32 address, int arrivals, Site site);
void mbarrier_fence();
void mbarrier_arrive(u32 address, Site site);
void mbarrier_arrive_at(u32 address, int block, bool narrow, Site site);
void cluster_barrier(CALLER);
void cluster_begin(CALLER);
void prefetch_map(const void *map, Site site);
void mbarrier_expect(u32 address, int bytes, Site site);
void mbarrier_wait(u32 address, u32 parity, bool wide, Site site); // wide: with the scope of the cluster
// `blocks`: a bit for each block of the cluster that receives the copy, or ONLY_HERE. OF_PAIR: the mbarrier is that of
// block blocks / FIRST, or of the block that has its place in the pair of a receiver.
constexpr u32 ONLY_HERE = 1u << 16, OF_PAIR = 1u << 17, FIRST = 1u << 20;
void copy_tensor(u32 to, const void *map, u32 barrier, const int *at, u32 blocks, Site site);
void copy_pixels(u32 to, const void *map, u32 barrier, const int *at, const int *moved, u32 blocks, Site site);
void store_tensor(const void *map, u32 from, const int *at, Site site);
void store_tensor_commit();
void store_tensor_wait(int groups);
void proxy_fence();
void store_matrix(u32 row, const u32 *registers, Site site);
void wgmma_fence(CALLER);
void wgmma_commit(CALLER);
void group_wait(int groups, Site site);
// `held`: the four registers of A, or null where `a` is the descriptor of its tile.
void multiply_group(GroupShape shape, void *d, u64 a, const u32 *held, u64 b, Site site);
void exchange_registers(int from, int to, Site site);
void tensor_alloc(int blocks, u32 columns, u32 to, Site site);
void tensor_alloc_last(int blocks, Site site);
void tensor_free(int blocks, u32 memory, u32 columns, Site site);
// `scales`: those of a row along k, and the columns in which A and B have them; of kinds without scales none.
struct TensorScales {
    int each;
    u32 a, b;
};
void tensor_multiply(int blocks, GroupElement kind, u32 d, u64 a, u64 b, u32 instruction, TensorScales scales,
                     bool kept, Site site);
// A is in tensor memory, from column `a` on.
void tensor_multiply_held(int blocks, GroupElement kind, u32 d, u32 a, u64 b, u32 instruction, bool kept, Site site);
void tensor_copy_scales(int blocks, u32 to, u64 from, Site site);
// `to`: a bit for each block of the cluster at whose mbarrier the commit of a pair arrives.
void tensor_commit(int blocks, u32 barrier, u32 to, Site site);
// How the registers of a move are spread over the lanes of a warp: PTX ISA's 16x256b, 16x128b.
enum MoveShape { MOVE_256B, MOVE_128B };
void tensor_load(u32 *d, int columns, u32 from, Site site);
void tensor_store(const u32 *d, int columns, MoveShape shape, u32 to, Site site);
void tensor_load_wait(Site site);
void tensor_store_wait(Site site);
void tensor_fence_before();
void tensor_fence_after();
u64 shuffle_xor(u64 value, int mask, Site site);
int warp_uniform(int value, CALLER);
bool elect_one(CALLER);

} // namespace emulator
