// A model of tensor copies and stores (TMA) of boxes between global and shared memory, with a 128-byte swizzle there.
#pragma once
#include "mbarrier.h"

namespace emulator {

// A tensor map as the host encodes it: element [0, 0, 0, 0, 0] is at `base`; bytes from element to element along each
// axis but the first, extents, the box of a copy, and whether the copy rounds floats to tf32. A map of an image, with
// the axes (channel, column, row, image), also has the corners of its pixel box, relative to the first and the last
// column and row, and the steps between its pixels.
struct TensorMap {
    u64 base, stride[4];
    u32 extent[5], box[5];
    u32 element, rounded, magic;
    short lower[2], upper[2], step[2];
};
constexpr u32 TENSOR_MAP_MAGIC = 0x70616d74, PIXEL_MAP_MAGIC = 0x6c657870;

static bool is_of_pixels(const TensorMap &map) {
    return map.magic == PIXEL_MAP_MAGIC;
}

static Atom &atom_at(Block &block, u32 address) {
    return block.async.atoms[(address - SHARED_BASE) / ATOM];
}

// Rows of the box one after the other, 128 bytes each, their 16-byte chunks permuted by the row's place in its atom.
static u32 swizzled(u32 address) {
    return address ^ (address >> 7 & 7) << 4;
}

// The address of `count` elements from element `at` on in global memory; null where one is outside.
static unsigned char *element(const TensorCopy &copy, const int *at, u32 count, Access access = LOAD) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    u64 address = map.base + (u64)at[0] * map.element;
    bool inside = at[0] >= 0 && (u32)at[0] + count <= map.extent[0];
    for (int i = 1; i < 5; ++i) {
        inside = inside && at[i] >= 0 && (u32)at[i] < map.extent[i];
        address += (u64)at[i] * map.stride[i - 1];
    }
    return inside ? check_global(address, (int)(count * map.element), access, copy.site) : nullptr;
}

static int last_of_box(const TensorMap &map, int axis) {
    return (int)map.extent[1 + axis] - 1 + map.upper[axis];
}

// Rows of a box are along the second and the third axis of a tensor.
static u32 rows_of(const TensorMap &map) {
    return map.box[1] * map.box[2];
}

// Moves `at` from the first element of a copy's row to the first element of the next row, number `row`.
static void next_row(const TensorMap &map, int *at, u32 row) {
    if (!is_of_pixels(map)) {
        ++at[1];
        if (row % map.box[1] == 0)
            at[1] -= (int)map.box[1], ++at[2];
        return;
    }
    for (int axis = 0; axis < 2; ++axis) {
        at[1 + axis] += map.step[axis];
        if (at[1 + axis] <= last_of_box(map, axis))
            return;
        at[1 + axis] = map.lower[axis];
    }
    ++at[3];
}

// To the nearest, ties to even; infinities and NaNs are kept.
static void round_to_tf32(unsigned char *at, u32 bytes) {
    for (u32 i = 0; i < bytes; i += 4) {
        u32 bits;
        memcpy(&bits, at + i, 4);
        if ((bits & 0x7f800000) != 0x7f800000)
            bits += 0xfff + (bits >> 13 & 1);
        bits &= 0xffffe000u | ((bits & 0x7fffff) && (bits & 0x7f800000) == 0x7f800000 ? 0x1fffu : 0);
        memcpy(at + i, &bits, 4);
    }
}

static void place(unsigned char *to, const unsigned char *from, u32 bytes) {
    if (from)
        memcpy(to, from, bytes);
    else
        memset(to, 0, bytes);
}

static void deliver_row(Block &block, const TensorCopy &copy, u32 row, const int *first) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    const u32 each = 16 / map.element;
    for (u32 column = 0; column < map.box[0]; column += each) {
        const u32 where = swizzled(copy.to + row * 128 + column * map.element);
        unsigned char *to = block.shared + (where - SHARED_BASE);
        int at[5] = {first[0] + (int)column, first[1] + copy.moved[0], first[2] + copy.moved[1], first[3], first[4]};
        if (at[0] + (int)each <= (int)map.extent[0])
            place(to, element(copy, at, each), 16);
        else
            for (u32 i = 0; i < each; ++i, ++at[0])
                place(to + i * map.element, element(copy, at, 1), map.element);
        if (map.rounded)
            round_to_tf32(to, 16);
    }
}

