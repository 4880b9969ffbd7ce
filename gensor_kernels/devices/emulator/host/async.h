// The state of asynchronous operations: mbarriers, tensor copies, the products of warpgroups and those in tensor memory
// (tensor.h, warpgroup.h, tensor_products.h). In a block that uses none of them these vectors are empty.
#pragma once
#include <vector>
#include "interface.h"

namespace emulator {

struct Thread;
// For each warp the time, on its own clock, up to which all that it did is ordered before now; then, for each warp, the
// number of its products in tensor memory that are complete before now.
typedef std::vector<u32> Clocks;

struct MBarrier {
    u32 address = 0;
    int arrivals = 0, pending = 0; // of each phase; still expected in this phase
    long long bytes = 0;           // announced and still expected
    u32 phase = 0;                 // phases completed
    u32 observed = 0;              // number of phases that some thread has waited for
    int owner = 0, line = 0;       // the thread that initialised it, the line and the time
    u32 made = 0;
    bool fenced = false;
    Clocks gathered, published;                         // of the arrivals in this phase; of those in the previous phase
    bool gathered_wide = false, published_wide = false; // another block is among them, with the scope of the cluster
    std::vector<Thread *> waiting;
};

struct TensorCopy {
    u32 to;
    const void *map;
    int at[5];
    int moved[2]; // of pixels: columns and rows
    u32 barrier;
    int home; // the rank of the block that has the mbarrier
    Site site;
};

// A box on its way from shared memory to a tensor.
struct TensorStore {
    u32 from;
    const void *map;
    int at[5];
    Site site;
};

constexpr u32 UNRELEASED = ~0u;

struct Atom {
    bool filled = false, in_flight = false;
    u32 barrier = 0,
        phase = 0; // the copy that filled it completes this phase of an mbarrier in the block of rank `home`
    int home = 0;
    int reading = 0; // products that read it and that no thread has waited for
    Clocks read;     // when each warp had last waited for one, or had released its loads: UNRELEASED before it has
    Clocks wrote;    // when each warp had released its stores over the copy, in the same way
    int line = 0, read_line = 0;
    int touched = 0;     // the line of the last ordinary access that is not in `read`
    bool loaded = false; // one of these accesses was a load
    int unfenced = 0;    // threads that have stored to it since their last proxy fence
    int leaving = 0;     // tensor stores that read it and that no thread has waited for
    int barriers = 0;    // mbarriers in it
};

// A warp's share of one product: 16 rows. Each lane holds its sums in d, and its part of A in `held` unless A is in
// shared memory.
struct Product {
    GroupShape shape;
    u64 a, b;
    u32 *d[32];
    const u32 *held[32];
    Site site;
    u32 factors[32][4]; // contents of `held` when the product was issued
};

// Ordinary accesses by lanes of a warp to data of a tensor copy, at a time as in now().
struct Accesses {
    u32 atom, time, lanes;
    bool stores;
};

// A product in tensor memory: `number` is its place among those of its warp. One of a pair has the operands and sums of
// both blocks. Or a copy of scales, of the tile `a` to columns from `d` on.
struct TensorProduct {
    GroupShape shape;
    u32 d;
    u64 a, b;
    TensorScales scales;
    int a_byte, b_byte; // of the columns of scales
    bool copies;
    bool held; // A is in tensor memory, from column `a` on
    int blocks, thread;
    u32 number;
    bool done;
    Site site;
};

// An arrival at an mbarrier once the thread's products up to this number are complete.
struct TensorCommit {
    u32 barrier, to; // blocks of the cluster: a bit for each
    int thread;
    u32 number;
    Site site;
};

// An arrival of another block's commit, until a thread has waited for its phase or for that of a later commit of the
// same thread.
struct CommitArrival {
    int block, thread;
    u32 number, barrier, phase;
    Site site;
};

// Columns of 16 lanes that a warp loads or stores. `unfenced` and `unreleased` have a bit for each lane of the warp,
// `time` is that of the last fence, as in now().
struct TensorMove {
    u32 lane, column;
    int columns;
    bool stores;
    MoveShape shape;
    u32 *to[32];             // of a load
    std::vector<u32> values; // of each lane
    bool waited;
    u32 unfenced, unreleased, time;
    Site site;
};

// A column of tensor memory, and the last product that writes it.
struct TensorColumn {
    bool allocated = false;
    u32 written = 0; // a bit for each 16 lanes
    int place = 0;   // of the product's warp in clocks
    TensorProduct product;
    Clocks read, stored;           // when each warp had released its loads, and its stores: UNRELEASED before it has
    int reader = 0, read_line = 0; // the thread whose product read scales last
    int stored_line = 0;
};

// What a warp does together with one of the other block of a pair.
struct TensorMeeting {
    std::vector<Thread *> waiting;
    int operation;
    u32 value, allocated;
};

struct TensorMemory {
    std::vector<u32> words; // by lane, then column
    std::vector<TensorColumn> columns;
    std::vector<std::pair<u32, u32>> spans; // allocated: the first column, and the number
    u32 mask;                               // of the order in which columns are allocated
    bool last = false;                      // no further allocation
    std::vector<Thread *> waiting;          // for columns
    TensorMeeting meeting;
};

struct WarpAsync {
    Clocks known;
    std::vector<Accesses> accesses; // not yet released by an arrival or a barrier of the block
    std::vector<u32> seen;          // phases of each mbarrier whose end this warp has seen
    std::vector<Product> open;
    std::vector<std::vector<Product>> groups; // committed, not waited for
    std::vector<u64> issued;                  // instructions that it has issued, to compare with those of its warpgroup
    std::vector<TensorProduct> products;      // not known to be complete
    std::vector<TensorCommit> commits;        // not arrived
    u32 multiplied = 0, completed = 0;        // products in tensor memory: issued; all up to this number are complete
    std::vector<TensorMove> moves;            // not released
    bool fenced = false;
    int registers = 0; // after the last exchange; 0: none yet
};

// The barrier of a cluster: threads that wait there, and how many have left their blocks.
struct ClusterMeeting {
    std::vector<Thread *> waiting;
    int left;
    bool relaxed; // some waiting threads released nothing when they arrived
};

struct Async {
    std::vector<MBarrier> barriers;
    std::vector<TensorCopy> copies; // on their way
    std::vector<Atom> atoms;
    std::vector<WarpAsync> warps;
    int free_registers = 0, launched_registers = 0; // free ones; those per thread at launch, from the exchanges
    std::vector<Thread *> waiting;                  // for registers
    TensorMemory tensor;
    std::vector<CommitArrival> unseen;
    u32 committed = 0;
};

} // namespace emulator
