// The rules of order.h: clocks, operations that publish them, and asynchronous operations.
#include "order.h"

Causality::Causality(const Entry &entry, const Launch &launch)
    : entry_(entry), launch_(launch), what_(entry.access, entry.access + entry.accesses), running_(1) {
    for (const Access &a : what_) {
        if (!(a.how & WRITES))
            continue;
        const u32 shift = std::countr_zero((u32)a.bytes);
        if (a.space != Space::GLOBAL)
            shared_shift_ = std::min(shared_shift_, shift);
        if (a.space != Space::SHARED)
            global_shift_ = std::min(global_shift_, shift);
    }
    lists_.resize(1);
}

void Causality::begin(const std::vector<u32> &blocks, u32 shared_bytes) {
    const u32 warps = launch_.threads / 32, all = (u32)blocks.size() * warps;
    group_++, blocks_ = blocks, learned_ = {}, threads_ = 32 * all;
    if (threads_ > 60000)
        fault("invalid", "%u resident threads are more than their order is followed of", threads_);
    stamps_.assign(all, 1), agents_.clear(), keys_.clear(), flags_.clear(), fences_.clear();
    running_.resize(1), free_operations_.clear(), reading_global_ = 0;
    uses_.assign(1, {}), tensor_.assign(blocks.size(), {}), after_.assign(threads_ + 1, nullptr);
    Clock none;
    none.at.assign(threads_ + 1, 0), none.floor.assign(all, 0);
    clocks_.assign(threads_ + 1, std::make_shared<const Clock>(none));
    if (shared_.empty()) {
        for (u32 i = 0; i < blocks.size(); i++)
            shared_.emplace_back(SHARED_BASE, shared_bytes, shared_shift_, i * warps, warps, true);
        for (u32 i = 0; i < launch_.buffers; i++)
            if (const Buffer &buffer = launch_.buffer[i]; buffer.writable)
                global_.emplace_back(buffer.address, buffer.bytes, global_shift_, 0, all, false);
            else
                global_.emplace_back();
    }
}

bool Causality::includes(Scope scope, u32 a, u32 b) const {
    return a == b || scope >= Scope::GPU ||
           (scope == Scope::CLUSTER && blocks_[a] / launch_.cluster == blocks_[b] / launch_.cluster);
}

// ---- Clocks

// Returns whether `into` lacked a part of it.
bool Causality::merge(Clock &into, const Clock &from) {
    bool more = false;
    const auto join = [&](std::vector<u32> &a, const std::vector<u32> &b) {
        if (a.size() < b.size())
            a.resize(b.size());
        for (size_t i = 0; i < b.size(); i++)
            more |= b[i] > a[i], a[i] = std::max(a[i], b[i]);
    };
    join(into.at, from.at), join(into.fenced, from.fenced);
    join(into.over, from.over), join(into.tensor, from.tensor);
    return more;
}
void Causality::floors(Clock &clock) const {
    clock.floor.resize(threads_ / 32);
    for (u32 warp = 0; warp < threads_ / 32; warp++)
        clock.floor[warp] = *std::min_element(&clock.at[1 + 32 * warp], &clock.at[1 + 32 * warp] + 32);
}
// A release publishes all that the thread has seen and done. Its next operation has a later stamp.
Known Causality::advanced(u32 slot) {
    Clock next = *clocks_[slot];
    next.at[slot] = stamp(slot)++;
    floors(next);
    return std::make_shared<const Clock>(std::move(next));
}
// Threads with equal clocks that receive equal clocks share a clock again.
void Causality::learn(u32 slot, const Known &from) {
    if (clocks_[slot] != learned_.before || from != learned_.from) {
        Clock next = *clocks_[slot];
        const bool more = merge(next, *from);
        floors(next);
        learned_ = {clocks_[slot], from, more ? std::make_shared<const Clock>(std::move(next)) : clocks_[slot]};
    }
    clocks_[slot] = learned_.after;
}
// Barriers order all earlier accesses of the participants with all later ones (9.7.13: bar, bar.warp.sync).
void Causality::meet(const std::vector<u32> &slots) {
    const Known *last = &clocks_[slots[0]];
    Clock next = **last;
    for (u32 slot : slots) {
        if (clocks_[slot] != *last)
            merge(next, *clocks_[slot]), last = &clocks_[slot];
        next.at[slot] = stamp(slot);
    }
    for (u32 slot : slots)
        if (next.at[slot] == stamp(slot)) // once for each warp
            stamp(slot)++;
    floors(next);
    const Known shared = std::make_shared<const Clock>(std::move(next));
    for (u32 slot : slots)
        clocks_[slot] = shared;
}
Clock Causality::narrowed(const Clock &own) const {
    Clock given, earlier;
    given.at.resize(own.at.size()), given.over = own.at, given.tensor = own.tensor, earlier.over = own.over;
    merge(given, earlier), floors(given);
    return given;
}
void Causality::release(u32 slot, u64 key, bool narrow) {
    Known own = advanced(slot);
    if (narrow)
        own = std::make_shared<const Clock>(narrowed(*own));
    Known &published = keys_[key];
    if (!published) {
        published = own;
        return;
    }
    Clock both = *published;
    merge(both, *own), floors(both);
    published = std::make_shared<const Clock>(std::move(both));
}
void Causality::acquire(u32 slot, u64 key) {
    if (const auto found = keys_.find(key); found != keys_.end())
        learn(slot, found->second);
}
void Causality::forget(u64 key) {
    keys_.erase(key);
}
void Causality::proxy_fence(u32 slot) {
    Clock next = *clocks_[slot];
    const std::vector<u32> before = next.fenced;
    next.fenced = next.at;
    next.fenced[slot] = stamp(slot)++;
    for (size_t i = 0; i < before.size(); i++)
        next.fenced[i] = std::max(next.fenced[i], before[i]);
    clocks_[slot] = std::make_shared<const Clock>(std::move(next));
}

