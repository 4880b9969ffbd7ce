// The state of a run: blocks whose threads are fibers. Warp and block instructions are rendezvous points.
//
// One run at a time uses a library's emulator (run.py holds a lock per library), therefore the current thread is a
// plain global and not thread-local. All other state belongs to a block, so that several blocks can be resident.
#pragma once
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>
#include "async.h"

namespace emulator {

constexpr int WARP = 32;
constexpr u32 ALL_LANES = 0xffffffffu;
// Shared addresses do not start at zero: a forgotten shared_base() is out of bounds, as it may be on a GPU.
constexpr u32 SHARED_BASE = 1024;

constexpr size_t STACK_BYTES = 128 << 10;
constexpr u64 STACK_CANARY = 0x57ac6e4d0f5ac4ull;

enum Operation {
    NONE,
    BARRIER,
    WARP_BARRIER,
    LOAD_MATRIX,
    STORE_MATRIX,
    MULTIPLY_MATRIX,
    SHUFFLE,
    MBARRIER_WAIT,
    MULTIPLY_GROUP,
    GROUP_ORDER, // wgmma_fence, wgmma_commit, wgmma_wait
    REGISTERS,
    FLAG_WAIT,
    CLUSTER_BARRIER,
    TENSOR_ALLOC,
    TENSOR_FREE,
    TENSOR_LOAD,
    TENSOR_STORE
};
enum Fault { NO_FAULT, OUT_OF_BOUNDS, MISALIGNED, RACE, UNINITIALISED, DIVERGENT, DEADLOCK, TIMEOUT, STACK, INVALID };
enum Order { FORWARD, REVERSE, RANDOM };

// Global memory: the kernel's addresses begin at `begin`, its bytes are at `host`.
struct Buffer {
    u64 begin, bytes, host;
    int writable;
};

// run.py mirrors these names in this order.
enum Counter {
    BLOCKS,
    SWITCHES,
    BARRIERS,
    WARP_BARRIERS,
    SHUFFLES,
    MATRIX_MULTIPLIES,
    MATRIX_LOADS,
    SHARED_LOADS,
    SHARED_STORES,
    SHARED_COPIES,
    CONFLICTS_MATRIX_LOAD,
    CONFLICTS_LOAD,
    CONFLICTS_STORE,
    CONFLICTS_COPY,
    COPIES_ZEROED,
    TENSOR_COPIES,
    TENSOR_STORES,
    MBARRIER_WAITS,
    GROUP_MULTIPLIES,
    GLOBAL_LOAD_1, // followed by 2, 4, 8 and 16 bytes, as the two below
    GLOBAL_STORE_1 = GLOBAL_LOAD_1 + 5,
    COPY_1 = GLOBAL_STORE_1 + 5,
    COUNTERS = COPY_1 + 5
};

struct Request {
    void (*entry)(const void *);
    const void *params;
    int grid, block, shared_bytes;
    const Buffer *buffers;
    int buffer_count;
    const int *blocks;
    int block_count;
    int order;
    u64 seed;
    int early, races, resident;
    int cluster;    // blocks of a cluster, which have successive numbers and are resident together
    int dependent;  // on a GPU it starts before the previous launch has ended, for which its threads wait
    double seconds; // after this time the run is stopped as hanging
};

struct Report {
    u64 counter[COUNTERS];
    int fault, block, thread;
    char message[1000];
};

struct Copy {
    const unsigned char *from; // null: zeros
    u64 source;                // its address in the kernel
    u32 to;
    int bytes, line;
};

struct Block;
struct Thread {
    void *stack_pointer, *stack; // the stack's lowest address holds STACK_CANARY
    Block *block;
    int index;
    Operation waiting;
    Site site;                       // of the instruction it waits at
    bool launched;                   // has seen that the previous launch is complete
    std::vector<Copy> copies;        // asynchronous copies that were issued and not waited for
    std::vector<u32> groups;         // for each committed group the number of its `copies`
    std::vector<TensorStore> stores; // issued and not waited for
    std::vector<u32> store_groups;
    std::vector<u32> unfenced; // atoms of shared memory that it has stored to since its last proxy fence
    Clocks ordered;            // what is before its next instructions of tensor memory
    int lane() const { return index % WARP; }
    int warp() const { return index / WARP; }
};

// One shared-memory instruction of a warp, assembled from the accesses of its lanes.
struct WarpAccess {
    u32 lanes;
    u32 address[WARP];
};

// The instructions of one source line since the last synchronisation of the warp's lanes.
struct AccessSite {
    Site site;
    int counter, bytes;
    u32 used;
    u32 lane_accesses[WARP];
    std::vector<WarpAccess> accesses; // the first `used` of them count
};
constexpr int SITE_TABLE = 1024;

struct Warp {
    u32 members, alive, ready, arrived;
    bool apart;          // lanes have left the barrier of their cluster one by one, and have not met since
    Operation operation; // the operation of the lanes that have arrived, and its place
    Site site;
    u32 epoch; // warp barriers since the last block barrier
    void *d[WARP];
    const u32 *a[WARP], *b[WARP];
    u64 word[WARP];
    std::vector<AccessSite> sites;
    std::vector<int> active_sites;   // sites with accesses since the lanes last met
    uint16_t site_table[SITE_TABLE]; // a hash table into `sites`, from 1
};

// The race detector's state of one granule of shared memory; times as in now().
struct Cell {
    u64 written, read;
    uint16_t writer, write_line, reader, read_warp, read_line, in_flight;
};

struct Shadow {
    std::vector<Cell> cells;
    int granule, log2;
};

// The last store to a word of global memory: its thread and time.
struct Stored {
    int block, thread;
    u64 time; // as in now()
    int line;
    u64 tick;
};

// What a block has seen of another block: all that its thread `giver` did before `tick`, that the warp of the giver did
// before its last barrier, and that the block did before its last barrier, as of the time `given`. Thread `taker` has
// seen it since the time `taken`; other threads see it after a barrier.
struct Known {
    int giver, taker;
    u64 given, taken;
    u64 tick;
};

// A flag that was given and not taken yet, and the thread that waits for it.
struct Flag {
    int block;
    Known known;
    bool given;
    std::vector<Thread *> waiting;
};

struct Block {
    int index;
    int alive, at_barrier; // threads
    Site barrier_site;     // where the threads at the barrier wait
    bool vote, voted;      // whether any thread there passed true; whether any did at the last barrier
    u32 epoch;             // block barriers passed, from 1
    u32 ready_warps;
    bool done;
    std::vector<Thread> threads;
    std::vector<Warp> warps;
    std::vector<unsigned char> arena;
    unsigned char *shared;
    Shadow shadow;
    Async async;
    std::map<std::pair<int, int>, Known> known; // by block and by the warp that took its flag
};

// A sector of a writable buffer, which caches load as a whole: loaded in this launch; or loaded and stored to since the
// last launch that was not dependent. The L1 may hold such a sector's old contents, and ld.global.nc is not coherent
// (PTX ISA 9.7.9.9).
constexpr int SECTOR = 32;
enum SectorState { LOADED = 1, STALE = 2 };

struct Machine {
    const Request *request;
    Report *report;
    std::vector<Block> blocks;
    std::vector<std::vector<u32>> written;    // for each buffer one bit per byte: stored to in this launch
    std::vector<std::vector<Stored>> storers; // for each buffer one per 4 bytes, where blocks run at the same time
    std::vector<std::vector<u8>> sectors;     // for each buffer
    std::map<u64, Flag> flags;                // by address
    std::map<int, ClusterMeeting> clusters;   // by number
    bool overlap;                             // some buffers share memory
    int tensor_blocks;                        // BLOCKS of the launch's instructions of tensor memory; 0: none yet
    void *main_stack;
    char *stacks;
    u64 random, ticks;
    double deadline;
};

extern Machine machine;
extern Thread *current;

[[noreturn]] void fault(Fault kind, const char *format, ...) __attribute__((format(printf, 2, 3)));
void check_time();
void yield_now();
bool reads_copy(u32 address, bool warp_wide, int line);
void touch_atoms(u32 address, int bytes, bool loads, int line);
void change_atoms(u32 address, int bytes, int line);

// Closes a group of the operations since the last group.
inline void commit(std::vector<u32> &groups, size_t issued) {
    for (u32 size : groups)
        issued -= size;
    groups.push_back((u32)issued);
}

inline u64 &count(int counter) {
    return machine.report->counter[counter];
}
inline Warp &current_warp() {
    return current->block->warps[current->warp()];
}
inline u32 next_random() {
    machine.random ^= machine.random << 13, machine.random ^= machine.random >> 7,
        machine.random ^= machine.random << 17;
    return (u32)(machine.random >> 24);
}
// Called at every access: detects a hanging kernel and, in random order, sometimes lets another thread run first.
inline void tick() {
    if ((++machine.ticks & 0xfffff) == 0)
        check_time();
    if (machine.request->order == RANDOM && (next_random() & 15) == 0)
        yield_now();
}

} // namespace emulator
