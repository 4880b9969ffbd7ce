// Memory order: the ordered accesses of a launch, by chapter 8 of the PTX ISA 8.x (memory consistency model).
//
// Threads run one at a time, so a result alone shows few missing barriers. Here vector clocks follow the causality
// order (8.9.5): program order, barriers, and release patterns that synchronize with acquire patterns (8.8, 8.9.4). Two
// accesses that overlap, of which one writes, must be ordered by it, or be morally strong (8.7): both are strong, of
// scopes that include each other's threads, and of equal extent. Otherwise they are a data race, even if this run gave
// the correct result.
//
// Every thread of the resident blocks has a slot. An access has the stamp of its warp; a thread's Clock has for each
// slot the last stamp whose accesses come before what the thread does next. A release publishes the clock and then
// advances the warp's stamp, so that it does not cover later accesses. Threads that passed the same barrier share one
// Clock.
//
// Memory has a Cell per granule: the smallest store of the kernel. Each store covers whole cells, and a load of any
// byte of a cell overlaps each store to it, so that cells are as exact as bytes. A cell holds its last store, and for
// each warp the last loads since (Readers); a load replaces loads that it comes after. Other accesses, such as strong
// ones, which may be unordered without a race, are in a list (Past).
//
// Asynchronous operations (8.9.1.1; cp.async, tensor copies, wgmma) are unordered with all accesses after their issue,
// including those of the same thread, until a thread waits for them: begin, covers, and finish. Operations of the async
// proxy (8.6) see writes of the generic proxy only after a fence.proxy.async.
//
// Uses of tensor memory (9.7.16.6) are checked by 16 lanes of a column. A clock has another vector for them: a fence
// before a synchronisation adds a thread's complete uses to it, and its next uses come after those in the vector as of
// the thread's last fence after a synchronisation.
//
// Not modelled: the order of a strong load, without acquire, after the strong store that it observes.
#pragma once
#include "machine.h"
#include <memory>
#include <string>
#include <unordered_map>

// Keys of edges: their kind, resident block, place and phase. FROM_OTHERS: arrivals of other blocks at an mbarrier, for
// waits with the scope of the cluster.
enum class Edge : u8 { BARRIER = 1, CLUSTER, MBARRIER, FROM_OTHERS, PRODUCTS, TENSOR };
inline u64 key_of(Edge edge, u32 block, u32 where, u64 phase) {
    return (u64)edge << 60 | (u64)block << 44 | (u64)(where & 0xffffff) << 20 | (phase & 0xfffff);
}
constexpr u32 MOST_REPEATED = 100'000; // weak loads of one address; more count as waiting for another thread
constexpr u16 NOBODY = 0, FOREIGN = 0xfffe, IN_FLIGHT = 0xffff; // slots of threads begin at 1

struct Clock {
    std::vector<u32> at, fenced; // by slot; of `fenced` the async proxy sees the writes
    std::vector<u32> over;       // by slot: accesses that come before writes, and that reads need not see
    std::vector<u32> tensor;     // by slot: uses of tensor memory that fences have released
    std::vector<u32> floor;      // by warp: the least of its 32 lanes
    bool covers(u32 slot, u32 stamp) const { return slot < at.size() && stamp <= at[slot]; }
    bool covers_for_writes(u32 slot, u32 stamp) const {
        return covers(slot, stamp) || (slot < over.size() && stamp <= over[slot]);
    }
    bool shows_proxy(u32 slot, u32 stamp) const { return slot < fenced.size() && stamp <= fenced[slot]; }
    bool shows_tensor(u32 slot, u32 stamp) const { return slot < tensor.size() && stamp <= tensor[slot]; }
};
using Known = std::shared_ptr<const Clock>;

// An asynchronous use of tensor memory, by a thread or a warp.
struct TensorUse {
    const char *text;
    enum What : u8 { MOVE, COPY, PRODUCT } what;
    u64 accumulator = 0;                           // of a product, and its shape
    u32 slot = 0, issued = 0, agent = 0, done = 0; // done: the agent's stamp, or the warp's; 0: in flight
};
struct Cell {
    u32 written;       // stamp of the last store; of IN_FLIGHT the number of the operation, of FOREIGN the block
    u16 writer, wrote; // its slot and instruction
    u32 list;          // number of the list that replaces all other fields; 0: none
    u32 group : 30;    // of resident blocks; 0: never touched
    u32 foreign : 1;   // loaded by blocks that are no longer resident
    u32 nc : 1;        // loaded by .nc
};
struct Readers { // lanes of a warp that loaded at one stamp; the instruction is the last one's
    u32 stamp, lanes, what;
};
struct Past {
    u32 stamp;
    u16 slot, what;
};

