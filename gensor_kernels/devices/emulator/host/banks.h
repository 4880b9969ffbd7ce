// Bank conflicts, counted exactly. Shared memory has 32 banks of 4 bytes. A warp's 16-byte accesses are served a
// quarter of the warp at a time, 8-byte accesses half a warp, narrower ones the whole warp; ldmatrix serves the eight
// rows of one matrix at a time. Lanes of a phase that access different words of one bank are served one after the
// other; lanes with the same word are served together. A conflict is a pass beyond the first of its phase.
#pragma once
#include "emulator.h"

namespace emulator {

// A warp that continues for longer than this without its lanes meeting is counted early (bounds the memory).
constexpr u32 MOST_ACCESSES = 1 << 16;

// Conflicts of one phase; `unit` bytes (4, 8 or 16) per lane, at most 128 bytes in all.
inline u32 phase_conflicts(const u32 *address, u32 lanes, int unit) {
    int banks = 128 / unit;
    u32 used = 0, first = 0;
    for (u32 rest = lanes; rest; rest &= rest - 1) { // the common case: every lane has its own bank
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

inline u32 access_conflicts(const WarpAccess &access, int bytes) {
    int unit = bytes < 4 ? 4 : bytes, width = 128 / unit;
    u32 conflicts = 0, phase = width == 32 ? ALL_LANES : (1u << width) - 1;
    for (int first = 0; first < WARP; first += width)
        if (u32 lanes = access.lanes >> first & phase)
            conflicts += phase_conflicts(access.address + first, lanes, unit);
    return conflicts;
}

// The lanes of a warp are synchronised: their accesses since the last synchronisation are complete instructions.
inline void count_conflicts(Warp &warp) {
    static const int REQUESTS_TO_CONFLICTS = CONFLICTS_LOAD - SHARED_LOADS;
    for (int index : warp.active_sites) {
        AccessSite &site = warp.sites[index];
        for (u32 i = 0; i < site.used; ++i)
            count(site.counter + REQUESTS_TO_CONFLICTS) += access_conflicts(site.accesses[i], site.bytes);
        count(site.counter) += site.used;
        site.used = 0;
        memset(site.lane_accesses, 0, sizeof site.lane_accesses);
    }
    warp.active_sites.clear();
}

inline AccessSite &find_site(Warp &warp, Site site, int counter, int bytes) {
    const u32 mask = SITE_TABLE - 1;
    u32 i = (u32)(site.line * 40503 + bytes * 5 + counter + (uintptr_t)site.file / 8);
    while (int index = warp.site_table[i & mask]) {
        AccessSite &known = warp.sites[index - 1];
        if (!(known.site != site) && known.bytes == bytes && known.counter == counter)
            return known;
        ++i;
    }
    if (warp.sites.size() == SITE_TABLE / 2)
        fault(INVALID, "more than %d lines access shared memory", SITE_TABLE / 2);
    warp.sites.push_back(AccessSite{});
    AccessSite &added = warp.sites.back();
    added.site = site, added.counter = counter, added.bytes = bytes;
    warp.site_table[i & mask] = (uint16_t)warp.sites.size();
    return added;
}

// Combines this lane's access with those of the other lanes: the n-th access of a line by each lane, since the lanes
// last met, is one instruction.
inline void record_access(u32 address, int bytes, int counter, Site where) {
    Warp &warp = current_warp();
    int lane = current->lane();
    AccessSite &site = find_site(warp, where, counter, bytes);
    if (site.lane_accesses[lane] == MOST_ACCESSES)
        return count_conflicts(warp);
    u32 n = site.lane_accesses[lane]++;
    if (n == site.used) {
        if (n == 0)
            warp.active_sites.push_back((int)(&site - warp.sites.data()));
        if (n == site.accesses.size())
            site.accesses.resize(2 * n + 8);
        site.accesses[site.used++].lanes = 0;
    }
    site.accesses[n].lanes |= 1u << lane, site.accesses[n].address[lane] = address;
}

} // namespace emulator