// ---- Release and acquire patterns (8.8): by one instruction, or by a fence and a strong access

void Causality::fence(const Thread &t, Scope scope, bool sequential) {
    Fence &fence = fences_[t.slot];
    const u32 block = block_of(t.slot);
    for (const Flag &flag : fence.in)
        if (includes(scope, block, flag.block))
            learn(t.slot, flag.clock);
    fence.in.clear();
    if (sequential) { // fences of one scope are in one order, each synchronizes with the next (8.9.3, 8.9.4)
        const u64 key = ~0ull - (scope >= Scope::GPU   ? 0
                                 : scope == Scope::CTA ? 1 + 2ull * block
                                                       : 2 + 2ull * (blocks_[block] / launch_.cluster));
        acquire(t.slot, key), release(t.slot, key);
    }
    fence.out = {advanced(t.slot), scope, block};
}
void Causality::synchronize(u32 slot, u64 key, const Access &a) {
    const u32 block = block_of(slot);
    if (!(a.how & STRONG)) {
        flags_.erase(key);
        return;
    }
    std::vector<Flag> &flags = flags_[key];
    if (a.how & READS)
        for (const Flag &flag : flags)
            if (includes(a.scope, block, flag.block) && includes(flag.scope, block, flag.block)) {
                if (a.how & ACQUIRES)
                    learn(slot, flag.clock);
                else
                    fences_[slot].in.push_back(flag);
            }
    if (!(a.how & WRITES))
        return;
    if (!(a.how & READS))
        flags.clear(); // atomics continue the observation order (8.9.2), stores begin a new one
    if (a.how & RELEASES)
        flags.push_back({advanced(slot), a.scope, block});
    else if (const auto found = fences_.find(slot); found != fences_.end() && found->second.out.clock)
        flags.push_back({found->second.out.clock, std::min(a.scope, found->second.out.scope), block});
}

// ---- Accesses

Shadow *Causality::global(u64 address) {
    const u64 index = (address >> 40) - 1;
    return index < global_.size() && global_[index].count ? &global_[index] : nullptr;
}
Shadow *Causality::place(const Thread &t, u64 &address, Space space) {
    if (space == Space::GENERIC) {
        space = address >> 56 == 0 ? Space::GLOBAL : address >> 56 == 1 ? Space::SHARED : Space::GENERIC;
        address &= SHARED_WINDOW - 1;
    }
    return space == Space::SHARED ? &shared_[block_of(t.slot)] : space == Space::GLOBAL ? global(address) : nullptr;
}
void Causality::access(const Thread &t, u64 address, const Access &a) {
    Shadow *shadow = place(t, address, a.space);
    if (!shadow)
        return;
    spin(t, address, a);
    const bool write = a.how & WRITES;
    const Actor actor = this->actor(t.slot, (u16)(&a - entry_.access), 0);
    const u64 first = shadow->granule(address);
    const u64 last = shadow->granule(address + a.bytes - 1);
    for (u64 g = first; g <= last; g++)
        check(*shadow, g, actor);
    if (write && reading_global_ && !shadow->fresh)
        for (const Operation &each : running_)
            for (const Range &range : each.ranges)
                if (!range.write && range.shadow == shadow && range.first <= last && first <= range.last)
                    race(*shadow, first, {(u32)(&each - &running_[0]), IN_FLIGHT, each.reads}, actor);
    if (actor.strong() || (write && !flags_.empty()))
        synchronize(t.slot, shadow->fresh ? 1ull << 63 | (u64)block_of(t.slot) << 32 | address : address, a);
}
// A weak load may always return the old value: no rule makes it see a store that is not ordered before it (8.9.6).
void Causality::spin(const Thread &t, u64 address, const Access &a) {
    repeated_ = t.slot == last_slot_ && address == last_address_ ? repeated_ + 1 : 0;
    last_slot_ = t.slot, last_address_ = address;
    if (repeated_ > MOST_REPEATED && !(a.how & (WRITES | STRONG)))
        fault("deadlock", "thread %u of block %u spins on %s, which need not see any store", t.index, t.block->index,
              a.text);
}
// ---- Asynchronous operations