// The cells of one stretch of memory.
class Shadow {
  public:
    Shadow() = default;
    Shadow(u64 base, u64 bytes, u32 shift, u32 first_warp, u32 warps, bool fresh)
        : base(base & ~15ull), shift(shift), first_warp(first_warp), warps(warps), words((warps + 31) / 32),
          fresh(fresh), count(granule(base + bytes) + 1), cells(zeros<Cell>(count)),
          readers(zeros<Readers>(count * warps)), read(zeros<u32>(count * words)) {}
    u64 granule(u64 address) const { return (address - base) >> shift; }
    Cell &cell(u64 g) { return cells.get()[g]; }
    Readers &reader(u64 g, u32 warp) { return readers.get()[g * warps + warp]; }
    u32 &mask(u64 g, u32 word) { return read.get()[g * words + word]; } // of warps that loaded since the last store

    u64 base = 0;
    u32 shift = 0, first_warp = 0, warps = 0, words = 0;
    bool fresh = false; // no thread has written to it since the launch
    u64 count = 0;

  private:
    struct Free {
        void operator()(void *p) const { std::free(p); }
    };
    template <class T>
    using Zeros = std::unique_ptr<T, Free>;
    template <class T>
    static Zeros<T> zeros(u64 count) { // untouched pages need no memory
        return Zeros<T>((T *)std::calloc(count, sizeof(T)));
    }
    Zeros<Cell> cells;
    Zeros<Readers> readers;
    Zeros<u32> read;
};

class Causality {
  public:
    Causality(const Entry &entry, const Launch &launch);

    // The next resident blocks, by their indices in the grid; no block before them is ordered with them.
    void begin(const std::vector<u32> &blocks, u32 shared_bytes);
    // An access of a thread; `a` is in the entry's table. Faults where the access is in a race.
    void access(const Thread &t, u64 address, const Access &a);
    void fence(const Thread &t, Scope scope, bool sequential);
    // Order all earlier accesses of the threads before all their later ones.
    void meet(const std::vector<u32> &slots);

    // ---- For mbarriers, cluster barriers and groups: edges by key, and asynchronous operations

    // Publish a thread's clock under a key; calls under one key add up, so that a key of a phase contains its number.
    // `narrow`: to another block, whose waits with its own scope order only later writes after what is over.
    void release(u32 slot, u64 key, bool narrow = false);
    // Order the accesses published under a key before the thread's next operations.
    void acquire(u32 slot, u64 key);
    void forget(u64 key);
    void proxy_fence(u32 slot); // fence.proxy.async
    // An asynchronous operation that a thread issues; `text` names it, `proxy`: it is of the async proxy. Its number.
    u32 issue(u32 slot, const char *text, bool proxy);
    // It reads or writes shared memory, at an offset from SHARED_BASE, of a block by its number among the residents ...
    void covers_shared(u32 operation, u32 block, u64 offset, u32 bytes, bool write);
    // ... or global memory.
    void covers_global(u32 operation, u64 address, u32 bytes, bool write);
    // It is complete, and a thread has waited for it: the thread's later releases include it.
    void finish(u32 operation, u32 slot);
    // It is complete, which is published under a key, as complete_tx does for a phase of an mbarrier. `object` is the
    // same number for all phases of one mbarrier, and for no other.
    void publish(u32 operation, u64 object, u64 key);

    // ---- Tensor memory (tensor_order.cpp)

    // An asynchronous use of tensor memory by a thread, or the warp that begins with it: its number.
    u32 issue_tensor(u32 slot, const TensorUse &use);
    // It reads or writes 16 lanes from `lane` on of these columns of a resident block. Faults where it is in a race.
    void covers_tensor(u32 use, u32 block, u32 lane, u32 column, u32 columns, bool write);
    void finish_tensor(u32 use); // its warp has waited for it
    // What a commit of a thread releases besides the end of the thread's operations, as a fence before it does.
    Known commit_tensor(u32 slot);
    // The end of uses of tensor memory, and of reads of shared memory, is published under the keys of phases, with what
    // the thread had seen `before`, but not its own accesses since its last release.
    void publish_tensor(u32 slot, const std::vector<u32> &uses, const std::vector<u32> &operations, const Known &before,
                        const std::vector<u64> &keys, const std::vector<u64> &narrow);
    void fence_tensor(u32 slot, bool before);
    // A warp frees columns: all uses must be complete, and ordered before.
    void free_tensor(u32 slot, u32 block, u32 column, u32 columns);

