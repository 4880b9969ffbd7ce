// The rules of order.h: whether an access to a cell is in a race.
#include "order.h"

Causality::Actor Causality::actor(u32 slot, u16 what, u32 operation) {
    return {slot, warp_of(slot), stamp(slot), clocks_[slot].get(), what, what_[what].how, operation};
}
void Causality::check(Shadow &shadow, u64 g, const Actor &actor) {
    Cell &cell = shadow.cell(g);
    if (cell.group != group_)
        regroup(shadow, g);
    const bool nc = actor.how & NONCOHERENT;
    if (shadow.fresh && !cell.writer && !cell.list && actor.how & READS)
        fault("uninitialised", "%s of thread %u loads shared memory at %#llx, which nobody has written",
              what_[actor.what].text, (actor.slot - 1) % launch_.threads,
              (unsigned long long)(shadow.base + (g << shadow.shift)));
    if (cell.nc && actor.writes())
        fault("noncoherent", "%s stores what the launch loads by ld.global.nc", what_[actor.what].text);
    if (nc && cell.writer)
        fault("noncoherent", "%s loads what %s stores in this launch", what_[actor.what].text, what_[cell.wrote].text);
    if (nc)
        cell.nc = 1;
    const u32 warp = actor.warp - shadow.first_warp;
    if (cell.list || actor.strong() || warp >= shadow.warps || (actor.operation && !actor.writes()))
        return listed(shadow, g, actor);
    if (const Past past{cell.written, cell.writer, cell.wrote}; !ordered(past, actor))
        race(shadow, g, past, actor);
    if (!actor.writes()) {
        Readers &r = shadow.reader(g, warp);
        u32 &mask = shadow.mask(g, warp / 32);
        const u32 now = actor.now, lane = 1u << (actor.slot - 1) % 32;
        if (!(mask >> warp % 32 & 1))
            mask |= 1u << warp % 32, r = {now, lane, actor.what};
        else if (r.stamp == now)
            r.lanes |= lane, r.what = actor.what;
        else if (!unordered_lanes(r, actor.warp, actor))
            r = {now, lane, actor.what};
        else
            listed(shadow, g, actor);
        return;
    }
    if (cell.foreign)
        race(shadow, g, {0, FOREIGN, (u16)shadow.reader(g, 0).what}, actor);
    for (u32 word = 0; word < shadow.words; word++) {
        for (u32 left = shadow.mask(g, word); left; left &= left - 1) {
            const u32 reader = 32 * word + std::countr_zero(left);
            const Readers &r = shadow.reader(g, reader);
            if (const u32 lanes = unordered_lanes(r, shadow.first_warp + reader, actor)) {
                const u32 slot = 1 + 32 * (shadow.first_warp + reader) + std::countr_zero(lanes);
                race(shadow, g, {r.stamp, (u16)slot, (u16)r.what}, actor);
            }
        }
        shadow.mask(g, word) = 0;
    }
    cell.writer = actor.operation ? IN_FLIGHT : (u16)actor.slot, cell.wrote = actor.what;
    cell.written = actor.operation ? actor.operation : actor.now;
}
u32 Causality::unordered_lanes(const Readers &r, u32 warp, const Actor &actor) const {
    if (r.stamp <= actor.clock->floor[warp])
        return 0;
    u32 lanes = r.lanes;
    for (u32 left = lanes; left; left &= left - 1) {
        const u32 lane = std::countr_zero(left), slot = 1 + 32 * warp + lane;
        if (slot == actor.slot || actor.clock->covers_for_writes(slot, r.stamp))
            lanes &= ~(1u << lane);
    }
    return lanes;
}
bool Causality::ordered(const Past &past, const Actor &actor) const {
    if (past.slot >= FOREIGN || past.slot == NOBODY)
        return past.slot == NOBODY;
    if (actor.how & PROXY && writes(past.what) && !(what_[past.what].how & PROXY))
        return actor.clock->shows_proxy(past.slot, past.stamp);
    return past.slot == actor.slot || (actor.writes() ? actor.clock->covers_for_writes(past.slot, past.stamp)
                                                      : actor.clock->covers(past.slot, past.stamp));
}
bool Causality::both_strong(const Past &past, const Actor &actor) const {
    const Access &a = what_[past.what], &b = what_[actor.what];
    if (!(a.how & b.how & STRONG) || a.each != b.each || past.slot == IN_FLIGHT)
        return false;
    if (past.slot == FOREIGN)
        return a.scope >= Scope::GPU && b.scope >= Scope::GPU;
    const u32 x = block_of(past.slot), y = block_of(actor.slot);
    return includes(a.scope, x, y) && includes(b.scope, x, y);
}
// An access to a cell with a list. Earlier entries are dropped if all their races are also races of the access.
void Causality::listed(Shadow &shadow, u64 g, const Actor &actor) {
    std::vector<Past> &list = list_of(shadow, g);
    const Access &a = what_[actor.what];
    size_t left = 0;
    for (const Past &past : list) {
        const Access &b = what_[past.what];
        const bool before = ordered(past, actor);
        if (!before && (actor.writes() || writes(past.what)) && !both_strong(past, actor))
            race(shadow, g, past, actor);
        if (a.how & NONCOHERENT && writes(past.what))
            fault("noncoherent", "%s loads what %s stores in this launch", a.text, b.text);
        const bool covered = actor.writes() || !writes(past.what);
        if (!before || !covered || (actor.strong() && !(b.how & STRONG && a.each == b.each && a.scope <= b.scope)))
            list[left++] = past;
    }
    list.resize(left);
    const u32 written = actor.operation ? actor.operation : actor.now;
    const u16 slot = actor.operation ? IN_FLIGHT : (u16)actor.slot;
    Cell &cell = shadow.cell(g);
    if (left || actor.strong() || !actor.writes()) {
        list.push_back({written, slot, actor.what});
        return;
    }
    free_lists_.push_back(cell.list);
    cell.list = 0, cell.written = written, cell.writer = slot, cell.wrote = actor.what;
}
std::vector<Past> &Causality::list_of(Shadow &shadow, u64 g) {
    Cell &cell = shadow.cell(g);
    if (cell.list)
        return lists_[cell.list];
    if (free_lists_.empty())
        lists_.emplace_back(), free_lists_.push_back((u32)lists_.size() - 1);
    cell.list = free_lists_.back();
    free_lists_.pop_back();
    std::vector<Past> &list = lists_[cell.list];
    list.clear();
    if (cell.writer)
        list.push_back({cell.written, cell.writer, cell.wrote});
    if (cell.foreign)
        list.push_back({0, FOREIGN, (u16)shadow.reader(g, 0).what});
    for (u32 word = 0; word < shadow.words; word++) {
        for (u32 left = shadow.mask(g, word); left; left &= left - 1) {
            const u32 warp = 32 * word + std::countr_zero(left);
            const Readers &r = shadow.reader(g, warp);
            for (u32 lanes = r.lanes; lanes; lanes &= lanes - 1)
                list.push_back(
                    {r.stamp, (u16)(1 + 32 * (shadow.first_warp + warp) + std::countr_zero(lanes)), (u16)r.what});
        }
        shadow.mask(g, word) = 0;
    }
    cell.writer = NOBODY, cell.foreign = 0;
    return list;
}
// The first access to a cell since other blocks became resident: shared memory is new, global memory is kept.
void Causality::regroup(Shadow &shadow, u64 g) {
    Cell &cell = shadow.cell(g);
    const bool touched = cell.group;
    cell.group = group_;
    if (!touched)
        return;
    if (shadow.fresh) {
        if (cell.list)
            free_lists_.push_back(cell.list);
        cell = {0, NOBODY, 0, 0, group_, 0, 0};
    }
    if (cell.list)
        for (Past &past : lists_[cell.list])
            past.slot = FOREIGN;
    else if (cell.writer)
        cell.writer = FOREIGN;
    for (u32 word = 0; word < shadow.words; word++) {
        if (const u32 mask = shadow.mask(g, word); mask && !shadow.fresh) {
            shadow.reader(g, 0).what = shadow.reader(g, 32 * word + std::countr_zero(mask)).what;
            cell.foreign = 1;
        }
        shadow.mask(g, word) = 0;
    }
}

// ---- Faults

std::string Causality::told(const Past &past) const {
    const std::string text = what_[past.what].text;
    char who[80];
    if (past.slot == FOREIGN)
        std::snprintf(who, sizeof who, "of a block that is resident at another time");
    else if (past.slot == IN_FLIGHT)
        std::snprintf(who, sizeof who, "of thread %u, in flight", (running_[past.stamp].slot - 1) % launch_.threads);
    else if (past.slot > threads_)
        std::snprintf(who, sizeof who, "of an asynchronous operation");
    else
        std::snprintf(who, sizeof who, "of thread %u of block %u", (past.slot - 1) % launch_.threads,
                      blocks_[block_of(past.slot)]);
    return text + " " + who;
}
void Causality::race(const Shadow &shadow, u64 g, const Past &past, const Actor &actor) const {
    const u64 address = shadow.base + (g << shadow.shift);
    fault("race", "%s, and then %s, at %s %#llx, are not ordered", told(past).c_str(),
          told({0, (u16)actor.slot, actor.what}).c_str(), shadow.fresh ? "shared" : "global",
          (unsigned long long)address);
}
