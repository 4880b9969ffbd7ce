// The race detector. Each granule of shared memory remembers its last write and the reads since; two accesses from
// different threads, one of them a write, must be ordered by a barrier of the block, or by a warp barrier if both
// threads belong to one warp. Since these are the only ways to order shared memory, comparing two counters is as exact
// as vector clocks. An asynchronous copy is a write that lasts from its issue until its thread has waited for it.
#pragma once
#include <cstdio>
#include "emulator.h"

namespace emulator {

constexpr uint16_t MANY = 0xffff;
constexpr int WARP_EPOCH_BITS = 12;

// The time of the current thread: block barriers passed, then warp barriers since. It is never zero.
inline u32 now() {
    return current->block->epoch << WARP_EPOCH_BITS | current_warp().epoch;
}
inline u32 block_epoch(u64 time) {
    return time >> WARP_EPOCH_BITS;
}

inline void clear_shadow(Shadow &shadow, int bytes) {
    shadow.granule = 16, shadow.log2 = 4;
    shadow.cells.assign((bytes + 15) / 16, Cell{});
}

// Halves the granule until it fits an access. All earlier accesses covered whole granules: copying loses nothing.
inline void refine(Shadow &shadow, int bytes) {
    while (shadow.granule > bytes) {
        std::vector<Cell> finer(shadow.cells.size() * 2);
        for (size_t i = 0; i < shadow.cells.size(); ++i)
            finer[2 * i] = finer[2 * i + 1] = shadow.cells[i];
        shadow.cells.swap(finer);
        shadow.granule /= 2, --shadow.log2;
    }
}

[[noreturn]] __attribute__((noinline)) inline void report_race(const Cell &cell, u32 offset, const char *what,
                                                               bool with_read, int line) {
    char who[64];
    if (!with_read)
        snprintf(who, sizeof who, "thread %d", cell.writer);
    else if (cell.reader != MANY)
        snprintf(who, sizeof who, "thread %d", cell.reader);
    else if (cell.read_warp != MANY)
        snprintf(who, sizeof who, "several threads of warp %d", cell.read_warp);
    else
        snprintf(who, sizeof who, "threads of several warps");
    fault(RACE, "%s at line %d of shared byte %u is not ordered with the %s at line %d by %s", what, line, offset,
          with_read        ? "read"
          : cell.in_flight ? "unfinished asynchronous copy"
                           : "write",
          with_read ? cell.read_line : cell.write_line, who);
}

// May the current thread (or, if `warp_wide`, all lanes of its warp together) access the last write?
inline bool write_ordered(const Cell &cell, u64 time, bool warp_wide) {
    if (cell.in_flight)
        return false;
    if (block_epoch(cell.written) < block_epoch(time))
        return true;
    if (cell.writer / WARP == current->warp())
        return cell.written < time || (!warp_wide && cell.writer == current->index);
    return false;
}

inline bool reads_ordered(const Cell &cell, u64 time) {
    if (block_epoch(cell.read) < block_epoch(time))
        return true;
    if (cell.read_warp == current->warp()) // MANY is no warp
        return cell.read < time || cell.reader == current->index;
    return false;
}

inline void note_read(Cell &cell, u64 time, bool warp_wide, int line) {
    int warp = current->warp();
    if (block_epoch(cell.read) < block_epoch(time)) {
        cell.read_warp = warp, cell.reader = warp_wide ? MANY : current->index;
    } else if (cell.read_warp != warp) {
        cell.read_warp = cell.reader = MANY;
    } else if (cell.read < time) {
        cell.reader = warp_wide ? MANY : current->index; // earlier reads of this warp are ordered before this one
    } else if (warp_wide || cell.reader != current->index) {
        cell.reader = MANY;
    }
    cell.read = time, cell.read_line = (uint16_t)line;
}

inline void shadow_read(u32 address, int bytes, bool warp_wide, int line) {
    if (reads_copy(address, warp_wide, line))
        return;
    Shadow &shadow = current->block->shadow;
    if (bytes < shadow.granule)
        refine(shadow, bytes);
    touch_atoms(address, bytes, true, line);
    u64 time = now();
    u32 first = (address - SHARED_BASE) >> shadow.log2, cells = bytes >> shadow.log2;
    for (u32 i = first; i < first + cells; ++i) {
        Cell &cell = shadow.cells[i];
        if (cell.written == 0)
            fault(UNINITIALISED, "line %d reads shared byte %u, which nothing has written", line, i << shadow.log2);
        if (!write_ordered(cell, time, warp_wide))
            report_race(cell, i << shadow.log2, "the read", false, line);
        note_read(cell, time, warp_wide, line);
    }
}

inline void shadow_write(u32 address, int bytes, bool in_flight, int line) {
    Shadow &shadow = current->block->shadow;
    if (bytes < shadow.granule)
        refine(shadow, bytes);
    touch_atoms(address, bytes, false, line);
    change_atoms(address, bytes, line);
    const char *what = in_flight ? "the asynchronous copy" : "the write";
    u64 time = now();
    u32 first = (address - SHARED_BASE) >> shadow.log2, cells = bytes >> shadow.log2;
    for (u32 i = first; i < first + cells; ++i) {
        Cell &cell = shadow.cells[i];
        if (cell.written && !write_ordered(cell, time, false))
            report_race(cell, i << shadow.log2, what, false, line);
        if (cell.read && !reads_ordered(cell, time))
            report_race(cell, i << shadow.log2, what, true, line);
        cell = Cell{time, 0, (uint16_t)current->index, (uint16_t)line, 0, 0, 0, (uint16_t)in_flight};
    }
}

// The copy is complete: its thread sees it from now on, other threads after a barrier.
inline void shadow_arrive(const Copy &copy) {
    Shadow &shadow = current->block->shadow;
    u64 time = now();
    u32 first = (copy.to - SHARED_BASE) >> shadow.log2, cells = copy.bytes >> shadow.log2;
    for (u32 i = first; i < first + cells; ++i)
        shadow.cells[i].in_flight = 0, shadow.cells[i].written = time;
}

} // namespace emulator
