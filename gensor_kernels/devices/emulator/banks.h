// Bank conflicts, counted exactly. Shared memory has 32 banks of 4 bytes. A warp's 16-byte accesses are served a
// quarter of the warp at a time, 8-byte accesses half a warp, narrower ones the whole warp; ldmatrix serves the eight
// rows of one matrix at a time. Lanes of such a phase that want different words of one bank are served one after the
// other, equal words once. A conflict is a pass beyond the first of its phase.
#pragma once
#include "emulator.h"

namespace emulator {

// A warp that goes on for longer than this without its lanes meeting is counted early (bounds the memory).
constexpr u32 MOST_ACCESSES = 1 << 16;

// Conflicts of one phase; `unit` bytes (4, 8 or 16) per lane, at most 128 bytes in all.
inline u32 phase_conflicts(const u32 *address, u32 lanes, int unit) {
    int banks = 128 / unit;
    u32 used = 0, first = 0;
    for (u32 rest = lanes; rest; rest &= rest - 1) { // the common case: every lane has a bank of its own
        u32 bit = 1u << (address[__builtin_ctz(rest)] / unit % banks);
        first |= used & bit, used |= bit;
    }
    if (!first)
        return 0;
    u32 seen[32][32];
    int number[32] = {}, passes = 1;
    for (; lanes; lanes &= lanes - 1) {
        u32 word = address[__builtin_ctz(lanes)] / unit;
        int bank = word % banks, i = 0;
        while (i < number[bank] && seen[bank][i] != word)
            ++i;
        if (i == number[bank]) {
            seen[bank][number[bank]++] = word;
            if (number[bank] > passes)
                passes = number[bank];
        }
    }
    return passes - 1;
}

inline u32 access_conflicts(const WarpAccess &access) {
    int unit = access.bytes < 4 ? 4 : access.bytes, width = 128 / unit;
    u32 conflicts = 0, phase = width == 32 ? ALL_LANES : (1u << width) - 1;
    for (int first = 0; first < WARP; first += width)
        if (u32 lanes = access.lanes >> first & phase)
            conflicts += phase_conflicts(access.address + first, lanes, unit);
    return conflicts;
}

// The lanes of a warp have met: their accesses since they last met are complete instructions.
inline void count_conflicts(Warp &warp) {
    static const int REQUESTS_TO_CONFLICTS = CONFLICTS_LOAD - SHARED_LOADS;
    for (u32 i = 0; i < warp.access_count; ++i) {
        const WarpAccess &access = warp.accesses[i];
        ++count(access.counter);
        count(access.counter + REQUESTS_TO_CONFLICTS) += access_conflicts(access);
    }
    if (warp.access_count)
        memset(warp.cursor, 0, sizeof warp.cursor), memset(warp.joined, 0, sizeof warp.joined);
    warp.access_count = 0;
}

inline WarpAccess &new_access(Warp &warp, Site site, int counter, int bytes) {
    if (warp.access_count == warp.accesses.size())
        warp.accesses.resize(2 * warp.accesses.size() + 64);
    WarpAccess &access = warp.accesses[warp.access_count++];
    access.site = site, access.counter = counter, access.bytes = bytes, access.lanes = 0;
    return access;
}

// Joins this lane's access to those of the other lanes: the n-th access of a line by one lane belongs to the n-th of
// that line by another. Lanes that run the same way find theirs at the cursor, after a branch they search.
inline void record_access(u32 address, int bytes, int counter, Site site) {
    Warp &warp = current_warp();
    int lane = current->lane();
    u32 bit = 1u << lane;
    auto fits = [&](const WarpAccess &access) {
        return !(access.lanes & bit) && access.bytes == bytes && access.counter == counter && !(access.site != site);
    };
    if (warp.access_count >= MOST_ACCESSES)
        count_conflicts(warp);
    u32 i = warp.cursor[lane];
    if (i >= warp.access_count || !fits(warp.accesses[i])) {
        bool all_mine = warp.joined[lane] == warp.access_count;
        for (i = all_mine ? warp.access_count : 0; i < warp.access_count && !fits(warp.accesses[i]);)
            ++i;
        if (i == warp.access_count)
            new_access(warp, site, counter, bytes);
    }
    warp.accesses[i].lanes |= bit, warp.accesses[i].address[lane] = address;
    warp.cursor[lane] = i + 1, ++warp.joined[lane];
}

} // namespace emulator