u16 Causality::named(const char *text, bool write, bool proxy) {
    if (text == last_named_)
        return last_name_ + write;
    u16 &what = named_[text];
    if (!what) {
        what = (u16)what_.size();
        const u8 how = proxy ? PROXY : 0;
        what_.push_back({text, Space::GENERIC, 16, 16, (u8)(how | READS), Scope::CTA});
        what_.push_back({text, Space::GENERIC, 16, 16, (u8)(how | WRITES), Scope::CTA});
    }
    last_named_ = text, last_name_ = what;
    return what + write;
}
u32 Causality::issue(u32 slot, const char *text, bool proxy) {
    if (free_operations_.empty())
        running_.emplace_back(), free_operations_.push_back((u32)running_.size() - 1);
    const u32 operation = free_operations_.back();
    free_operations_.pop_back();
    Operation &it = running_[operation];
    it.slot = slot, it.ranges.clear();
    it.reads = named(text, false, proxy), it.writes = named(text, true, proxy);
    return operation;
}
void Causality::covers(u32 operation, Shadow &shadow, u64 address, u32 bytes, bool write) {
    Operation &it = running_[operation];
    const Range range{&shadow, shadow.granule(address), shadow.granule(address + bytes - 1), write};
    const bool reads_global = !write && !shadow.fresh; // separate: these are many, and seldom part of a race
    const Actor actor = this->actor(it.slot, write ? it.writes : it.reads, reads_global ? 0 : operation);
    for (u64 g = range.first; g <= range.last; g++)
        check(shadow, g, actor);
    reading_global_ += reads_global;
    it.ranges.push_back(range);
}
void Causality::covers_shared(u32 operation, u32 block, u64 offset, u32 bytes, bool write) {
    covers(operation, shared_[block], SHARED_BASE + offset, bytes, write);
}
void Causality::covers_global(u32 operation, u64 address, u32 bytes, bool write) {
    if (Shadow *shadow = global(address))
        covers(operation, *shadow, address, bytes, write);
}
void Causality::finish(u32 operation, u32 slot) {
    Operation &it = running_[operation];
    const u32 now = stamp(slot);
    for (const Range &range : it.ranges)
        for (u64 g = range.first; g <= range.last; g++) {
            Cell &cell = range.shadow->cell(g);
            if (cell.list) {
                for (Past &past : lists_[cell.list])
                    if (past.slot == IN_FLIGHT && past.stamp == operation)
                        past.slot = (u16)slot, past.stamp = now;
            } else if (cell.writer == IN_FLIGHT && cell.written == operation) {
                cell.writer = (u16)slot, cell.written = now;
            } else if (!range.write && !range.shadow->fresh && slot <= threads_) {
                check(*range.shadow, g, actor(slot, it.reads, 0));
            }
        }
    for (const Range &range : it.ranges)
        reading_global_ -= !range.write && !range.shadow->fresh;
    it.ranges.clear();
    free_operations_.push_back(operation);
}
u32 Causality::agent(u64 object) {
    u32 &agent = agents_[object];
    if (!agent)
        agent = threads_ + 1 + (u32)agents_.size() - 1, stamps_.push_back(1);
    return agent;
}
void Causality::publish(u32 operation, u64 object, u64 key) {
    const u32 agent = this->agent(object);
    finish(operation, agent);
    const Known &before = keys_[key];
    Clock both;
    if (before)
        both = *before;
    else
        both.at.resize(threads_ + 1);
    both.at.resize(std::max<size_t>(both.at.size(), agent + 1));
    both.at[agent] = stamp(agent)++;
    floors(both);
    keys_[key] = std::make_shared<const Clock>(std::move(both));
}

void check_order(const Thread &t, u64 address, const Access &access) {
    t.causality->access(t, address, access);
}
void check_fence(const Thread &t, Scope scope, bool sequential) {
    t.causality->fence(t, scope, sequential);
}
