// Tensor memory (PTX ISA 9.7.16): its columns, moves between it and registers, and commits.
//
// Each resident block is taken to have a multiprocessor for itself, of whose columns other blocks may have any that it
// has not allocated: an allocation gets the first free columns, the last ones or others, by the order of the launch.
// Instructions of a pair of blocks that allocate or free columns wait for one another. Products and copies run when
// they are issued or, with `late`, when a thread waits for the mbarrier of a commit; loads and stores when their warp
// waits.
#pragma once
#include "mbarrier.h"
#include "order.h"
#include "products.h"
#include <deque>

constexpr u32 LANES = 128, COLUMNS = 512;
struct TensorMemory {
    u32 word[LANES][COLUMNS];
    bool written[LANES / 16][COLUMNS]; // or will be by instructions in flight
    bool allocated[COLUMNS];
    struct Columns {
        u32 first, count;
    };
    std::vector<Columns> allocations;
    u32 most = COLUMNS; // columns of the next allocation
    bool relinquished = false;
    u32 group = 0; // blocks of all instructions
    struct {       // a warp of the block that waits for the other block of its pair, or is done
        const Site *site = nullptr;
        u32 address, columns;
        bool done;
    } joint = {};
    struct Move { // a load or store of a warp, until it has waited
        Thread *warp;
        const Site *site;
        u32 address, use;
        std::vector<u32> values; // of a store, by lane
    };
    std::vector<Move> moves;
    struct Work { // a product, a copy or a commit, in the order of their issue by the block
        Thread *issuer;
        Umma umma; // of a copy: text, blocks and d
        Product form;
        std::vector<u32> tiles[2];  // by block of the pair: addresses of 16 bytes each, of A, then of B
        u32 use = 0, operation = 0; // in order.h
        bool executed = false, commit = false, copy = false;
        std::vector<std::pair<Block *, u32>> mbarriers = {}; // of a commit
        Known before = nullptr;
    };
    std::deque<Work> work;
    u32 commits = 0;
};