static void deliver(Block &block, const TensorCopy &copy) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    int at[5];
    memcpy(at, copy.at, sizeof at);
    const u32 rows = rows_of(map);
    for (u32 row = 0; row < rows; next_row(map, at, ++row))
        deliver_row(block, copy, row, at);
    MBarrier &barrier = peer(block, copy.home, copy.site).async.barriers[copy.barrier];
    for (u32 at = copy.to; at < copy.to + rows * 128; at += ATOM)
        block.async.atoms[(at - SHARED_BASE) / ATOM].in_flight = false;
    announce(barrier, -128 * (long long)rows, copy.site);
    settle(barrier, copy.site);
}

// Completes one of the copies in flight. False where there is none.
static bool deliver_one() {
    for (Block &block : machine.blocks) {
        std::vector<TensorCopy> &queue = block.async.copies;
        if (queue.empty())
            continue;
        size_t which = machine.request->order == RANDOM ? next_random() % queue.size() : 0;
        TensorCopy copy = queue[which];
        queue.erase(queue.begin() + (long)which);
        Thread *before = current;
        current = before ? before : &block.threads[0]; // a fault needs a thread
        deliver(block, copy);
        current = before;
        return true;
    }
    return false;
}

static void check_is_map(const TensorMap &map, Site site) {
    if ((u64)&map % 64 || (map.magic != TENSOR_MAP_MAGIC && !is_of_pixels(map)))
        invalid("no tensor map", site);
}
void prefetch_map(const void *map, Site site) {
    check_is_map(*(const TensorMap *)map, site);
}

static void check_map(const TensorMap &map, const TensorCopy &copy) {
    const Site site = copy.site;
    check_is_map(map, site);
    if (copy.to % ATOM)
        fault(MISALIGNED,
              "a tensor copy at %s line %d to shared byte %u: with a 128-byte swizzle, tiles begin at multiples of "
              "1024 bytes",
              site.file, site.line, copy.to - SHARED_BASE);
    if (map.box[0] * map.element != 128 || map.box[1] > 256 || map.box[2] > 256 || map.base % 16 ||
        (map.stride[0] | map.stride[1] | map.stride[2] | map.stride[3]) % 16)
        invalid("a box that no tensor map can have", site);
    check_shared(copy.to + rows_of(map) * 128 - 16, 16, site);
}

// No product may still read the memory that the copy overwrites, and no other copy may be writing it. The only
// ordinary accesses that are allowed are loads and stores over an earlier copy that are ordered before: kernels use
// different memory for copies and for other loads and stores until the copies end.
static void claim(Block &block, const MBarrier &counting, TensorCopy &copy, u32 bytes) {
    for (u32 to = copy.to; to < copy.to + bytes; to += ATOM) {
        Atom &atom = atom_at(block, to);
        if (atom.barriers)
            invalid("a tensor copy over an mbarrier", copy.site);
        const bool apart = !atom.touched || (atom.filled && !atom.loaded && !atom.unfenced && all_known(atom.wrote));
        const bool ordered = !atom.in_flight && !atom.reading && apart && all_known(atom.read);
        if (machine.request->races && !ordered)
            fault(RACE, "the tensor copy at %s line %d to shared byte %u is not ordered with %s line %d",
                  copy.site.file, copy.site.line, to - SHARED_BASE,
                  !apart           ? "the ordinary access of"
                  : atom.in_flight ? "the copy of"
                                   : "the product, or load, of",
                  !apart           ? atom.touched
                  : atom.in_flight ? atom.line
                                   : atom.read_line);
        atom.in_flight = true, atom.filled = true, atom.line = copy.site.line;
        atom.barrier = copy.barrier, atom.phase = counting.phase, atom.home = copy.home;
        atom.read = atom.wrote = nothing_known(block);
        atom.touched = 0;
    }
}

