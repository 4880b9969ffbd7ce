// The rules of order.h for tensor memory (PTX ISA 9.7.16.6).
#include "order.h"

u32 Causality::issue_tensor(u32 slot, const TensorUse &use) {
    uses_.push_back(use);
    uses_.back().slot = slot, uses_.back().issued = stamp(slot);
    return (u32)uses_.size() - 1;
}
// Products of one accumulator and shape, and products after copies, run in the order in which one thread, or threads
// with fences between them, issue them (9.7.16.6.2); so do copies after products and copies, on which CUTLASS relies
// (sm100_blockscaled_mma_warpspecialized.hpp). Other uses must be complete: a warp has waited for its loads and stores,
// and a thread has seen the phase of the mbarrier of a commit. Each lane of a warp has to fence.
bool Causality::ordered(const TensorUse &past, const TensorUse &use) const {
    const u32 first = use.what == TensorUse::MOVE ? 1 + 32 * warp_of(use.slot) : use.slot;
    const u32 last = use.what == TensorUse::MOVE ? first + 31 : first;
    const auto fenced = [&](u32 slot, u32 stamp) {
        for (u32 own = first; own <= last; own++)
            if (!after_[own] || !after_[own]->shows_tensor(slot, stamp))
                return false;
        return true;
    };
    const bool pipelined = past.what != TensorUse::MOVE && use.what != TensorUse::MOVE &&
                           (past.what != use.what || past.accumulator == use.accumulator);
    if (pipelined && (past.slot == use.slot || fenced(past.slot, past.issued)))
        return true;
    if (past.agent || !past.done)
        return past.done && fenced(past.agent, past.done);
    const u32 warp = warp_of(past.slot);
    for (u32 lane = 0; lane < 32 && warp != warp_of(use.slot); lane++)
        if (!fenced(1 + 32 * warp + lane, past.done))
            return false;
    return true;
}
void Causality::covers_tensor(u32 number, u32 block, u32 lane, u32 column, u32 columns, bool write) {
    const TensorUse &use = uses_[number];
    std::vector<TensorCell> &cells = tensor_[block];
    cells.resize(8 * 512);
    for (u32 c = column; c < column + columns; c++) {
        TensorCell &cell = cells[lane / 16 * 512 + c];
        const auto race = [&](u32 past) {
            fault("race", "%.120s of thread %u%s, and then %.120s of thread %u, at lane %u, column %u, are not ordered",
                  uses_[past].text, (uses_[past].slot - 1) % launch_.threads, uses_[past].done ? "" : ", in flight",
                  use.text, (use.slot - 1) % launch_.threads, lane, c);
        };
        if (cell.writer && !ordered(uses_[cell.writer], use))
            race(cell.writer);
        if (!write) {
            std::erase_if(cell.readers, [&](u32 past) { return ordered(uses_[past], use); });
            cell.readers.push_back(number);
            continue;
        }
        for (u32 past : cell.readers)
            if (past != number && !ordered(uses_[past], use))
                race(past);
        cell.writer = number, cell.readers.clear();
    }
}
void Causality::finish_tensor(u32 use) {
    uses_[use].done = stamp(uses_[use].slot);
}
void Causality::fence_tensor(u32 slot, bool before) {
    if (!before) {
        after_[slot] = clocks_[slot];
        return;
    }
    Clock next = *clocks_[slot];
    next.tensor.resize(std::max<size_t>(next.tensor.size(), slot + 1));
    next.tensor[slot] = stamp(slot)++;
    clocks_[slot] = std::make_shared<const Clock>(std::move(next));
}
Known Causality::commit_tensor(u32 slot) {
    fence_tensor(slot, true);
    return clocks_[slot];
}
void Causality::publish_tensor(u32 slot, const std::vector<u32> &uses, const std::vector<u32> &operations,
                               const Known &before, const std::vector<u64> &keys, const std::vector<u64> &narrow) {
    const u32 agent = this->agent(key_of(Edge::TENSOR, 0, slot, 0)), now = stamp(agent);
    for (u32 use : uses)
        uses_[use].agent = agent, uses_[use].done = now;
    for (u32 operation : operations)
        finish(operation, agent);
    stamp(agent)++;
    const auto publish = [&](u64 key, Clock own) {
        Clock end;
        if (const Known &found = keys_[key])
            end = *found;
        own.at.resize(std::max<size_t>(own.at.size(), agent + 1));
        own.tensor.resize(std::max<size_t>(own.tensor.size(), agent + 1));
        own.at[agent] = own.tensor[agent] = now;
        merge(end, own), floors(end);
        keys_[key] = std::make_shared<const Clock>(std::move(end));
    };
    for (u64 key : keys)
        publish(key, *before);
    for (u64 key : narrow)
        publish(key, narrowed(*before));
}
void Causality::free_tensor(u32 slot, u32 block, u32 column, u32 columns) {
    if (tensor_[block].empty())
        return;
    const Clock &clock = *clocks_[slot];
    for (u32 lane = 0; lane < 8; lane++)
        for (u32 c = column; c < column + columns; c++) {
            TensorCell &cell = tensor_[block][lane * 512 + c];
            if (cell.writer)
                cell.readers.push_back(cell.writer);
            for (u32 past : cell.readers) {
                const TensorUse &use = uses_[past];
                const u32 warp = warp_of(use.slot);
                bool before = use.done && (!use.agent || clock.covers(use.agent, use.done));
                for (u32 i = 0; i < 32 && !use.agent && warp != warp_of(slot); i++)
                    before &= clock.covers(1 + 32 * warp + i, use.done);
                if (!before)
                    fault("race",
                          "%.120s of thread %u%s, at lane %u, column %u, is not ordered before its columns are freed",
                          use.text, (use.slot - 1) % launch_.threads, use.done ? "" : ", in flight", 16 * lane, c);
            }
            cell = {};
        }
}
