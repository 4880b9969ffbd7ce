// A model of tensor memory: allocation, loads and fences (PTX ISA 9.7.16.7 to 9.7.16.11). Its instructions of different
// threads are ordered only where the first thread waits for its own (a load's wait; the commit of a product) and
// fences, both threads synchronise, and the second one fences: each thread has clocks as of its last fence.
#pragma once
#include "warpgroup.h"

namespace emulator {

constexpr u32 LANES = 128, COLUMNS = 512; // words of 32 bits
constexpr int POISON = 0xff;              // bytes of memory before a product, and of registers before a wait

static u32 &tensor_word(Block &block, u32 lane, u32 column) {
    return block.async.tensor.words[lane * COLUMNS + column];
}

// ---- order

// Whether instructions of tensor memory by a thread are ordered after what these clocks hold, but for the entry `own`.
static bool is_ordered(const Thread &thread, const Clocks &clocks, int own = -1) {
    for (size_t w = 0; w < clocks.size(); ++w)
        if (clocks[w] && (int)w != own && (thread.ordered.empty() || clocks[w] > thread.ordered[w]))
            return false;
    return true;
}
static bool is_complete(const Clocks &known, const Block &block, const TensorColumn &column) {
    return !column.product.number || (!known.empty() && known[places(block) + column.place] >= column.product.number);
}

void tensor_fence_before() {
    if (!async_state().warps.empty())
        for (TensorMove &each : warp_async().moves)
            if (each.waited && each.unfenced >> current->lane() & 1)
                each.unfenced ^= 1u << current->lane(), each.time = now();
}
void tensor_fence_after() {
    if (!async_state().warps.empty())
        current->ordered = warp_async().known;
}

// ---- allocation

// The rank in its cluster of the first block of a block's pair.
static int first_of_pair(const Block &block) {
    return rank_of(block) & ~1;
}
template <class Act>
static void each_block(const Block &block, int blocks, Site site, Act act) {
    for (int i = 0; i < blocks; ++i)
        act(blocks == 1 ? const_cast<Block &>(block) : peer(block, first_of_pair(block) + i, site));
}

// All lanes of a warp meet, of a pair those of a warp of each block with an equal `value`. The last one acts for all;
// then one lane of each warp ends the instruction.
template <class Act, class End>
static void act_together(Operation operation, int blocks, u32 value, Site site, Act act, End end) {
    use_blocks(blocks, site);
    prepare_async(*current->block);
    if (!meet(operation, site, ALL_LANES))
        return;
    TensorMeeting &own = async_state().tensor.meeting;
    if (!own.waiting.empty())
        invalid("a second warp of a block at an instruction of a pair", site);
    TensorMeeting &other =
        blocks == 1 ? own : peer(*current->block, rank_of(*current->block) ^ 1, site).async.tensor.meeting;
    if (blocks == 2 && other.waiting.empty()) {
        own.operation = operation, own.value = value, own.waiting.push_back(current);
        wait_at(operation, site);
    } else {
        if (blocks == 2 && (other.operation != operation || other.value != value))
            fault(DIVERGENT, "the blocks of a pair are at different instructions of tensor memory, one at %s line %d",
                  site.file, site.line);
        act();
        wake(other.waiting);
    }
    end();
    release_warp();
}

static void make_memory(Block &block) {
    TensorMemory &tensor = block.async.tensor;
    if (!tensor.columns.empty())
        return;
    tensor.columns.resize(COLUMNS), tensor.words.resize(LANES * COLUMNS);
    const bool alone = machine.tensor_blocks == 1;
    const TensorMemory &first = alone ? tensor : peer(block, first_of_pair(block), Site{"", 0}).async.tensor;
    tensor.mask = &first == &tensor ? COLUMNS / 2 + 32 * (next_random() % 8) : first.mask; // no kernel may expect 0
}

// The first free column of so many, or COLUMNS.
static u32 find_free(const TensorMemory &tensor, u32 columns) {
    for (u32 i = 0; i < COLUMNS; i += columns) {
        const u32 from = i ^ (tensor.mask & ~(columns - 1));
        u32 free = 0;
        while (free < columns && !tensor.columns[from + free].allocated)
            ++free;
        if (free == columns)
            return from;
    }
    return COLUMNS;
}

static void set_columns(Block &block, u32 from, u32 columns, bool allocated) {
    TensorMemory &tensor = block.async.tensor;
    for (u32 i = from; i < from + columns; ++i) {
        tensor.columns[i] = TensorColumn{};
        tensor.columns[i].allocated = allocated;
        tensor.columns[i].read = tensor.columns[i].stored = nothing_known(block);
    }
    for (u32 lane = 0; lane < LANES; ++lane)
        memset(&tensor_word(block, lane, from), POISON, columns * 4);
}

// Both blocks of a pair make the same allocations, and store the same address.
void tensor_alloc(int blocks, u32 columns, u32 to, Site site) {
    tick();
    if (columns < 32 || columns > COLUMNS || columns & (columns - 1))
        invalid("an allocation of other than 32, 64, 128, 256 or 512 columns", site);
    if (async_state().tensor.last)
        invalid("an allocation after the last one", site);
    const auto allocate = [&] {
        TensorMemory &tensor = async_state().tensor;
        each_block(*current->block, blocks, site, make_memory);
        u32 from;
        while ((from = find_free(tensor, columns)) == COLUMNS) {
            tensor.waiting.push_back(current);
            wait_at(TENSOR_ALLOC, site);
        }
        each_block(*current->block, blocks, site, [&](Block &block) {
            set_columns(block, from, columns, true);
            block.async.tensor.spans.push_back({from, columns});
            block.async.tensor.meeting.allocated = from;
        });
    };
    act_together(TENSOR_ALLOC, blocks, columns, site, allocate,
                 [&] { store_shared(to, &async_state().tensor.meeting.allocated, 4, site); });
}

void tensor_alloc_last(int blocks, Site site) {
    act_together(TENSOR_ALLOC, blocks, 0, site, [] {}, [] { async_state().tensor.last = true; });
}

// No product and no move of these columns is on its way; moves by this warp need only have been waited for.
static void check_unused(u32 from, u32 columns, Site site) {
    const Block &block = *current->block;
    const WarpAsync &own = warp_async();
    const int place = own_place();
    for (u32 i = from; i < from + columns; ++i) {
        const TensorColumn &column = block.async.tensor.columns[i];
        bool read = true;
        for (size_t w = 0; w < column.read.size(); ++w)
            read = read && ((int)w == place || (column.read[w] <= own.known[w] && column.stored[w] <= own.known[w]));
        for (const TensorMove &each : own.moves)
            read = read && (each.waited || i < each.column || i >= each.column + each.columns);
        if (!read || !is_complete(own.known, block, column))
            fault(RACE, "tensor_free at %s line %d is not ordered with the %s at line %d", site.file, site.line,
                  read ? "product or copy" : "move", read ? column.product.site.line : column.read_line);
    }
}

void tensor_free(int blocks, u32 memory, u32 columns, Site site) {
    tick();
    auto &spans = async_state().tensor.spans;
    size_t which = 0;
    while (which < spans.size() && spans[which] != std::make_pair(memory, columns))
        ++which;
    if (which == spans.size())
        fault(INVALID, "tensor_free at %s line %d of %u columns from %#x on, which were not allocated together",
              site.file, site.line, columns, memory);
    if (machine.request->races)
        check_unused(memory, columns, site);
    const auto release = [&] {
        each_block(*current->block, blocks, site, [&](Block &block) {
            TensorMemory &tensor = block.async.tensor;
            set_columns(block, memory, columns, false);
            tensor.spans.erase(tensor.spans.begin() + (long)which);
            wake(tensor.waiting);
        });
    };
    act_together(TENSOR_FREE, blocks, memory << 16 | columns, site, release, [] {});
}

// ---- loads and stores

constexpr u32 PIECE = 16, EVERY_PIECE = 0xff; // lanes of a move; a bit for each such piece

static void check_columns(const Block &block, u32 from, u32 columns, u32 written, const char *what, Site site) {
    const std::vector<TensorColumn> &all = block.async.tensor.columns;
    for (u32 i = from; i < from + columns; ++i) {
        if (i >= all.size() || !all[i].allocated)
            fault(OUT_OF_BOUNDS, "the %s at %s line %d of column %u of tensor memory, which is not allocated", what,
                  site.file, site.line, i);
        if (written & ~all[i].written)
            fault(UNINITIALISED, "the %s at %s line %d reads column %u of tensor memory, which nothing has written",
                  what, site.file, site.line, i);
    }
}

// A warp's own moves of the same words have been waited for, unless both load.
static void check_own_moves(const TensorMove &move) {
    for (const TensorMove &each : warp_async().moves)
        if (!each.waited && (each.stores || move.stores) && each.lane == move.lane &&
            each.column < move.column + move.columns && move.column < each.column + each.columns)
            fault(RACE, "the %s at %s line %d of columns of tensor memory before the %s at line %d is waited for",
                  move.stores ? "store" : "load", move.site.file, move.site.line, each.stores ? "store" : "load",
                  each.site.line);
}

// Products that write a column, for a store those that read it, and moves by other warps of these lanes are ordered
// before a lane's instruction.
static bool is_free(const Thread &thread, const Block &block, const TensorColumn &column, bool stores) {
    const auto ordered = [&](const Clocks &clocks, int place) {
        return !clocks[place] || (!thread.ordered.empty() && clocks[place] <= thread.ordered[place]);
    };
    if (!is_complete(thread.ordered, block, column))
        return false;
    for (int place = places(block); stores && place < 2 * places(block); ++place)
        if (!ordered(column.read, place))
            return false;
    for (size_t warp = current->warp() % 4; warp < block.async.warps.size(); warp += 4) {
        const int place = place_of(block, (int)warp);
        if (place != own_place() && (!ordered(column.stored, place) || (stores && !ordered(column.read, place))))
            return false;
    }
    return true;
}

static void check_move(const TensorMove &move) {
    const Block &block = *current->block;
    const Site site = move.site;
    const char *const what = move.stores ? "store" : "load";
    if (move.lane / WARP != (u32)current->warp() % 4 || move.lane % PIECE)
        fault(OUT_OF_BOUNDS,
              "a %s at %s line %d from lane %u of tensor memory by warp %d: it has lanes %d to %d, in "
              "halves",
              what, site.file, site.line, move.lane, current->warp(), current->warp() % 4 * 32,
              current->warp() % 4 * 32 + 31);
    check_columns(block, move.column, (u32)move.columns, move.stores ? 0 : 1u << move.lane / PIECE, what, site);
    if (!machine.request->races)
        return;
    check_own_moves(move);
    const Thread *threads = current - current->lane();
    for (u32 i = move.column; i < move.column + move.columns; ++i)
        for (int other = 0; other < WARP; ++other)
            if (const TensorColumn &column = block.async.tensor.columns[i];
                !is_free(threads[other], block, column, move.stores))
                fault(
                    RACE,
                    "the %s at %s line %d of column %u of tensor memory is not ordered with the product at line %d or "
                    "a move at line %d: lane %d has not waited for its commit or arrival and fenced after it",
                    what, site.file, site.line, i, column.product.site.line,
                    column.stored_line ? column.stored_line : column.read_line, other);
}

// The word of a lane's register `i`.
static u32 &moved_word(Block &block, const TensorMove &move, u32 lane, u32 i) {
    const u32 row = move.lane + lane / 4;
    if (move.shape == MOVE_256B)
        return tensor_word(block, row + i / 2 % 2 * 8, move.column + i / 4 * 8 + lane % 4 * 2 + i % 2);
    return tensor_word(block, row + i % 2 * 8, move.column + i / 2 * 4 + lane % 4);
}

static void store_words(Block &block, const TensorMove &move) {
    const u32 each = (u32)move.columns / 2;
    for (u32 lane = 0; lane < WARP; ++lane)
        for (u32 i = 0; i < each; ++i)
            moved_word(block, move, lane, i) = move.values[lane * each + i];
}

// With either delivery, registers have their values only once a load is waited for. Stores are made when they are
// issued or, with late delivery, when they are waited for.
static void move_words(u32 *d, int columns, bool stores, MoveShape shape, u32 address, Site site) {
    tick();
    const Operation operation = stores ? TENSOR_STORE : TENSOR_LOAD;
    Warp &warp = current_warp();
    warp.d[current->lane()] = d, warp.word[current->lane()] = address;
    if (!meet(operation, site, ALL_LANES))
        return;
    Block &block = *current->block;
    for (int i = 0; i < WARP; ++i)
        if (warp.word[i] != address)
            invalid("addresses of tensor memory that differ from lane to lane", site);
    prepare_async(block);
    TensorMove move{address >> 16, address & 0xffff, columns,   stores, shape, {}, {},
                    false,         ALL_LANES,        ALL_LANES, 0,      site};
    check_move(move);
    for (u32 i = move.column; i < move.column + columns; ++i) {
        TensorColumn &column = block.async.tensor.columns[i];
        (stores ? column.stored_line : column.read_line) = site.line;
        column.written |= (u32)stores << move.lane / PIECE;
    }
    note_move(block, move, own_place(), UNRELEASED);
    for (u32 lane = 0; lane < WARP; ++lane) {
        u32 *const registers = (u32 *)warp.d[lane];
        move.to[lane] = registers;
        for (u32 i = 0; i < (u32)columns / 2; ++i)
            move.values.push_back(stores ? registers[i] : moved_word(block, move, lane, i));
        if (!stores)
            memset(registers, POISON, columns * 2);
    }
    if (stores && machine.request->early)
        store_words(block, move);
    warp_async().moves.push_back(move);
    release_warp();
}

void tensor_load(u32 *d, int columns, u32 from, Site site) {
    move_words(d, columns, false, MOVE_256B, from, site);
}
void tensor_store(const u32 *d, int columns, MoveShape shape, u32 to, Site site) {
    move_words((u32 *)d, columns, true, shape, to, site);
}

static void end_load(const TensorMove &load) {
    const size_t each = load.values.size() / WARP;
    for (size_t i = 0; i < load.values.size(); ++i) {
        u32 &to = load.to[i / each][i % each];
        if (to != ~0u)
            fault(RACE, "a register that the load at %s line %d writes changed before it was waited for",
                  load.site.file, load.site.line);
        to = load.values[i];
    }
}

static void wait_for_moves(bool stores, Site site) {
    if (!meet(stores ? TENSOR_STORE : TENSOR_LOAD, site, ALL_LANES))
        return;
    prepare_async(*current->block);
    for (TensorMove &move : warp_async().moves) {
        if (move.waited || move.stores != stores)
            continue;
        if (!stores)
            end_load(move);
        else if (!machine.request->early)
            store_words(*current->block, move);
        move.waited = true;
    }
    release_warp();
}

void tensor_load_wait(Site site) {
    wait_for_moves(false, site);
}
void tensor_store_wait(Site site) {
    wait_for_moves(true, site);
}

} // namespace emulator