// The first pixel is in the box, and taps follow it: the instruction has 8 bits for each distance.
static void check_pixels(const TensorMap &map, const TensorCopy &copy) {
    for (int axis = 0; axis < 2; ++axis) {
        const int at = copy.at[1 + axis], from = map.lower[axis], moved = copy.moved[axis];
        if (at < from || at > last_of_box(map, axis) || (at - from) % map.step[axis])
            invalid("a tensor copy from a pixel outside of its box", copy.site);
        if (moved < 0 || moved > 255)
            invalid("a tensor copy of pixels that are moved by less than 0 or more than 255", copy.site);
    }
}

// To one block: an mbarrier of the block `home` counts the bytes.
static void request_for(Block &block, Block &home, TensorCopy copy, u32 address) {
    const MBarrier &barrier = find_mbarrier(home.async, address, copy.site);
    copy.barrier = (u32)(&barrier - home.async.barriers.data());
    copy.home = home.index % machine.request->cluster;
    claim(block, barrier, copy, rows_of(*(const TensorMap *)copy.map) * 128);
    if (machine.request->early)
        deliver(block, copy);
    else
        block.async.copies.push_back(copy);
}

static void request(const TensorCopy &copy, u32 barrier, u32 blocks, bool pixels) {
    const TensorMap &map = *(const TensorMap *)copy.map;
    check_launched(copy.site);
    check_map(map, copy);
    if (is_of_pixels(map) != pixels)
        invalid("a tensor copy by a map of the other kind", copy.site);
    if (pixels)
        check_pixels(map, copy);
    count(TENSOR_COPIES) += 1, count(COPY_1 + 4) += rows_of(map) * 8;
    const bool of_pair = blocks & OF_PAIR;
    if (of_pair)
        use_blocks(2, copy.site);
    const int own = rank_of(*current->block), first = (int)(blocks / FIRST);
    if (of_pair && blocks & ONLY_HERE && first / 2 != own / 2)
        invalid("a tensor copy whose mbarrier is in another pair", copy.site);
    const u32 to = blocks & ONLY_HERE ? 1u << own : blocks & (ONLY_HERE - 1);
    if (!to || to >> machine.request->cluster)
        invalid("a tensor copy for no block, or for blocks that the cluster does not have", copy.site);
    for (int rank = 0; to >> rank; ++rank)
        if (to >> rank & 1) {
            Block &there = peer(*current->block, rank, copy.site);
            Block &home = of_pair ? peer(there, (rank & ~1) | (first & 1), copy.site) : there;
            request_for(there, home, copy, barrier);
        }
}

void copy_tensor(u32 to, const void *map, u32 barrier, const int *at, u32 blocks, Site site) {
    tick();
    TensorCopy copy{to, map, {at[0], at[1], at[2], at[3], at[4]}, {0, 0}, 0, 0, site};
    request(copy, barrier, blocks, false);
}

void copy_pixels(u32 to, const void *map, u32 barrier, const int *at, const int *moved, u32 blocks, Site site) {
    tick();
    TensorCopy copy{to, map, {at[0], at[1], at[2], at[3], 0}, {moved[0], moved[1]}, 0, 0, site};
    request(copy, barrier, blocks, true);
}

// ---- stores
//
// They copy boxes of shared memory to global memory. With early delivery a box is read when
// the store is issued, with late delivery when its thread waits for it. Until then no thread may write to the box;
// afterwards the thread counts as having read it just now, so that other accesses must be ordered after it. Stores see
// writes of threads to a box only after a proxy fence of these threads.

// An ordinary access writes.
void change_atoms(u32 address, int bytes, int line) {
    std::vector<Atom> &atoms = current->block->async.atoms;
    if (atoms.empty())
        return;
    for (u32 at = (address - SHARED_BASE) / ATOM; at <= (address + bytes - 1 - SHARED_BASE) / ATOM; ++at) {
        if (atoms[at].leaving)
            fault(RACE, "the write at line %d of shared byte %u is not ordered with a tensor store on its way", line,
                  address - SHARED_BASE);
        bool known = false;
        for (u32 each : current->unfenced)
            known = known || each == at;
        if (!known)
            current->unfenced.push_back(at), ++atoms[at].unfenced;
        if (atoms[at].filled) {
            atoms[at].wrote[own_place()] = UNRELEASED;
            note_access(atoms[at], true, 1u << current->lane());
        }
    }
}

