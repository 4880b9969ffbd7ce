// A GPU's blocks, warps and threads as translated PTX sees them: memory, barriers and what lanes do together.
//
// Translated code is one function per entry, `step`, that runs a thread until it must wait, and says at which site. Its
// registers live in a struct, so that a thread goes on where it stopped. machine.cpp has the scheduler.
#pragma once
#include "numbers.h"
#include "warpgroup.h"
#include <vector>

struct Fault { // of the program that is executed: kind and what happened
    const char *kind;
    char text[200];
};
[[noreturn]] void fault(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum Stop : u8 { READY, DONE, BARRIER, WARP, YIELDED };
enum class Collective : u8 {
    SYNC,
    SHUFFLE,
    BALLOT,
    ANY,
    ALL,
    UNIFORM,
    REDUCE,
    LOAD_MATRIX,
    MULTIPLY,
    ELECT,
    FENCE_PRODUCTS,
    ISSUE_PRODUCT,
    COMMIT_PRODUCTS,
    AWAIT_PRODUCTS
};
enum ShuffleMode : u8 { SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_BUTTERFLY, SHUFFLE_INDEX };
enum Reduction : u8 { ADD, MIN, MAX, AND, OR, XOR };

// One place in the code where lanes meet. `key` is equal for equal qualifiers.
struct Site {
    Collective what;
    bool aligned; // all lanes of the warp are at this very place
    u32 key;
    const char *text; // the instruction
    u8 detail[4];     // a mode; operation, signed; matrices, transposed; m, k, and the Kinds of a and b; or groups left
    const Product *product; // of a warpgroup
};
struct Buffer { // of global memory
    u64 address, bytes;
    u8 *host;
    u32 writable;
};
struct Copy { // cp.async in flight
    u32 to, bytes, read, group;
    const u8 *from;
};
struct Block;
struct Thread {
    u32 pc = 0, site = 0, index = 0, lane = 0, mask = 0, barrier = 0, count = 0, committed = 0;
    u64 jumps = 0;
    Stop stop = READY;
    bool flag = false;
    Block *block = nullptr;
    u8 *registers = nullptr;
    u8 *local = nullptr;
    std::vector<Copy> copies;
    std::vector<Watched> watched; // registers that products use
    u32 product_fences = 0, proxy_fences = 0;
    u64 writes_seen = 0, proxies_fenced = 0; // the latest of the block's writes that it has seen, and has fenced
    u64 in[16], out[4];
};
struct Launch {
    u32 grid, threads, shared_bytes, late, order, together, params_bytes, buffers, sm;
    const u8 *params;
    const Buffer *buffer;
};
struct Block {
    const Launch *launch;
    u32 index;
    u32 shared_bytes;
    u8 *shared;
    u64 writes = 0; // of the generic proxy, to shared memory that products may read
    std::vector<Unit> units;
    std::vector<Warpgroup> warpgroups;
};
struct Entry {
    const char *name;
    void (*step)(Thread &);
    u64 register_bytes;
    u32 local_bytes, static_shared, sites, params_bytes, watched;
    const Site *site;
};

// Windows of generic addresses; global addresses are below all of them. Shared memory starts at 1024, behind the bytes
// that the driver keeps, so that a null pointer faults.
constexpr u64 SHARED_WINDOW = 1ull << 56, LOCAL_WINDOW = 2ull << 56, PARAM_WINDOW = 3ull << 56;
constexpr u32 SHARED_BASE = 1024;
constexpr u64 MOST_JUMPS = 20'000'000; // backwards, by one thread

inline void aligned_to(u64 address, u32 bytes, const char *where) {
    if (address % bytes)
        fault("misaligned", "%u bytes of %s memory at %#llx", bytes, where, (unsigned long long)address);
}
inline u8 *global_at(const Thread &t, u64 address, u32 bytes, bool write) {
    const Launch &launch = *t.block->launch;
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
inline u8 *shared_at(const Thread &t, u64 address, u32 bytes) {
    if (address < SHARED_BASE || address + bytes > SHARED_BASE + t.block->shared_bytes)
        fault("out_of_bounds", "%u bytes of shared memory at %#llx", bytes, (unsigned long long)address);
    return t.block->shared + (address - SHARED_BASE);
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
template <u32 LOCAL_BYTES>
inline u8 *generic_at(const Thread &t, u64 address, u32 bytes, bool write) {
    const u64 offset = address & (SHARED_WINDOW - 1);
    switch (address >> 56) {
    case 0:
        return global_at(t, address, bytes, write);
    case 1:
        return shared_at(t, offset, bytes);
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
template <class... Numbers>
inline void accessed(Thread &t, const char *text, Numbers... numbers) {
    for (u32 number : {(u32)numbers...}) {
        Watched &watched = t.watched[number];
        if (watched.sums || watched.factors)
            fault("in_flight", "%.120s: a product in flight uses its register", text);
        watched.touched = t.product_fences;
    }
}
// A store by the generic proxy: threads' own loads and stores (9.7.15.5.2: products read through the async proxy).
inline void written(Thread &t, const u8 *at, u32 bytes) {
    Block &block = *t.block;
    const u64 offset = at - block.shared;
    if (block.units.empty() || offset >= block.shared_bytes)
        return;
    block.writes++;
    for (u64 unit = offset / 16; unit <= (offset + bytes - 1) / 16; unit++) {
        if (block.units[unit].readers)
            fault("in_flight", "thread %u stores to shared memory at %#llx, which a product in flight reads", t.index,
                  (unsigned long long)(SHARED_BASE + offset));
        block.units[unit].writer = t.index, block.units[unit].fences = t.proxy_fences;
        block.units[unit].when = block.writes;
    }
}
// A copy through the async proxy has arrived, `offset` bytes from the start of a block's shared memory.
inline void arrived(Block &block, u32 offset, u32 bytes) {
    for (u32 unit = offset / 16; !block.units.empty() && unit <= (offset + bytes - 1) / 16; unit++) {
        if (block.units[unit].readers)
            fault("in_flight", "a copy arrives in shared memory at %#x, which a product in flight reads",
                  SHARED_BASE + offset);
        block.units[unit].writer = ~0u;
    }
}
// fence.proxy.async: of what this thread stored, and of what it has seen others store.
inline void fence_proxies(Thread &t) {
    t.proxy_fences++, t.proxies_fenced = t.writes_seen;
}
// A thread has met others, whose stores it sees from here on.
inline void met_others(Thread &t) {
    t.writes_seen = t.block->writes;
}

// cp.async: `bytes` into shared memory, of which `read` come from global memory and the rest are zeros.
void copy_async(Thread &t, u32 to, u64 from, u32 bytes, u32 read);
void commit_copies(Thread &t);
void await_copies(Thread &t, u32 groups_left, bool all);
// A jump backwards: a thread that takes too many is taken to hang.
inline void jumped_back(Thread &t) {
    if (++t.jumps > MOST_JUMPS)
        fault("timeout", "more than %llu jumps backwards", (unsigned long long)MOST_JUMPS);
}
