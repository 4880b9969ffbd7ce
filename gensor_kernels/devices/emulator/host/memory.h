// Global and shared memory as the kernel sees it: every access is checked, counted and given to the race detector.
#pragma once
#include "banks.h"
#include "shadow.h"

namespace emulator {

inline int width_index(int bytes) {
    return __builtin_ctz(bytes);
}

enum Access { LOAD, STORE, LOAD_WRITTEN, COPY, LOAD_FINISHED };

// A dependent launch may begin while the previous launch still writes its inputs and reads what it overwrites.
inline void check_launched(Site site) {
    if (!current->launched)
        fault(RACE, "the access to global memory at %s line %d does not wait for the launch in front", site.file,
              site.line);
}

// Does a barrier of either kind order a thread's action at a time before this time of another thread of its block?
inline bool behind_barrier(int thread, u64 time, int other, u64 later) {
    return block_epoch(time) < block_epoch(later) || (thread / WARP == other / WARP && time < later);
}

// May the current thread see a store? Only flags order blocks; barriers order threads of a block.
inline bool sees(const Stored &stored) {
    const Block &own = *current->block;
    if (stored.block == own.index)
        return stored.thread == current->index || behind_barrier(stored.thread, stored.time, current->index, now());
    for (auto each = own.known.lower_bound({stored.block, 0}); each != own.known.end(); ++each) {
        const Known &known = each->second;
        if (each->first.first != stored.block)
            break;
        if (known.taker != current->index && !behind_barrier(known.taker, known.taken, current->index, now()))
            continue;
        if ((stored.thread == known.giver && stored.tick < known.tick) ||
            behind_barrier(stored.thread, stored.time, known.giver, known.given))
            return true;
    }
    return false;
}

// PTX ISA 9.7.9.25.1: no thread stores to the source of a copy in flight.
__attribute__((noinline)) inline void check_sources(int index, u64 offset, int bytes, Site site) {
    const Buffer &buffer = machine.request->buffers[index];
    const u64 address = buffer.begin + (offset - buffer.begin % 32);
    for (const Block &block : machine.blocks)
        for (const Thread &thread : block.threads)
            for (const Copy &copy : thread.copies)
                if (copy.from && copy.source < address + bytes && address < copy.source + copy.bytes)
                    fault(RACE, "the store at %s line %d changes what the copy at line %d, on its way, reads",
                          site.file, site.line, copy.line);
}

// Marks bytes of a writable buffer as stored to. A second store, or an ordinary load after a store, in one launch is a
// race between unordered threads, or a tile computed twice. load_written needs bytes whose stores are ordered before
// it.
inline void note_global(int index, u64 offset, int bytes, Access access, Site site) {
    u32 &word = machine.written[index][offset / 32];
    u32 mask = (u32)((1ull << bytes) - 1) << offset % 32; // an aligned access stays inside 32 bytes
    std::vector<Stored> &storers = machine.storers[index];
    if (access == LOAD_WRITTEN) {
        if ((word & mask) != mask)
            fault(UNINITIALISED, "%s line %d reads byte %llu of buffer %d, which nothing has stored yet", site.file,
                  site.line, offset, index);
        for (u64 at = offset / 4; at < (offset + bytes) / 4 && !storers.empty(); ++at)
            if (!sees(storers[at]))
                fault(RACE,
                      "the load at %s line %d of byte %llu of buffer %d is not ordered with the store at line %d by "
                      "thread %d of block %d",
                      site.file, site.line, offset, index, storers[at].line, storers[at].thread, storers[at].block);
        return;
    }
    if (word & mask)
        fault(RACE, "the %s at %s line %d of byte %llu of buffer %d follows a store to it in the same launch",
              access == STORE ? "store" : "load", site.file, site.line, offset, index);
    u8 &sector = machine.sectors[index][offset / SECTOR];
    if (access == LOAD && sector & STALE)
        fault(RACE,
              "the load at %s line %d of byte %llu of buffer %d may find what the launch in front loaded from this "
              "sector before it stored there: load_finished is for that",
              site.file, site.line, offset, index);
    if (access != STORE) {
        sector |= LOADED;
        return;
    }
    if (sector & LOADED)
        check_sources(index, offset, bytes, site);
    word |= mask;
    for (u64 at = offset / 4; at < (offset + bytes + 3) / 4 && !storers.empty(); ++at)
        storers[at] = Stored{current->block->index, current->index, now(), site.line, machine.ticks};
}

[[noreturn]] __attribute__((noinline)) inline void report_outside(u64 address, int bytes, bool store, Site site) {
    const Request &request = *machine.request;
    const char *what = store ? "store" : "load";
    for (int i = 0; i < request.buffer_count; ++i) {
        const Buffer &buffer = request.buffers[i];
        long long offset = (long long)(address - buffer.begin), size = (long long)buffer.bytes, near = 1 << 20;
        if (offset >= 0 && offset + bytes <= size)
            fault(OUT_OF_BOUNDS, "%d-byte store at %s line %d to buffer %d, which is read-only", bytes, site.file,
                  site.line, i);
        if (offset > -near && offset < size + near)
            fault(OUT_OF_BOUNDS, "%d-byte global %s at %s line %d, byte %lld of buffer %d of %lld bytes", bytes, what,
                  site.file, site.line, offset, i, size);
    }
    fault(OUT_OF_BOUNDS, "%d-byte global %s at %s line %d, address %#llx is in no buffer", bytes, what, site.file,
          site.line, address);
}

// The bytes at an address of the kernel.
inline unsigned char *check_global(u64 address, int bytes, Access access, Site site) {
    const Request &request = *machine.request;
    const bool store = access == STORE;
    if (address % bytes)
        fault(MISALIGNED, "%d-byte global %s at %s line %d from address %#llx", bytes, store ? "store" : "load",
              site.file, site.line, address);
    unsigned char *found = nullptr;
    for (int i = 0; i < request.buffer_count; ++i) {
        const Buffer &buffer = request.buffers[i];
        u64 offset = address - buffer.begin;
        if (offset >= buffer.bytes || buffer.bytes - offset < (u64)bytes || (store && !buffer.writable))
            continue;
        if (buffer.writable && request.races)
            note_global(i, offset + buffer.begin % 32, bytes, access, site);
        found = (unsigned char *)(buffer.host + offset);
        if (!machine.overlap)
            return found; // else the result may overlap an operand: also look at the other buffer
    }
    if (!found)
        report_outside(address, bytes, store, site);
    return found;
}

inline unsigned char *check_shared(u32 address, int bytes, Site site) {
    u32 offset = address - SHARED_BASE;
    if (address % bytes)
        fault(MISALIGNED, "%d-byte shared access at %s line %d, byte %d", bytes, site.file, site.line, (int)offset);
    if (address < SHARED_BASE || offset + bytes > (u32)machine.request->shared_bytes)
        fault(OUT_OF_BOUNDS, "%d-byte shared access at %s line %d, byte %d of %d", bytes, site.file, site.line,
              (int)offset, machine.request->shared_bytes);
    return current->block->shared + offset;
}

// With a constant size the compiler moves registers instead of calling memcpy.
inline void move(void *to, const void *from, int bytes) {
    switch (bytes) {
    case 16:
        memcpy(to, from, 16);
        break;
    case 8:
        memcpy(to, from, 8);
        break;
    case 4:
        memcpy(to, from, 4);
        break;
    case 2:
        memcpy(to, from, 2);
        break;
    default:
        memcpy(to, from, 1);
    }
}

static inline void load(void *to, u64 address, int bytes, Access access, Site site) {
    tick();
    check_launched(site);
    const unsigned char *from = check_global(address, bytes, access, site);
    ++count(GLOBAL_LOAD_1 + width_index(bytes));
    move(to, from, bytes);
}

void load_global(void *to, u64 address, int bytes, Site site) {
    load(to, address, bytes, LOAD, site);
}
void load_finished(void *to, u64 address, int bytes, Site site) {
    load(to, address, bytes, LOAD_FINISHED, site);
}
void load_written(void *to, u64 address, int bytes, Site site) {
    load(to, address, bytes, LOAD_WRITTEN, site);
}

// A hint changes nothing, but must name a byte of an operand. The L1 does not learn of the previous launch's stores.
void prefetch_line(u64 address, int level, Site site) {
    tick();
    if (level == 1)
        check_launched(site);
    const Request &request = *machine.request;
    for (int i = 0; i < request.buffer_count; ++i)
        if (address - request.buffers[i].begin < request.buffers[i].bytes)
            return;
    report_outside(address, 1, false, site);
}

void store_global(u64 address, const void *from, int bytes, Site site) {
    tick();
    check_launched(site);
    unsigned char *to = check_global(address, bytes, STORE, site);
    ++count(GLOBAL_STORE_1 + width_index(bytes));
    move(to, from, bytes);
}

void load_shared(void *to, u32 address, int bytes, Site site) {
    tick();
    unsigned char *from = check_shared(address, bytes, site);
    record_access(address, bytes, SHARED_LOADS, site);
    if (machine.request->races)
        shadow_read(address, bytes, false, site.line);
    move(to, from, bytes);
}

void store_shared(u32 address, const void *from, int bytes, Site site) {
    tick();
    unsigned char *to = check_shared(address, bytes, site);
    record_access(address, bytes, SHARED_STORES, site);
    if (machine.request->races)
        shadow_write(address, bytes, false, site.line);
    move(to, from, bytes);
}

inline void deliver(const Copy &copy) {
    unsigned char *to = current->block->shared + (copy.to - SHARED_BASE);
    if (copy.from)
        move(to, copy.from, copy.bytes);
    else
        memset(to, 0, copy.bytes);
}

void copy_async(u32 to, u64 from, int bytes, bool predicate, Site site) {
    tick();
    const Request &request = *machine.request;
    check_shared(to, bytes, site);
    if (predicate)
        check_launched(site);
    const unsigned char *source = predicate ? check_global(from, bytes, COPY, site) : nullptr;
    ++count(predicate ? COPY_1 + width_index(bytes) : COPIES_ZEROED);
    record_access(to, bytes, SHARED_COPIES, site);
    if (request.races)
        shadow_write(to, bytes, true, site.line);
    Copy copy{source, from, to, bytes, site.line};
    if (request.early)
        deliver(copy);
    current->copies.push_back(copy);
}

void copy_async_commit() {
    commit(current->groups, current->copies.size());
}

void copy_async_wait(int groups) {
    Thread &thread = *current;
    if ((int)thread.groups.size() <= groups)
        return;
    size_t finished = thread.groups.size() - groups, copies = 0;
    for (size_t i = 0; i < finished; ++i)
        copies += thread.groups[i];
    for (size_t i = 0; i < copies; ++i) {
        if (!machine.request->early)
            deliver(thread.copies[i]);
        if (machine.request->races)
            shadow_arrive(thread.copies[i]);
    }
    thread.copies.erase(thread.copies.begin(), thread.copies.begin() + copies);
    thread.groups.erase(thread.groups.begin(), thread.groups.begin() + finished);
}

} // namespace emulator