  private:
    struct TensorCell { // 16 lanes of a column: uses by number
        u32 writer = 0;
        std::vector<u32> readers;
    };
    struct Range {
        Shadow *shadow;
        u64 first, last;
        bool write;
    };
    struct Operation {
        u32 slot;
        u16 reads, writes; // as instructions
        bool proxy;
        std::vector<Range> ranges;
    };
    struct Flag { // the clock that a store to an address released
        Known clock;
        Scope scope;
        u32 block;
    };
    struct Fence { // of a thread: the clock that its next strong stores release, and the clocks that its strong loads
                   // saw
        Flag out;
        std::vector<Flag> in;
    };
    struct Actor { // of a checked access: a thread, or an operation (0: none) that it issued
        u32 slot, warp, now;
        const Clock *clock;
        u16 what;
        u8 how;
        u32 operation;
        bool writes() const { return how & WRITES; }
        bool strong() const { return how & STRONG; }
    };

    const Entry &entry_;
    const Launch &launch_;
    u32 group_ = 0, threads_ = 0, shared_shift_ = 4, global_shift_ = 4;
    std::vector<Access> what_;
    std::unordered_map<const char *, u16> named_;
    const char *last_named_ = nullptr;
    u16 last_name_ = 0;
    std::vector<u32> blocks_, stamps_; // stamps by warp, and then by agent
    std::vector<Known> clocks_;        // by slot; agents have none
    struct {
        Known before, from, after;
    } learned_; // last
    std::unordered_map<u64, u32> agents_;
    std::vector<Shadow> shared_;
    std::vector<Shadow> global_; // by number of the buffer; empty where the launch cannot write
    std::vector<std::vector<Past>> lists_;
    std::vector<u32> free_lists_;
    std::unordered_map<u64, Known> keys_;
    std::unordered_map<u64, std::vector<Flag>> flags_; // by address; several where atomics followed one another
    std::unordered_map<u32, Fence> fences_;
    std::vector<Operation> running_; // by number, from 1
    std::vector<u32> free_operations_;
    u32 last_slot_ = 0, repeated_ = 0; // of the last load, and how often it was repeated without any other access
    u64 last_address_ = 0;
    u32 reading_global_ = 0;                      // ranges of global memory that operations in flight read
    std::vector<TensorUse> uses_;                 // from 1
    std::vector<std::vector<TensorCell>> tensor_; // by resident block; empty until it is used
    std::vector<Known> after_;                    // by slot: the clock at the thread's last fence after synchronisation

    u32 block_of(u32 slot) const { return (slot - 1) / launch_.threads; }
    u32 warp_of(u32 slot) const { return (slot - 1) / 32; }
    u32 &stamp(u32 slot) { return stamps_[slot <= threads_ ? warp_of(slot) : threads_ / 32 + slot - threads_ - 1]; }
    bool includes(Scope scope, u32 a, u32 b) const; // blocks, by their numbers among the residents
    Shadow *place(const Thread &t, u64 &address, Space space);
    Shadow *global(u64 address);
    Actor actor(u32 slot, u16 what, u32 operation);
    u16 named(const char *text, bool write, bool proxy);
    Known advanced(u32 slot);
    static bool merge(Clock &into, const Clock &from);
    void floors(Clock &clock) const;
    Clock narrowed(const Clock &own) const;
    void learn(u32 slot, const Known &from);
    void spin(const Thread &t, u64 address, const Access &a);
    void synchronize(u32 slot, u64 key, const Access &a);
    u32 agent(u64 object);
    bool ordered(const TensorUse &past, const TensorUse &use) const;
    void covers(u32 operation, Shadow &shadow, u64 address, u32 bytes, bool write);
    void check(Shadow &shadow, u64 g, const Actor &actor);
    void listed(Shadow &shadow, u64 g, const Actor &actor);
    std::vector<Past> &list_of(Shadow &shadow, u64 g);
    void regroup(Shadow &shadow, u64 g);
    bool writes(u16 what) const { return what_[what].how & WRITES; }
    bool ordered(const Past &past, const Actor &actor) const;
    bool both_strong(const Past &past, const Actor &actor) const;
    u32 unordered_lanes(const Readers &r, u32 warp, const Actor &actor) const;
    [[noreturn]] void race(const Shadow &shadow, u64 g, const Past &past, const Actor &actor) const;
    std::string told(const Past &past) const;
};