namespace {
TensorMemory &tensor_of(Block &block) {
    std::shared_ptr<TensorMemory> &tensor = block.traffic->tensor;
    if (!tensor)
        tensor = std::make_shared<TensorMemory>(), std::memset(tensor->word, 0xff, sizeof tensor->word);
    return *tensor;
}
Block &peer_of(const Block &block, const char *text) {
    if (block.launch->cluster % 2)
        fault("tensor", "%.120s: a cluster of %u blocks has no pairs", text, block.launch->cluster);
    return block.first[block.rank ^ 1];
}
void check_group(Block &block, u32 blocks, const char *text) {
    u32 &group = tensor_of(block).group;
    if (group && group != blocks)
        fault("tensor", "%.120s: other instructions of its kernel have .cta_group::%u", text, group);
    if (blocks == 2)
        peer_of(block, text);
    group = blocks;
}
// Lanes of tensor memory, 16 of every `step`, and columns; `how`: READS or WRITES, or both.
struct Touch {
    u32 column, columns;
    u8 how;
    u32 first = 0, last = LANES, step = 16;
};
void touch_tensor(Thread &t, Block &block, u32 use, const char *text, const Touch &at) {
    TensorMemory &tensor = tensor_of(block);
    for (u32 c = at.column; c < at.column + at.columns; c++)
        if (c >= COLUMNS || !tensor.allocated[c])
            fault("tensor", "%.120s: column %u is not allocated to block %u", text, c, block.index);
    for (u32 lane = at.first; lane < at.last; lane += at.step) {
        if (t.causality)
            t.causality->covers_tensor(use, block.resident, lane, at.column, at.columns, at.how & WRITES);
        for (u32 c = at.column; c < at.column + at.columns; c++) {
            bool &written = tensor.written[lane / 16][c];
            if (at.how & READS && !written)
                fault("uninitialised", "%.120s: nobody has written lane %u, column %u", text, lane, c);
            written |= (bool)(at.how & WRITES);
        }
    }
}

// ---- Columns (9.7.16.7)

bool changes_columns(const Site &site) {
    return site.what == Collective::ALLOCATE_TENSOR || site.what == Collective::FREE_TENSOR;
}
// The first of free columns in all of these blocks; COLUMNS if there are none.
u32 found_columns(Block *const (&blocks)[2], u32 count, const Launch &launch) {
    std::vector<u32> found;
    for (u32 first = 0; first + count <= COLUMNS; first += 32) {
        bool free = true;
        for (u32 c = first; c < first + count; c++)
            free &= !tensor_of(*blocks[0]).allocated[c] && !tensor_of(*blocks[1]).allocated[c];
        if (free)
            found.push_back(first);
    }
    if (found.empty())
        return COLUMNS;
    return found[launch.order > 1 ? launch.order * 7 % found.size() : launch.order ? found.size() - 1 : 0];
}
void allocate(Block &block, u32 first, u32 count) {
    TensorMemory &tensor = tensor_of(block);
    tensor.allocations.push_back({first, count}), tensor.most = count;
    for (u32 c = first; c < first + count; c++) {
        tensor.allocated[c] = true;
        for (auto &lanes : tensor.written)
            lanes[c] = false;
        for (auto &lane : tensor.word)
            lane[c] = ~0u;
    }
}
void release_columns(Thread &t, Block &block, Block &other, u32 address, u32 count, const char *text) {
    TensorMemory &tensor = tensor_of(block);
    const auto found = std::find_if(tensor.allocations.begin(), tensor.allocations.end(),
                                    [&](const auto &each) { return each.first == address && each.count == count; });
    if (found == tensor.allocations.end())
        fault("tensor", "%.120s: block %u has no allocation of %u columns at %#x", text, block.index, count, address);
    const auto check = [&](u32 column, u32 columns, const char *by) {
        if (column < address + count && address < column + columns)
            fault("in_flight", "%.120s: %.100s is in flight", text, by);
    };
    for (const TensorMemory::Move &each : tensor.moves)
        check(each.address & 0xffff, each.site->product->n, each.site->text);
    for (Block *owner : {&block, &other})
        for (const TensorMemory::Work &each : tensor_of(*owner).work)
            if (!each.commit)
                check(each.umma.d & 0xffff, each.copy ? 4 : each.form.n, each.umma.text);
    if (t.causality)
        t.causality->free_tensor(t.slot, block.resident, address, count);
    tensor.allocations.erase(found);
    std::fill_n(tensor.allocated + address, count, false);
}
// Allocate or free columns; false where a warp has to wait, for columns or for the other block of its pair.
bool exchange_columns(Thread *warp, const Site &site) {
    Block &block = *warp->block;
    TensorMemory &tensor = tensor_of(block);
    const bool allocates = site.what == Collective::ALLOCATE_TENSOR;
    const u32 count = (u32)warp->in[1];
    u32 address = (u32)warp->in[0];
    for (u32 lane = 1; lane < 32; lane++)
        if (warp[lane].in[0] != warp->in[0] || warp[lane].in[1] != warp->in[1])
            fault("invalid", "%s: lane %u has other operands", site.text, lane);
    if (count < 32 || count > COLUMNS || count & (count - 1))
        fault("tensor", "%s: %u columns", site.text, count);
    if (allocates && (tensor.relinquished || count > tensor.most))
        fault("tensor", "%s of %u columns, after %s", site.text, count,
              tensor.relinquished ? "relinquish_alloc_permit" : "an allocation of fewer");
    check_group(block, site.detail[0], site.text);
    Block &other = site.detail[0] == 2 ? peer_of(block, site.text) : block;
    auto &joint = tensor.joint;
    if (joint.site && joint.site != &site)
        return false; // another warp of this block is first
    if (!joint.site)
        joint = {&site, address, count, false};
    if (!joint.done) {
        auto &theirs = tensor_of(other).joint;
        if (!theirs.site || (theirs.done && &other != &block))
            return false;
        if (theirs.site->what != site.what || theirs.columns != count)
            fault("tensor", "%s of %u columns, where block %u executes %s of %u", site.text, count, other.index,
                  theirs.site->text, theirs.columns);
        if (allocates) {
            const u32 first = found_columns({&block, &other}, count, *block.launch);
            if (first == COLUMNS)
                return false;
            joint.address = theirs.address = first;
            allocate(block, first, count);
            if (&other != &block)
                allocate(other, first, count);
        }
        joint.done = theirs.done = true;
    }
    if (allocates) {
        const u64 to = warp->in[0];
        aligned_to(to, 4, "shared");
        stored<u32>(shared_at(*warp, to, 4, true), joint.address);
        in_order(*warp, to, *site.access);
    } else {
        release_columns(*warp, block, other, address, count, site.text);
    }
    joint.site = nullptr;
    return true;
}

// ---- Moves between tensor memory and registers (9.7.16.8)

// Call act(lane of the warp, number of its register, lane of tensor memory, column). `factors` are the columns of one
// repetition, of which a lane has one, or one or two of each of two rows.
template <class Act>
void each_register(const Product &shape, u32 address, Act act) {
    const u32 lane = address >> 16, column = address & 0xffff;
    for (u32 thread = 0; thread < 32; thread++)
        for (u32 i = 0; i < shape.sums; i++)
            if (shape.k == 32)
                act(thread, i, lane + thread, column + i);
            else if (shape.factors == 4)
                act(thread, i, lane + thread / 4 + i % 2 * 8, column + i / 2 * 4 + thread % 4);
            else
                act(thread, i, lane + thread / 4 + i / 2 % 2 * 8, column + i / 4 * 8 + thread % 4 * 2 + i % 2);
}
void execute(TensorMemory &tensor, const TensorMemory::Move &move) {
    const Product &shape = *move.site->product;
    each_register(shape, move.address, [&](u32 thread, u32 i, u32 lane, u32 column) {
        if (move.site->what == Collective::LOAD_TENSOR)
            register_of(move.warp[thread], shape.offsets[i]) = tensor.word[lane][column];
        else
            tensor.word[lane][column] = move.values[thread * shape.sums + i];
    });
}
void issue_move(Lanes &lanes, const Site &site) {
    Thread &t = *lanes[0];
    const Product &shape = *site.product;
    const bool loads = site.what == Collective::LOAD_TENSOR;
    const u32 address = (u32)t.in[0], lane = address >> 16, column = address & 0xffff, own = t.index / 32 % 4 * 32;
    for (const Thread *each : lanes)
        if (each->in[0] != t.in[0])
            fault("invalid", "%s: lane %u has another address", site.text, each->lane);
    if (lane % 16 || lane < own || lane + shape.k > own + 32)
        fault("tensor", "%s by warp %u, of %u lanes from %u on", site.text, t.index / 32, shape.k, lane);
    TensorMemory::Move move{&t, &site, address, 0, {}};
    if (t.causality)
        move.use = t.causality->issue_tensor(t.slot, {site.text, TensorUse::MOVE});
    touch_tensor(t, *t.block, move.use, site.text, {column, shape.n, loads ? READS : WRITES, lane, lane + shape.k});
    for (Thread *each : lanes) {
        for (u32 i = 0; i < shape.sets && loads; i++)
            if (Watched &watched = each->watched[shape.set[i]]; watched.sums++ || watched.factors)
                fault("in_flight", "%s: another instruction in flight uses its registers", site.text);
        for (u32 i = 0; i < shape.sums; i++)
            if (loads)
                register_of(*each, shape.offsets[i]) = 0xffbadbad; // until the warp has waited
            else
                move.values.push_back(register_of(*each, shape.offsets[i]));
    }
    TensorMemory &tensor = tensor_of(*t.block);
    if (!t.block->launch->late)
        execute(tensor, move);
    tensor.moves.push_back(std::move(move));
}
void await_moves(Thread &t, bool stores) {
    TensorMemory &tensor = tensor_of(*t.block);
    std::erase_if(tensor.moves, [&](const TensorMemory::Move &move) {
        if (move.warp != &t || stores != (move.site->what == Collective::STORE_TENSOR))
            return false;
        if (t.block->launch->late)
            execute(tensor, move);
        if (t.causality)
            t.causality->finish_tensor(move.use);
        for (u32 lane = 0; lane < 32 && !stores; lane++)
            for (u32 i = 0; i < move.site->product->sets; i++)
                t.block->threads[t.index + lane].watched[move.site->product->set[i]].sums--;
        return true;
    });
}
void in_tensor_memory(Lanes &lanes, const Site &site) {
    for (const Thread *each : lanes)
        if (each->apart)
            fault("divergent", "%s, where lanes of warp %u have left the barrier of their cluster one by one",
                  site.text, each->index / 32);
    switch (site.what) {
    case Collective::LAST_TENSOR:
        check_group(*lanes[0]->block, site.detail[0], site.text);
        tensor_of(*lanes[0]->block).relinquished = true;
        return;
    case Collective::LOAD_TENSOR:
    case Collective::STORE_TENSOR:
        return issue_move(lanes, site);
    case Collective::AWAIT_TENSOR:
        return await_moves(*lanes[0], site.detail[0]);
    default: // exchange_columns() has acted
        return;
    }
}
} // namespace

void fence_tensor(Thread &t, bool before) {
    if (t.causality)
        t.causality->fence_tensor(t.slot, before);
}