// Products may read what a thread has stored before, also where no copy has filled it: mbarriers then order them.
void proxy_fence() {
    for (u32 at : current->unfenced) {
        Atom &atom = current->block->async.atoms[at];
        --atom.unfenced;
        if (atom.filled)
            continue;
        if (atom.wrote.empty())
            atom.read = atom.wrote = nothing_known(*current->block);
        atom.wrote[own_place()] = UNRELEASED;
        note_access(atom, true, 1u << current->lane());
    }
    current->unfenced.clear();
}

static TensorCopy as_copy(const TensorStore &store) {
    TensorCopy copy{store.from, store.map, {}, {0, 0}, 0, 0, store.site};
    memcpy(copy.at, store.at, sizeof copy.at);
    return copy;
}

template <class Act>
static void each_atom_of(const TensorStore &store, Act act) {
    for (u32 at = store.from; at < store.from + ((const TensorMap *)store.map)->box[1] * 128; at += ATOM)
        act(atom_at(*current->block, at));
}

// The part of the box inside the tensor.
static void execute(const TensorStore &store) {
    const TensorMap &map = *(const TensorMap *)store.map;
    const TensorCopy copy = as_copy(store);
    const u32 each = 16 / map.element;
    for (u32 row = 0; row < map.box[1]; ++row)
        for (u32 column = 0; column < map.box[0]; ++column) {
            int at[5] = {store.at[0] + (int)column, store.at[1] + (int)row, store.at[2], store.at[3], store.at[4]};
            const bool whole = column % each == 0 && at[0] + each <= map.extent[0];
            const u32 where = swizzled(store.from + row * 128 + column * map.element);
            if (unsigned char *to = element(copy, at, whole ? each : 1, STORE))
                memcpy(to, current->block->shared + (where - SHARED_BASE), (whole ? each : 1) * map.element);
            column += whole ? each - 1 : 0;
        }
}

void store_tensor(const void *map, u32 from, const int *at, Site site) {
    tick();
    check_launched(site);
    TensorStore store{from, map, {at[0], at[1], at[2], at[3], at[4]}, site};
    const TensorMap &described = *(const TensorMap *)map;
    check_map(described, as_copy(store));
    if (is_of_pixels(described))
        invalid("a tensor store by a map of pixels", site);
    if (machine.request->races)
        shadow_read(from, (int)described.box[1] * 128, false, site.line);
    each_atom_of(store, [&](Atom &atom) {
        if (machine.request->races && atom.unfenced)
            fault(RACE, "the tensor store at %s line %d reads what threads wrote without a proxy fence", site.file,
                  site.line);
        ++atom.leaving;
    });
    count(TENSOR_STORES) += 1, count(GLOBAL_STORE_1 + 4) += described.box[1] * 8;
    if (machine.request->early)
        execute(store);
    current->stores.push_back(store);
}

void store_tensor_commit() {
    commit(current->store_groups, current->stores.size());
}

static void end_store(const TensorStore &store) {
    if (!machine.request->early)
        execute(store);
    each_atom_of(store, [](Atom &atom) { --atom.leaving; });
    if (!machine.request->races)
        return;
    const u32 bytes = ((const TensorMap *)store.map)->box[1] * 128;
    Shadow &shadow = current->block->shadow;
    for (u32 i = (store.from - SHARED_BASE) >> shadow.log2; i < (store.from - SHARED_BASE + bytes) >> shadow.log2; ++i)
        note_read(shadow.cells[i], now(), false, store.site.line);
}

void store_tensor_wait(int groups) {
    tick();
    Thread &thread = *current;
    while ((int)thread.store_groups.size() > groups) {
        const u32 count = thread.store_groups.front();
        thread.store_groups.erase(thread.store_groups.begin());
        for (u32 i = 0; i < count; ++i)
            end_store(thread.stores[i]);
        thread.stores.erase(thread.stores.begin(), thread.stores.begin() + count);
    }
}

static void check_stores_end() {
    if (!current->stores.empty())
        fault(RACE, "the thread ends while the tensor store of line %d is on its way", current->stores[0].site.line);
}

} // namespace emulator
