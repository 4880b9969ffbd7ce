// A model of tensor stores, which copy boxes of shared memory to global memory. With early delivery a box is read when
// the store is issued, with late delivery when its thread waits for it. Until then no thread may write to the box;
// afterwards the thread counts as having read it just now, so that other accesses must be ordered after it. Stores see
// writes of threads to a box only after a proxy fence of these threads.
#pragma once
#include "tensor.h"

namespace emulator {

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

void proxy_fence() {
    for (u32 at : current->unfenced)
        --current->block->async.atoms[at].unfenced;
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
