// The blocks, warps and threads of a GPU for translated PTX: memory, barriers and instructions of a whole warp.
//
// Translated code is one function per entry, `step`, that runs a thread until it must wait, and says at which site. Its
// registers are in a struct, so that a thread can continue where it stopped. machine.cpp has the scheduler.
#pragma once
#include "numbers.h"
#include "warpgroup.h"
#include <vector>

struct Fault { // of the executed program: kind and description
    const char *kind;
    char text[400];
};
[[noreturn]] void fault(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum Stop : u8 { READY, DONE, BARRIER, WARP, YIELDED, PHASE, CLUSTER };
enum class Collective : u8 {
    SYNC,
    SHUFFLE,
    BALLOT,
    ANY,
    ALL,
    UNIFORM,
    REDUCE,
    LOAD_MATRIX,
    STORE_MATRIX,
    MULTIPLY,
    MULTIPLY_SCALED,
    ELECT,
    FENCE_PRODUCTS,
    ISSUE_PRODUCT,
    COMMIT_PRODUCTS,
    AWAIT_PRODUCTS,
    ALLOCATE_TENSOR,
    FREE_TENSOR,
    LAST_TENSOR,
    LOAD_TENSOR,
    STORE_TENSOR,
    AWAIT_TENSOR,
    REGISTERS,
    CONVERGE // and nothing else
};
enum ShuffleMode : u8 { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };
enum Reduction : u8 { ADD, MIN, MAX, AND, OR, XOR };

struct Access;
// One place in the code where lanes meet. `key` is equal for equal qualifiers.
struct Site {
    Collective what;
    bool aligned; // all lanes of the warp are at this place
    u32 key;
    const char *text; // the instruction
    u8 detail[4];     // a mode; operation, signed; matrices, transposed; m, k, and the Kinds of a and b; groups left;
                      // blocks of an allocation; lanes of a move; or of a wait, whether for stores
    const Product *product; // of a warpgroup; of a move to or from tensor memory, n columns and its registers
    const Access *access;   // to memory by each lane; null: none
};
// An instruction's access to memory, for the rules of order.
enum How : u8 { READS = 1, WRITES = 2, STRONG = 4, ACQUIRES = 8, RELEASES = 16, NONCOHERENT = 32, PROXY = 64 };
enum class Scope : u8 { CTA, CLUSTER, GPU, SYS };
enum class Space : u8 { GENERIC, GLOBAL, SHARED };
struct Access {
    const char *text; // the instruction
    Space space;
    u8 bytes, each; // of all elements, and of one
    u8 how;
    Scope scope;
};
struct Buffer { // of global memory
    u64 address, bytes;
    u8 *host;
    u32 writable;
};
struct Copy { // cp.async in flight
    u32 to, bytes, read, group, operation;
    const u8 *from;
};
struct Block;
struct Traffic; // of asynchronous copies, see mbarrier.h
// A thread's latest ordering operations, in ticks of a clock that all threads share: barriers and arrivals; barriers
// and waits; arrivals at its cluster; fences between the generic and the asynchronous proxy; fences of mbarriers.
struct Order {
    u32 synced = 0, acquired = 0, clustered = 0, fenced = 0, published = 0;
};
class Causality;
struct Thread {
    u32 pc = 0, site = 0, index = 0, lane = 0, mask = 0, barrier = 0, count = 0, committed = 0;
    u32 line = 0; // of the source, where the PTX says so
    u32 slot = 0; // among all threads of the resident blocks, from 1
    u64 jumps = 0;
    Stop stop = READY;
    bool flag = false, depended = false, refused = false, acquires = false, wide = false;
    bool apart = false; // from its warp, since an unaligned barrier of the cluster
    Order order;
    u32 arrivals = 0, waits = 0, bulk_groups = 0; // at the cluster's barrier; committed groups of bulk copies
    u64 awaited = 0;                              // the mbarrier of a wait
    Block *block = nullptr;
    Causality *causality = nullptr; // none: order is not checked
    u8 *registers = nullptr;
    u8 *local = nullptr;
    std::vector<Copy> copies;
    std::vector<Watched> watched; // sets of registers that products use
    u32 product_fences = 0;
    u64 in[16], out[4];
};
struct Launch {
    u32 grid, threads, shared_bytes, late, order, together, params_bytes, buffers, sm, cluster, dependent;
    u32 truncated, ordered;
    u32 living; // threads of a block; the other ones up to `threads` fill its last warp, and never run
    u32 block_x, block_y, grid_x, grid_y, constant_bytes;
    const u8 *params, *constants;
    const Buffer *buffer;
};
struct Block {
    const Launch *launch;
    u32 index;
    u32 resident; // its number among the resident blocks
    u32 shared_bytes;
    u8 *shared;
    u32 rank = 0;               // in its cluster, whose first block this is
    Block *first = nullptr;     //
    Thread *threads = nullptr;  //
    Traffic *traffic = nullptr; // null where the entry has no asynchronous copies, mbarriers and products
    u32 arrived[16] = {};       // threads that arrived at a barrier without waiting
    bool ended = false;
    std::vector<Warpgroup> warpgroups = {};
};
struct Entry {
    const char *name;
    void (*step)(Thread &);
    u64 register_bytes;
    u32 local_bytes, static_shared, sites, params_bytes, watched, asynchronous, cluster, registers, accesses;
    const Site *site;
    const Access *access;
};

// Windows of generic addresses; global addresses are below all of them. Shared memory starts at 1024, after the bytes
// that the driver keeps, so that a null pointer faults.
constexpr u64 SHARED_WINDOW = 1ull << 56, LOCAL_WINDOW = 2ull << 56, PARAM_WINDOW = 3ull << 56;
constexpr u32 SHARED_BASE = 1024;
// Another block's shared memory, in the window of its cluster: the block's rank and the address in it.
constexpr u32 RANK_SHIFT = 24;
constexpr u64 MOST_JUMPS = 20'000'000; // backwards, by one thread

inline void aligned_to(u64 address, u32 bytes, const char *where) {
    if (address % bytes)
        fault("misaligned", "%u bytes of %s memory at %#llx", bytes, where, (unsigned long long)address);
}
inline u8 *global_at(const Thread &t, u64 address, u32 bytes, bool write) {
    const Launch &launch = *t.block->launch;
    if (launch.dependent && !t.depended)
        fault("dependent", "thread %u of block %u accesses global memory in front of griddepcontrol.wait", t.index,
              t.block->index);
    const u64 index = (address >> 40) - 1;
    if (index < launch.buffers) {
        const Buffer &buffer = launch.buffer[index];
        if (address >= buffer.address && address + bytes <= buffer.address + buffer.bytes &&
            (!write || buffer.writable))
            return buffer.host + (address - buffer.address);
    }
    fault("out_of_bounds", "%s of %u bytes of global memory at %#llx", write ? "store" : "load", bytes,
          (unsigned long long)address);
}
// Generic accesses to shared memory that asynchronous copies also use.
void touched(const Thread &t, u64 address, u32 bytes, bool write);
inline u8 *shared_of(const Block &block, u64 address, u32 bytes) {
    if (address < SHARED_BASE || address + bytes > SHARED_BASE + block.shared_bytes)
        fault("out_of_bounds", "%u bytes of shared memory at %#llx", bytes, (unsigned long long)address);
    return block.shared + (address - SHARED_BASE);
}
inline u8 *shared_at(const Thread &t, u64 address, u32 bytes, bool write) {
    u8 *const at = shared_of(*t.block, address, bytes);
    if (t.block->traffic)
        touched(t, address, bytes, write);
    return at;
}
template <u32 LOCAL_BYTES>
inline u8 *local_at(const Thread &t, u64 address, u32 bytes) {
    if (address + bytes > LOCAL_BYTES)
        fault("out_of_bounds", "%u bytes of local memory at %#llx", bytes, (unsigned long long)address);
    return t.local + address;
}
inline u8 *param_at(const Thread &t, u64 address, u32 bytes) {
    if (address + bytes > t.block->launch->params_bytes)
        fault("out_of_bounds", "%u bytes of parameters at %#llx", bytes, (unsigned long long)address);
    return const_cast<u8 *>(t.block->launch->params) + address;
}
inline u8 *const_at(const Thread &t, u64 address, u32 bytes) {
    if (address + bytes > t.block->launch->constant_bytes)
        fault("out_of_bounds", "%u bytes of constants at %#llx", bytes, (unsigned long long)address);
    return const_cast<u8 *>(t.block->launch->constants) + address;
}
template <u32 LOCAL_BYTES>
inline u8 *generic_at(const Thread &t, u64 address, u32 bytes, bool write) {
    const u64 offset = address & (SHARED_WINDOW - 1);
    switch (address >> 56) {
    case 0:
        return global_at(t, address, bytes, write);
    case 1:
        return shared_at(t, offset, bytes, write);
    case 2:
        return local_at<LOCAL_BYTES>(t, offset, bytes);
    case 3:
        if (!write)
            return param_at(t, offset, bytes);
    }
    fault("out_of_bounds", "%u bytes at the generic address %#llx", bytes, (unsigned long long)address);
}
template <class T>
inline T loaded(const u8 *from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
inline void stored(u8 *to, T value) {
    std::memcpy(to, &value, sizeof value);
}

// ---- Products of warpgroups

// An instruction accesses registers that products use.
template <class... Sets>
inline void accessed(Thread &t, const char *text, Sets... sets) {
    for (u32 set : {(u32)sets...}) {
        Watched &watched = t.watched[set];
        if (watched.sums || watched.factors)
            fault("in_flight", "%.120s: an instruction in flight uses its register", text);
        watched.touched = t.product_fences;
    }
}
// Check that an access is ordered with all other accesses with which it could race (order.h).
void check_order(const Thread &t, u64 address, const Access &access);
void check_fence(const Thread &t, Scope scope, bool sequential);
inline void in_order(const Thread &t, u64 address, const Access &access) {
    if (t.causality)
        check_order(t, address, access);
}
inline void fenced(const Thread &t, Scope scope, bool sequential) {
    if (t.causality)
        check_fence(t, scope, sequential);
}
// cp.async: `bytes` into shared memory, of which `read` come from global memory and the rest are zeros.
void copy_async(Thread &t, u32 to, u64 from, u32 bytes, u32 read, const char *text);
void commit_copies(Thread &t);
void await_copies(Thread &t, u32 groups_left, bool all);
// A jump backwards: a thread that takes too many counts as hanging.
inline void jumped_back(Thread &t) {
    if (++t.jumps > MOST_JUMPS)
        fault("timeout", "more than %llu jumps backwards", (unsigned long long)MOST_JUMPS);
}

// ---- Asynchronous machinery of sm_90: mbarrier.h, tensor.h and cluster.h

void mbarrier_init(Thread &t, u64 address, u32 count);
void mbarrier_invalidate(Thread &t, u64 address);
// One or more arrivals, and additional bytes that the phase expects; returns the phase of the arrival. `wide`: with the
// scope of the cluster.
u64 mbarrier_arrive(Thread &t, u64 address, u32 count, u32 bytes, bool drop, bool in_cluster, bool releases, bool wide);
void mbarrier_expect(Thread &t, u64 address, s64 bytes, bool in_cluster);
bool mbarrier_over(Thread &t, u64 address, u64 phase, bool parity, bool acquires, bool wide);
void mbarrier_wait(Thread &t, u64 address, u64 phase, bool parity, bool acquires, bool wide);

// Operands of a copy between a tensor and shared memory; `blocks`: the blocks of the cluster that receive it.
struct Bulk {
    u64 shared, map;
    u64 mbarrier = 0;
    u32 rank = 0, blocks = 0;
    bool pixels = false, multicast = false, pair = false; // pair: the mbarrier may be the peer block's
    s32 at[5] = {};
    u16 moved[3] = {};
};
void load_tensor(Thread &t, const Bulk &bulk);
void store_tensor(Thread &t, const Bulk &bulk);
void check_map(const Thread &t, u64 address);
void commit_bulk(Thread &t);
void await_bulk(Thread &t, u32 groups_left, bool only_reads);
void fence_proxy(Thread &t);
void fence_mbarriers(Thread &t);

u64 mapped_address(const Thread &t, u64 address, u32 rank);
void arrive_at_cluster(Thread &t, bool releases);
void await_cluster(Thread &t);
void arrive_at_barrier(Thread &t, u32 barrier, u32 count);

// ---- Tensor memory and its products: tensor_memory.h and tensor_products.h

enum class UmmaKind : u8 { F16, TF32, F8F6F4, I8, MXF8F6F4, MXF4, MXF4NVF4 };
struct Umma { // operands of tcgen05.mma
    const char *text;
    UmmaKind kind;
    u8 blocks;
    bool held;   // a is in tensor memory too
    u64 d, a, b; // addresses in tensor memory, and matrix descriptors
    u32 instruction;
    bool kept;
    u32 scales = 0; // of a row: 1, 2 or 4; 0: not scaled
    u64 a_scales = 0, b_scales = 0;
};
void issue_umma(Thread &t, const Umma &umma);
// tcgen05.commit of products of one or two blocks; `mask`: blocks of the cluster that get an arrival at this address.
void commit_umma(Thread &t, u64 mbarrier, u32 blocks, bool multicast, u32 mask);
void copy_to_tensor(Thread &t, u64 to, u64 from, u32 blocks, const char *text);
void fence_tensor(Thread &t, bool before);
